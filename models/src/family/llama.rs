//! Llama: the form to which the other families are compared. Since version 3.1 its frequencies are scaled for a
//! longer context.

use firebrick_core::config::Family;
use serde_json::{Value, json};

use crate::{
    config::{Biases, DecoderConfig},
    fields::{ConfigError, Fields},
    layout::{self, Defaults},
};

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let mut config = layout::read(fields, Family::Llama, |_| {}, Defaults::LLAMA)?;
    layout::activation(fields, &["silu"])?;
    let attention = fields.flag_or("attention_bias", false)?;
    let mlp = fields.flag_or("mlp_bias", false)?;
    config.biases = Biases { qkv: attention, output: attention, mlp };
    Ok(config)
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    json!({
        "attention_bias": config.biases.qkv,
        "mlp_bias": config.biases.mlp,
        "pretraining_tp": 1,
    })
}
