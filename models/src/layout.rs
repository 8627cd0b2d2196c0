//! What the `config.json` files of all families have in common, in the layouts of transformers 4 (whose
//! `rope_theta`, `rope_scaling` and `torch_dtype` stand beside the sizes) and 5 (`rope_parameters`,
//! `dtype`, `layer_types`).

use serde_json::{Value, json};

use crate::{ConfigError, DecoderConfig, Family, Rope, RopeScaling, Sizes, config::Fields};

/// What a family's class in transformers takes where `config.json` is silent.
pub(crate) struct Defaults {
    pub(crate) kv_heads: Option<usize>,
    pub(crate) head_dim: Option<usize>,
    pub(crate) max_position_embeddings: usize,
    pub(crate) tied: bool,
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
    let heads = fields.size("num_attention_heads")?;
    let hidden_size = fields.size("hidden_size")?;
    let max_position_embeddings =
        fields.size_or("max_position_embeddings", defaults.max_position_embeddings)?;
    let layers = fields.size("num_hidden_layers")?;
    if layers > 1 << 16 {
        return Err(ConfigError::Size(format!(
            "num_hidden_layers is {layers}; expected 1 to 65536"
        )));
    }
    let rope = rope(fields, max_position_embeddings)?;
    let sizes = Sizes {
        vocab_size: fields.size("vocab_size")?,
        hidden_size,
        layers,
        heads,
        kv_heads: match fields.0.get("num_key_value_heads") {
            // transformers gives every query head its own where the file says null, whatever the
            // family takes where the file is silent.
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
    config.norm_epsilon = fields.number_or("rms_norm_eps", config.norm_epsilon)?;
    Ok(config)
}

/// How far back a layer with a window sees: 4096 where the file does not speak of it, as in
/// transformers; everything where it says null.
pub(crate) fn window(fields: &Fields) -> Result<Option<usize>, ConfigError> {
    match fields.0.get("sliding_window") {
        None => Ok(Some(4096)),
        Some(_) => fields.optional("sliding_window", Fields::size),
    }
}

/// The window of each layer, for families in which only some layers may have one.
pub(crate) fn windows(
    fields: &Fields,
    config: &DecoderConfig,
) -> Result<Vec<Option<usize>>, ConfigError> {
    if !fields.flag_or("use_sliding_window", false)? {
        return Ok(vec![None; config.layers]);
    }
    let window = window(fields)?;
    match fields.0.get("layer_types") {
        None | Some(Value::Null) => {
            let first = fields.size_or("max_window_layers", 28)?;
            Ok((0..config.layers).map(|layer| window.filter(|_| layer >= first)).collect())
        }
        Some(Value::Array(types)) if types.len() == config.layers => types
            .iter()
            .map(|kind| match kind.as_str() {
                Some("full_attention") => Ok(None),
                Some("sliding_attention") => Ok(window),
                _ => Err(not_implemented(&format!("the layer type {kind}"))),
            })
            .collect(),
        Some(types) => Err(ConfigError::Field {
            field: "layer_types".into(),
            expected: "a list with one entry per layer",
            came: types.to_string(),
        }),
    }
}

/// The fields that [`windows`] reads. Where no layer has one they are those of every published file;
/// else both layouts say which layers do, as far as the older one can.
pub(crate) fn windows_to_json(config: &DecoderConfig) -> Value {
    let window = config.window();
    let first = config.windows.iter().position(Option::is_some).unwrap_or(config.layers);
    let mut fields = json!({
        "max_window_layers": first,
        "sliding_window": window,
        "use_sliding_window": window.is_some(),
    });
    if window.is_some() {
        let kind = |window: &Option<usize>| match window {
            Some(_) => "sliding_attention",
            None => "full_attention",
        };
        fields["layer_types"] = config.windows.iter().map(kind).collect();
    }
    fields
}

/// Refuses another activation than one of `known`.
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

/// A checkpoint that needs more than is computed here would load and give wrong logits; it is refused
/// by name instead.
pub(crate) fn not_implemented(what: &str) -> ConfigError {
    ConfigError::Size(format!("{what} is not implemented; use a checkpoint without it"))
}

fn rope(fields: &Fields, max_position_embeddings: usize) -> Result<Rope, ConfigError> {
    // Where a file has both, transformers 5 takes the older one; an empty one counts for nothing.
    let mut parameters = None;
    for field in ["rope_parameters", "rope_scaling"] {
        match fields.0.get(field) {
            None | Some(Value::Null) => {}
            Some(Value::Object(found)) if found.is_empty() => {}
            Some(Value::Object(found)) => parameters = Some(Fields(found)),
            Some(other) => {
                return Err(ConfigError::Field {
                    field: field.into(),
                    expected: "an object",
                    came: other.to_string(),
                });
            }
        }
    }
    let nested = parameters.as_ref().map(|fields| fields.optional("rope_theta", Fields::number));
    let theta = match nested.transpose()?.flatten() {
        Some(theta) => theta,
        None => fields.number_or("rope_theta", 10_000.0)?,
    };
    let Some(parameters) = parameters else { return Ok(Rope { theta, scaling: None }) };
    for fields in [&parameters, fields] {
        if fields.number_or("partial_rotary_factor", 1.0)? != 1.0 {
            return Err(not_implemented("partial_rotary_factor"));
        }
    }
    let kind = parameters.0.get("rope_type").or(parameters.0.get("type"));
    let scaling = match kind.map(Value::as_str) {
        None | Some(Some("default")) => None,
        Some(Some("llama3")) => Some(RopeScaling {
            factor: parameters.number("factor")?,
            low_freq_factor: parameters.number("low_freq_factor")?,
            high_freq_factor: parameters.number("high_freq_factor")?,
            original_max_position_embeddings: parameters
                .size_or("original_max_position_embeddings", max_position_embeddings)?,
        }),
        Some(_) => {
            let kind = kind.unwrap_or(&Value::Null);
            return Err(not_implemented(&format!("the rope scaling of type {kind}")));
        }
    };
    Ok(Rope { theta, scaling })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!((older.theta, older.scaling.map(|scaling| scaling.factor)), (5.0, Some(2.0)));
        for empty in [json!({}), Value::Null] {
            assert_eq!(rope(&empty), Rope { theta: 7.0, scaling: None });
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
