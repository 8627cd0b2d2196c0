//! Mixtral: Mistral, with experts in all layers, whose tensors have names of their own.

use firebrick_core::config::Family;
use serde_json::{Value, json};

use super::experts;
use crate::{
    config::{DecoderConfig, ExpertSizes},
    fields::{ConfigError, Fields},
    layer_types,
    layout::{self, Defaults},
};

/// Sets the parts in which the family differs from Llama. A new model has eight experts, two for each token.
pub(crate) fn shape(config: &mut DecoderConfig) {
    let inner = config.intermediate_size;
    experts::everywhere(config, ExpertSizes { inner, ..ExpertSizes::default() });
}

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let defaults = Defaults {
        kv_heads: Some(8),
        max_position_embeddings: 4096 * 32,
        rope_theta: 1_000_000.0,
        norm_epsilon: 1e-5,
        nulls: &[layout::HEAD_DIM],
        ..Defaults::LLAMA
    };
    let mut config = layout::read(fields, Family::Mixtral, shape, defaults)?;
    layout::activation(fields, &["silu"])?;

    let window = layer_types::window(fields, None)?;
    config.kinds.iter_mut().for_each(|kind| kind.window = window);
    config.experts = Some(ExpertSizes {
        count: experts::count(fields, ["num_local_experts", "num_experts"], 8)?,
        chosen: fields.size_or("num_experts_per_tok", 2)?,
        inner: config.intermediate_size,
        ..ExpertSizes::default()
    });
    Ok(config)
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    let mut fields = json!({ "sliding_window": config.window() });
    experts::local_to_json(config, &mut fields);
    fields
}
