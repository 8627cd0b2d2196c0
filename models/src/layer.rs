//! A layer of a `Decoder`: its forward pass, and a backward pass written by hand.
//!
//! All but the attention, or the recurrence in its place, goes token by token, so it is done for some tokens at a
//! time. The backward pass needs the layer's input. It keeps nothing else ([`Layer::replay`]), or it also keeps
//! everything that would take a product to make again ([`Layer::record`]): queries, keys and values, the output of
//! the attention, the residual stream after it, and gate and up. Norms and activations are made again either way,
//! and so are experts.

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
    delta::Delta,
    experts::Experts,
    init::{ParameterSource, vector},
    mixer::{Mixed, Mixer, part},
    mlp::{Begun, Mlp},
    projection::Projection,
};

/// A layer: `y = x + attention(norm(x))`, then `y + mlp(norm(y))`. Norms may be behind the two halves instead, or
/// as well.
///
/// A layer has an attention or a recurrence, and an MLP or experts ([`LayerKind`]).
#[derive(Module, Debug)]
pub(crate) struct Layer {
    attention_norm: Option<Param<Tensor<1>>>,
    attention: Option<Attention>,
    delta: Option<Delta>,
    attention_norm_behind: Option<Param<Tensor<1>>>,
    mlp_norm: Option<Param<Tensor<1>>>,
    gate_up: Option<Projection>,
    down: Option<Projection>,
    experts: Option<Experts>,
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
        let kind = config.kinds[index];
        let (hidden, inner, bias) =
            (config.hidden_size, config.intermediate_size, config.biases.mlp);
        let (before, behind) = (config.norms.before(), config.norms.behind());
        let mut norm = |there: bool, name: &str| {
            there.then(|| vector(source, &format!("{path}.{name}"), hidden, device)).transpose()
        };
        let [attention_norm, attention_norm_behind, mlp_norm, mlp_norm_behind] = [
            norm(before, "attention_norm")?,
            norm(behind, "attention_norm_behind")?,
            norm(before, "mlp_norm")?,
            norm(behind, "mlp_norm_behind")?,
        ];
        let (attention, delta) = match kind.recurrent {
            false => (Some(Attention::from_source(config, &path, source, device)?), None),
            true => (None, Some(Delta::from_source(config, &path, source, device)?)),
        };
        let mut projection = |name: &str, inputs: usize| {
            Projection::from_source(config, &format!("{path}.{name}"), inputs, bias, source, device)
        };
        let (gate_up, down) = match kind.sparse {
            false => (Some(projection("gate_up", hidden)?), Some(projection("down", inner)?)),
            true => (None, None),
        };
        let experts = match kind.sparse {
            false => None,
            true => Some(Experts::from_source(config, &path, source, device)?),
        };
        Ok(Layer {
            attention_norm,
            attention,
            delta,
            attention_norm_behind,
            mlp_norm,
            gate_up,
            down,
            experts,
            mlp_norm_behind,
        })
    }

    /// Maps `[rows, tokens, hidden]` to `[rows, tokens, hidden]`, in a pass over a batch.
    pub(crate) fn forward(
        &self,
        x: Tensor<3>,
        kind: LayerKind,
        context: &DecoderContext,
    ) -> Tensor<3> {
        let (shape, x) = (x.dims(), flat(x));
        // The part for the backward pass is dropped at once.
        let mixed = self.mixer().forward(&x, shape[0], &self.attention_norm, kind, context).0;
        self.rest(&x, &mixed, context).reshape(shape)
    }

    /// Does [`Layer::forward`] over a cache, which then remembers these tokens as those of the layer at `place`.
    pub(crate) fn remembering(
        &self,
        x: Tensor<3>,
        kind: LayerKind,
        cache: (&mut KvCache, usize),
        context: &DecoderContext,
    ) -> Tensor<3> {
        let (shape, x) = (x.dims(), flat(x));
        let norm = &self.attention_norm;
        let mixed = self.mixer().remembering(&x, shape[0], norm, kind, cache, context);
        self.rest(&x, &mixed, context).reshape(shape)
    }

    /// Does [`Layer::forward`] and keeps what the backward pass needs. `x` and the output are without autodiff.
    pub(crate) fn record<'a>(
        &'a self,
        x: Tensor<3>,
        kind: LayerKind,
        context: &'a DecoderContext,
    ) -> (Tensor<3>, Tape<'a>) {
        let (shape, x, plain) = (x.dims(), flat(x), self.valid());
        let norm = &plain.attention_norm;
        let (output, mixed) = plain.mixer().forward(&x, shape[0], norm, kind, context);
        let (mut inside, mut y) = (Vec::new(), Vec::new());
        for places in context.portions(&x) {
            let [half, normed] = plain.middle(part(&x, &places), part(&output, &places), context);
            let begun = plain.mlp().begin(normed, context);
            y.push(plain.end(begun.clone(), half.clone(), context));
            inside.push((half, begun));
        }
        let kept = Kept { rows: shape[0], output, mixed, inside };
        let tape = Tape::new(move |d_y, sum| {
            self.back(&plain, x, flat(d_y), kept, kind, context, sum).reshape(shape)
        });
        (joined(y, 0).reshape(shape), tape)
    }

    /// Goes through the layer once more, and back. Tensors are without autodiff.
    pub(crate) fn replay(
        &self,
        x: Tensor<3>,
        d_y: Tensor<3>,
        kind: LayerKind,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> Tensor<3> {
        let (shape, x, plain) = (x.dims(), flat(x), self.valid());
        let norm = &plain.attention_norm;
        let (output, mixed) = plain.mixer().forward(&x, shape[0], norm, kind, context);
        let kept = Kept { rows: shape[0], output, mixed, inside: Vec::new() };
        self.back(&plain, x, flat(d_y), kept, kind, context, sum).reshape(shape)
    }

    /// Goes back through the layer. `plain` is the copy of the layer without autodiff.
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
        let Kept { rows, output, mixed, inside } = kept;
        let (mixer, compute) = (self.mixer(), context.compute);
        let mut inside = inside.into_iter();
        let (mut d_half, mut d_output) = (Vec::new(), Vec::new());
        for places in context.portions(&x) {
            let output = part(&output, &places);
            let (middle, begun) = match inside.next() {
                Some((half, begun)) => {
                    let normed = context.before(half.clone(), &plain.mlp_norm);
                    ([half, normed], Some(begun))
                }
                None => (plain.middle(part(&x, &places), output.clone(), context), None),
            };
            let d = self.mlp_back(plain, middle, begun, part(&d_y, &places), context, sum);
            let branch = || plain.mixer().output().forward(output.clone(), None, compute);
            let d_branch = context.behind_back(branch, &self.attention_norm_behind, d.clone(), sum);
            d_output.push(mixer.output().back(&output, d_branch, compute, sum));
            d_half.push(d);
        }
        drop((output, d_y));
        let d_mixed = mixer.back(mixed, rows, joined(d_output, 0), kind, context, sum);
        let mut d_x = Vec::new();
        for (places, d_half) in context.portions(&x).into_iter().zip(d_half) {
            let x = part(&x, &places);
            let normed = context.before(x.clone(), &plain.attention_norm);
            let d_normed = mixer.back_input(&d_mixed, normed, &places, kind, context, sum);
            d_x.push(context.before_back(x, &self.attention_norm, d_normed, d_half, sum));
        }
        joined(d_x, 0)
    }

    /// Computes the gradient of the residual stream between the halves, given that of the output. `half` is that
    /// stream and `normed` its norm.
    fn mlp_back(
        &self,
        plain: &Layer,
        [half, normed]: [Tensor<2>; 2],
        begun: Option<Begun>,
        d_y: Tensor<2>,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> Tensor<2> {
        let begun = begun.unwrap_or_else(|| plain.mlp().begin(normed.clone(), context));
        let branch = || plain.mlp().end(begun.clone(), None, context);
        let d_branch = context.behind_back(branch, &self.mlp_norm_behind, d_y.clone(), sum);
        let d_normed = self.mlp().back(plain.mlp(), &normed, begun, d_branch, context, sum);
        context.before_back(half, &self.mlp_norm, d_normed, d_y, sum)
    }

    /// Computes the layer after the part in which tokens see each other.
    fn rest(&self, x: &Tensor<2>, mixed: &Tensor<2>, context: &DecoderContext) -> Tensor<2> {
        let portions = context.portions(x).into_iter().map(|places| {
            let [half, normed] = self.middle(part(x, &places), part(mixed, &places), context);
            self.end(self.mlp().begin(normed, context), half, context)
        });
        joined(portions.collect(), 0)
    }

    /// Computes the end of the second half and adds it to `half`.
    fn end(&self, begun: Begun, half: Tensor<2>, context: &DecoderContext) -> Tensor<2> {
        match &self.mlp_norm_behind {
            None => self.mlp().end(begun, Some(half), context),
            Some(norm) => {
                let branch = self.mlp().end(begun, None, context);
                half + context.norm.apply(branch, norm.val(), Compute::F32)
            }
        }
    }

    /// Computes the residual stream between the layer's two halves, and its norm.
    fn middle(&self, x: Tensor<2>, mixed: Tensor<2>, context: &DecoderContext) -> [Tensor<2>; 2] {
        let branch = self.mixer().output().forward(mixed, None, context.compute);
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

    fn mixer(&self) -> Mixer<'_> {
        match (&self.attention, &self.delta) {
            (Some(attention), _) => Mixer::Attention(attention),
            (None, Some(delta)) => Mixer::Delta(delta),
            (None, None) => unreachable!("a layer is made with one of the two"),
        }
    }

    fn mlp(&self) -> Mlp<'_> {
        match (&self.gate_up, &self.down, &self.experts) {
            (Some(gate_up), Some(down), _) => Mlp::Dense { gate_up, down },
            (_, _, Some(experts)) => Mlp::Experts(experts),
            _ => unreachable!("a layer is made with one of the two"),
        }
    }

    pub(crate) fn experts(&mut self) -> Option<&mut Experts> {
        self.experts.as_mut()
    }

    /// Returns the projections that may have adapters: all but the experts'.
    pub(crate) fn projections_mut(
        &mut self,
    ) -> impl Iterator<Item = (&'static str, &mut Projection)> {
        let attention = self.attention.as_mut().map(|attention| {
            let Attention { qkv, output, .. } = attention;
            [("attention.qkv", qkv), ("attention.output", output)]
        });
        let delta = self.delta.as_mut().map(|delta| {
            let Delta { input, output, .. } = delta;
            [("delta.input", input), ("delta.output", output)]
        });
        let mlp = [("gate_up", self.gate_up.as_mut()), ("down", self.down.as_mut())];
        let mlp = mlp.into_iter().filter_map(|(name, projection)| Some((name, projection?)));
        attention.into_iter().chain(delta).flatten().chain(mlp)
    }
}

/// Tensors that a forward pass through a layer keeps, besides its input.
struct Kept {
    rows: usize,
    /// The input of the first half's last projection.
    output: Tensor<2>,
    mixed: Mixed,
    /// The residual stream between the halves, and the kept part of the second half, for each portion of the
    /// tokens; empty if they are made again.
    inside: Vec<(Tensor<2>, Begun)>,
}

impl DecoderContext {
    /// Splits the places of a pass into portions, each of which goes through a projection together.
    pub(crate) fn portions(&self, x: &Tensor<2>) -> Vec<Range<usize>> {
        let (all, step) = (x.dims()[0], self.grain.tokens.max(1));
        (0..all).step_by(step).map(|start| start..(start + step).min(all)).collect()
    }

    /// Puts zeros at the padding in `x`, which is at some places of a pass.
    pub(crate) fn present_at(&self, x: Tensor<2>, places: &Range<usize>) -> Tensor<2> {
        match &self.present {
            Some(present) => {
                let dtype = x.dtype();
                x * part(present, places).cast(dtype)
            }
            None => x,
        }
    }

    /// Returns the input of a layer's half: the norm of `x`, or `x` if there is no norm.
    pub(crate) fn before(&self, x: Tensor<2>, norm: &Option<Param<Tensor<1>>>) -> Tensor<2> {
        match norm {
            Some(norm) => self.norm.apply(x, norm.val(), self.compute),
            None => x.cast(self.compute.dtype()),
        }
    }

    /// Computes the gradient of `x`, given that of the half's input. `beside` is added: the gradient that goes
    /// past the half.
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

    /// Computes the gradient of a half's output, given that of the sum it goes into. If a norm is behind the half,
    /// `branch` makes the output again.
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

    pub(crate) fn attend(&self, looks: &Looks, kind: LayerKind) -> Attended {
        let look = Look { window: kind.window, scores: self.grain.scores };
        ops::attention(&looks.query, &looks.key, &looks.value, self.sight(), look)
    }

    pub(crate) fn attend_back(
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

/// Joins rows: `[rows, tokens, hidden]` to `[places, hidden]`.
fn flat(x: Tensor<3>) -> Tensor<2> {
    let [rows, tokens, hidden] = x.dims();
    x.reshape([rows * tokens, hidden])
}
