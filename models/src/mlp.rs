//! The half of a layer that every token goes through by itself: a gated MLP, or experts.

use burn::tensor::Tensor;
use firebrick_kernels as ops;

use crate::{DecoderContext, GradientSum, experts::Experts, projection::Projection};

/// The half of a layer that every token goes through by itself, without the norm before it.
#[derive(Clone, Copy)]
pub(crate) enum Mlp<'a> {
    Dense { gate_up: &'a Projection, down: &'a Projection },
    Experts(&'a Experts),
}

/// The part of the half that a pass keeps.
#[derive(Clone)]
pub(crate) enum Begun {
    /// Gate and up.
    GateUp(Tensor<2>),
    /// The input of the half; the rest is made again.
    Input(Tensor<2>),
}

impl Mlp<'_> {
    /// Computes the first product, or keeps the input for experts.
    pub(crate) fn begin(self, normed: Tensor<2>, context: &DecoderContext) -> Begun {
        match self {
            Mlp::Dense { gate_up, .. } => {
                Begun::GateUp(gate_up.forward(normed, None, context.compute))
            }
            Mlp::Experts(_) => Begun::Input(normed),
        }
    }

    /// Computes the rest of the half and adds it to `onto`.
    pub(crate) fn end(
        self,
        begun: Begun,
        onto: Option<Tensor<2>>,
        context: &DecoderContext,
    ) -> Tensor<2> {
        match (self, begun) {
            (Mlp::Dense { down, .. }, Begun::GateUp(both)) => {
                let inner = ops::gated(both, context.activation, context.compute);
                down.forward(inner, onto, context.compute)
            }
            (Mlp::Experts(experts), Begun::Input(x)) => {
                let y = experts.forward(x, context);
                match onto {
                    Some(onto) => onto + y,
                    None => y,
                }
            }
            _ => unreachable!("a layer keeps what it is made of"),
        }
    }

    /// Computes the gradient of `normed`, the half's input, given that of its output. The gradients of the
    /// parameters are added to `sum`. `plain` is the copy without autodiff.
    pub(crate) fn back(
        self,
        plain: Mlp<'_>,
        normed: &Tensor<2>,
        begun: Begun,
        d_y: Tensor<2>,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> Tensor<2> {
        let compute = context.compute;
        match (self, plain, begun) {
            (Mlp::Dense { gate_up, down }, _, Begun::GateUp(both)) => {
                let upstream = down.upstream(d_y, compute);
                let d_inner = down.back_input(&upstream, compute);
                let [inner, d_both] = ops::gated_back(both, d_inner, context.activation, compute);
                down.back_weights(&inner, &upstream, compute, sum);
                drop((inner, upstream));
                gate_up.back(normed, d_both, compute, sum)
            }
            (Mlp::Experts(experts), Mlp::Experts(plain), _) => {
                experts.back(plain, normed, d_y, context, sum)
            }
            _ => unreachable!("a layer keeps what it is made of"),
        }
    }
}
