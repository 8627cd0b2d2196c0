//! The sublayer that every token goes through by itself: an MLP, which has a gate in most families, or experts.

use std::ops::Range;

use burn::tensor::Tensor;

use crate::{
    context::{DecoderContext, token_slice},
    experts::Experts,
    gate::{inner, inner_backward},
    gradient::GradientSum,
    projection::Projection,
};

/// Sublayer that every token goes through by itself, without its pre-norm.
#[derive(Clone, Copy)]
pub(crate) enum Mlp<'a> {
    Dense { gate_up: &'a Projection, down: &'a Projection },
    Experts(&'a Experts),
}

/// What a pass saves of an MLP.
#[derive(Clone)]
#[allow(clippy::large_enum_variant, reason = "one of it is there at a time")]
pub(crate) enum SavedMlp {
    /// Gate and up, or up alone.
    GateUp(Tensor<2>),
    /// Input of the experts; the rest is recomputed. Its second part is 0 at padding, `[tokens, 1]`; `None` if there is
    /// no padding.
    Input(Tensor<2>, Option<Tensor<2>>),
}

impl Mlp<'_> {
    /// Computes the first matmul, gate and up, or saves the input for experts. `normed` is of the tokens `range`.
    pub(crate) fn gate_up(
        self,
        normed: Tensor<2>,
        range: &Range<usize>,
        context: &DecoderContext,
    ) -> SavedMlp {
        match self {
            Mlp::Dense { gate_up, .. } => {
                SavedMlp::GateUp(gate_up.forward(normed, None, context.compute))
            }
            Mlp::Experts(_) => {
                let token_mask = context.token_mask.as_ref();
                SavedMlp::Input(normed, token_mask.map(|mask| token_slice(mask, range)))
            }
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
                down.forward(inner(both, context), onto, context.compute)
            }

            (Mlp::Experts(experts), SavedMlp::Input(x, token_mask)) => {
                let y = experts.forward(x, token_mask.as_ref(), context);
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
                let [inner, d_both] = inner_backward(both, d_inner, context);
                down.backward_weights(&inner, &upstream, compute, sum);
                // Freed before the backward pass of gate and up, which needs memory too.
                drop((inner, upstream));
                gate_up.backward(normed, d_both, compute, sum)
            }

            (Mlp::Experts(experts), Mlp::Experts(plain), SavedMlp::Input(_, token_mask)) => {
                experts.backward(plain, (normed, token_mask.as_ref()), d_y, context, sum)
            }
            _ => unreachable!("a layer keeps what it is made of"),
        }
    }
}
