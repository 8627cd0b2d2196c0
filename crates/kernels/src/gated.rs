//! An MLP's gate, forward and backward.

use burn::tensor::{Tensor, activation};

use crate::{
    Compute, cpu,
    flex::{numbers, tensor},
};

/// Activation of the MLP's gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// GELU, approximated by a hyperbolic tangent.
    GeluTanh,
}

/// Computes `activation(gate) · up`, `[tokens, width]`, rounded to the matmul precision. `gate_up`,
/// `[tokens, 2 · width]`, holds the two concatenated.
pub fn gated(gate_up: Tensor<2>, activation: Activation, compute: Compute) -> Tensor<2> {
    on_gpu!(gated::apply(&gate_up, activation, compute));
    let [tokens, both] = gate_up.dims();
    let y = match numbers(&gate_up) {
        Some(numbers) => {
            tensor(cpu::gated::apply(&numbers, both / 2, activation), [tokens, both / 2])
        }
        None => plain(gate_up, activation),
    };
    y.cast(compute.dtype())
}

/// Computes the result of [`gated`] again, and the gradient of `gate_up`, given `d`, that of the result. Both are
/// rounded to the matmul precision.
pub fn gated_backward(
    gate_up: Tensor<2>,
    d: Tensor<2>,
    activation: Activation,
    compute: Compute,
) -> [Tensor<2>; 2] {
    on_gpu!(gated::backward(&gate_up, &d, activation, compute));

    let both = match (numbers(&gate_up), numbers(&d)) {
        (Some(numbers_of_both), Some(numbers_of_d)) => {
            let wide = gate_up.dims();
            let narrow = d.dims();
            let [inner, d_gate_up] =
                cpu::gated::backward(&numbers_of_both, &numbers_of_d, narrow[1], activation);
            [tensor(inner, narrow), tensor(d_gate_up, wide)]
        }
        _ => plain_backward(gate_up, d, activation),
    };
    both.map(|x| x.cast(compute.dtype()))
}

pub(crate) fn plain(gate_up: Tensor<2>, activation: Activation) -> Tensor<2> {
    let (gate, up) = halves(gate_up);
    match activation {
        Activation::Silu => activation::silu(gate) * up,
        Activation::GeluTanh => activation::gelu_approximate(gate) * up,
    }
}

pub(crate) fn plain_backward(
    gate_up: Tensor<2>,
    d: Tensor<2>,
    activation: Activation,
) -> [Tensor<2>; 2] {
    let (gate, up) = halves(gate_up);

    let (activated, slope) = match activation {
        // The result is x · σ, and its derivative is σ · (1 + x · (1 − σ)).
        Activation::Silu => {
            let share = activation::sigmoid(gate.clone());

            let activated = gate * share.clone();
            (activated.clone(), share.clone() + activated.clone() - activated * share)
        }
        // The result is ½x · (1 + t) with t = tanh(c · (x + ax³)); t' = (1 − t²) · c · (1 + 3ax²).
        Activation::GeluTanh => {
            let c = (2.0 / std::f64::consts::PI).sqrt();
            let a = 0.044_715;
            let square = gate.clone().square();
            let bent =
                (square.clone().mul_scalar(a).add_scalar(1.0) * gate.clone()).mul_scalar(c).tanh();
            let half = bent.clone().add_scalar(1.0).mul_scalar(0.5);

            let inner = square.mul_scalar(3.0 * a).add_scalar(1.0).mul_scalar(0.5 * c);
            let rest = bent.square().neg().add_scalar(1.0) * inner * gate.clone();
            (gate * half.clone(), half + rest)
        }
    };

    let inner = activated.clone() * up.clone();
    [inner, Tensor::cat(vec![d.clone() * up * slope, d * activated], 1)]
}

fn halves(x: Tensor<2>) -> (Tensor<2>, Tensor<2>) {
    let width = x.dims()[1] / 2;
    (x.clone().narrow(1, 0, width), x.narrow(1, width, width))
}
