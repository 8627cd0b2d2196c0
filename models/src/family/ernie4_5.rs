//! ERNIE 4.5, the dense text models: Llama, with rotated pairs side by side in the file.

use firebrick_core::config::Family;
use serde_json::{Value, json};

use crate::{
    config::{Biases, DecoderConfig},
    fields::{ConfigError, Fields},
    layout::{self, Defaults},
};

/// Sets the parts in which the family differs from Llama.
pub(crate) fn shape(config: &mut DecoderConfig) {
    config.paired = true;
}

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let defaults = Defaults {
        kv_heads: Some(2),
        head_dim: Some(128),
        max_position_embeddings: 131_072,
        tied: true,
        rope_theta: 500_000.0,
        norm_epsilon: 1e-5,
        ..Defaults::LLAMA
    };
    let mut config = layout::read(fields, Family::Ernie45, shape, defaults)?;
    layout::activation(fields, &["silu"])?;
    let bias = fields.flag_or("use_bias", false)?;
    config.biases = Biases { qkv: bias, output: bias, mlp: bias };
    Ok(config)
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    json!({ "use_bias": config.biases.qkv })
}
