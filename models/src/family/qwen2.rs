//! Qwen2 and Qwen2.5: biases on queries, keys and values.

use firebrick_core::config::Family;
use serde_json::Value;

use crate::{
    config::{Biases, DecoderConfig},
    fields::{ConfigError, Fields},
    layer_types,
    layout::{self, Defaults},
};

/// Sets the parts in which the family differs from Llama.
pub(crate) fn shape(config: &mut DecoderConfig) {
    config.biases = Biases { qkv: true, ..Biases::default() };
}

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let defaults = Defaults {
        kv_heads: Some(32),
        head_dim: None,
        max_position_embeddings: 32768,
        nulls: &[layout::KV_HEADS],
        ..Defaults::LLAMA
    };

    let mut config = layout::read(fields, Family::Qwen2, shape, defaults)?;
    layout::activation(fields, &["silu"])?;
    layer_types::switched(fields, &mut config)?;
    Ok(config)
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    layer_types::switched_to_json(config)
}
