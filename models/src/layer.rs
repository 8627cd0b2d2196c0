//! A layer of a [`Decoder`](crate::Decoder): forward, and back by hand.
//!
//! All but the attention goes token by token, so it is done for some tokens at a time. The backward pass
//! keeps a layer's input alone ([`Layer::replay`]), or with it all that takes a product to make again
//! ([`Layer::record`]): queries, keys and values, what attention gave, the residual stream behind it, and gate
//! and up. Norms and activations are made again either way.

use std::ops::Range;

use burn::{
    module::{Module, Param},
    tensor::{Device, Tensor},
};

use firebrick_kernels::{self as ops, Attended, Look, joined};

use crate::{
    CheckpointError, Compute, DecoderConfig, DecoderContext, GradientSum, KvCache, LayerKind,
    Sight, Tape,
    attention::{Attention, Looks},
    init::{ParameterSource, vector},
    projection::Projection,
};

/// `x + attention(norm(x))`, and of that `x + down(gated(gate_up(norm(x))))`. Norms may be behind the two halves instead, or
/// as well.
#[derive(Module, Debug)]
pub(crate) struct Layer {
    attention_norm: Option<Param<Tensor<1>>>,
    attention: Attention,
    attention_norm_behind: Option<Param<Tensor<1>>>,
    mlp_norm: Option<Param<Tensor<1>>>,
    gate_up: Projection,
    down: Projection,
    mlp_norm_behind: Option<Param<Tensor<1>>>,
}

impl Layer {
    pub(crate) fn from_source(
        config: &DecoderConfig,
        index: usize,
        source: &mut dyn ParameterSource,
        device: &Device,
    ) -> Result<Self, CheckpointError> {
        let path = format!("layers.{index}");
        let (hidden, inner, bias) =
            (config.hidden_size, config.intermediate_size, config.biases.mlp);
        let (before, behind) = (config.norms.before(), config.norms.behind());
        let mut norm = |there: bool, name: &str| {
            there.then(|| vector(source, &format!("{path}.{name}"), hidden, device)).transpose()
        };
        Ok(Layer {
            attention_norm: norm(before, "attention_norm")?,
            attention_norm_behind: norm(behind, "attention_norm_behind")?,
            mlp_norm: norm(before, "mlp_norm")?,
            mlp_norm_behind: norm(behind, "mlp_norm_behind")?,
            attention: Attention::from_source(config, &path, source, device)?,
            gate_up: Projection::from_source(
                config,
                &format!("{path}.gate_up"),
                hidden,
                bias,
                source,
                device,
            )?,
            down: Projection::from_source(
                config,
                &format!("{path}.down"),
                inner,
                bias,
                source,
                device,
            )?,
        })
    }

    /// `[rows, tokens, hidden]` to the same, in a pass over a batch.
    pub(crate) fn forward(
        &self,
        x: Tensor<3>,
        kind: LayerKind,
        context: &DecoderContext,
    ) -> Tensor<3> {
        let (shape, x) = (x.dims(), flat(x));
        let looks = self.looks(&x, kind, context);
        let attended = context.attend(&looks, kind).output;
        drop(looks);
        self.rest(&x, &wide(attended), context).reshape(shape)
    }

    /// [`Layer::forward`] over a cache, which then holds keys and values of these tokens as those of the layer beside
    /// it. In a prefill tokens see the batch's own, and the cache is filled for later.
    pub(crate) fn remembering(
        &self,
        x: Tensor<3>,
        kind: LayerKind,
        (cache, index): (&mut KvCache, usize),
        context: &DecoderContext,
    ) -> Tensor<3> {
        let [rows, tokens, hidden] = x.dims();
        let x = flat(x);
        let attended = match &context.sees {
            Some(_) => {
                let looks = self.looks(&x, kind, context);
                cache.fill(index, &looks.key, &looks.value);
                wide(context.attend(&looks, kind).output)
            }
            None => {
                let normed = context.before(x.clone(), &self.attention_norm);
                let rotary = context.rotary(kind);
                let query = self.attention.remember(normed, (&mut *cache, index), rotary, context);
                cache.look(index, query, kind.window)
            }
        };
        self.rest(&x, &attended, context).reshape([rows, tokens, hidden])
    }

    /// [`Layer::forward`] with a way back. `x` and what is given are without autodiff.
    pub(crate) fn record<'a>(
        &'a self,
        x: Tensor<3>,
        kind: LayerKind,
        context: &'a DecoderContext,
    ) -> (Tensor<3>, Tape<'a>) {
        let (shape, x, plain) = (x.dims(), flat(x), self.valid());
        let looks = plain.looks(&x, kind, context);
        let attended = context.attend(&looks, kind);
        let output = wide(attended.output.clone());
        let (mut inside, mut y) = (Vec::new(), Vec::new());
        for places in context.portions(&x) {
            let [half, normed] = plain.middle(part(&x, &places), part(&output, &places), context);
            let gate_up = plain.gate_up.forward(normed, None, context.compute);
            let inner = ops::gated(gate_up.clone(), context.activation, context.compute);
            y.push(plain.end(inner, half.clone(), context));
            inside.push([half, gate_up]);
        }
        let kept = Kept { looks, attended, inside };
        let tape = Tape::new(move |d_y, sum| {
            self.back(&plain, x, flat(d_y), kept, kind, context, sum).reshape(shape)
        });
        (joined(y, 0).reshape(shape), tape)
    }

    /// Goes through the layer once more and back. Tensors are without autodiff.
    pub(crate) fn replay(
        &self,
        x: Tensor<3>,
        d_y: Tensor<3>,
        kind: LayerKind,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> Tensor<3> {
        let (shape, x, plain) = (x.dims(), flat(x), self.valid());
        let looks = plain.looks(&x, kind, context);
        let attended = context.attend(&looks, kind);
        let kept = Kept { looks, attended, inside: Vec::new() };
        self.back(&plain, x, flat(d_y), kept, kind, context, sum).reshape(shape)
    }

    /// Back through the layer, of which `plain` is the copy without autodiff.
    #[allow(clippy::too_many_arguments, reason = "what a forward pass has, and its gradient")]
    fn back(
        &self,
        plain: &Layer,
        x: Tensor<2>,
        d_y: Tensor<2>,
        kept: Kept,
        kind: LayerKind,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> Tensor<2> {
        let Kept { mut looks, attended, inside } = kept;
        let before_norms = looks.before_norms.take();
        let output = wide(attended.output.clone());
        let mut inside = inside.into_iter();
        let (mut d_half, mut d_output) = (Vec::new(), Vec::new());
        for places in context.portions(&x) {
            let output = part(&output, &places);
            let (middle, gate_up) = match inside.next() {
                Some([half, gate_up]) => {
                    let normed = context.before(half.clone(), &plain.mlp_norm);
                    ([half, normed], Some(gate_up))
                }
                None => (plain.middle(part(&x, &places), output.clone(), context), None),
            };
            let d = self.mlp_back(plain, middle, gate_up, part(&d_y, &places), context, sum);
            let branch = || plain.attention.output.forward(output.clone(), None, context.compute);
            let d_branch = context.behind_back(branch, &self.attention_norm_behind, d.clone(), sum);
            d_output.push(self.attention.output.back(&output, d_branch, context.compute, sum));
            d_half.push(d);
        }
        drop((output, d_y));
        let d_output = joined(d_output, 0).reshape(attended.output.dims());
        let gradients = context.attend_back(looks, attended, d_output, kind);
        let mut d_x = Vec::new();
        for (places, d_half) in context.portions(&x).into_iter().zip(d_half) {
            let x = part(&x, &places);
            let normed = context.before(x.clone(), &plain.attention_norm);
            let of = |x: &Tensor<3>| x.clone().slice_dim(0, places.clone());
            let d_normed = self.attention.looks_back(
                &normed,
                before_norms.as_ref().map(|before| part(before, &places)),
                gradients.each_ref().map(of),
                &context.rotary(kind).of(places.clone()),
                context,
                sum,
            );
            d_x.push(context.before_back(x, &self.attention_norm, d_normed, d_half, sum));
        }
        joined(d_x, 0)
    }

    /// From the gradient of the output to that of what the MLP's half of the layer begins with; `middle` is that and its
    /// norm.
    fn mlp_back(
        &self,
        plain: &Layer,
        [half, normed]: [Tensor<2>; 2],
        gate_up: Option<Tensor<2>>,
        d_y: Tensor<2>,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> Tensor<2> {
        let compute = context.compute;
        let gate_up =
            gate_up.unwrap_or_else(|| plain.gate_up.forward(normed.clone(), None, compute));
        let branch = || {
            let inner = ops::gated(gate_up.clone(), context.activation, compute);
            plain.down.forward(inner, None, compute)
        };
        let d_branch = context.behind_back(branch, &self.mlp_norm_behind, d_y.clone(), sum);
        let d_inner = self.down.back_input(&d_branch, compute);
        let [inner, d_gate_up] = ops::gated_back(gate_up, d_inner, context.activation, compute);
        self.down.back_weights(&inner, &d_branch, compute, sum);
        drop((inner, d_branch));
        let d_normed = self.gate_up.back(&normed, d_gate_up, compute, sum);
        context.before_back(half, &self.mlp_norm, d_normed, d_y, sum)
    }

    /// Queries, keys and values of all tokens.
    fn looks(&self, x: &Tensor<2>, kind: LayerKind, context: &DecoderContext) -> Looks {
        let portions = context.portions(x).into_iter().map(|places| {
            let normed = context.before(part(x, &places), &self.attention_norm);
            self.attention.looks(normed, &context.rotary(kind).of(places), context)
        });
        Looks::joined(portions.collect())
    }

    /// The layer behind its attention.
    fn rest(&self, x: &Tensor<2>, attended: &Tensor<2>, context: &DecoderContext) -> Tensor<2> {
        let portions = context.portions(x).into_iter().map(|places| {
            let [half, normed] = self.middle(part(x, &places), part(attended, &places), context);
            let both = self.gate_up.forward(normed, None, context.compute);
            let inner = ops::gated(both, context.activation, context.compute);
            self.end(inner, half, context)
        });
        joined(portions.collect(), 0)
    }

    /// The end of the MLP, from what is between its matrices, added to `half`.
    fn end(&self, inner: Tensor<2>, half: Tensor<2>, context: &DecoderContext) -> Tensor<2> {
        match &self.mlp_norm_behind {
            None => self.down.forward(inner, Some(half), context.compute),
            Some(norm) => {
                let branch = self.down.forward(inner, None, context.compute);
                half + context.norm.apply(branch, norm.val(), Compute::F32)
            }
        }
    }

    /// The residual stream between the layer's two halves, and its norm.
    fn middle(
        &self,
        x: Tensor<2>,
        attended: Tensor<2>,
        context: &DecoderContext,
    ) -> [Tensor<2>; 2] {
        let branch = self.attention.output.forward(attended, None, context.compute);
        let branch = match &self.attention_norm_behind {
            None => branch,
            Some(norm) => context.norm.apply(branch, norm.val(), Compute::F32),
        };
        match &self.mlp_norm {
            Some(norm) => context.norm.of_sum(x, branch, norm.val(), context.compute),
            None => {
                let half = x + branch;
                [half.clone(), half.cast(context.compute.dtype())]
            }
        }
    }

    pub(crate) fn projections_mut(
        &mut self,
    ) -> impl Iterator<Item = (&'static str, &mut Projection)> {
        [
            ("attention.qkv", &mut self.attention.qkv),
            ("attention.output", &mut self.attention.output),
            ("gate_up", &mut self.gate_up),
            ("down", &mut self.down),
        ]
        .into_iter()
    }
}

/// Tensors that a forward pass through a layer keeps, besides its input.
struct Kept {
    looks: Looks,
    attended: Attended,
    /// For each portion of the tokens the residual stream behind the attention, and gate and up; none where they are
    /// made again.
    inside: Vec<[Tensor<2>; 2]>,
}

impl DecoderContext {
    /// The places of a pass, in portions that go through a projection together.
    fn portions(&self, x: &Tensor<2>) -> Vec<Range<usize>> {
        let (all, step) = (x.dims()[0], self.grain.tokens.max(1));
        (0..all).step_by(step).map(|start| start..(start + step).min(all)).collect()
    }

    /// The norm of `x`, which goes into a half of a layer, or `x` where that has none.
    fn before(&self, x: Tensor<2>, norm: &Option<Param<Tensor<1>>>) -> Tensor<2> {
        match norm {
            Some(norm) => self.norm.apply(x, norm.val(), self.compute),
            None => x.cast(self.compute.dtype()),
        }
    }

    /// From the gradient of what went into a half to that of `x`, to which `beside` is added, the one past the half.
    fn before_back(
        &self,
        x: Tensor<2>,
        norm: &Option<Param<Tensor<1>>>,
        d: Tensor<2>,
        beside: Tensor<2>,
        sum: &mut GradientSum,
    ) -> Tensor<2> {
        match norm {
            Some(norm) => self.norm_back(x, norm, d, Some(beside), sum),
            None => d + beside,
        }
    }

    /// From the gradient of what a half adds to that of what came out of it, which `branch` makes again where a norm is
    /// behind it.
    fn behind_back(
        &self,
        branch: impl FnOnce() -> Tensor<2>,
        norm: &Option<Param<Tensor<1>>>,
        d: Tensor<2>,
        sum: &mut GradientSum,
    ) -> Tensor<2> {
        match norm {
            Some(norm) => self.norm_back(branch(), norm, d, None, sum),
            None => d,
        }
    }

    fn sight(&self) -> &Sight {
        self.sees.as_ref().expect("a batch has a sight")
    }

    fn attend(&self, looks: &Looks, kind: LayerKind) -> Attended {
        let look = Look { window: kind.window, scores: self.grain.scores };
        ops::attention(&looks.query, &looks.key, &looks.value, self.sight(), look)
    }

    fn attend_back(
        &self,
        looks: Looks,
        attended: Attended,
        d_output: Tensor<3>,
        kind: LayerKind,
    ) -> [Tensor<3>; 3] {
        let look = Look { window: kind.window, scores: self.grain.scores };
        let looks = [&looks.query, &looks.key, &looks.value];
        ops::attention_backward(looks, &attended, &d_output, self.sight(), look)
    }
}

/// `[rows, tokens, hidden]` to `[places, hidden]`.
fn flat(x: Tensor<3>) -> Tensor<2> {
    let [rows, tokens, hidden] = x.dims();
    x.reshape([rows * tokens, hidden])
}

/// `[places, heads, head_dim]` to `[places, heads · head_dim]`.
fn wide(x: Tensor<3>) -> Tensor<2> {
    let [places, heads, width] = x.dims();
    x.reshape([places, heads * width])
}

fn part(x: &Tensor<2>, places: &Range<usize>) -> Tensor<2> {
    x.clone().slice_dim(0, places.clone())
}
