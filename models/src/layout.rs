//! Parts that the `config.json` files of all families share. There are two layouts: in that of transformers 4,
//! `rope_theta`, `rope_scaling` and `torch_dtype` stand beside the sizes; that of transformers 5 has
//! `rope_parameters`, `dtype` and `layer_types`.

use serde_json::{Value, json};

use crate::{ConfigError, DecoderConfig, Family, LayerKind, Rope, Sizes, Turn, config::Fields};

/// The values that a family's class in transformers takes if `config.json` is silent.
pub(crate) struct Defaults {
    pub(crate) vocab_size: Option<usize>,
    pub(crate) heads: Option<usize>,
    pub(crate) kv_heads: Option<usize>,
    pub(crate) head_dim: Option<usize>,
    pub(crate) max_position_embeddings: usize,
    pub(crate) tied: bool,
    pub(crate) rope_theta: f64,
    pub(crate) norm_epsilon: f64,
    /// The share of a head that is turned.
    pub(crate) rotary_share: f64,
    /// True if the family can turn less than the whole head.
    pub(crate) partial_rotary: bool,
}

impl Defaults {
    /// The defaults of Llama.
    pub(crate) const LLAMA: Defaults = Defaults {
        vocab_size: None,
        heads: None,
        kv_heads: None,
        head_dim: None,
        max_position_embeddings: 2048,
        tied: false,
        rope_theta: 10_000.0,
        norm_epsilon: 1e-6,
        rotary_share: 1.0,
        partial_rotary: false,
    };
}

/// Reads the sizes, the frequencies and the norm's epsilon of a model of `family`.
pub(crate) fn read(
    fields: &Fields,
    family: Family,
    defaults: Defaults,
) -> Result<DecoderConfig, ConfigError> {
    if fields.0.get("quantization_config").is_some_and(|value| !value.is_null()) {
        return Err(not_implemented("quantization_config"));
    }
    let or = |name: &str, silent: Option<usize>| match silent {
        Some(silent) => fields.size_or(name, silent),
        None => fields.size(name),
    };
    let heads = or("num_attention_heads", defaults.heads)?;
    let hidden_size = fields.size("hidden_size")?;
    let max_position_embeddings =
        fields.size_or("max_position_embeddings", defaults.max_position_embeddings)?;
    let layers = fields.size("num_hidden_layers")?;
    if layers > 1 << 16 {
        return Err(ConfigError::Size(format!(
            "num_hidden_layers is {layers}; expected 1 to 65536"
        )));
    }
    let silent = (defaults.rope_theta, defaults.rotary_share);
    let rope = Rope::read(fields, max_position_embeddings, silent)?;
    if rope.share != 1.0 && !defaults.partial_rotary {
        return Err(not_implemented("partial_rotary_factor"));
    }
    let sizes = Sizes {
        vocab_size: or("vocab_size", defaults.vocab_size)?,
        hidden_size,
        layers,
        heads,
        kv_heads: match fields.0.get("num_key_value_heads") {
            // If the file says null, transformers gives every query head its own key head, whatever the family
            // takes if the file is silent.
            Some(Value::Null) => heads,
            _ => fields.size_or("num_key_value_heads", defaults.kv_heads.unwrap_or(heads))?,
        },
        head_dim: fields
            .size_or("head_dim", defaults.head_dim.unwrap_or(hidden_size / heads.max(1)))?,
        intermediate_size: fields.size("intermediate_size")?,
        max_position_embeddings,
        rope_theta: rope.theta,
        tied: fields.flag_or("tie_word_embeddings", defaults.tied)?,
    };
    let mut config = DecoderConfig::new(family, sizes);
    config.rope = rope;
    config.norm_epsilon = fields.number_or("rms_norm_eps", defaults.norm_epsilon)?;
    Ok(config)
}

/// Reads how far back a layer with a window sees: 4096 if the file has no such field, as in transformers, and
/// everything if it says null.
pub(crate) fn window(fields: &Fields) -> Result<Option<usize>, ConfigError> {
    match fields.0.get("sliding_window") {
        None => Ok(Some(4096)),
        Some(_) => fields.optional("sliding_window", Fields::size),
    }
}

/// Reads the window of each layer, for families in which only some layers may have one.
pub(crate) fn windows(fields: &Fields, config: &mut DecoderConfig) -> Result<(), ConfigError> {
    if !fields.flag_or("use_sliding_window", false)? {
        return Ok(());
    }
    let window = window(fields)?;
    let first = fields.size_or("max_window_layers", 28)?;
    let sliding = sliding(fields, config.layers, |layer| layer >= first)?;
    for (kind, _) in config.kinds.iter_mut().zip(sliding).filter(|(_, sliding)| *sliding) {
        kind.window = window;
    }
    Ok(())
}

/// Tells for each layer whether it has a window: as `layer_types` says, or as `silent` says if there is no such
/// list.
pub(crate) fn sliding(
    fields: &Fields,
    layers: usize,
    silent: impl Fn(usize) -> bool,
) -> Result<Vec<bool>, ConfigError> {
    listed(fields, layers, silent, |kind| match kind {
        "full_attention" => Ok(false),
        "sliding_attention" => Ok(true),
        _ => Err(not_implemented(&format!("the layer type {kind:?}"))),
    })
}

/// Reads each layer's entry in `layer_types` with `read`. If there is no such list, `silent` gives the entry by
/// the layer's number.
pub(crate) fn listed<T>(
    fields: &Fields,
    layers: usize,
    silent: impl Fn(usize) -> T,
    read: impl Fn(&str) -> Result<T, ConfigError>,
) -> Result<Vec<T>, ConfigError> {
    match fields.0.get("layer_types") {
        None | Some(Value::Null) => Ok((0..layers).map(silent).collect()),
        Some(Value::Array(types)) if types.len() == layers => types
            .iter()
            .map(|kind| match kind.as_str() {
                Some(kind) => read(kind),
                None => Err(not_implemented(&format!("the layer type {kind}"))),
            })
            .collect(),
        Some(types) => Err(ConfigError::Field {
            field: "layer_types".into(),
            expected: "a list with one entry per layer",
            came: types.to_string(),
        }),
    }
}

/// Gives a window and the local rope to the layers that `sliding` selects, and neither to the others.
pub(crate) fn slide(
    config: &mut DecoderConfig,
    window: Option<usize>,
    sliding: impl Fn(usize) -> bool,
) {
    for (layer, kind) in config.kinds.iter_mut().enumerate() {
        *kind = match sliding(layer) {
            true => LayerKind { window, turn: Turn::Local, ..*kind },
            false => LayerKind { window: None, turn: Turn::Rope, ..*kind },
        };
    }
}

/// Makes `layer_types`, as [`sliding`] reads it.
pub(crate) fn layer_types(config: &DecoderConfig) -> Value {
    let kind = |kind: &LayerKind| match kind.window {
        Some(_) => "sliding_attention",
        None => "full_attention",
    };
    config.kinds.iter().map(kind).collect()
}

/// Makes the fields that [`windows`] reads. If no layer has a window, they are as in every published file.
/// Otherwise both layouts say which layers have one, as far as the older layout can.
pub(crate) fn windows_to_json(config: &DecoderConfig) -> Value {
    let window = config.window();
    let first = config.kinds.iter().position(|it| it.window.is_some()).unwrap_or(config.layers);
    let mut fields = json!({
        "max_window_layers": first,
        "sliding_window": window,
        "use_sliding_window": window.is_some(),
    });
    if window.is_some() {
        fields["layer_types"] = layer_types(config);
    }
    fields
}

/// Refuses any activation that is not in `known`.
pub(crate) fn activation(fields: &Fields, known: &[&str]) -> Result<(), ConfigError> {
    for field in ["hidden_act", "hidden_activation"] {
        let found =
            fields.optional(field, |fields, field| fields.text(field).map(str::to_owned))?;
        if let Some(found) = found.filter(|found| !known.contains(&found.as_str())) {
            return Err(not_implemented(&format!("{field} = {found:?}")));
        }
    }
    Ok(())
}

/// Makes the error that refuses a feature by name. A checkpoint that needs more than is computed here would load
/// otherwise, and give wrong logits.
pub(crate) fn not_implemented(what: &str) -> ConfigError {
    ConfigError::Size(format!("{what} is not implemented; use a checkpoint without it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RopeScaling;

    fn config(family: Family, own: Value) -> DecoderConfig {
        let mut fields = json!({
            "model_type": family.model_type(),
            "hidden_size": 32,
            "intermediate_size": 8,
            "num_attention_heads": 16,
            "num_hidden_layers": 2,
            "vocab_size": 9,
        });
        let fields = fields.as_object_mut().unwrap();
        fields.extend(own.as_object().unwrap().clone());
        DecoderConfig::from_json(fields).unwrap()
    }

    #[test]
    fn the_older_rope_field_counts_unless_it_is_empty() {
        let scaled = json!({"type": "llama3", "factor": 2, "low_freq_factor": 1,
            "high_freq_factor": 4, "original_max_position_embeddings": 16});
        let newer = json!({"rope_type": "default", "rope_theta": 7.0});
        let rope = |older: &Value| {
            let both = json!({"rope_scaling": older, "rope_parameters": newer, "rope_theta": 5.0});
            config(Family::Llama, both).rope
        };
        let older = rope(&scaled);
        assert_eq!(older.theta, 5.0);
        assert!(matches!(older.scaling, RopeScaling::Llama3(scaling) if scaling.factor == 2.0));
        for empty in [json!({}), Value::Null] {
            assert_eq!(rope(&empty), Rope::new(7.0));
        }
    }

    #[test]
    fn quantised_weights_are_refused_by_name() {
        let mut fields = json!({"model_type": "qwen2", "quantization_config": {"bits": 4}});
        let error = DecoderConfig::from_json(fields.as_object().unwrap()).unwrap_err().to_string();
        assert!(error.contains("quantization_config is not implemented"), "{error}");
        fields["quantization_config"] = Value::Null;
        let error = DecoderConfig::from_json(fields.as_object().unwrap()).unwrap_err().to_string();
        assert!(!error.contains("quantization_config"), "{error}");
    }

    #[test]
    fn a_null_and_a_missing_number_of_key_heads_are_two_things() {
        for (family, silent) in [(Family::Mistral, 8), (Family::Gemma, 16), (Family::Llama, 16)] {
            assert_eq!(config(family, json!({})).kv_heads, silent);
            assert_eq!(config(family, json!({"num_key_value_heads": null})).kv_heads, 16);
        }
    }
}
