//! Phi-3 and Phi-4-mini: Llama with two differences in the file, where queries, keys and values are one matrix, and
//! gate and up another. Some models rotate only a part of a head, and some have a divisor for each frequency.

use firebrick_core::config::Family;
use serde_json::{Value, json};

use crate::{
    config::{DecoderConfig, Fused, LayerKind},
    fields::{ConfigError, Fields, not_implemented},
    layer_types,
    layout::{self, Defaults},
    rope::RopeScaling,
};

const ORIGINAL: &str = "original_max_position_embeddings";

/// Sets the parts in which the family differs from Llama.
pub(crate) fn shape(config: &mut DecoderConfig) {
    config.fused = Fused::All;
}

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let defaults = Defaults {
        max_position_embeddings: 4096,
        norm_epsilon: 1e-5,
        partial_rotary: true,
        nulls: &[layout::KV_HEADS],
        ..Defaults::LLAMA
    };
    let mut changed = fields.0.clone();
    changed.entry(ORIGINAL).or_insert(4096.into());

    // Older files call LongRoPE by other names.
    for scaling in ["rope_scaling", "rope_parameters"] {
        let Some(parameters) = changed.get_mut(scaling).and_then(Value::as_object_mut) else {
            continue;
        };
        for (_, kind) in parameters.iter_mut().filter(|(key, _)| key.ends_with("type")) {
            if matches!(kind.as_str(), Some("su" | "yarn")) {
                *kind = "longrope".into();
            }
        }
    }

    let fields = &Fields(&changed);
    let mut config = layout::read(fields, Family::Phi3, shape, defaults)?;
    check_scaling(&config)?;
    layout::activation(fields, &["silu"])?;

    let window = layer_types::window(fields, None)?;
    config.kinds.fill(LayerKind { window, ..LayerKind::default() });
    Ok(config)
}

/// Refuses the scalings that transformers refuses for this family.
fn check_scaling(config: &DecoderConfig) -> Result<(), ConfigError> {
    let shared = config.hidden_size / config.heads.max(1);
    match &config.rope.scaling {
        RopeScaling::None => Ok(()),
        RopeScaling::LongRope(_) if config.head_dim == shared => Ok(()),
        RopeScaling::LongRope(_) => Err(ConfigError::Size(format!(
            "head_dim is {}; expected {shared}, hidden_size by num_attention_heads, for the factors of longrope",
            config.head_dim
        ))),
        _ => Err(not_implemented("a rope scaling other than longrope")),
    }
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    let original = match &config.rope.scaling {
        RopeScaling::LongRope(it) => it.original_max_position_embeddings,
        _ => config.max_position_embeddings,
    };
    json!({
        ORIGINAL: original,
        "partial_rotary_factor": config.rope.share,
        "sliding_window": config.window(),
    })
}
