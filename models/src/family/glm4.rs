//! GLM-4 of April 2025. Norms are before and after both sublayers, gate and up are one matrix, and half of each head is
//! rotated, in pairs that are side by side in the file.

use firebrick_core::config::Family;
use serde_json::{Value, json};

use crate::{
    config::{Biases, DecoderConfig, Fused, LayerNorms},
    fields::{ConfigError, Fields},
    layout::{self, Defaults},
};

/// Sets the parts in which the family differs from Llama.
pub(crate) fn shape(config: &mut DecoderConfig) {
    config.biases = Biases { qkv: true, ..Biases::default() };
    config.norms = LayerNorms::Both;
    config.fused = Fused::GateUp;
    config.paired = true;
    config.rope.share = SHARE;
}

/// Share of a head that is rotated, if the file does not say it.
const SHARE: f64 = 0.5;

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let defaults = Defaults {
        kv_heads: Some(2),
        head_dim: Some(128),
        max_position_embeddings: 131_072,
        norm_epsilon: 1.5625e-7,
        rotary_share: SHARE,
        partial_rotary: true,
        nulls: &[],
        ..Defaults::LLAMA
    };
    let mut config = layout::read(fields, Family::Glm4, shape, defaults)?;
    layout::activation(fields, &["silu"])?;
    config.biases.qkv = fields.flag_or("attention_bias", true)?;
    Ok(config)
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    json!({
        "attention_bias": config.biases.qkv,
        "partial_rotary_factor": config.rope.share,
    })
}
