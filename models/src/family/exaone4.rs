//! EXAONE 4. Norms are after both sublayers and on every head of queries and keys. If layers have a sliding window,
//! only these know positions: the others, which see everything, rotate nothing.

use firebrick_core::config::Family;
use serde_json::{Value, json};

use crate::{
    config::{DecoderConfig, LayerKind, LayerNorms, QkNorm, RopeKind},
    fields::{ConfigError, Fields},
    layer_types,
    layout::{self, Defaults},
};

/// Sets the parts in which the family differs from Llama.
pub(crate) fn shape(config: &mut DecoderConfig) {
    config.norms = LayerNorms::Post;
    config.qk_norm = QkNorm::Heads;
    slide_or_still(config, layer_types::DEFAULT_WINDOW, |layer| (layer + 1) % 4 != 0);
}

/// Sets the layers with a window, and takes the rotation from the others.
fn slide_or_still(
    config: &mut DecoderConfig,
    window: Option<usize>,
    sliding: impl Fn(usize) -> bool,
) {
    for (layer, kind) in config.kinds.iter_mut().enumerate() {
        *kind = match window {
            Some(_) if sliding(layer) => LayerKind { window, ..LayerKind::default() },
            Some(_) => LayerKind { rope: RopeKind::None, ..LayerKind::default() },
            None => LayerKind::default(),
        };
    }
}

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    const PATTERN: &str = "sliding_window_pattern";

    let defaults =
        Defaults { kv_heads: Some(32), norm_epsilon: 1e-5, nulls: &[], ..Defaults::LLAMA };
    let mut config = layout::read(fields, Family::Exaone4, shape, defaults)?;
    layout::activation(fields, &["silu"])?;

    // The pattern may be a word like "LLLG", which counts only for programs that do not read the list.
    let listed = layer_types::listed(fields, Family::Exaone4, config.layers)?.is_some();
    let every = if listed { 4 } else { fields.interval_or(PATTERN, 4)? };
    let window = layer_types::window(fields, layer_types::DEFAULT_WINDOW)?;
    if window.is_none() && !listed {
        return Err(ConfigError::Field {
            field: "layer_types".into(),
            expected: "a list with one entry for each layer, because there is no sliding_window",
            actual: "missing".into(),
        });
    }

    let sliding = layer_types::sliding(fields, &config, |layer| (layer + 1) % every != 0)?;
    let window = layer_types::window_of(fields, layer_types::DEFAULT_WINDOW, &sliding)?;
    slide_or_still(&mut config, window, |layer| sliding[layer]);
    Ok(config)
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    // Without the field every layer rotates, so a model with layers that don't needs it, even if none slides.
    let still = config.kinds.iter().any(|kind| kind.rope == RopeKind::None);
    let window = config.window().or(layer_types::DEFAULT_WINDOW.filter(|_| still));
    json!({
        "layer_types": layer_types::to_json(config),
        "sliding_window": window,
    })
}
