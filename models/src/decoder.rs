//! The decoder: one transformer for every family.

use burn::{
    module::{Module, ModuleMapper, Param},
    tensor::{DType, Device, Int, Tensor},
};

use firebrick_kernels::{Compute, Norm, RopeFrequencies, RopeTable, head_logits};

use crate::{
    batch::TokenBatch,
    cache::KvCache,
    checkpoint::CheckpointError,
    chunk_sizes::ChunkSizes,
    config::{DecoderConfig, KvSharing, LayerKind},
    context::{DecoderContext, PassTokens, PerRopeKind, frequencies},
    experts::Experts,
    gradient::{GradientSum, SavedActivations},
    layer::{Layer, flatten_rows},
    load_balancing::{Counter, Loads},
    lora::Lora,
    names::{self, TextPrefix},
    per_layer::PerLayerEmbeddings,
    policy::{Lookup, PolicyModel},
    projection::{Projection, map_without_grad},
    shared::SharedStates,
    source::{ParameterSource, matrix, vector},
};

/// A decoder-only transformer with RMSNorm, rotary positions, grouped-query attention and a gated MLP: the architecture
/// of every family here. In some families some layers have a recurrence instead of the attention, or experts instead of
/// the MLP ([`LayerKind`](crate::LayerKind)).
///
/// Weights are f32, except frozen weights in another [`FrozenFormat`](crate::FrozenFormat). A checkpoint in half
/// precision is widened when it is read. The matmul precision may be another: see [`Decoder::with_compute`].
#[derive(Module, Debug)]
pub struct Decoder {
    embedding: Param<Tensor<2>>, // [vocab, hidden]
    per_layer: Option<PerLayerEmbeddings>,
    layers: Vec<Layer>,
    norm: Param<Tensor<1>>,
    head: Option<Param<Tensor<2>>>, // [vocab, hidden]; absent when tied
    #[module(skip)]
    config: DecoderConfig,
    #[module(skip)]
    compute: Compute,
    #[module(skip)]
    chunk_sizes: ChunkSizes,
    #[module(skip)]
    unpacks_sampler: bool,
    #[module(skip)]
    lora: Option<Lora>,
    #[module(skip)]
    text_prefix: TextPrefix,
    #[module(skip)]
    longest: usize,
    #[module(skip)]
    frequencies: PerRopeKind<RopeFrequencies>,
}

impl Decoder {
    /// Returns the sizes of this decoder.
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// Returns the decoder's adapters, if it has some.
    pub fn lora(&self) -> Option<&Lora> {
        self.lora.as_ref()
    }

    /// Sets the matmul precision.
    pub fn with_compute(mut self, compute: Compute) -> Self {
        self.compute = compute;
        self
    }

    /// Sets the length in tokens of the longest texts that the decoder is for. Frequencies that were changed for a
    /// longer context may depend on it ([`RopeScaling`](crate::RopeScaling)); by default they are those of short texts.
    pub fn with_longest(mut self, tokens: usize) -> Self {
        self.frequencies = frequencies(&self.config, tokens);
        self.longest = tokens;
        self
    }

    /// Returns the length that [`Decoder::with_longest`] set, or 0.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Returns the chunk sizes of the decoder's passes.
    pub fn chunk_sizes(&self) -> ChunkSizes {
        self.chunk_sizes
    }

    /// Sets the chunk sizes of the decoder's passes.
    pub fn with_chunk_sizes(mut self, chunk_sizes: ChunkSizes) -> Self {
        self.chunk_sizes = chunk_sizes;
        self
    }

    /// Sets whether a copy for sampling has weights of 8 and 4 bits in 16 bits, if these are the matmul precision. A
    /// step then unpacks none of them, and multiplies by the same numbers.
    pub fn with_unpacked_sampler(mut self, unpacks: bool) -> Self {
        self.unpacks_sampler = unpacks;
        self
    }

    /// Computes the logits of every position, `[rows, tokens, vocab]`, for inspection and tests. Training and
    /// sampling ask for hidden states and apply the head where they need it.
    pub fn logits(&self, batch: &TokenBatch) -> Tensor<3> {
        let hidden = self.hidden(batch);
        let [rows, tokens, width] = hidden.dims();
        let logits = head_logits(hidden.reshape([rows * tokens, width]), &self.lm_head());
        logits.reshape([rows, tokens, self.config.vocab_size])
    }

    pub(crate) fn from_source(
        config: &DecoderConfig,
        source: &mut dyn ParameterSource,
        device: &Device,
    ) -> Result<Self, CheckpointError> {
        let vocab_by_hidden = [config.vocab_size, config.hidden_size];

        Ok(Decoder {
            embedding: matrix(source, "embedding", vocab_by_hidden, device)?,
            per_layer: PerLayerEmbeddings::from_source(config, source, device)?,
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
            chunk_sizes: ChunkSizes::default(),
            unpacks_sampler: false,
            lora: None,
            text_prefix: TextPrefix::default(),
            longest: 0,
            frequencies: frequencies(config, 0),
        })
    }

    pub(crate) fn set_lora(&mut self, lora: Option<Lora>) {
        self.lora = lora;
    }

    /// Returns where the class of `transformers` that opens the decoder's folder keeps the text model.
    pub(crate) fn text_prefix(&self) -> TextPrefix {
        self.text_prefix
    }

    pub(crate) fn set_text_prefix(&mut self, prefix: TextPrefix) {
        self.text_prefix = prefix;
    }

    /// Returns the matrix that has this name in [`Lora::modules_to_save`].
    pub(crate) fn full_matrix_mut(&mut self, module: &str) -> Option<&mut Param<Tensor<2>>> {
        match module {
            "embed_tokens" => Some(&mut self.embedding),
            "lm_head" => self.head.as_mut(),
            _ => None,
        }
    }

    /// Returns every projection, with the checkpoint's names of the maps that it joins, such as
    /// `model.layers.0.self_attn.q_proj`.
    pub(crate) fn projections_mut(
        &mut self,
    ) -> impl Iterator<Item = (Vec<String>, &mut Projection)> {
        let config = &self.config;
        let outside = self
            .per_layer
            .as_mut()
            .map(|per_layer| (vec![names::of_outside()], per_layer.projection_mut()));

        let in_layers = self.layers.iter_mut().enumerate().flat_map(move |(index, layer)| {
            let named =
                move |(path, projection)| (names::of_projection(index, path, config), projection);
            layer.projections_mut().map(named)
        });
        outside.into_iter().chain(in_layers)
    }

    /// Returns the projections of all experts, which have no adapters.
    pub(crate) fn experts_mut(&mut self) -> impl Iterator<Item = &mut Projection> {
        self.layers.iter_mut().filter_map(Layer::experts).flat_map(Experts::projections_mut)
    }

    /// Makes what all layers share in a pass over `tokens`, `[rows, tokens]`: the angles of their `positions`, and the
    /// attention mask of `batch`.
    fn build_context(
        &self,
        tokens: &Tensor<2, Int>,
        positions: &Tensor<2, Int>,
        batch: Option<&TokenBatch>,
    ) -> DecoderContext {
        let token_mask = |batch: &TokenBatch| {
            let token_mask = batch.token_mask().inner();
            let tokens = token_mask.dims().iter().product();
            token_mask.reshape([tokens, 1])
        };

        let pass_tokens = |_: &PerLayerEmbeddings| PassTokens {
            on_device: tokens.clone().inner().flatten(0, 1),
            ids: batch.map_or(Vec::new(), |batch| batch.ids().to_vec()),
        };

        let config = &self.config;
        DecoderContext {
            mask: batch.map(TokenBatch::mask),
            token_mask: batch.filter(|_| config.is_recurrent()).map(token_mask),
            rotary: self.frequencies.map(|it| RopeTable::new(&positions.clone().inner(), it)),
            growth: config.query_growth.map(|growth| growth.factors(positions.clone().inner())),
            norm: self.norm_rule(),
            activation: config.activation,
            squared_relu: config.squared_relu,
            swiglu_clamp: config.swiglu_clamp,
            residual_scale: config.residual_scale,
            compute: self.compute,
            chunk_sizes: self.chunk_sizes,
            tokens: self.per_layer.as_ref().map(pass_tokens),
            shared: SharedStates::default(),
            counter: None,
        }
    }

    /// Makes the embeddings per layer before the first layer, whose input `x` is.
    fn make_per_layer(&self, index: usize, x: &Tensor<3>, context: &DecoderContext) {
        if let Some(per_layer) = self.per_layer.as_ref().filter(|_| index == 0) {
            per_layer.forward(&flatten_rows(x.clone()), context);
        }
    }

    /// Adds what embeddings per layer make of the gradient of the first layer's input, `x`, once all layers are
    /// done. `d_x` is the gradient of the input of layer `index`.
    fn per_layer_backward(
        &self,
        index: usize,
        x: Tensor<3>,
        d_x: Tensor<3>,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> Tensor<3> {
        match self.per_layer.as_ref().filter(|_| index == 0) {
            Some(per_layer) => {
                let shape = d_x.dims();
                d_x + per_layer.backward(&flatten_rows(x), context, sum).reshape(shape)
            }
            None => d_x,
        }
    }

    /// Embeds `[rows, tokens]` to `[rows, tokens, hidden]`.
    fn embedded(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        let config = &self.config;
        let [rows, length] = tokens.dims();
        let embedded = self.embedding.val().select(0, tokens.reshape([rows * length]));
        // The sampler's matrices are all rounded. Without the same rounding here, it would sample from a policy that
        // differs from the trained one.
        let embedded = embedded.cast(self.compute.dtype()).cast(Compute::F32.dtype());
        let x = embedded.reshape([rows, length, config.hidden_size]);
        if config.embedding_scale != 1.0 { x.mul_scalar(config.embedding_scale) } else { x }
    }

    /// Runs all layers over a cache, to which the tokens of `x` are appended.
    fn forward_cached(
        &self,
        mut x: Tensor<3>,
        context: &DecoderContext,
        cache: &mut KvCache,
    ) -> Tensor<3> {
        self.make_per_layer(0, &x, context);
        let indices = self.config.cache_indices();
        for ((layer, kind), index) in self.layers.iter().zip(&self.config.kinds).zip(indices) {
            x = layer.forward_cached(x, *kind, (&mut *cache, index), context);
        }
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
        self.build_context(&batch.tokens, &batch.positions, Some(batch))
    }

    fn embed(&self, batch: &TokenBatch) -> Tensor<3> {
        self.embedded(batch.tokens.clone())
    }

    fn layers(&self) -> usize {
        self.layers.len()
    }

    fn layer(&self, index: usize, x: Tensor<3>, context: &DecoderContext) -> Tensor<3> {
        self.make_per_layer(index, &x, context);
        self.layers[index].forward(x, self.config.kinds[index], context)
    }

    fn compute(&self) -> Compute {
        self.compute
    }

    fn halve_chunks(&mut self) -> bool {
        let half = self.chunk_sizes.halved();
        self.chunk_sizes = half.unwrap_or(self.chunk_sizes);
        half.is_some()
    }

    /// Tells whether no layer is recurrent: a recurrence needs one text in each row.
    fn packs(&self) -> bool {
        !self.config.is_recurrent()
    }

    fn forward_saving<'a>(
        &'a self,
        index: usize,
        x: Tensor<3>,
        context: &'a DecoderContext,
    ) -> (Tensor<3>, SavedActivations<'a>) {
        let kind = self.config.kinds[index];
        let layer = &self.layers[index];
        let Some(per_layer) = self.per_layer.as_ref().filter(|_| index == 0) else {
            return layer.forward_saving(x, kind, context);
        };

        per_layer.valid().forward(&flatten_rows(x.clone()), context);
        let (y, saved) = layer.forward_saving(x.clone(), kind, context);
        let saved = SavedActivations::new(move |d_y, sum| {
            let d_x = saved.backward(d_y, sum);
            self.per_layer_backward(index, x, d_x, context, sum)
        });
        (y, saved)
    }

    fn backward_recompute(
        &self,
        index: usize,
        x: Tensor<3>,
        d_y: Tensor<3>,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> Tensor<3> {
        let kind = self.config.kinds[index];
        let d_x = self.layers[index].backward_recompute(x.clone(), d_y, kind, context, sum);
        self.per_layer_backward(index, x, d_x, context, sum)
    }

    fn lookup(&self) -> Option<Lookup<'_>> {
        Some(Lookup { table: &self.embedding, scale: self.config.embedding_scale })
    }

    fn finish(&self, x: Tensor<3>) -> Tensor<3> {
        // The result is in the matmul precision of the head.
        let x = self.norm_rule().apply(x, self.norm.val(), self.compute);
        // The head is linear, so what multiplies its result may multiply its input.
        let scale = self.config.logit_scale;
        if scale == 1.0 { x } else { x.mul_scalar(scale) }
    }

    fn prefill(&self, batch: &TokenBatch) -> (Tensor<2>, KvCache) {
        let [rows, length] = batch.tokens.dims();
        let config = &self.config;
        let stores = |kind: &&LayerKind| !kind.recurrent && kind.kv != KvSharing::Reuse;
        let attentions = config.kinds.iter().filter(stores);
        let heads = attentions.map(|kind| config.heads_of(*kind));
        let heads: Vec<[usize; 2]> = heads.map(|it| [it.key, it.width]).collect();
        let mut cache = KvCache::new(batch, &heads, self.compute);

        // Two kinds of layers need the host in each step: a recurrent layer's state has a new address after each step,
        // and the host reads which experts are chosen.
        if config.kinds.iter().any(|kind| kind.recurrent || kind.sparse) {
            cache = cache.with_host();
        }

        let hidden = self.forward_cached(self.embed(batch), &self.context(batch), &mut cache);
        (hidden.narrow(1, length - 1, 1).reshape([rows, config.hidden_size]), cache)
    }

    fn decode(&self, tokens: Tensor<1, Int>, cache: &mut KvCache) -> Tensor<2> {
        let rows = tokens.dims()[0];
        let positions = cache.append_slots();
        let tokens = tokens.reshape([rows, 1]);
        let context = self.build_context(&tokens, &positions, None);
        let hidden = self.forward_cached(self.embedded(tokens), &context, cache);
        hidden.reshape([rows, self.config.hidden_size])
    }

    fn count_loads(&self, batch: &TokenBatch, loads: &mut Loads) {
        let mut sparse = 0;
        let context = DecoderContext { counter: Some(Counter::default()), ..self.context(batch) };
        let mut x = self.embed(batch);

        for (index, kind) in self.config.kinds.iter().enumerate() {
            x = self.layer(index, x, &context);
            if kind.sparse
                && let Some(counter) = &context.counter
            {
                loads.add(sparse, counter.take());
                sparse += 1;
            }
        }
    }

    fn with_load_balancing(mut self, loads: &Loads, weight: f64) -> Self {
        let experts = self.layers.iter_mut().filter_map(Layer::experts);
        for (experts, gradient) in experts.zip(loads.load_balancing_gradients()) {
            experts.set_load_balancing(gradient.into_iter().map(|it| it * weight as f32).collect());
        }
        self
    }

    fn head(&self) -> &Param<Tensor<2>> {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    fn logit_cap(&self) -> Option<f64> {
        self.config.logit_cap
    }

    /// Rounds matrices once, instead of for every token and in every micro-batch.
    fn prepared(&self) -> Self {
        let mut prepared = self.clone();
        let mut adapters = Vec::new();
        for (_, projection) in prepared.projections_mut() {
            projection.prepare(self.compute);
            // The joined ones are rounded, and nothing multiplies by the single ones.
            adapters.push(std::mem::take(&mut projection.adapters));
        }

        // What is looked up in the table of embeddings per layer is rounded by itself, and the table is large.
        let per_layer = prepared.per_layer.take();
        let mut prepared = match self.compute {
            Compute::F32 => prepared,
            narrow => prepared.map(&mut Rounded(narrow)),
        };
        prepared.per_layer = per_layer;
        for ((_, projection), adapters) in prepared.projections_mut().zip(adapters) {
            projection.adapters = adapters;
        }
        prepared
    }

    fn sampler(&self) -> Self {
        let mut sampler = self.valid().prepared();
        // Only gradients need the single adapters. Without them the optimizer can change most in place; on the CPU, a
        // single `A` is shared with the joined one.
        for (_, projection) in sampler.projections_mut() {
            projection.adapters = Vec::new();
        }

        if self.unpacks_sampler && self.compute != Compute::F32 {
            sampler.projections_mut().for_each(|(_, projection)| projection.unpack(self.compute));
            sampler.experts_mut().for_each(|projection| projection.unpack(self.compute));
        }
        sampler
    }

    /// Removes the head, and the factor and the bound of its logits. `tied` is true in the result's sizes.
    fn trunk(mut self) -> Self {
        self.head = None;
        self.config.logit_scale = 1.0;
        self.config.logit_cap = None;
        self.config.tied = true;
        self
    }
}

/// Rounds matrices to the matmul precision, except those that are kept in a narrower format.
struct Rounded(Compute);

impl ModuleMapper for Rounded {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if D != 2 || param.val().dtype() != DType::F32 {
            return param;
        }
        map_without_grad(param, |tensor| tensor.cast(self.0.dtype()))
    }
}
