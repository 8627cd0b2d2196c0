//! Qwen3.5, the text part, and Qwen3-Next. Three of four layers have GatedDeltaNet instead of attention. The fourth has
//! attention with a gate on each head, and rotates a quarter of each head. Norms are Gemma's, except the norm after the
//! recurrence. Qwen3-Next and some models of Qwen3.5 have experts, one of which all tokens share.

use firebrick_core::config::Family;
use serde_json::{Value, json};

use super::experts;
use crate::{
    config::{Biases, DecoderConfig, ExpertSizes, GatedDeltaSizes, QkNorm},
    fields::{ConfigError, Fields},
    layer_types::{self, LayerType},
    layout::{self, Defaults},
};

/// Sets the parts in which the family differs from Llama. A new model's recurrence has as many heads as its attention,
/// and its layers have eight experts, if any, two for each token.
pub(crate) fn shape(config: &mut DecoderConfig) {
    if config.family != Family::Qwen35 {
        // Files of Qwen3.5 with experts have one width, that of an expert.
        let width = config.intermediate_size;
        let inner = if config.family == Family::Qwen35Moe { width } else { width.div_ceil(4) };
        let sizes = ExpertSizes { inner, shared: experts::gated(inner), ..ExpertSizes::default() };
        experts::everywhere(config, sizes);
    }
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

pub(crate) fn read(fields: &Fields, family: Family) -> Result<DecoderConfig, ConfigError> {
    let mut changed = fields.0.clone();
    if family == Family::Qwen35Moe {
        // No layer has an MLP of its own, so the file has no width for one.
        let inner = fields.size_or(INNER, 512)?;
        changed.insert("intermediate_size".into(), inner.into());
    }

    let fields = &Fields(&changed);
    let defaults = Defaults {
        kv_heads: Some(if family == Family::Qwen35 { 4 } else { 2 }),
        head_dim: Some(256),
        max_position_embeddings: 32768,
        rotary_share: 0.25,
        partial_rotary: true,
        nulls: &[],
        ..Defaults::LLAMA
    };

    let mut config = layout::read(fields, family, shape, defaults)?;
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
    let types = layer_types::listed(fields, family, config.layers)?;
    for (layer, kind) in config.kinds.iter_mut().enumerate() {
        kind.recurrent = match &types {
            Some(types) => types[layer] == LayerType::Recurrent,
            None => (layer + 1) % every != 0,
        };
    }

    let [count, chosen] = match family {
        Family::Qwen35Moe => [256, 8],
        Family::Qwen3Next => [512, 10],
        _ => return Ok(config),
    };
    let next = family == Family::Qwen3Next;
    config.experts = Some(ExpertSizes {
        count: fields.size_or("num_experts", count)?,
        chosen: fields.size_or("num_experts_per_tok", chosen)?,
        inner: fields.size_or(INNER, 512)?,
        normalised: !next || fields.flag_or("norm_topk_prob", true)?,
        shared: experts::gated(fields.size_or(experts::SHARED, 512)?),
        ..ExpertSizes::default()
    });
    if next {
        experts::layers(fields, &mut config)?;
    }
    Ok(config)
}

/// Width of an expert's inner layer.
const INNER: &str = "moe_intermediate_size";

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

    if let (Some(_), Some(all)) = (&config.experts, fields.as_object_mut()) {
        let mut of_experts = experts::to_json(config);
        of_experts[experts::SHARED] = experts::shared_width(config);
        all.extend(of_experts.as_object().cloned().unwrap_or_default());
    }
    fields
}
