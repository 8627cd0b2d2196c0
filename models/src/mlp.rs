//! The sublayer that every token goes through by itself: a gated MLP, or experts.

use burn::tensor::Tensor;
use firebrick_kernels as ops;

use crate::{
    context::DecoderContext, experts::Experts, gradient::GradientSum, projection::Projection,
};

/// Sublayer that every token goes through by itself, without its pre-norm.
#[derive(Clone, Copy)]
pub(crate) enum Mlp<'a> {
    Dense { gate_up: &'a Projection, down: &'a Projection },
    Experts(&'a Experts),
}

/// What a pass saves of an MLP.
#[derive(Clone)]
pub(crate) enum SavedMlp {
    /// Gate and up.
    GateUp(Tensor<2>),
    /// Input of the experts; the rest is recomputed.
    Input(Tensor<2>),
}

impl Mlp<'_> {
    /// Computes the first matmul, gate and up, or saves the input for experts.
    pub(crate) fn gate_up(self, normed: Tensor<2>, context: &DecoderContext) -> SavedMlp {
        match self {
            Mlp::Dense { gate_up, .. } => {
                SavedMlp::GateUp(gate_up.forward(normed, None, context.compute))
            }
            Mlp::Experts(_) => SavedMlp::Input(normed),
        }
    }

    /// Computes the activation and the projection down, and adds the result to `onto`.
    pub(crate) fn down(
        self,
        saved: SavedMlp,
        onto: Option<Tensor<2>>,
        context: &DecoderContext,
    ) -> Tensor<2> {
        match (self, saved) {
            (Mlp::Dense { down, .. }, SavedMlp::GateUp(both)) => {
                let inner = ops::gated(both, context.activation, context.compute);
                down.forward(inner, onto, context.compute)
            }

            (Mlp::Experts(experts), SavedMlp::Input(x)) => {
                let y = experts.forward(x, context);
                match onto {
                    Some(onto) => onto + y,
                    None => y,
                }
            }
            _ => unreachable!("a layer keeps what it is made of"),
        }
    }

    /// Computes the gradient of `normed`, the MLP's input, given that of its output. The gradients of the parameters
    /// are added to `sum`. `plain` is the copy without autodiff.
    pub(crate) fn backward(
        self,
        plain: Mlp<'_>,
        normed: &Tensor<2>,
        saved: SavedMlp,
        d_y: Tensor<2>,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> Tensor<2> {
        let compute = context.compute;
        match (self, plain, saved) {
            (Mlp::Dense { gate_up, down }, _, SavedMlp::GateUp(both)) => {
                // Down first, because its gradient is backpropagated through the activation to gate and up.
                let upstream = down.upstream(d_y, compute);
                let d_inner = down.backward_input(&upstream, compute);
                let [inner, d_both] =
                    ops::gated_backward(both, d_inner, context.activation, compute);
                down.backward_weights(&inner, &upstream, compute, sum);
                // Freed before the backward pass of gate and up, which needs memory too.
                drop((inner, upstream));
                gate_up.backward(normed, d_both, compute, sum)
            }

            (Mlp::Experts(experts), Mlp::Experts(plain), _) => {
                experts.backward(plain, normed, d_y, context, sum)
            }
            _ => unreachable!("a layer keeps what it is made of"),
        }
    }
}
