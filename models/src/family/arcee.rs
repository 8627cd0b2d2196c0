//! AFM, of Arcee: Llama, with an MLP that has no gate.

use firebrick_core::config::Family;
use serde_json::{Value, json};

use crate::{
    config::{Biases, DecoderConfig},
    fields::{ConfigError, Fields},
    layout::{self, Defaults},
};

/// Sets the parts in which the family differs from Llama.
pub(crate) fn shape(config: &mut DecoderConfig) {
    config.squared_relu = true;
}

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let defaults =
        Defaults { max_position_embeddings: 4096, norm_epsilon: 1e-5, ..Defaults::LLAMA };
    let mut config = layout::read(fields, Family::Arcee, shape, defaults)?;
    layout::activation(fields, &["relu2"])?;
    let attention = fields.flag_or("attention_bias", false)?;
    let mlp = fields.flag_or("mlp_bias", false)?;
    config.biases = Biases { qkv: attention, output: attention, mlp };
    Ok(config)
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    json!({
        "attention_bias": config.biases.qkv,
        "hidden_act": "relu2",
        "mlp_bias": config.biases.mlp,
    })
}
