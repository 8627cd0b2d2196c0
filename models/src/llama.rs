//! Llama: the form that the others are described against. Since 3.1 its frequencies are scaled for a
//! longer context.

use serde_json::{Value, json};

use crate::{
    Biases, ConfigError, DecoderConfig, Family,
    config::Fields,
    layout::{self, Defaults},
};

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let defaults =
        Defaults { kv_heads: None, head_dim: None, max_position_embeddings: 2048, tied: false };
    let mut config = layout::read(fields, Family::Llama, defaults)?;
    layout::activation(fields, &["silu"])?;
    let attention = fields.flag_or("attention_bias", false)?;
    let mlp = fields.flag_or("mlp_bias", false)?;
    config.biases = Biases { qkv: attention, output: attention, mlp };
    Ok(config)
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    let mut fields = json!({
        "attention_bias": config.biases.qkv,
        "mlp_bias": config.biases.mlp,
        "pretraining_tp": 1,
    });
    if let Some(scaling) = config.rope.scaling {
        fields["rope_scaling"] = json!({
            "factor": scaling.factor,
            "high_freq_factor": scaling.high_freq_factor,
            "low_freq_factor": scaling.low_freq_factor,
            "original_max_position_embeddings": scaling.original_max_position_embeddings,
            "rope_type": "llama3",
        });
    }
    fields
}
