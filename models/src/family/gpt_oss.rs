//! gpt-oss: experts with biases and bounds in all layers, a sink for each head of queries, and a window in every second
//! layer.

use firebrick_core::config::Family;
use serde_json::{Map, Value, json};

use super::experts;
use crate::{
    config::{Biases, DecoderConfig, ExpertSizes, SwigluClamp},
    fields::{ConfigError, Fields},
    layer_types,
    layout::{self, Defaults},
    rope::RopeScaling,
};

/// Sets the parts in which the family differs from Llama. A new model has eight experts, two for each token.
pub(crate) fn shape(config: &mut DecoderConfig) {
    config.biases = Biases { qkv: true, output: true, mlp: false };
    config.sinks = true;
    config.swiglu_clamp = Some(SwigluClamp { slope: 1.702, limit: 7.0 });
    let inner = config.intermediate_size;
    experts::everywhere(config, ExpertSizes { inner, biases: true, ..ExpertSizes::default() });
    slide(config, Some(128), slides);
}

/// Tells whether a layer slides if the file does not list the types of layers.
fn slides(layer: usize) -> bool {
    layer.is_multiple_of(2)
}

/// Sets a window in the layers that `sliding` selects. All layers have the same rope.
fn slide(config: &mut DecoderConfig, window: Option<usize>, sliding: impl Fn(usize) -> bool) {
    for (layer, kind) in config.kinds.iter_mut().enumerate() {
        kind.window = window.filter(|_| sliding(layer));
    }
}

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let defaults = Defaults {
        vocab_size: Some(201_088),
        heads: Some(64),
        kv_heads: Some(8),
        head_dim: Some(64),
        max_position_embeddings: 131_072,
        rope_theta: 150_000.0,
        norm_epsilon: 1e-5,
        nulls: &[],
        ..Defaults::LLAMA
    };
    let with_rope = with_rope(fields.0);
    let fields = &Fields(with_rope.as_ref().unwrap_or(fields.0));
    let mut config = layout::read(fields, Family::GptOss, shape, defaults)?;
    layout::activation(fields, &["silu"])?;

    let bias = fields.flag_or("attention_bias", true)?;
    config.biases = Biases { qkv: bias, output: bias, mlp: false };
    config.swiglu_clamp = Some(SwigluClamp {
        slope: fields.number_or("swiglu_alpha", 1.702)?,
        limit: fields.number_or("swiglu_limit", 7.0)?,
    });
    config.experts = Some(ExpertSizes {
        count: experts::count(fields, ["num_local_experts", "num_experts"], 128)?,
        chosen: fields.size_or("num_experts_per_tok", 4)?,
        inner: config.intermediate_size,
        biases: true,
        ..ExpertSizes::default()
    });

    let sliding = layer_types::sliding(fields, &config, slides)?;
    let window = layer_types::window_of(fields, Some(128), &sliding)?;
    slide(&mut config, window, |layer| sliding[layer]);
    Ok(config)
}

/// Adds the rope that the class assumes if the file has none. It is one for a longer context.
fn with_rope(fields: &Map<String, Value>) -> Option<Map<String, Value>> {
    let has = |name: &str| fields.get(name).is_some_and(|rope| !rope.is_null());
    let empty = |name: &str| fields.get(name).is_some_and(|rope| *rope == json!({}));
    if has("rope_parameters") || has("rope_scaling") && !empty("rope_scaling") {
        return None;
    }

    let mut fields = fields.clone();
    fields.insert(
        "rope_parameters".into(),
        json!({
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "rope_type": "yarn",
            "truncate": false,
        }),
    );
    Some(fields)
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    let mut fields = json!({
        "attention_bias": config.biases.qkv,
        "layer_types": layer_types::to_json(config),
        "sliding_window": config.window(),
    });
    if config.rope.scaling == RopeScaling::None {
        fields["rope_parameters"] =
            json!({ "rope_theta": config.rope.theta, "rope_type": "default" });
    }
    if let Some(clamp) = &config.swiglu_clamp {
        fields["swiglu_alpha"] = clamp.slope.into();
        fields["swiglu_limit"] = clamp.limit.into();
    }
    experts::local_to_json(config, &mut fields);
    fields
}
