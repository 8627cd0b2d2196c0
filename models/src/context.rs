//! What all layers share in a pass: the mask, the angles of positions, the precision and the sizes of chunks.

use std::ops::Range;

use burn::{
    module::Param,
    tensor::{Int, Tensor},
};
use firebrick_core::TokenId;
use firebrick_kernels::{Activation, Compute, Norm, PackedMask, RopeFrequencies, RopeTable};

use crate::{
    chunk_sizes::ChunkSizes,
    config::{DecoderConfig, LayerKind, RopeKind, SwigluClamp},
    gradient::GradientSum,
    load_balancing::Counter,
    rope::Rope,
    shared::SharedStates,
};

/// What all layers share in a [`Decoder`](crate::Decoder)'s forward pass.
pub struct DecoderContext {
    /// Mask of a batch; `None` if its tokens attend to a cache.
    pub(crate) mask: Option<PackedMask>,
    /// 1 at tokens and 0 at padding, `[tokens, 1]`, if the model has a recurrence and the pass is over a batch.
    pub(crate) token_mask: Option<Tensor<2>>,
    pub(crate) rotary: PerRopeKind<RopeTable>,
    /// Factor of the queries of each token, `[tokens, 1, 1]`, if queries grow with their position.
    pub(crate) growth: Option<Tensor<3>>,
    pub(crate) norm: Norm,
    pub(crate) activation: Activation,
    pub(crate) squared_relu: bool,
    pub(crate) swiglu_clamp: Option<SwigluClamp>,
    pub(crate) residual_scale: f64,
    pub(crate) compute: Compute,
    pub(crate) chunk_sizes: ChunkSizes,
    /// Tokens of the pass, if layers have embeddings of their own.
    pub(crate) tokens: Option<PassTokens>,
    /// What layers leave for later ones.
    pub(crate) shared: SharedStates,
    /// Counts the experts' loads, if the pass is made for that.
    pub(crate) counter: Option<Counter>,
}

/// Tokens of a pass, row by row.
pub(crate) struct PassTokens {
    /// On the device, `[tokens]`.
    pub(crate) on_device: Tensor<1, Int>,
    /// On the host, for the backward pass; empty if the pass is not over a batch.
    pub(crate) ids: Vec<TokenId>,
}

impl DecoderContext {
    /// Returns the angles by which queries and keys of such a layer are rotated.
    pub(crate) fn rotary(&self, kind: LayerKind) -> &RopeTable {
        let table = match kind.rope {
            RopeKind::Rope => Some(&self.rotary.rope),
            RopeKind::Local => self.rotary.local.as_ref(),
            RopeKind::None => self.rotary.none.as_ref(),
        };
        table.expect("a config has the ropes of its layers")
    }

    /// Runs [`Norm::backward`] for a norm with its parameter.
    pub(crate) fn norm_backward<const D: usize>(
        &self,
        x: Tensor<D>,
        weight: &Param<Tensor<1>>,
        d_y: Tensor<D>,
        d_skip: Option<Tensor<D>>,
        sum: &mut GradientSum,
    ) -> Tensor<D> {
        let values = weight.val().inner();
        if !weight.is_require_grad() {
            return self.norm.backward_input(x, values, d_y, d_skip);
        }

        let (d_x, d_weight) = self.norm.backward(x, values, d_y, d_skip);
        sum.add(weight.id, d_weight);
        d_x
    }

    /// Splits the tokens of a pass into chunks. The tokens of a chunk go through a projection together.
    pub(crate) fn chunks(&self, x: &Tensor<2>) -> Vec<Range<usize>> {
        let all = x.dims()[0];
        let step = self.chunk_sizes.tokens.max(1);
        (0..all).step_by(step).map(|start| start..(start + step).min(all)).collect()
    }

    /// Sets `x`, the tokens `range` of a pass, to 0 at padding.
    pub(crate) fn zero_padding(&self, x: Tensor<2>, range: &Range<usize>) -> Tensor<2> {
        match &self.token_mask {
            Some(token_mask) => {
                let dtype = x.dtype();
                x * token_slice(token_mask, range).cast(dtype)
            }
            None => x,
        }
    }

    /// Returns the input of a sublayer: the norm of `x`, or `x` if there is no pre-norm.
    pub(crate) fn pre_norm(&self, x: Tensor<2>, norm: &Option<Param<Tensor<1>>>) -> Tensor<2> {
        match norm {
            Some(norm) => self.norm.apply(x, norm.val(), self.compute),
            None => x.cast(self.compute.dtype()),
        }
    }

    /// Computes the gradient of `x`, given that of the sublayer's input, and adds `d_skip`, the gradient along the
    /// residual connection.
    pub(crate) fn pre_norm_backward(
        &self,
        x: Tensor<2>,
        norm: &Option<Param<Tensor<1>>>,
        d: Tensor<2>,
        d_skip: Tensor<2>,
        sum: &mut GradientSum,
    ) -> Tensor<2> {
        match norm {
            Some(norm) => self.norm_backward(x, norm, d, Some(d_skip), sum),
            None => d + d_skip,
        }
    }

    /// Multiplies the queries of all tokens, `[tokens, heads, head_dim]`, or their gradient, by what their positions
    /// make of them.
    pub(crate) fn grown(&self, query: Tensor<3>) -> Tensor<3> {
        match &self.growth {
            Some(factor) => {
                let dtype = query.dtype();
                query * factor.clone().cast(dtype)
            }
            None => query,
        }
    }

    /// Multiplies the output of a sublayer, or its gradient, by the factor with which it joins the residual stream.
    pub(crate) fn scaled(&self, branch: Tensor<2>) -> Tensor<2> {
        if self.residual_scale == 1.0 { branch } else { branch.mul_scalar(self.residual_scale) }
    }

    /// Computes what a sublayer adds to the residual stream: its output, after the post-norm if there is one.
    pub(crate) fn joining(&self, branch: Tensor<2>, norm: &Option<Param<Tensor<1>>>) -> Tensor<2> {
        self.scaled(match norm {
            Some(norm) => self.norm.apply(branch, norm.val(), Compute::F32),
            None => branch,
        })
    }

    /// Computes the gradient of a sublayer's output, given that of the sum that it is added to. If there is a
    /// post-norm, `branch` recomputes the output.
    pub(crate) fn post_norm_backward(
        &self,
        branch: impl FnOnce() -> Tensor<2>,
        norm: &Option<Param<Tensor<1>>>,
        d: Tensor<2>,
        sum: &mut GradientSum,
    ) -> Tensor<2> {
        let d = self.scaled(d);
        match norm {
            Some(norm) => self.norm_backward(branch(), norm, d, None, sum),
            None => d,
        }
    }

    pub(crate) fn mask(&self) -> &PackedMask {
        self.mask.as_ref().expect("a batch has a mask")
    }
}

/// One value for each [`RopeKind`] that layers have.
#[derive(Clone, Debug)]
pub(crate) struct PerRopeKind<T> {
    rope: T,
    local: Option<T>,
    none: Option<T>,
}

impl<T> PerRopeKind<T> {
    pub(crate) fn map<U>(&self, change: impl Fn(&T) -> U) -> PerRopeKind<U> {
        PerRopeKind {
            rope: change(&self.rope),
            local: self.local.as_ref().map(&change),
            none: self.none.as_ref().map(&change),
        }
    }
}

/// Computes the frequencies of each kind of rope, for texts of up to `longest` tokens.
pub(crate) fn frequencies(config: &DecoderConfig, longest: usize) -> PerRopeKind<RopeFrequencies> {
    let of = |kind, rope: &Rope| rope.frequencies(config.rope_width(kind), longest);
    let without_rope = config.kinds.iter().any(|kind| kind.rope == RopeKind::None);

    PerRopeKind {
        rope: of(RopeKind::Rope, &config.rope),
        local: config.local_rope.as_ref().map(|rope| of(RopeKind::Local, rope)),
        // One pair, which is rotated by 0.
        none: without_rope.then(|| RopeFrequencies::new(vec![0.0])),
    }
}

/// Returns the tokens `range` of `x`, `[tokens, …]`.
pub(crate) fn token_slice(x: &Tensor<2>, range: &Range<usize>) -> Tensor<2> {
    x.clone().slice_dim(0, range.clone())
}
