//! Qwen3: every query and key head is normalised before it is rotated. `head_dim` is in the file, because the heads
//! together are not as wide as the residual stream.

use firebrick_core::config::Family;
use serde_json::Value;

use crate::{
    config::{Biases, DecoderConfig, QkNorm},
    fields::{ConfigError, Fields},
    layer_types,
    layout::{self, Defaults},
};

/// Sets the parts in which the family differs from Llama.
pub(crate) fn shape(config: &mut DecoderConfig) {
    config.qk_norm = QkNorm::Heads;
}

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let defaults = Defaults {
        kv_heads: Some(32),
        head_dim: Some(128),
        max_position_embeddings: 32768,
        nulls: &[layout::KV_HEADS],
        ..Defaults::LLAMA
    };

    let mut config = layout::read(fields, Family::Qwen3, shape, defaults)?;
    layout::activation(fields, &["silu"])?;
    let bias = fields.flag_or("attention_bias", false)?;
    config.biases = Biases { qkv: bias, output: bias, mlp: false };
    layer_types::switched(fields, &mut config)?;
    Ok(config)
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    let mut fields = layer_types::switched_to_json(config);
    fields["attention_bias"] = config.biases.qkv.into();
    fields
}
