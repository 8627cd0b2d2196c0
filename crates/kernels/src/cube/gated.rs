//! An MLP's gate on GPUs, forward and backward.

use super::*;
use crate::{Activation, Compute};

/// Computes `activation(gate) · up` in the matmul precision. `gate_up`, `[rows, 2 · width]`, holds the two
/// concatenated.
pub(crate) fn apply(
    gate_up: &Tensor<2>,
    activation: Activation,
    compute: Compute,
) -> Option<Tensor<2>> {
    let [rows, both] = gate_up.dims();
    let gate_up = wide(gate_up)?;
    let y = empty(&gate_up, [rows, both / 2], products(compute));

    let at_once = at_once(both / 2);
    gated::launch(
        &gate_up.client.clone(),
        units(count(&y) / at_once),
        dim(),
        at_once,
        gate_up.into_buffer_arg(),
        y.clone().into_buffer_arg(),
        both / 2 / at_once,
        activation == Activation::Silu,
        format(&y),
    );
    Some(tensor(y))
}

/// Computes the result of [`apply`] again, and the gradient of `gate_up`, given that of the result. Both are in the
/// matmul precision.
pub(crate) fn backward(
    gate_up: &Tensor<2>,
    d: &Tensor<2>,
    activation: Activation,
    compute: Compute,
) -> Option<[Tensor<2>; 2]> {
    let [rows, width] = d.dims();
    let gate_up = wide(gate_up)?;
    let d = wide(d)?;

    let inner = empty(&d, [rows, width], products(compute));
    let d_gate_up = empty(&d, [rows, 2 * width], products(compute));

    let at_once = at_once(width);
    gated_backward::launch(
        &d.client.clone(),
        units(rows * width / at_once),
        dim(),
        at_once,
        gate_up.into_buffer_arg(),
        d.into_buffer_arg(),
        inner.clone().into_buffer_arg(),
        d_gate_up.clone().into_buffer_arg(),
        width / at_once,
        activation == Activation::Silu,
        format(&inner),
    );

    Some([tensor(inner), tensor(d_gate_up)])
}

/// Returns how many neighbours a unit reads together, in rows of a width.
fn at_once(width: usize) -> usize {
    if width.is_multiple_of(4) { 4 } else { 1 }
}

#[cube(launch)]
fn gated<Y: Float, N: Size>(
    gate_up: &[Vector<f32, N>],
    y: &mut [Vector<Y, N>],
    width: usize,
    #[comptime] silu: bool,
    #[define(Y)] _format: ElemType,
) {
    if ABSOLUTE_POS < y.len() {
        let at = ABSOLUTE_POS / width * 2 * width + ABSOLUTE_POS % width;
        let (gates, ups) = (gate_up[at], gate_up[at + width]);
        let mut numbers = Vector::<Y, N>::empty();
        #[unroll]
        for index in 0..gates.vector_size() {
            let (activated, _) = activated(gates.extract(index), silu);
            numbers.insert(index, Y::cast_from(activated * ups.extract(index)));
        }
        y[ABSOLUTE_POS] = numbers;
    }
}

#[cube(launch)]
fn gated_backward<Y: Float, N: Size>(
    gate_up: &[Vector<f32, N>],
    d: &[Vector<f32, N>],
    inner: &mut [Vector<Y, N>],
    d_gate_up: &mut [Vector<Y, N>],
    width: usize,
    #[comptime] silu: bool,
    #[define(Y)] _format: ElemType,
) {
    if ABSOLUTE_POS < d.len() {
        let at = ABSOLUTE_POS / width * 2 * width + ABSOLUTE_POS % width;
        let (gates, ups, ds) = (gate_up[at], gate_up[at + width], d[ABSOLUTE_POS]);

        let mut numbers = Vector::<Y, N>::empty();
        let mut d_gates = Vector::<Y, N>::empty();
        let mut d_ups = Vector::<Y, N>::empty();

        #[unroll]
        for index in 0..gates.vector_size() {
            let (activated, slope) = activated(gates.extract(index), silu);
            let (up, d) = (ups.extract(index), ds.extract(index));
            numbers.insert(index, Y::cast_from(activated * up));
            d_gates.insert(index, Y::cast_from(d * up * slope));
            d_ups.insert(index, Y::cast_from(d * activated));
        }

        inner[ABSOLUTE_POS] = numbers;
        d_gate_up[at] = d_gates;
        d_gate_up[at + width] = d_ups;
    }
}

/// Computes the activation of a number, and its slope there.
#[cube]
fn activated(x: f32, #[comptime] silu: bool) -> (f32, f32) {
    if silu {
        let share = 1.0 / (1.0 + (-x).exp());
        let y = x * share;
        (y, share + y - y * share)
    } else {
        let c = 0.797_884_6_f32;
        let a = 0.044_715_f32;
        // Beyond these bounds, a hyperbolic tangent is 1 to the last bit, and some devices return NaN.
        let t = clamp(c * (x + a * x * x * x), -15.0, 15.0).tanh();
        let half = 0.5 * (1.0 + t);
        (x * half, half + x * 0.5 * c * (1.0 - t * t) * (1.0 + 3.0 * a * x * x))
    }
}
