//! Ministral 3: Mistral, whose queries grow with their position beyond the context of the first training.

use firebrick_core::config::Family;
use serde_json::{Value, json};

use crate::{
    config::{DecoderConfig, QueryGrowth},
    fields::{ConfigError, Fields},
    layer_types,
    layout::{self, Defaults},
    rope::RopeScaling,
};

const BETA: &str = "llama_4_scaling_beta";
const CONTEXT: &str = "original_max_position_embeddings";

/// Sets the parts in which the family differs from Llama. No query of a new model grows within its context.
pub(crate) fn shape(config: &mut DecoderConfig) {
    config.query_growth = Some(QueryGrowth { beta: 0.1, context: config.max_position_embeddings });
}

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let defaults = Defaults {
        kv_heads: Some(8),
        head_dim: Some(128),
        max_position_embeddings: 262_144,
        norm_epsilon: 1e-5,
        nulls: &[],
        ..Defaults::LLAMA
    };
    let mut config = layout::read(fields, Family::Ministral3, shape, defaults)?;
    layout::activation(fields, &["silu"])?;

    // The same object as the rope's: the older one counts.
    let rope = ["rope_scaling", "rope_parameters"].into_iter().find_map(|name| {
        fields.0.get(name).and_then(Value::as_object).filter(|rope| !rope.is_empty())
    });
    let rope = rope.ok_or_else(|| ConfigError::Field {
        field: "rope_parameters".into(),
        expected: "an object with llama_4_scaling_beta",
        actual: "missing".into(),
    })?;
    let rope = Fields(rope);
    // As for the rope, the field next to it takes precedence.
    let outer = fields.optional(CONTEXT, Fields::size)?;
    let context = match outer {
        Some(context) => context,
        None if matches!(config.rope.scaling, RopeScaling::Yarn(_)) => {
            rope.size_or(CONTEXT, config.max_position_embeddings)?
        }
        None => rope.size(CONTEXT)?,
    };
    config.query_growth = Some(QueryGrowth { beta: rope.number(BETA)?, context });

    // The window is for all layers, whatever types the file lists.
    let window = layer_types::window(fields, None)?;
    config.kinds.iter_mut().for_each(|kind| kind.window = window);
    Ok(config)
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    let mut rope = config.rope.scaling_to_json().unwrap_or(json!({ "rope_type": "default" }));
    rope["rope_theta"] = config.rope.theta.into();
    if let Some(growth) = &config.query_growth {
        rope[BETA] = growth.beta.into();
        rope[CONTEXT] = growth.context.into();
    }
    json!({
        "rope_parameters": rope,
        "rope_scaling": null,
        "sliding_window": config.window(),
    })
}
