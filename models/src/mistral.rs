//! Mistral: Llama, with a window that all layers may look back through.

use serde_json::{Value, json};

use crate::{
    ConfigError, DecoderConfig, Family, LayerKind,
    config::Fields,
    layout::{self, Defaults},
};

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let defaults = Defaults {
        kv_heads: Some(8),
        head_dim: None,
        max_position_embeddings: 4096 * 32,
        ..Defaults::LLAMA
    };
    let mut config = layout::read(fields, Family::Mistral, defaults)?;
    layout::activation(fields, &["silu"])?;
    let window = layout::window(fields)?;
    config.kinds.fill(LayerKind { window, ..LayerKind::default() });
    Ok(config)
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    json!({ "sliding_window": config.window() })
}
