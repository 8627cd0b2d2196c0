//! The token mixer of a layer, in which tokens see each other: attention, or a recurrence.

use std::ops::Range;

use burn::{module::Param, tensor::Tensor};
use firebrick_kernels::{AttentionOutput, joined};

use crate::{
    attention::{Attention, Qkv, gate_output, gate_output_backward},
    cache::KvCache,
    config::{KvSharing, LayerKind},
    context::{DecoderContext, token_slice},
    gradient::GradientSum,
    projection::Projection,
    recurrence::Recurrence,
};

/// Sublayer in which tokens see each other, without its pre-norm and without its last projection.
#[derive(Clone, Copy)]
pub(crate) enum Mixer<'a> {
    Attention(&'a Attention),
    Recurrence(&'a dyn Recurrence),
}

/// What the backward pass needs of a forward pass.
#[allow(clippy::large_enum_variant, reason = "one of it is there at a time")]
pub(crate) enum SavedMixer {
    Attention(Qkv, AttentionOutput),
    /// Output of the first projection.
    Recurrence(Tensor<2>),
}

/// Gradients of the first projection's output.
#[allow(clippy::large_enum_variant, reason = "one of it is there at a time")]
pub(crate) enum MixerGradient {
    Attention { before_norms: Option<Tensor<2>>, qkv: [Tensor<3>; 3], gate: Option<Tensor<2>> },
    Recurrence(Tensor<2>),
}

/// Norm before a sublayer, if there is one.
type PreNorm = Option<Param<Tensor<1>>>;

impl<'a> Mixer<'a> {
    /// Returns the last projection.
    pub(crate) fn output(self) -> &'a Projection {
        match self {
            Mixer::Attention(attention) => &attention.output,
            Mixer::Recurrence(recurrence) => recurrence.output(),
        }
    }

    /// Runs over all tokens of a batch, `[tokens, hidden]`, in `rows` rows. Returns the input of the last projection,
    /// and what the backward pass needs.
    pub(crate) fn forward(
        self,
        x: &Tensor<2>,
        rows: usize,
        norm: &PreNorm,
        kind: LayerKind,
        context: &DecoderContext,
    ) -> (Tensor<2>, SavedMixer) {
        match self {
            Mixer::Attention(attention) => {
                let qkv = qkv(attention, x, norm, kind, context);
                let out = attention.attend(&qkv, kind, context);
                let output = gate_output(join_heads(out.output.clone()), qkv.gate.clone());
                (output, SavedMixer::Attention(qkv, out))
            }
            Mixer::Recurrence(recurrence) => {
                let projected = projected(recurrence, x, norm, context);
                let (output, _) = recurrence.forward(projected.clone(), rows, None);
                (output, SavedMixer::Recurrence(projected))
            }
        }
    }

    /// Runs [`Mixer::forward`] over the cache of layer `index`, to which these tokens are appended, unless that is an
    /// earlier layer, which has appended them. In a prefill, tokens attend to the batch itself, and the cache is filled
    /// for later.
    pub(crate) fn forward_cached(
        self,
        x: &Tensor<2>,
        rows: usize,
        norm: &PreNorm,
        kind: LayerKind,
        (cache, index): (&mut KvCache, usize),
        context: &DecoderContext,
    ) -> Tensor<2> {
        match self {
            Mixer::Attention(attention) if context.mask.is_some() => {
                let qkv = qkv(attention, x, norm, kind, context);
                if kind.kv != KvSharing::Reuse {
                    cache.fill(index, &qkv.key, &qkv.value);
                }
                let out = attention.attend(&qkv, kind, context);
                gate_output(join_heads(out.output), qkv.gate)
            }

            Mixer::Attention(attention) => {
                let normed = context.pre_norm(x.clone(), norm);
                let rotary = context.rotary(kind);
                let (query, gate) = attention.append(normed, (&mut *cache, index), rotary, context);
                let query = context.grown(query);
                let sinks = attention.sinks.as_ref().map(Param::val);
                gate_output(cache.attend(index, query, kind.window, sinks.as_ref()), gate)
            }

            Mixer::Recurrence(recurrence) => {
                let before = cache.state(index);
                let projected = projected(recurrence, x, norm, context);
                let (output, state) = recurrence.forward(projected, rows, before);
                cache.set_state(index, state);
                output
            }
        }
    }

    /// Computes the gradient of the first projection's output, given that of the last projection's input. The
    /// gradients of the parameters between the two are added to `sum`.
    pub(crate) fn backward(
        self,
        saved: SavedMixer,
        rows: usize,
        d_output: Tensor<2>,
        kind: LayerKind,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> MixerGradient {
        match (self, saved) {
            (Mixer::Attention(attention), SavedMixer::Attention(mut qkv, out)) => {
                let before_norms = qkv.before_norms.take();
                let gate = qkv.gate.take();
                let output = join_heads(out.output.clone());
                let (d_output, gate) = gate_output_backward(output, gate, d_output);
                let d_output = d_output.reshape(out.output.dims());
                attention.sinks_backward(&out, &d_output, sum);
                let [d_query, d_key, d_value] = qkv.attend_backward(out, d_output, kind, context);
                let [d_key, d_value] = context.shared.attended_backward(kind, [d_key, d_value]);
                let qkv = [context.grown(d_query), d_key, d_value];
                MixerGradient::Attention { before_norms, qkv, gate }
            }

            (Mixer::Recurrence(recurrence), SavedMixer::Recurrence(projected)) => {
                MixerGradient::Recurrence(recurrence.backward(projected, rows, d_output, sum))
            }
            _ => unreachable!("a layer keeps what it is made of"),
        }
    }

    /// Computes the gradient of the first projection's input at the tokens of `range`, given the gradients of its
    /// output. The input is the norm of the layer's input. The gradients of the projection's parameters are added to
    /// `sum`.
    pub(crate) fn backward_input(
        self,
        gradient: &MixerGradient,
        normed: Tensor<2>,
        range: &Range<usize>,
        kind: LayerKind,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> Tensor<2> {
        match (self, gradient) {
            (Mixer::Attention(attention), MixerGradient::Attention { before_norms, qkv, gate }) => {
                attention.qkv_rope_backward(
                    &normed,
                    before_norms.as_ref().map(|before| token_slice(before, range)),
                    (
                        qkv.each_ref().map(|it| it.clone().slice_dim(0, range.clone())),
                        gate.as_ref().map(|gate| token_slice(gate, range)),
                    ),
                    &context.rotary(kind).slice(range.clone()),
                    context,
                    sum,
                )
            }

            (Mixer::Recurrence(recurrence), MixerGradient::Recurrence(d)) => {
                // The input is 0 at padding, so its gradient must be 0 there too.
                let normed = context.zero_padding(normed, range);
                let d = recurrence.input().backward(
                    &normed,
                    token_slice(d, range),
                    context.compute,
                    sum,
                );
                context.zero_padding(d, range)
            }
            _ => unreachable!("a layer's gradients are those of what it is made of"),
        }
    }
}

/// Computes queries of all tokens, and the keys and values that they attend to.
fn qkv(
    attention: &Attention,
    x: &Tensor<2>,
    norm: &PreNorm,
    kind: LayerKind,
    context: &DecoderContext,
) -> Qkv {
    let chunks = context.chunks(x).into_iter().map(|range| {
        let normed = context.pre_norm(token_slice(x, &range), norm);
        attention.qkv_rope(normed, &context.rotary(kind).slice(range), context)
    });
    let qkv = Qkv::joined(chunks.collect());
    let [key, value] = context.shared.attended(kind, [qkv.key, qkv.value]);
    Qkv { query: context.grown(qkv.query), key, value, ..qkv }
}

/// Computes the first projection of a recurrence, whose input is 0 at padding, for all tokens.
fn projected(
    recurrence: &dyn Recurrence,
    x: &Tensor<2>,
    norm: &PreNorm,
    context: &DecoderContext,
) -> Tensor<2> {
    let chunks = context.chunks(x).into_iter().map(|range| {
        let normed = context.pre_norm(token_slice(x, &range), norm);
        recurrence.input().forward(context.zero_padding(normed, &range), None, context.compute)
    });
    joined(chunks.collect(), 0)
}

/// Joins the heads: `[tokens, heads, head_dim]` to `[tokens, heads · head_dim]`.
fn join_heads(x: Tensor<3>) -> Tensor<2> {
    let [tokens, heads, width] = x.dims();
    x.reshape([tokens, heads * width])
}
