//! A layer of a `Decoder`: its forward pass, and a backward pass written by hand.
//!
//! Everything except the attention, or the recurrence that replaces it, works token by token, so it is done for some
//! tokens at a time. The backward pass needs the layer's input. Either nothing else is saved
//! ([`Layer::backward_recompute`]), or also everything that would take a matmul to compute again
//! ([`Layer::forward_saving`]): queries, keys and values, the output of the attention, the residual stream after it,
//! and gate and up. Norms and activations are recomputed either way, and so are experts.

use std::ops::Range;

use burn::{
    module::{Module, Param},
    tensor::{Device, Tensor},
};

use firebrick_kernels::joined;

use crate::{
    attention::Attention,
    cache::KvCache,
    checkpoint::CheckpointError,
    config::{DecoderConfig, LayerKind},
    context::{DecoderContext, token_slice},
    experts::Experts,
    gated_delta_net::GatedDeltaNet,
    gradient::{GradientSum, SavedActivations},
    mixer::{Mixer, SavedMixer},
    mlp::{Mlp, SavedMlp},
    per_layer::PerLayerSublayer,
    projection::Projection,
    short_convolution::ShortConvolution,
    source::{ParameterSource, vector},
};

/// A layer: `y = x + attention(norm(x))`, then `y + mlp(norm(y))`. The norms may also follow the two sublayers
/// (post-norm), instead or as well. A third sublayer may add an embedding that the token has for this layer, and the
/// result may be multiplied by a number of the layer.
///
/// A layer has an attention or a recurrence, and an MLP or experts ([`LayerKind`]).
#[derive(Module, Debug)]
pub(crate) struct Layer {
    attention_norm: Option<Param<Tensor<1>>>,
    attention: Option<Attention>,
    delta: Option<GatedDeltaNet>,
    convolution: Option<ShortConvolution>,
    attention_post_norm: Option<Param<Tensor<1>>>,
    mlp_norm: Option<Param<Tensor<1>>>,
    gate_up: Option<Projection>,
    down: Option<Projection>,
    experts: Option<Experts>,
    mlp_post_norm: Option<Param<Tensor<1>>>,
    per_layer: Option<PerLayerSublayer>,
    /// Factor of the layer's output, one number, which is part of a checkpoint and takes no gradient.
    scale: Option<Param<Tensor<1>>>,
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
        let hidden = config.hidden_size;
        let inner = config.mlp_width(kind);
        let bias = config.biases.mlp;
        let pre = config.norms.has_pre_norm();
        let post = config.norms.has_post_norm();

        let mut norm = |exists: bool, name: &str| {
            exists.then(|| vector(source, &format!("{path}.{name}"), hidden, device)).transpose()
        };
        let [attention_norm, attention_post_norm, mlp_norm, mlp_post_norm] = [
            norm(pre, "attention_norm")?,
            norm(post, "attention_post_norm")?,
            norm(pre, "mlp_norm")?,
            norm(post, "mlp_post_norm")?,
        ];
        let (mut attention, mut delta, mut convolution) = (None, None, None);
        if !kind.recurrent {
            attention = Some(Attention::from_source(config, &path, kind, source, device)?);
        } else if config.convolution.is_some() {
            convolution = Some(ShortConvolution::from_source(config, &path, source, device)?);
        } else {
            delta = Some(GatedDeltaNet::from_source(config, &path, source, device)?);
        }

        let mut projection = |name: &str, inputs: usize| {
            Projection::from_source(config, &format!("{path}.{name}"), inputs, bias, source, device)
        };

        let (gate_up, down) = if kind.sparse {
            (None, None)
        } else {
            (Some(projection("gate_up", hidden)?), Some(projection("down", inner)?))
        };
        let experts = if kind.sparse {
            Some(Experts::from_source(config, &path, source, device)?)
        } else {
            None
        };
        let per_layer = PerLayerSublayer::from_source(config, index, source, device)?;
        let scale = if config.layer_scale {
            Some(vector(source, &format!("{path}.scale"), 1, device)?.no_grad())
        } else {
            None
        };

        Ok(Layer {
            attention_norm,
            attention,
            delta,
            convolution,
            attention_post_norm,
            mlp_norm,
            gate_up,
            down,
            experts,
            mlp_post_norm,
            per_layer,
            scale,
        })
    }

    /// Maps `[rows, tokens, hidden]` to `[rows, tokens, hidden]`, in a pass over a batch.
    pub(crate) fn forward(
        &self,
        x: Tensor<3>,
        kind: LayerKind,
        context: &DecoderContext,
    ) -> Tensor<3> {
        let shape = x.dims();
        let x = flatten_rows(x);
        // The part for the backward pass is not needed.
        let mixer_output =
            self.mixer().forward(&x, shape[0], &self.attention_norm, kind, context).0;
        self.rest(&x, &mixer_output, context).reshape(shape)
    }

    /// Runs [`Layer::forward`] over a cache, which these tokens then join as those of the layer with that index.
    pub(crate) fn forward_cached(
        &self,
        x: Tensor<3>,
        kind: LayerKind,
        cache: (&mut KvCache, usize),
        context: &DecoderContext,
    ) -> Tensor<3> {
        let shape = x.dims();
        let x = flatten_rows(x);
        let norm = &self.attention_norm;
        let mixer_output = self.mixer().forward_cached(&x, shape[0], norm, kind, cache, context);
        self.rest(&x, &mixer_output, context).reshape(shape)
    }

    /// Runs [`Layer::forward`] and saves what the backward pass needs. `x` and the output are without autodiff.
    pub(crate) fn forward_saving<'a>(
        &'a self,
        x: Tensor<3>,
        kind: LayerKind,
        context: &'a DecoderContext,
    ) -> (Tensor<3>, SavedActivations<'a>) {
        let shape = x.dims();
        let x = flatten_rows(x);
        let plain = self.valid();
        let norm = &plain.attention_norm;
        let (output, saved_mixer) = plain.mixer().forward(&x, shape[0], norm, kind, context);

        let mut chunks = Vec::new();
        let mut y = Vec::new();
        for range in context.chunks(&x) {
            let [residual, normed] =
                plain.middle(token_slice(&x, &range), token_slice(&output, &range), context);
            let saved_mlp = plain.mlp().gate_up(normed, &range, context);
            let output = plain.add_down(saved_mlp.clone(), residual.clone(), context);
            y.push(plain.finish(output, &range, context));
            chunks.push((residual, saved_mlp));
        }

        let activations = LayerActivations { rows: shape[0], output, saved_mixer, chunks };
        let saved = SavedActivations::new(move |d_y, sum| {
            self.backward(&plain, x, flatten_rows(d_y), activations, kind, context, sum)
                .reshape(shape)
        });

        (joined(y, 0).reshape(shape), saved)
    }

    /// Recomputes the layer, and then computes its backward pass. Tensors are without autodiff.
    pub(crate) fn backward_recompute(
        &self,
        x: Tensor<3>,
        d_y: Tensor<3>,
        kind: LayerKind,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> Tensor<3> {
        let shape = x.dims();
        let x = flatten_rows(x);
        let plain = self.valid();
        let norm = &plain.attention_norm;
        let (output, saved_mixer) = plain.mixer().forward(&x, shape[0], norm, kind, context);
        let activations =
            LayerActivations { rows: shape[0], output, saved_mixer, chunks: Vec::new() };
        self.backward(&plain, x, flatten_rows(d_y), activations, kind, context, sum).reshape(shape)
    }

    /// Computes the backward pass of the layer. `plain` is the copy of the layer without autodiff.
    #[allow(clippy::too_many_arguments, reason = "what a forward pass has, and its gradient")]
    fn backward(
        &self,
        plain: &Layer,
        x: Tensor<2>,
        d_y: Tensor<2>,
        activations: LayerActivations,
        kind: LayerKind,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> Tensor<2> {
        let LayerActivations { rows, output, saved_mixer, chunks } = activations;
        let mixer = self.mixer();
        let compute = context.compute;
        let mut chunks = chunks.into_iter();
        let mut d_per_layer = Vec::new();
        let mut d_residual = Vec::new();
        let mut d_output = Vec::new();

        // From the layer's output to the mixer's, chunk by chunk.
        for range in context.chunks(&x) {
            let output = token_slice(&output, &range);
            let (middle, saved_mlp) = match chunks.next() {
                Some((residual, saved_mlp)) => {
                    let normed = context.pre_norm(residual.clone(), &plain.mlp_norm);
                    ([residual, normed], saved_mlp)
                }
                None => {
                    let middle = plain.middle(token_slice(&x, &range), output.clone(), context);
                    let saved_mlp = plain.mlp().gate_up(middle[1].clone(), &range, context);
                    (middle, saved_mlp)
                }
            };
            let mut d_y = plain.scaled(token_slice(&d_y, &range));
            let mut branch = None;
            if let Some(sublayers) = self.per_layer.as_ref().zip(plain.per_layer.as_ref()) {
                let mlp_output = plain.mlp().down(saved_mlp.clone(), None, context);
                branch = Some(mlp_output.clone());
                let y = middle[0].clone() + context.joining(mlp_output, &plain.mlp_post_norm);
                let (sublayer, plain) = sublayers;
                let [d, d_embedding] = sublayer.backward(plain, y, d_y, &range, context, sum);
                d_y = d;
                d_per_layer.push(d_embedding);
            }
            let d = self.mlp_backward(plain, middle, (saved_mlp, branch), d_y, context, sum);

            let branch = || plain.mixer().output().forward(output.clone(), None, compute);
            let d_branch =
                context.post_norm_backward(branch, &self.attention_post_norm, d.clone(), sum);
            d_output.push(mixer.output().backward(&output, d_branch, compute, sum));
            d_residual.push(d);
        }

        if let Some(sublayer) = &self.per_layer {
            sublayer.leave_gradient(d_per_layer, context);
        }

        // Freed before the backward pass of the mixer, which needs memory too.
        drop((output, d_y));
        let d_mixer = mixer.backward(saved_mixer, rows, joined(d_output, 0), kind, context, sum);

        // And from the mixer's first projection to the layer's input.
        let mut d_x = Vec::new();
        for (range, d_residual) in context.chunks(&x).into_iter().zip(d_residual) {
            let x = token_slice(&x, &range);
            let normed = context.pre_norm(x.clone(), &plain.attention_norm);
            let d_normed = mixer.backward_input(&d_mixer, normed, &range, kind, context, sum);
            d_x.push(context.pre_norm_backward(x, &self.attention_norm, d_normed, d_residual, sum));
        }

        joined(d_x, 0)
    }

    /// Computes the gradient of the residual stream between the sublayers, given that of the stream after them.
    /// `residual` is the stream between them, and `normed` its norm. The MLP's output comes with `saved_mlp`, if it is
    /// known.
    fn mlp_backward(
        &self,
        plain: &Layer,
        [residual, normed]: [Tensor<2>; 2],
        (saved_mlp, mlp_output): (SavedMlp, Option<Tensor<2>>),
        d_y: Tensor<2>,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> Tensor<2> {
        let computed = || plain.mlp().down(saved_mlp.clone(), None, context);
        let branch = || mlp_output.unwrap_or_else(computed);
        let d_branch = context.post_norm_backward(branch, &self.mlp_post_norm, d_y.clone(), sum);
        let d_normed = self.mlp().backward(plain.mlp(), &normed, saved_mlp, d_branch, context, sum);
        context.pre_norm_backward(residual, &self.mlp_norm, d_normed, d_y, sum)
    }

    /// Computes the layer after the part in which tokens see each other.
    fn rest(&self, x: &Tensor<2>, mixer_output: &Tensor<2>, context: &DecoderContext) -> Tensor<2> {
        let chunks = context.chunks(x).into_iter().map(|range| {
            let [residual, normed] =
                self.middle(token_slice(x, &range), token_slice(mixer_output, &range), context);
            let y = self.add_down(self.mlp().gate_up(normed, &range, context), residual, context);
            self.finish(y, &range, context)
        });
        joined(chunks.collect(), 0)
    }

    /// Computes the rest of the MLP and adds it to the residual stream.
    fn add_down(
        &self,
        saved_mlp: SavedMlp,
        residual: Tensor<2>,
        context: &DecoderContext,
    ) -> Tensor<2> {
        let plainly = self.mlp_post_norm.is_none() && context.residual_scale == 1.0;
        if plainly {
            return self.mlp().down(saved_mlp, Some(residual), context);
        }
        let branch = self.mlp().down(saved_mlp, None, context);
        residual + context.joining(branch, &self.mlp_post_norm)
    }

    /// Makes the layer's output of the residual stream after the MLP, at the tokens of `range`.
    fn finish(&self, y: Tensor<2>, range: &Range<usize>, context: &DecoderContext) -> Tensor<2> {
        self.scaled(match &self.per_layer {
            Some(sublayer) => sublayer.forward(y, range, context),
            None => y,
        })
    }

    /// Multiplies the layer's output, or its gradient, by the layer's factor, if it has one.
    fn scaled(&self, x: Tensor<2>) -> Tensor<2> {
        match &self.scale {
            Some(scale) => x * scale.val().unsqueeze(),
            None => x,
        }
    }

    /// Computes the residual stream between the two sublayers, and its norm.
    fn middle(
        &self,
        x: Tensor<2>,
        mixer_output: Tensor<2>,
        context: &DecoderContext,
    ) -> [Tensor<2>; 2] {
        let branch = self.mixer().output().forward(mixer_output, None, context.compute);
        let branch = context.joining(branch, &self.attention_post_norm);

        match &self.mlp_norm {
            Some(norm) => context.norm.of_sum(x, branch, norm.val(), context.compute),
            None => {
                let residual = x + branch;
                [residual.clone(), residual.cast(context.compute.dtype())]
            }
        }
    }

    fn mixer(&self) -> Mixer<'_> {
        match (&self.attention, &self.delta, &self.convolution) {
            (Some(attention), ..) => Mixer::Attention(attention),
            (_, Some(delta), _) => Mixer::Recurrence(delta),
            (.., Some(convolution)) => Mixer::Recurrence(convolution),
            _ => unreachable!("a layer is made with one of the three"),
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
            let GatedDeltaNet { input, output, .. } = delta;
            [("delta.input", input), ("delta.output", output)]
        });

        let convolution = self.convolution.as_mut().map(|convolution| {
            let ShortConvolution { input, output, .. } = convolution;
            [("convolution.input", input), ("convolution.output", output)]
        });

        let mlp = [("gate_up", self.gate_up.as_mut()), ("down", self.down.as_mut())];
        let mlp = mlp.into_iter().filter_map(|(name, projection)| Some((name, projection?)));
        let per_layer = self.per_layer.as_mut().into_iter().flat_map(|sublayer| {
            let PerLayerSublayer { gate, output, .. } = sublayer;
            [("per_layer.gate", gate), ("per_layer.output", output)]
        });
        attention.into_iter().chain(delta).chain(convolution).flatten().chain(mlp).chain(per_layer)
    }
}

/// Activations that a forward pass through a layer saves, besides its input.
struct LayerActivations {
    rows: usize,
    /// Input of the mixer's last projection.
    output: Tensor<2>,
    saved_mixer: SavedMixer,
    /// Residual stream between the sublayers, and the saved part of the MLP, for each chunk of the tokens; empty if
    /// they are recomputed.
    chunks: Vec<(Tensor<2>, SavedMlp)>,
}

/// Joins rows: `[rows, tokens, hidden]` to `[tokens, hidden]`.
pub(crate) fn flatten_rows(x: Tensor<3>) -> Tensor<2> {
    let [rows, tokens, hidden] = x.dims();
    x.reshape([rows * tokens, hidden])
}
