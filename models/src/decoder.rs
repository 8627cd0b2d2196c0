use burn::{
    module::{Module, ModuleMapper, Param},
    tensor::{Device, Int, Tensor},
};

use crate::{
    Activation, CheckpointError, Compute, DecoderConfig, KvCache, Lora, Mask, PolicyModel,
    TokenBatch,
    attention::Attention,
    init::{ParameterSource, matrix, vector},
    names,
    ops::{self, Norm, Rotary},
    projection::Projection,
};

/// A decoder-only transformer with RMSNorm, rotary positions, grouped-query attention and a gated MLP:
/// the form of every family here.
///
/// Weights are f32; a checkpoint in half precision is widened when it is read. What matrices are
/// multiplied in is another matter: see [`Decoder::with_compute`].
#[derive(Module, Debug)]
pub struct Decoder {
    embedding: Param<Tensor<2>>, // [vocab, hidden]
    layers: Vec<Layer>,
    norm: Param<Tensor<1>>,
    head: Option<Param<Tensor<2>>>, // [vocab, hidden]; absent when tied
    #[module(skip)]
    config: DecoderConfig,
    #[module(skip)]
    compute: Compute,
    #[module(skip)]
    lora: Option<Lora>,
}

impl Decoder {
    /// The sizes of this decoder.
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// Its adapters, if it has some.
    pub fn lora(&self) -> Option<&Lora> {
        self.lora.as_ref()
    }

    /// The format that matrices are multiplied in.
    pub fn compute(&self) -> Compute {
        self.compute
    }

    /// The same decoder with matrices multiplied in another format.
    pub fn with_compute(mut self, compute: Compute) -> Self {
        self.compute = compute;
        self
    }

    /// Logits of every position, `[rows, tokens, vocab]`: for inspection and tests. Training and
    /// sampling ask for hidden states and apply the head where they need it.
    pub fn logits(&self, batch: &TokenBatch) -> Tensor<3> {
        let hidden = self.hidden(batch);
        let [rows, tokens, width] = hidden.dims();
        crate::head_logits(hidden.reshape([rows * tokens, width]), self.head().val()).reshape([
            rows,
            tokens,
            self.config.vocab_size,
        ])
    }

    pub(crate) fn from_source(
        config: &DecoderConfig,
        source: &mut dyn ParameterSource,
        device: &Device,
    ) -> Result<Self, CheckpointError> {
        let vocab_by_hidden = [config.vocab_size, config.hidden_size];
        Ok(Decoder {
            embedding: matrix(source, "embedding", vocab_by_hidden, device)?,
            layers: (0..config.layers)
                .map(|index| Layer::from_source(config, index, source, device))
                .collect::<Result<_, _>>()?,
            norm: vector(source, "norm", config.hidden_size, device)?,
            head: if config.tied {
                None
            } else {
                Some(matrix(source, "head", vocab_by_hidden, device)?)
            },
            config: config.clone(),
            compute: Compute::default(),
            lora: None,
        })
    }

    pub(crate) fn set_lora(&mut self, lora: Option<Lora>) {
        self.lora = lora;
    }

    /// Every projection, with the checkpoint's names of the maps it joins, such as
    /// `model.layers.0.self_attn.q_proj`.
    pub(crate) fn projections_mut(
        &mut self,
    ) -> impl Iterator<Item = (Vec<String>, &mut Projection)> {
        let config = &self.config;
        self.layers.iter_mut().enumerate().flat_map(move |(index, layer)| {
            let named =
                move |(path, projection)| (names::of_projection(index, path, config), projection);
            layer.projections_mut().map(named)
        })
    }

    /// The things that the layers share: the angles of `positions`, `[rows, tokens]`, and what they see.
    fn shared(&self, positions: &Tensor<2, Int>, mask: Mask) -> DecoderContext {
        DecoderContext {
            mask,
            rotary: Rotary::new(positions, self.config.head_dim, &self.config.rope),
            norm: self.norm_rule(),
            activation: self.config.activation,
            compute: self.compute,
        }
    }

    /// `[rows, tokens]` to `[rows, tokens, hidden]`.
    fn embedded(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        let config = &self.config;
        let [rows, length] = tokens.dims();
        let embedded = self.embedding.val().select(0, tokens.reshape([rows * length]));
        // Rounded as in the sampler, whose matrices all are: otherwise it would sample from another
        // policy than the one that is trained.
        let embedded = embedded.cast(self.compute.dtype()).cast(Compute::F32.dtype());
        let x = embedded.reshape([rows, length, config.hidden_size]);
        if config.embedding_scale != 1.0 { x.mul_scalar(config.embedding_scale) } else { x }
    }

    /// One layer; with a cache, over what that remembers.
    fn one(
        &self,
        index: usize,
        x: Tensor<3>,
        context: &DecoderContext,
        cache: Option<&mut KvCache>,
    ) -> Tensor<3> {
        let bias = context.mask.of(self.config.windows[index]);
        self.layers[index].forward(x, bias, cache.map(|cache| (cache, index)), context)
    }

    /// All layers over a cache, which then remembers the tokens of `x`.
    fn remembering(
        &self,
        mut x: Tensor<3>,
        context: &DecoderContext,
        cache: &mut KvCache,
    ) -> Tensor<3> {
        let length = x.dims()[1];
        for index in 0..self.layers.len() {
            x = self.one(index, x, context, Some(cache));
        }
        cache.advance(length);
        self.finish(x)
    }

    fn norm_rule(&self) -> Norm {
        Norm { epsilon: self.config.norm_epsilon, offset: self.config.norm_offset }
    }
}

impl PolicyModel for Decoder {
    type Cache = KvCache;
    type Context = DecoderContext;

    fn device(&self) -> Device {
        self.embedding.val().device()
    }

    fn context(&self, batch: &TokenBatch) -> DecoderContext {
        self.shared(&batch.positions, batch.mask(self.config.window()))
    }

    fn embed(&self, batch: &TokenBatch) -> Tensor<3> {
        self.embedded(batch.tokens.clone())
    }

    fn layers(&self) -> usize {
        self.layers.len()
    }

    fn layer(&self, index: usize, x: Tensor<3>, context: &DecoderContext) -> Tensor<3> {
        self.one(index, x, context, None)
    }

    fn finish(&self, x: Tensor<3>) -> Tensor<3> {
        // In the format that the head is multiplied in.
        self.norm_rule().apply(x, self.norm.val()).cast(self.compute.dtype())
    }

    fn prefill(&self, batch: &TokenBatch) -> (Tensor<2>, KvCache) {
        let [rows, length] = batch.tokens.dims();
        let config = &self.config;
        let heads = [config.kv_heads, config.head_dim];
        let mut cache = KvCache::new(batch, config.layers, heads, config.window(), self.compute);
        let hidden = self.remembering(self.embed(batch), &self.context(batch), &mut cache);
        (hidden.narrow(1, length - 1, 1).reshape([rows, config.hidden_size]), cache)
    }

    fn decode(&self, tokens: Tensor<1, Int>, cache: &mut KvCache) -> Tensor<2> {
        let rows = tokens.dims()[0];
        let (positions, mask) = cache.next_column();
        let x = self.embedded(tokens.reshape([rows, 1]));
        let hidden = self.remembering(x, &self.shared(&positions, mask), cache);
        hidden.reshape([rows, self.config.hidden_size])
    }

    fn head(&self) -> &Param<Tensor<2>> {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    /// Matrices are rounded once instead of at every token.
    fn sampler(&self) -> Self {
        self.valid().map(&mut Rounded(self.compute))
    }

    /// Its `tied` is true.
    fn trunk(mut self) -> Self {
        self.head = None;
        self.config.tied = true;
        self
    }
}

/// Rounds matrices to the format that they are multiplied in.
struct Rounded(Compute);

impl ModuleMapper for Rounded {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if D < 2 { param } else { param.map(|tensor| tensor.cast(self.0.dtype())) }
    }
}

/// The things that are the same in every layer of a [`Decoder`]'s forward pass.
pub struct DecoderContext {
    mask: Mask,
    pub(crate) rotary: Rotary,
    pub(crate) norm: Norm,
    pub(crate) activation: Activation,
    pub(crate) compute: Compute,
}

#[derive(Module, Debug)]
struct Layer {
    attention_norm: Param<Tensor<1>>,
    attention: Attention,
    mlp_norm: Param<Tensor<1>>,
    gate_up: Projection,
    down: Projection,
}

impl Layer {
    fn from_source(
        config: &DecoderConfig,
        index: usize,
        source: &mut dyn ParameterSource,
        device: &Device,
    ) -> Result<Self, CheckpointError> {
        let path = format!("layers.{index}");
        let (hidden, inner, bias) =
            (config.hidden_size, config.intermediate_size, config.biases.mlp);
        Ok(Layer {
            attention_norm: vector(source, &format!("{path}.attention_norm"), hidden, device)?,
            attention: Attention::from_source(config, &path, source, device)?,
            mlp_norm: vector(source, &format!("{path}.mlp_norm"), hidden, device)?,
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

    fn forward(
        &self,
        x: Tensor<3>,
        bias: Tensor<4>,
        cache: Option<(&mut KvCache, usize)>,
        context: &DecoderContext,
    ) -> Tensor<3> {
        let normed = context.norm.apply(x.clone(), self.attention_norm.val());
        let x = x + self.attention.forward(normed, bias, cache, context);
        let normed = context.norm.apply(x.clone(), self.mlp_norm.val());
        let inner = ops::gated(self.gate_up.forward(normed, context.compute), context.activation);
        x + self.down.forward(inner, context.compute)
    }

    fn projections_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut Projection)> {
        [
            ("attention.qkv", &mut self.attention.qkv),
            ("attention.output", &mut self.attention.output),
            ("gate_up", &mut self.gate_up),
            ("down", &mut self.down),
        ]
        .into_iter()
    }
}
