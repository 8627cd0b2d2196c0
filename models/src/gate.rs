//! What an MLP, or an expert, computes between its two projections: in most families, gate and up multiplied.

use burn::tensor::{DType, Tensor, activation::relu};
use firebrick_kernels::{self as ops, Activation};

use crate::{config::SwigluClamp, context::DecoderContext};

/// Computes the input of the projection down, given what the projection before it computed: gate and up, or up alone.
pub(crate) fn inner(both: Tensor<2>, context: &DecoderContext) -> Tensor<2> {
    if let Some(clamp) = context.swiglu_clamp {
        return ops::gated(clamp.of(both), Activation::Silu, context.compute);
    }
    if !context.squared_relu {
        return ops::gated(both, context.activation, context.compute);
    }
    relu(both.cast(DType::F32)).square().cast(context.compute.dtype())
}

/// Computes [`inner`] again, and the gradient of its input, given that of its result.
pub(crate) fn inner_backward(
    both: Tensor<2>,
    d: Tensor<2>,
    context: &DecoderContext,
) -> [Tensor<2>; 2] {
    if let Some(clamp) = context.swiglu_clamp {
        let clamped = clamp.of(both.clone());
        let [inner, d] = ops::gated_backward(clamped, d, Activation::Silu, context.compute);
        return [inner, clamp.backward(both, d)];
    }
    if !context.squared_relu {
        return ops::gated_backward(both, d, context.activation, context.compute);
    }
    let positive = relu(both.cast(DType::F32));
    let d = positive.clone().mul_scalar(2.0) * d.cast(DType::F32);
    [positive.square(), d].map(|x| x.cast(context.compute.dtype()))
}

/// Gate · sigmoid(slope · gate) is SiLU(slope · gate) / slope, so a gated MLP computes the rest, if it gets another gate
/// and up.
impl SwigluClamp {
    /// Computes that gate and up, side by side as gate and up are.
    fn of(self, both: Tensor<2>) -> Tensor<2> {
        let [gate, up] = halves(both);
        let gate = gate.clamp_max(self.limit).mul_scalar(self.slope);
        let up = up.clamp(-self.limit, self.limit).add_scalar(1.0).div_scalar(self.slope);
        Tensor::cat(vec![gate, up], 1)
    }

    /// Computes the gradient of gate and up, given that of what [`SwigluClamp::of`] makes of them.
    fn backward(self, both: Tensor<2>, d: Tensor<2>) -> Tensor<2> {
        let [gate, up] = halves(both);
        let [d_gate, d_up] = halves(d);
        let d_gate = d_gate.mul_scalar(self.slope).mask_fill(gate.greater_elem(self.limit), 0.0);
        let d_up = d_up.div_scalar(self.slope);
        let d_up = d_up.mask_fill(up.abs().greater_elem(self.limit), 0.0);
        Tensor::cat(vec![d_gate, d_up], 1)
    }
}

fn halves(x: Tensor<2>) -> [Tensor<2>; 2] {
    let width = x.dims()[1] / 2;
    [x.clone().narrow(1, 0, width), x.narrow(1, width, width)]
}
