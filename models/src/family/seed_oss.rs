//! Seed-OSS: Llama, with biases on queries, keys and values.

use firebrick_core::config::Family;
use serde_json::{Value, json};

use crate::{
    config::{Biases, DecoderConfig},
    fields::{ConfigError, Fields},
    layout::{self, Defaults},
};

/// Sets the parts in which the family differs from Llama.
pub(crate) fn shape(config: &mut DecoderConfig) {
    config.biases = Biases { qkv: true, ..Biases::default() };
}

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let defaults = Defaults {
        kv_heads: Some(8),
        head_dim: Some(128),
        max_position_embeddings: 524_288,
        ..Defaults::LLAMA
    };
    let mut config = layout::read(fields, Family::SeedOss, shape, defaults)?;
    layout::activation(fields, &["silu"])?;
    config.biases = Biases {
        qkv: fields.flag_or("attention_bias", true)?,
        output: fields.flag_or("attention_out_bias", false)?,
        mlp: fields.flag_or("mlp_bias", false)?,
    };
    Ok(config)
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    json!({
        "attention_bias": config.biases.qkv,
        "attention_out_bias": config.biases.output,
        "mlp_bias": config.biases.mlp,
        "residual_dropout": 0.0,
    })
}
