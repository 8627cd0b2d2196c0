//! Qwen1.5 and Qwen2 with experts: Qwen2, with an expert for all tokens next to those that the router chooses.

use firebrick_core::config::Family;
use serde_json::Value;

use super::experts;
use crate::{
    config::{Biases, DecoderConfig, ExpertSizes},
    fields::{ConfigError, Fields},
    layer_types,
    layout::{self, Defaults},
};

/// Sets the parts in which the family differs from Llama. A new model has eight experts, two for each token.
pub(crate) fn shape(config: &mut DecoderConfig) {
    config.biases = Biases { qkv: true, ..Biases::default() };
    let inner = config.intermediate_size.div_ceil(4);
    let shared = experts::gated(config.intermediate_size.div_ceil(2));
    experts::everywhere(
        config,
        ExpertSizes { inner, normalised: false, shared, ..ExpertSizes::default() },
    );
}

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let defaults = Defaults {
        kv_heads: Some(16),
        max_position_embeddings: 32768,
        nulls: &[],
        ..Defaults::LLAMA
    };
    let mut config = layout::read(fields, Family::Qwen2Moe, shape, defaults)?;
    layout::activation(fields, &["silu"])?;
    config.biases.qkv = fields.flag_or("qkv_bias", true)?;

    if fields.flag_or("use_sliding_window", false)? {
        let last = fields.size_or("max_window_layers", 28)?;
        // Every second of the first layers slides.
        let sliding =
            layer_types::sliding(fields, &config, |layer| layer % 2 == 0 && layer < last)?;
        let window = layer_types::window_of(fields, layer_types::DEFAULT_WINDOW, &sliding)?;
        for (kind, _) in config.kinds.iter_mut().zip(sliding).filter(|(_, sliding)| *sliding) {
            kind.window = window;
        }
    } else if let Some(types) = layer_types::listed(fields, config.family, config.layers)? {
        layer_types::refuse_sliding(&types)?;
    }

    config.experts = Some(ExpertSizes {
        count: fields.size_or("num_experts", 60)?,
        chosen: fields.size_or("num_experts_per_tok", 4)?,
        inner: fields.size_or("moe_intermediate_size", 1408)?,
        normalised: fields.flag_or("norm_topk_prob", false)?,
        shared: experts::gated(fields.size_or(experts::SHARED, 5632)?),
        ..ExpertSizes::default()
    });
    experts::layers(fields, &mut config)?;
    Ok(config)
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    let mut fields = experts::to_json(config);
    fields["qkv_bias"] = config.biases.qkv.into();
    fields[experts::SHARED] = experts::shared_width(config);
    if config.window().is_some() {
        fields["layer_types"] = layer_types::to_json(config);
    }
    fields
}
