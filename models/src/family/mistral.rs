//! Mistral: Llama, with a sliding window that all layers may have. If the file lists types of layers, only some of them
//! have it.

use firebrick_core::config::Family;
use serde_json::{Value, json};

use crate::{
    config::DecoderConfig,
    fields::{ConfigError, Fields},
    layer_types,
    layout::{self, Defaults},
};

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let defaults = Defaults {
        kv_heads: Some(8),
        head_dim: None,
        max_position_embeddings: 4096 * 32,
        nulls: &[layout::HEAD_DIM],
        ..Defaults::LLAMA
    };
    let mut config = layout::read(fields, Family::Mistral, |_| {}, defaults)?;
    layout::activation(fields, &["silu"])?;

    let window = layer_types::window(fields, layer_types::DEFAULT_WINDOW)?;
    // transformers takes a file with a list of types for one of Ministral, which differs in nothing else.
    let sliding = layer_types::sliding(fields, &config, |_| window.is_some())?;
    let window = layer_types::window_of(fields, layer_types::DEFAULT_WINDOW, &sliding)?;

    for (kind, sliding) in config.kinds.iter_mut().zip(sliding) {
        kind.window = window.filter(|_| sliding);
    }
    Ok(config)
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    let mut fields = json!({ "sliding_window": config.window() });
    if config.window().is_some() && config.kinds.iter().any(|kind| kind.window.is_none()) {
        fields["layer_types"] = layer_types::to_json(config);
    }
    fields
}
