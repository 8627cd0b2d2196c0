//! Embeddings per layer, in the small models of Gemma 4: besides the embedding that begins the residual stream, each
//! token has one for each layer, which a sublayer of that layer adds.
//!
//! All of them are made before the first layer, from a table and from the first embedding, whose gradient is therefore
//! known only after the backward pass of the first layer. [`SharedStates`](crate::shared::SharedStates) carries them to
//! the layers, and their gradients back.

use std::{f64::consts::FRAC_1_SQRT_2, ops::Range};

use burn::{
    module::{Module, Param},
    tensor::{Device, FloatDType, Tensor},
};
use firebrick_kernels::{self as ops, Compute, joined};

use crate::{
    checkpoint::CheckpointError,
    config::{DecoderConfig, PerLayerSizes},
    context::{DecoderContext, PassTokens, token_slice},
    gradient::GradientSum,
    names,
    projection::Projection,
    source::{ParameterSource, matrix, vector},
};

/// Makes the embeddings of all layers: `(norm(projection(x) / √hidden) + √width · table[token]) / √2`, where `x` is the
/// input of the first layer, and each layer's part is normalised by itself.
#[derive(Module, Debug)]
pub(crate) struct PerLayerEmbeddings {
    table: Param<Tensor<2>>, // [vocab, layers · width]
    projection: Projection,  // [hidden, layers · width]
    norm: Param<Tensor<1>>,  // [width]
}

impl PerLayerEmbeddings {
    /// Reads them, if the model has some.
    pub(crate) fn from_source(
        config: &DecoderConfig,
        source: &mut dyn ParameterSource,
        device: &Device,
    ) -> Result<Option<Self>, CheckpointError> {
        let Some(PerLayerSizes { vocab_size, width }) = config.per_layer else { return Ok(None) };
        let shape = [vocab_size, config.per_layer_width()];
        let hidden = config.hidden_size;
        Ok(Some(PerLayerEmbeddings {
            table: matrix(source, "per_layer.table", shape, device)?,
            projection: Projection::from_source(
                config,
                names::OUTSIDE,
                hidden,
                false,
                source,
                device,
            )?,
            norm: vector(source, "per_layer.norm", width, device)?,
        }))
    }

    /// Makes the embeddings of all layers from the first layer's input `x`, `[tokens, hidden]`, and leaves them in the
    /// context.
    pub(crate) fn forward(&self, x: &Tensor<2>, context: &DecoderContext) {
        let chunks = context.chunks(x).into_iter().map(|range| {
            let projected = self.projected(token_slice(x, &range), context);
            let normed = context.norm.apply(projected, self.norm.val(), Compute::F32);
            let found = self.found(&range, context);
            let sum = (normed.reshape(found.dims()) + found).mul_scalar(FRAC_1_SQRT_2);
            // They are kept until the backward pass, and have to be of this format in the layers anyway.
            sum.cast(context.compute.dtype())
        });
        context.shared.set_per_layer(joined(chunks.collect(), 0));
    }

    /// Computes the gradient of the first layer's input from those that the layers left in the context. The gradients
    /// of the parameters are added to `sum`. Tensors are without autodiff.
    pub(crate) fn backward(
        &self,
        x: &Tensor<2>,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> Tensor<2> {
        let plain = self.valid();
        let d = context.shared.take_per_layer().mul_scalar(FRAC_1_SQRT_2);

        let mut d_x = Vec::new();
        for range in context.chunks(x) {
            let x = token_slice(x, &range);
            let projected = plain.projected(x.clone(), context);
            let d = token_slice(&d, &range);
            let shape = d.dims();
            let d = d.reshape(projected.dims());
            let d = context.norm_backward(projected, &self.norm, d, None, sum);
            let d = d.mul_scalar(scale_of(&x)).reshape(shape);
            let x = x.cast(context.compute.dtype());
            d_x.push(self.projection.backward(&x, d, context.compute, sum));
        }

        if self.table.is_require_grad() {
            let d = d.mul_scalar(self.table_scale());
            let ids = &tokens(context).ids;
            sum.add_rows(&self.table, ids, d, context.chunk_sizes.scores);
        }
        joined(d_x, 0)
    }

    /// Returns the projection, which may have an adapter.
    pub(crate) fn projection_mut(&mut self) -> &mut Projection {
        &mut self.projection
    }

    /// Computes what the norm normalises: `[tokens, hidden]` to `[tokens · layers, width]`.
    fn projected(&self, x: Tensor<2>, context: &DecoderContext) -> Tensor<2> {
        let scale = scale_of(&x);
        let projected = self.projection.forward(x, None, context.compute).mul_scalar(scale);
        let [tokens, all] = projected.dims();
        let width = self.width();
        projected.reshape([tokens * all / width, width])
    }

    /// Looks up the tokens of `range`, `[tokens, layers · width]`.
    fn found(&self, range: &Range<usize>, context: &DecoderContext) -> Tensor<2> {
        let tokens = tokens(context).on_device.clone().slice_dim(0, range.clone());
        let found = self.table.val().select(0, tokens);
        // As the first embedding is rounded.
        let found = found.cast(context.compute.dtype()).cast(FloatDType::F32);
        found.mul_scalar(self.table_scale())
    }

    fn table_scale(&self) -> f64 {
        (self.width() as f64).sqrt()
    }

    fn width(&self) -> usize {
        self.norm.dims()[0]
    }
}

/// Returns the factor of what is projected, 1/√hidden.
fn scale_of(x: &Tensor<2>) -> f64 {
    (x.dims()[1] as f64).sqrt().recip()
}

fn tokens(context: &DecoderContext) -> &PassTokens {
    context.tokens.as_ref().expect("a model with embeddings per layer has the tokens")
}

/// Sublayer that adds a layer's own embedding `e` to the residual stream:
/// `y + norm(output(activation(gate(y)) · e))`.
#[derive(Module, Debug)]
pub(crate) struct PerLayerSublayer {
    pub(crate) gate: Projection,   // [hidden, width]
    pub(crate) output: Projection, // [width, hidden]
    norm: Param<Tensor<1>>,        // [hidden]
    /// The layer's number.
    #[module(skip)]
    layer: usize,
    #[module(skip)]
    width: usize,
}

impl PerLayerSublayer {
    /// Reads the sublayer of layer `layer`, if the model has embeddings per layer.
    pub(crate) fn from_source(
        config: &DecoderConfig,
        layer: usize,
        source: &mut dyn ParameterSource,
        device: &Device,
    ) -> Result<Option<Self>, CheckpointError> {
        let Some(PerLayerSizes { width, .. }) = config.per_layer else { return Ok(None) };
        let path = |part: &str| format!("layers.{layer}.per_layer.{part}");
        let hidden = config.hidden_size;
        let mut projection = |part: &str, inputs: usize| {
            Projection::from_source(config, &path(part), inputs, false, source, device)
        };
        let gate = projection("gate", hidden)?;
        let output = projection("output", width)?;
        let norm = vector(source, &path("norm"), hidden, device)?;
        Ok(Some(PerLayerSublayer { gate, output, norm, layer, width }))
    }

    /// Computes the sublayer for the residual stream `y` at the tokens of `range`, `[tokens, hidden]`.
    pub(crate) fn forward(
        &self,
        y: Tensor<2>,
        range: &Range<usize>,
        context: &DecoderContext,
    ) -> Tensor<2> {
        let both = self.gate_and_embedding(&y, range, context);
        let inner = ops::gated(both, context.activation, context.compute);
        let branch = self.output.forward(inner, None, context.compute);
        let branch = context.norm.apply(branch, self.norm.val(), Compute::F32);
        y + context.scaled(branch)
    }

    /// Computes the gradients of the residual stream before the sublayer, and of the embeddings, `[tokens, width]`,
    /// given that of the stream after it. `plain` is the copy without autodiff, and everything is recomputed from `y`.
    pub(crate) fn backward(
        &self,
        plain: &PerLayerSublayer,
        y: Tensor<2>,
        d_y: Tensor<2>,
        range: &Range<usize>,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> [Tensor<2>; 2] {
        let compute = context.compute;
        let both = plain.gate_and_embedding(&y, range, context);
        let inner = ops::gated(both.clone(), context.activation, compute);
        let branch = plain.output.forward(inner.clone(), None, compute);

        let d_branch = context.scaled(d_y.clone());
        let d_branch = context.norm_backward(branch, &self.norm, d_branch, None, sum);
        let d_inner = self.output.backward(&inner, d_branch, compute, sum);
        let [_, d_both] = ops::gated_backward(both, d_inner, context.activation, compute);

        let [d_gate, d_embedding] =
            [0, self.width].map(|start| d_both.clone().narrow(1, start, self.width));
        let d = self.gate.backward(&y.cast(compute.dtype()), d_gate, compute, sum);
        [d_y + d, d_embedding.cast(FloatDType::F32)]
    }

    /// Leaves the gradient of the layer's embeddings, which is in chunks of the tokens, in the context.
    pub(crate) fn leave_gradient(&self, chunks: Vec<Tensor<2>>, context: &DecoderContext) {
        context.shared.add_per_layer(self.layer, joined(chunks, 0));
    }

    /// Computes the gate before its activation, and puts the embedding next to it, as an MLP has gate and up.
    fn gate_and_embedding(
        &self,
        y: &Tensor<2>,
        range: &Range<usize>,
        context: &DecoderContext,
    ) -> Tensor<2> {
        let y = y.clone().cast(context.compute.dtype());
        let gate = self.gate.forward(y, None, context.compute);
        let embedding = context.shared.per_layer(self.layer, self.width);
        let embedding = token_slice(&embedding, range).cast(FloatDType::F32);
        Tensor::cat(vec![gate, embedding], 1)
    }
}
