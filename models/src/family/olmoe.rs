//! OLMoE: Llama, with experts in all layers, a norm over all query heads together, and one over all key heads.

use firebrick_core::config::Family;
use serde_json::{Value, json};

use super::experts;
use crate::{
    config::{Biases, DecoderConfig, ExpertSizes, QkNorm},
    fields::{ConfigError, Fields, not_implemented},
    layout::{self, Defaults},
};

/// Sets the parts in which the family differs from Llama. A new model has eight experts, two for each token.
pub(crate) fn shape(config: &mut DecoderConfig) {
    config.qk_norm = QkNorm::Whole;
    let inner = config.intermediate_size;
    experts::everywhere(config, ExpertSizes { inner, normalised: false, ..ExpertSizes::default() });
}

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let defaults = Defaults {
        max_position_embeddings: 4096,
        norm_epsilon: 1e-5,
        nulls: &[layout::KV_HEADS],
        ..Defaults::LLAMA
    };
    let mut config = layout::read(fields, Family::Olmoe, shape, defaults)?;
    layout::activation(fields, &["silu"])?;
    if fields.optional("clip_qkv", Fields::number)?.is_some() {
        return Err(not_implemented("clip_qkv"));
    }
    // The norms of the class have the width of the residual stream.
    let width = config.heads.saturating_mul(config.head_dim);
    if width != config.hidden_size {
        return Err(ConfigError::Size(format!(
            "{} attention heads of {} are {width} wide; expected {}, as hidden_size",
            config.heads, config.head_dim, config.hidden_size
        )));
    }

    let bias = fields.flag_or("attention_bias", false)?;
    config.biases = Biases { qkv: bias, output: bias, mlp: false };
    config.experts = Some(ExpertSizes {
        count: experts::count(fields, ["num_experts", "num_local_experts"], 64)?,
        chosen: fields.size_or("num_experts_per_tok", 8)?,
        inner: config.intermediate_size,
        normalised: fields.flag_or("norm_topk_prob", false)?,
        ..ExpertSizes::default()
    });
    Ok(config)
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    let mut fields = json!({ "attention_bias": config.biases.qkv, "clip_qkv": null });
    if let Some(experts) = &config.experts {
        fields["norm_topk_prob"] = experts.normalised.into();
        fields["num_experts"] = experts.count.into();
        fields["num_experts_per_tok"] = experts.chosen.into();
        fields["output_router_logits"] = false.into();
    }
    fields
}
