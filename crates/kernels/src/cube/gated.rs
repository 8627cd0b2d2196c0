//! The gate of an MLP on GPUs, forward and backward.

use super::*;
use crate::{Activation, Compute};

/// Computes `activation(gate) · up` in the format of products. `gate_up`, `[rows, 2 · width]`, has the two side by
/// side.
pub(crate) fn apply(
    gate_up: &Tensor<2>,
    activation: Activation,
    compute: Compute,
) -> Option<Tensor<2>> {
    let [rows, both] = gate_up.dims();
    let gate_up = wide(gate_up)?;
    let y = empty(&gate_up, [rows, both / 2], products(compute));
    gated::launch(
        &gate_up.client.clone(),
        units(count(&y)),
        dim(),
        gate_up.into_buffer_arg(),
        y.clone().into_buffer_arg(),
        both / 2,
        activation == Activation::Silu,
        format(&y),
    );
    Some(tensor(y))
}

/// Computes the result of [`apply`] once more, and the gradient of `gate_up`, given that of the result. Both are
/// in the format of products.
pub(crate) fn back(
    gate_up: &Tensor<2>,
    d: &Tensor<2>,
    activation: Activation,
    compute: Compute,
) -> Option<[Tensor<2>; 2]> {
    let [rows, width] = d.dims();
    let (gate_up, d) = (wide(gate_up)?, wide(d)?);
    let inner = empty(&d, [rows, width], products(compute));
    let d_gate_up = empty(&d, [rows, 2 * width], products(compute));
    gated_back::launch(
        &d.client.clone(),
        units(rows * width),
        dim(),
        gate_up.into_buffer_arg(),
        d.into_buffer_arg(),
        inner.clone().into_buffer_arg(),
        d_gate_up.clone().into_buffer_arg(),
        width,
        activation == Activation::Silu,
        format(&inner),
    );
    Some([tensor(inner), tensor(d_gate_up)])
}

#[cube(launch)]
fn gated<Y: Float>(
    gate_up: &[f32],
    y: &mut [Y],
    width: usize,
    #[comptime] silu: bool,
    #[define(Y)] _format: ElemType,
) {
    if ABSOLUTE_POS < y.len() {
        let at = ABSOLUTE_POS / width * 2 * width + ABSOLUTE_POS % width;
        let (activated, _) = activated(gate_up[at], silu);
        y[ABSOLUTE_POS] = Y::cast_from(activated * gate_up[at + width]);
    }
}

#[cube(launch)]
fn gated_back<Y: Float>(
    gate_up: &[f32],
    d: &[f32],
    inner: &mut [Y],
    d_gate_up: &mut [Y],
    width: usize,
    #[comptime] silu: bool,
    #[define(Y)] _format: ElemType,
) {
    if ABSOLUTE_POS < d.len() {
        let at = ABSOLUTE_POS / width * 2 * width + ABSOLUTE_POS % width;
        let (activated, slope) = activated(gate_up[at], silu);
        let (up, d) = (gate_up[at + width], d[ABSOLUTE_POS]);
        inner[ABSOLUTE_POS] = Y::cast_from(activated * up);
        d_gate_up[at] = Y::cast_from(d * up * slope);
        d_gate_up[at + width] = Y::cast_from(d * activated);
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
        // Beyond these bounds a hyperbolic tangent is 1 to the last bit, and some devices return no number.
        let t = clamp(c * (x + a * x * x * x), -15.0, 15.0).tanh();
        let half = 0.5 * (1.0 + t);
        (x * half, half + x * 0.5 * c * (1.0 - t * t) * (1.0 + 3.0 * a * x * x))
    }
}
