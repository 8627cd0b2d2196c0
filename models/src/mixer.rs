//! The half of a layer in which tokens see each other: attention, or a recurrence.

use std::ops::Range;

use burn::{module::Param, tensor::Tensor};
use firebrick_kernels::{Attended, joined};

use crate::{
    DecoderContext, GradientSum, KvCache, LayerKind,
    attention::{Attention, Looks, opened, opened_back},
    delta::Delta,
    projection::Projection,
};

/// The half of a layer in which tokens see each other, without the norm before it and without its last projection.
#[derive(Clone, Copy)]
pub(crate) enum Mixer<'a> {
    Attention(&'a Attention),
    Delta(&'a Delta),
}

/// The part of a forward pass that the backward pass needs.
#[allow(clippy::large_enum_variant, reason = "one of it is there at a time")]
pub(crate) enum Mixed {
    Attention(Looks, Attended),
    /// The output of the first projection.
    Delta(Tensor<2>),
}

/// Gradients of the first projection's output.
#[allow(clippy::large_enum_variant, reason = "one of it is there at a time")]
pub(crate) enum MixedGradient {
    Attention { before_norms: Option<Tensor<2>>, looks: [Tensor<3>; 3], gate: Option<Tensor<2>> },
    Delta(Tensor<2>),
}

/// The norm before a layer's half, if there is one.
type BeforeNorm = Option<Param<Tensor<1>>>;

impl<'a> Mixer<'a> {
    /// Returns the last projection.
    pub(crate) fn output(self) -> &'a Projection {
        match self {
            Mixer::Attention(attention) => &attention.output,
            Mixer::Delta(delta) => &delta.output,
        }
    }

    /// Goes over all tokens of a batch, `[places, hidden]`, in `rows` rows. Returns the input of the last
    /// projection, and what the backward pass needs.
    pub(crate) fn forward(
        self,
        x: &Tensor<2>,
        rows: usize,
        norm: &BeforeNorm,
        kind: LayerKind,
        context: &DecoderContext,
    ) -> (Tensor<2>, Mixed) {
        match self {
            Mixer::Attention(attention) => {
                let looks = looks(attention, x, norm, kind, context);
                let attended = context.attend(&looks, kind);
                let output = opened(wide(attended.output.clone()), looks.gate.clone());
                (output, Mixed::Attention(looks, attended))
            }
            Mixer::Delta(delta) => {
                let projected = projected(delta, x, norm, context);
                let (output, _) = delta.forward(projected.clone(), rows, None);
                (output, Mixed::Delta(projected))
            }
        }
    }

    /// Does [`Mixer::forward`] over a cache, which then remembers these tokens at `place`. In a prefill, tokens
    /// see those of the batch itself, and the cache is filled for later.
    pub(crate) fn remembering(
        self,
        x: &Tensor<2>,
        rows: usize,
        norm: &BeforeNorm,
        kind: LayerKind,
        (cache, place): (&mut KvCache, usize),
        context: &DecoderContext,
    ) -> Tensor<2> {
        match self {
            Mixer::Attention(attention) if context.sees.is_some() => {
                let looks = looks(attention, x, norm, kind, context);
                cache.fill(place, &looks.key, &looks.value);
                opened(wide(context.attend(&looks, kind).output), looks.gate)
            }
            Mixer::Attention(attention) => {
                let normed = context.before(x.clone(), norm);
                let rotary = context.rotary(kind);
                let (query, gate) =
                    attention.remember(normed, (&mut *cache, place), rotary, context);
                opened(cache.look(place, query, kind.window), gate)
            }
            Mixer::Delta(delta) => {
                let before = cache.recall(place);
                let projected = projected(delta, x, norm, context);
                let (output, state) = delta.forward(projected, rows, before);
                cache.keep(place, state);
                output
            }
        }
    }

    /// Computes the gradient of the first projection's output, given that of the last projection's input. The
    /// gradients of the parameters between the two are added to `sum`.
    pub(crate) fn back(
        self,
        mixed: Mixed,
        rows: usize,
        d_output: Tensor<2>,
        kind: LayerKind,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> MixedGradient {
        match (self, mixed) {
            (Mixer::Attention(_), Mixed::Attention(mut looks, attended)) => {
                let (before_norms, gate) = (looks.before_norms.take(), looks.gate.take());
                let output = wide(attended.output.clone());
                let (d_output, gate) = opened_back(output, gate, d_output);
                let d_output = d_output.reshape(attended.output.dims());
                let looks = context.attend_back(looks, attended, d_output, kind);
                MixedGradient::Attention { before_norms, looks, gate }
            }
            (Mixer::Delta(delta), Mixed::Delta(projected)) => {
                MixedGradient::Delta(delta.back(projected, rows, d_output, sum))
            }
            _ => unreachable!("a layer keeps what it is made of"),
        }
    }

    /// Computes the gradient of the first projection's input at `places`, given the gradients of its output. The
    /// input is the norm of the layer's input. The gradients of the projection's parameters are added to `sum`.
    pub(crate) fn back_input(
        self,
        gradient: &MixedGradient,
        normed: Tensor<2>,
        places: &Range<usize>,
        kind: LayerKind,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> Tensor<2> {
        match (self, gradient) {
            (
                Mixer::Attention(attention),
                MixedGradient::Attention { before_norms, looks, gate },
            ) => attention.looks_back(
                &normed,
                before_norms.as_ref().map(|before| part(before, places)),
                (
                    looks.each_ref().map(|it| it.clone().slice_dim(0, places.clone())),
                    gate.as_ref().map(|gate| part(gate, places)),
                ),
                &context.rotary(kind).of(places.clone()),
                context,
                sum,
            ),
            (Mixer::Delta(delta), MixedGradient::Delta(d)) => {
                let normed = context.present_at(normed, places);
                let d = delta.input.back(&normed, part(d, places), context.compute, sum);
                context.present_at(d, places)
            }
            _ => unreachable!("a layer's gradients are those of what it is made of"),
        }
    }
}

/// Computes queries, keys and values of all tokens.
fn looks(
    attention: &Attention,
    x: &Tensor<2>,
    norm: &BeforeNorm,
    kind: LayerKind,
    context: &DecoderContext,
) -> Looks {
    let portions = context.portions(x).into_iter().map(|places| {
        let normed = context.before(part(x, &places), norm);
        attention.looks(normed, &context.rotary(kind).of(places), context)
    });
    Looks::joined(portions.collect())
}

/// Computes the first projection of a recurrence, of all tokens. Its input is 0 at padding.
fn projected(
    delta: &Delta,
    x: &Tensor<2>,
    norm: &BeforeNorm,
    context: &DecoderContext,
) -> Tensor<2> {
    let portions = context.portions(x).into_iter().map(|places| {
        let normed = context.before(part(x, &places), norm);
        delta.input.forward(context.present_at(normed, &places), None, context.compute)
    });
    joined(portions.collect(), 0)
}

/// Joins the heads: `[places, heads, head_dim]` to `[places, heads · head_dim]`.
fn wide(x: Tensor<3>) -> Tensor<2> {
    let [places, heads, width] = x.dims();
    x.reshape([places, heads * width])
}

pub(crate) fn part(x: &Tensor<2>, places: &Range<usize>) -> Tensor<2> {
    x.clone().slice_dim(0, places.clone())
}
