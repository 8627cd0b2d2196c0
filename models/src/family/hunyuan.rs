//! Hunyuan, the dense models: Llama, with a norm on every head of queries and keys after RoPE.

use firebrick_core::config::Family;
use serde_json::{Value, json};

use crate::{
    config::{Biases, DecoderConfig, QkNorm},
    fields::{ConfigError, Fields, not_implemented},
    layout::{self, Defaults},
    rope::RopeScaling,
};

/// Sets the parts in which the family differs from Llama.
pub(crate) fn shape(config: &mut DecoderConfig) {
    config.qk_norm = QkNorm::Rotated;
}

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    // Without it, the class has no width of heads.
    fields.size(layout::HEAD_DIM)?;
    let defaults = Defaults { norm_epsilon: 1e-5, nulls: &[layout::KV_HEADS], ..Defaults::LLAMA };
    let mut changed = fields.0.clone();
    for name in ["rope_scaling", "rope_parameters"] {
        if let Some(rope) = changed.get_mut(name) {
            with_larger_base(fields, rope)?;
        }
    }

    let mut config = layout::read(&Fields(&changed), Family::HunYuan, shape, defaults)?;
    layout::activation(fields, &["silu"])?;
    match &config.rope.scaling {
        // The norms would undo such a factor, which is part of the rotation here.
        RopeScaling::Yarn(it) if it.attention_factor != 1.0 => {
            return Err(not_implemented("yarn with a factor of queries and keys"));
        }
        RopeScaling::LongRope(_) => return Err(not_implemented("longrope")),
        _ => {}
    }

    let bias = fields.flag_or("attention_bias", false)?;
    config.biases = Biases { qkv: bias, output: bias, mlp: false };
    Ok(config)
}

/// Published models scale the base by `alpha`, under the type `dynamic`, although no length matters. Replaces this by
/// the larger base.
fn with_larger_base(fields: &Fields, rope: &mut Value) -> Result<(), ConfigError> {
    let Some(parameters) = rope.as_object() else { return Ok(()) };
    let kind = parameters.get("rope_type").or(parameters.get("type")).and_then(Value::as_str);
    let alpha = Fields(parameters).optional("alpha", Fields::number)?;
    let Some(alpha) = alpha.filter(|alpha| *alpha != 0.0 && kind == Some("dynamic")) else {
        return Ok(());
    };

    let theta = fields.number_or("rope_theta", 10_000.0)?;
    let theta = Fields(parameters).number_or("rope_theta", theta)?;
    let width = fields.size(layout::HEAD_DIM)? as f64;
    let theta = theta * alpha.powf(width / (width - 2.0));
    *rope = json!({ "rope_type": "default", "rope_theta": theta });
    Ok(())
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    json!({ "attention_bias": config.biases.qkv })
}
