//! SmolLM3: Llama without rotary positions in every fourth layer.

use firebrick_core::config::Family;
use serde_json::{Value, json};

use crate::{
    config::{Biases, DecoderConfig, RopeKind},
    fields::{ConfigError, Fields},
    layer_types::{self, LayerType},
    layout::{self, Defaults},
};

/// Sets the parts in which the family differs from Llama.
pub(crate) fn shape(config: &mut DecoderConfig) {
    for kind in config.kinds.iter_mut().skip(3).step_by(4) {
        kind.rope = RopeKind::None;
    }
}

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let defaults = Defaults {
        kv_heads: Some(4),
        max_position_embeddings: 32768,
        tied: true,
        rope_theta: 2_000_000.0,
        nulls: &[layout::KV_HEADS],
        ..Defaults::LLAMA
    };

    let mut config = layout::read(fields, Family::SmolLm3, shape, defaults)?;
    layout::activation(fields, &["silu"])?;
    let attention = fields.flag_or("attention_bias", false)?;
    let mlp = fields.flag_or("mlp_bias", false)?;
    config.biases = Biases { qkv: attention, output: attention, mlp };

    let with_rope = with_rope(fields, config.layers)?;
    let switch = fields.flag_or("use_sliding_window", false)?;
    let (window, sliding) = match layer_types::listed(fields, Family::SmolLm3, config.layers)? {
        // A list is followed as it is, whatever the switch says.
        Some(types) => {
            let sliding: Vec<_> = types.iter().map(|kind| *kind == LayerType::Sliding).collect();
            (layer_types::window_of(fields, None, &sliding)?, sliding)
        }
        None => {
            let window = layer_types::window(fields, None)?.filter(|_| switch);
            (window, with_rope.iter().map(|with_rope| !with_rope).collect())
        }
    };

    for ((kind, with_rope), sliding) in config.kinds.iter_mut().zip(with_rope).zip(sliding) {
        kind.rope = if with_rope { RopeKind::Rope } else { RopeKind::None };
        kind.window = window.filter(|_| sliding);
    }

    Ok(config)
}

/// Tells for each layer whether it rotates queries and keys. Despite its name, `no_rope_layers` has a 1 for those that
/// do.
fn with_rope(fields: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    const LIST: &str = "no_rope_layers";
    let wrong = |list: &Value| ConfigError::Field {
        field: LIST.into(),
        expected: "a list with a 0 or a 1 for each layer",
        actual: list.to_string(),
    };

    match fields.0.get(LIST) {
        None | Some(Value::Null) => {
            let every = fields.interval_or("no_rope_layer_interval", 4)?;
            Ok((0..layers).map(|layer| (layer + 1) % every != 0).collect())
        }
        Some(list) => {
            let flags = list.as_array().filter(|flags| flags.len() >= layers);
            let flags = flags.ok_or_else(|| wrong(list))?.iter().take(layers);
            let flag = |flag: &Value| match flag.as_u64() {
                Some(flag @ 0..=1) => Ok(flag == 1),
                _ => Err(wrong(list)),
            };
            flags.map(flag).collect()
        }
    }
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    let with_rope: Vec<u8> =
        config.kinds.iter().map(|kind| u8::from(kind.rope != RopeKind::None)).collect();
    json!({
        "attention_bias": config.biases.qkv,
        "layer_types": layer_types::to_json(config),
        "mlp_bias": config.biases.mlp,
        "no_rope_layers": with_rope,
        "sliding_window": config.window(),
        "use_sliding_window": config.window().is_some(),
    })
}
