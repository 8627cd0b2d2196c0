//! Gemma, the first generation. The embedding is scaled by √hidden_size, a norm multiplies by one plus its weight,
//! the MLP's gate goes through GELU, and the head is the embedding.

use firebrick_core::config::Family;
use firebrick_kernels::Activation;
use serde_json::{Value, json};

use crate::{
    config::{Biases, DecoderConfig},
    fields::{ConfigError, Fields, not_implemented},
    layout::{self, Defaults},
};

/// Sets the parts in which the family differs from Llama.
pub(crate) fn shape(config: &mut DecoderConfig) {
    config.norm_offset = 1.0;
    config.embedding_scale = (config.hidden_size as f64).sqrt();
    config.activation = Activation::GeluTanh;
}

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let defaults = Defaults {
        kv_heads: Some(16),
        head_dim: Some(256),
        max_position_embeddings: 8192,
        tied: true,
        nulls: &[],
        ..Defaults::LLAMA
    };

    let mut config = layout::read(fields, Family::Gemma, shape, defaults)?;
    // The published files say "gelu" and mean its approximation by tanh.
    layout::activation(fields, &["gelu", "gelu_pytorch_tanh"])?;
    if fields.optional("use_bidirectional_attention", Fields::flag)? == Some(true) {
        return Err(not_implemented("use_bidirectional_attention"));
    }

    let bias = fields.flag_or("attention_bias", false)?;
    config.biases = Biases { qkv: bias, output: bias, mlp: false };
    Ok(config)
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    json!({
        "attention_bias": config.biases.qkv,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh",
    })
}
