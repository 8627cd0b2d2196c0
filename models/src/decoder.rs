use burn::{
    module::{Module, Param},
    tensor::{Device, Int, Tensor},
};

use crate::{
    CheckpointError, DecoderConfig, KvCache, PolicyModel, TokenBatch,
    attention::Attention,
    init::{ParameterSource, matrix, vector},
    ops::{self, Rotary},
};

/// A decoder-only transformer with RMSNorm, rotary positions, grouped-query attention and SwiGLU.
///
/// All weights are f32; a checkpoint in half precision is widened when it is read.
#[derive(Module, Debug)]
pub struct Decoder {
    embedding: Param<Tensor<2>>, // [vocab, hidden]
    layers: Vec<Layer>,
    norm: Param<Tensor<1>>,
    head: Option<Param<Tensor<2>>>, // [vocab, hidden]; absent when tied
    #[module(skip)]
    config: DecoderConfig,
}

impl Decoder {
    /// The sizes of this decoder.
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// Logits of every position, `[rows, tokens, vocab]`: for inspection and tests. Training and
    /// sampling ask for hidden states and apply the head where they need it.
    pub fn logits(&self, batch: &TokenBatch) -> Tensor<3> {
        self.hidden(batch).matmul(self.head().val().transpose().unsqueeze())
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
                .map(|index| Layer::from_source(config, &format!("layers.{index}"), source, device))
                .collect::<Result<_, _>>()?,
            norm: vector(source, "norm", config.hidden_size, device)?,
            head: if config.tied {
                None
            } else {
                Some(matrix(source, "head", vocab_by_hidden, device)?)
            },
            config: config.clone(),
        })
    }

    fn forward(
        &self,
        tokens: Tensor<2, Int>,
        positions: &Tensor<2, Int>,
        bias: Tensor<4>,
        mut cache: Option<&mut KvCache>,
    ) -> Tensor<3> {
        let [rows, length] = tokens.dims();
        let rotary = Rotary::new(positions, self.config.head_dim, self.config.rope_theta);
        let mut x = self.embedding.val().select(0, tokens.reshape([rows * length])).reshape([
            rows,
            length,
            self.config.hidden_size,
        ]);
        for (index, layer) in self.layers.iter().enumerate() {
            let cache = cache.as_deref_mut().map(|cache| cache.layer(index));
            x = layer.forward(x, &rotary, bias.clone(), cache, self.config.norm_epsilon);
        }
        if let Some(cache) = cache {
            cache.advance(length);
        }
        ops::rms_norm(x, self.norm.val(), self.config.norm_epsilon)
    }
}

impl PolicyModel for Decoder {
    fn device(&self) -> Device {
        self.embedding.val().device()
    }

    fn hidden(&self, batch: &TokenBatch) -> Tensor<3> {
        self.forward(batch.tokens.clone(), &batch.positions, batch.bias(), None)
    }

    fn prefill(&self, batch: &TokenBatch) -> (Tensor<2>, KvCache) {
        let [rows, length] = batch.tokens.dims();
        let config = &self.config;
        let mut cache = KvCache::new(
            config.layers,
            [rows, config.kv_heads, length, config.head_dim],
            batch.starts(),
            &self.device(),
        );
        let hidden =
            self.forward(batch.tokens.clone(), &batch.positions, batch.bias(), Some(&mut cache));
        (hidden.narrow(1, length - 1, 1).reshape([rows, config.hidden_size]), cache)
    }

    fn decode(&self, tokens: Tensor<1, Int>, cache: &mut KvCache) -> Tensor<2> {
        let rows = tokens.dims()[0];
        let (positions, bias) = cache.next_column();
        let hidden = self.forward(tokens.reshape([rows, 1]), &positions, bias, Some(cache));
        hidden.reshape([rows, self.config.hidden_size])
    }

    fn head(&self) -> &Param<Tensor<2>> {
        self.head.as_ref().unwrap_or(&self.embedding)
    }
}

#[derive(Module, Debug)]
struct Layer {
    attention_norm: Param<Tensor<1>>,
    attention: Attention,
    mlp_norm: Param<Tensor<1>>,
    gate_up: Param<Tensor<2>>, // [hidden, gate + up]
    down: Param<Tensor<2>>,    // [intermediate, hidden]
}

impl Layer {
    fn from_source(
        config: &DecoderConfig,
        path: &str,
        source: &mut dyn ParameterSource,
        device: &Device,
    ) -> Result<Self, CheckpointError> {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        Ok(Layer {
            attention_norm: vector(source, &format!("{path}.attention_norm"), hidden, device)?,
            attention: Attention::from_source(
                config,
                &format!("{path}.attention"),
                source,
                device,
            )?,
            mlp_norm: vector(source, &format!("{path}.mlp_norm"), hidden, device)?,
            gate_up: matrix(source, &format!("{path}.gate_up"), [hidden, 2 * inner], device)?,
            down: matrix(source, &format!("{path}.down"), [inner, hidden], device)?,
        })
    }

    fn forward(
        &self,
        x: Tensor<3>,
        rotary: &Rotary,
        bias: Tensor<4>,
        cache: Option<(&mut crate::cache::LayerCache, usize)>,
        epsilon: f64,
    ) -> Tensor<3> {
        let normed = ops::rms_norm(x.clone(), self.attention_norm.val(), epsilon);
        let x = x + self.attention.forward(normed, rotary, bias, cache);
        let normed = ops::rms_norm(x.clone(), self.mlp_norm.val(), epsilon);
        let inner = ops::swiglu(normed.matmul(self.gate_up.val().unsqueeze()));
        x + inner.matmul(self.down.val().unsqueeze())
    }
}
