//! Qwen3.5, the text part. Three of four layers have GatedDeltaNet instead of attention. The fourth has attention with
//! a gate on each head, and rotates a quarter of each head. Norms are Gemma's, except the norm after the recurrence.

use serde_json::{Value, json};

use crate::{
    config::{Biases, DecoderConfig, GatedDeltaSizes, QkNorm},
    family::Family,
    fields::{ConfigError, Fields},
    layer_types::{self, LayerType},
    layout::{self, Defaults},
};

/// Sets the parts in which the family differs from Llama. A new model's recurrence has as many heads as its attention.
pub(crate) fn shape(config: &mut DecoderConfig) {
    config.norm_offset = 1.0;
    config.qk_norm = QkNorm::Heads;
    config.gated = true;
    config.delta = Some(GatedDeltaSizes {
        key_heads: config.kv_heads,
        value_heads: config.heads,
        key_dim: config.head_dim,
        value_dim: config.head_dim,
        kernel: 4,
    });
    for (layer, kind) in config.kinds.iter_mut().enumerate() {
        kind.recurrent = (layer + 1) % 4 != 0;
    }
}

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let defaults = Defaults {
        kv_heads: Some(4),
        head_dim: Some(256),
        max_position_embeddings: 32768,
        rotary_share: 0.25,
        partial_rotary: true,
        nulls: &[],
        ..Defaults::LLAMA
    };

    let mut config = layout::read(fields, Family::Qwen35, shape, defaults)?;
    layout::activation(fields, &["silu"])?;

    let bias = fields.flag_or("attention_bias", false)?;
    config.biases = Biases { qkv: bias, output: bias, mlp: false };
    config.delta = Some(GatedDeltaSizes {
        key_heads: fields.size_or("linear_num_key_heads", 16)?,
        value_heads: fields.size_or("linear_num_value_heads", 32)?,
        key_dim: fields.size_or("linear_key_head_dim", 128)?,
        value_dim: fields.size_or("linear_value_head_dim", 128)?,
        kernel: fields.size_or("linear_conv_kernel_dim", 4)?,
    });

    let every = fields.interval_or("full_attention_interval", 4)?;
    let types = layer_types::listed(fields, Family::Qwen35, config.layers)?;
    for (layer, kind) in config.kinds.iter_mut().enumerate() {
        kind.recurrent = match &types {
            Some(types) => types[layer] == LayerType::Recurrent,
            None => (layer + 1) % every != 0,
        };
    }

    Ok(config)
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    let kind = |recurrent| if recurrent { "linear_attention" } else { "full_attention" };
    let mut fields = json!({
        "attention_bias": config.biases.qkv,
        "layer_types": config.kinds.iter().map(|it| kind(it.recurrent)).collect::<Vec<_>>(),
        "partial_rotary_factor": config.rope.share,
    });

    if let Some(delta) = &config.delta {
        fields["linear_conv_kernel_dim"] = delta.kernel.into();
        fields["linear_key_head_dim"] = delta.key_dim.into();
        fields["linear_num_key_heads"] = delta.key_heads.into();
        fields["linear_num_value_heads"] = delta.value_heads.into();
        fields["linear_value_head_dim"] = delta.value_dim.into();
    }
    fields
}
