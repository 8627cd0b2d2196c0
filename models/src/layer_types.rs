//! The fields of a `config.json` that say which layers have full attention, which have a sliding window, and which have
//! a recurrence instead of attention. Files that contradict themselves here are decided as in transformers, or refused.

use std::collections::BTreeSet;

use firebrick_core::config::Family;
use serde_json::{Value, json};

use crate::{
    config::{DecoderConfig, LayerKind, RopeKind},
    fields::{ConfigError, Fields},
};

/// Size of a window if a file does not have it, in most families.
pub(crate) const DEFAULT_WINDOW: Option<usize> = Some(4096);

const LIST: &str = "layer_types";
const SIZE: &str = "sliding_window";
const SWITCH: &str = "use_sliding_window";

/// Type of a layer in `layer_types`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LayerType {
    /// Attends to everything before it.
    Full,
    /// Has a sliding window.
    Sliding,
    /// Has a recurrence.
    Recurrent,
    /// Has a short convolution.
    Convolution,
}

impl LayerType {
    fn of(name: &str) -> Option<Self> {
        match name {
            // The second names are those of older files.
            "full_attention" | "attention" => Some(LayerType::Full),
            "sliding_attention" => Some(LayerType::Sliding),
            "linear_attention" | "mamba" => Some(LayerType::Recurrent),
            "conv" => Some(LayerType::Convolution),
            _ => None,
        }
    }

    /// Tells whether a model of `family` may have such a layer.
    fn fits(self, family: Family) -> bool {
        match self {
            LayerType::Full => true,
            LayerType::Sliding => {
                !recurs(family) && !matches!(family, Family::Lfm2 | Family::GraniteHybrid)
            }
            LayerType::Recurrent => recurs(family),
            LayerType::Convolution => family == Family::Lfm2,
        }
    }
}

/// Tells whether layers of `family` may be recurrent.
fn recurs(family: Family) -> bool {
    matches!(family, Family::Qwen35 | Family::Qwen35Moe | Family::Qwen3Next)
}

/// Reads `layer_types`: the type of each layer. `None` if there is no such list.
///
/// The list is checked for every family, even if its layers are all alike, because transformers does so too, and
/// because a layer of another type would silently be computed wrongly.
pub(crate) fn listed(
    fields: &Fields,
    family: Family,
    layers: usize,
) -> Result<Option<Vec<LayerType>>, ConfigError> {
    let types = match fields.0.get(LIST) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(types)) => types,
        Some(other) => {
            return Err(ConfigError::Field {
                field: LIST.into(),
                expected: "a list with one entry for each layer",
                actual: other.to_string(),
            });
        }
    };

    if types.len() != layers {
        return Err(ConfigError::Size(format!(
            "layer_types has {} entries, but num_hidden_layers is {layers}; expected one entry for each layer",
            types.len()
        )));
    }

    let read = |(layer, value): (usize, &Value)| {
        let kind = value.as_str().and_then(LayerType::of).filter(|kind| kind.fits(family));
        kind.ok_or_else(|| {
            let known = match family {
                Family::Lfm2 => "full_attention or conv",
                Family::GraniteHybrid => "full_attention",
                _ if recurs(family) => "full_attention or linear_attention",
                _ => "full_attention or sliding_attention",
            };
            ConfigError::Size(format!(
                "layer_types has {value} for layer {layer}; expected {known}, since no other layer of {} is \
                 implemented: use a checkpoint without it",
                family.model_type()
            ))
        })
    };
    types.iter().enumerate().map(read).collect::<Result<_, _>>().map(Some)
}

/// Reads a list of layers by their numbers. `None` if there is no such list.
pub(crate) fn numbers(fields: &Fields, name: &str) -> Result<Option<BTreeSet<u64>>, ConfigError> {
    let list = match fields.0.get(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(list) => list,
    };
    let numbers = list.as_array().and_then(|list| list.iter().map(Value::as_u64).collect());
    numbers.map(Some).ok_or_else(|| ConfigError::Field {
        field: name.into(),
        expected: "a list of layers",
        actual: list.to_string(),
    })
}

/// Tells for each layer whether it slides: as `layer_types` says, or as `default` says if there is no such list.
pub(crate) fn sliding(
    fields: &Fields,
    config: &DecoderConfig,
    default: impl Fn(usize) -> bool,
) -> Result<Vec<bool>, ConfigError> {
    Ok(match listed(fields, config.family, config.layers)? {
        Some(types) => types.into_iter().map(|kind| kind == LayerType::Sliding).collect(),
        None => (0..config.layers).map(default).collect(),
    })
}

/// Reads the size of a window: `default` if the file has no such field, and `None` if it says null.
pub(crate) fn window(
    fields: &Fields,
    default: Option<usize>,
) -> Result<Option<usize>, ConfigError> {
    match fields.0.get(SIZE) {
        None => Ok(default),
        Some(_) => fields.optional(SIZE, Fields::size),
    }
}

/// Reads the size of a window like [`window`], for layers of which those in `sliding` need one.
pub(crate) fn window_of(
    fields: &Fields,
    default: Option<usize>,
    sliding: &[bool],
) -> Result<Option<usize>, ConfigError> {
    let window = window(fields, default)?;
    match sliding.iter().position(|sliding| *sliding) {
        Some(layer) if window.is_none() => Err(ConfigError::Field {
            field: SIZE.into(),
            expected: "the size of the window in tokens, because layers look back through one",
            actual: match fields.0.get(SIZE) {
                Some(_) => format!("null, while layer {layer} slides"),
                None => format!("missing, while layer {layer} slides"),
            },
        }),
        _ => Ok(window),
    }
}

/// Reads the window of each layer of Qwen2 and Qwen3, which have a switch for all windows.
pub(crate) fn switched(fields: &Fields, config: &mut DecoderConfig) -> Result<(), ConfigError> {
    // A switch that is missing is not one that is off: with a list of types, the two differ.
    let switch = fields.0.contains_key(SWITCH).then(|| fields.flag(SWITCH)).transpose()?;
    let Some(types) = listed(fields, config.family, config.layers)? else {
        if switch == Some(true) {
            let window = window(fields, DEFAULT_WINDOW)?;
            let first = fields.size_or("max_window_layers", 28)?;
            config.kinds.iter_mut().skip(first).for_each(|kind| kind.window = window);
        }
        return Ok(());
    };

    if switch == Some(false) {
        refuse_sliding(&types)?;
    }
    let sliding: Vec<bool> = types.into_iter().map(|kind| kind == LayerType::Sliding).collect();

    // Without a switch the list decides, but then the default size may be wrong, so it is not used.
    let window = window_of(fields, DEFAULT_WINDOW.filter(|_| switch.is_some()), &sliding)?;
    for (kind, _) in config.kinds.iter_mut().zip(sliding).filter(|(_, sliding)| *sliding) {
        kind.window = window;
    }
    Ok(())
}

/// Refuses types of layers of which some slide, for a model whose switch for windows is off.
pub(crate) fn refuse_sliding(types: &[LayerType]) -> Result<(), ConfigError> {
    match types.iter().position(|kind| *kind == LayerType::Sliding) {
        None => Ok(()),
        Some(layer) => Err(ConfigError::Size(format!(
            "layer_types says that layer {layer} slides, but use_sliding_window is false; expected true, or \
             full_attention for every layer"
        ))),
    }
}

/// Sets a window and the local rope in the layers that `sliding` selects, and neither in the others.
pub(crate) fn slide(
    config: &mut DecoderConfig,
    window: Option<usize>,
    sliding: impl Fn(usize) -> bool,
) {
    for (layer, kind) in config.kinds.iter_mut().enumerate() {
        *kind = if sliding(layer) {
            LayerKind { window, rope: RopeKind::Local, ..*kind }
        } else {
            LayerKind { window: None, rope: RopeKind::Rope, ..*kind }
        };
    }
}

/// Makes `layer_types`, as [`sliding`] reads it.
pub(crate) fn to_json(config: &DecoderConfig) -> Value {
    let kind = |kind: &LayerKind| match kind.window {
        Some(_) => "sliding_attention",
        None => "full_attention",
    };
    config.kinds.iter().map(kind).collect()
}

/// Makes the fields that [`switched`] reads. If no layer has a window, they are as in every published file; otherwise
/// both layouts say which layers have one, as far as the older layout can.
pub(crate) fn switched_to_json(config: &DecoderConfig) -> Value {
    let window = config.window();
    let first = config.kinds.iter().position(|it| it.window.is_some()).unwrap_or(config.layers);

    let mut fields = json!({
        "max_window_layers": first,
        SIZE: window,
        SWITCH: window.is_some(),
    });

    if window.is_some() {
        fields[LIST] = to_json(config);
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::needed;

    /// Reads a model of four layers, and returns the windows of its layers.
    fn windows(family: Family, own: Value) -> Result<Vec<Option<usize>>, String> {
        let mut fields = json!({
            "model_type": family.model_type(),
            "hidden_size": 32,
            "head_dim": 8,
            "intermediate_size": 8,
            "num_attention_heads": 4,
            "num_hidden_layers": 4,
            "num_key_value_heads": 2,
            "vocab_size": 9,
        });

        let fields = fields.as_object_mut().unwrap();
        for more in [needed(family, 4), own] {
            fields.extend(more.as_object().unwrap().clone());
        }
        let config = DecoderConfig::from_json(fields).map_err(|error| error.to_string())?;
        Ok(config.kinds.iter().map(|kind| kind.window).collect())
    }

    fn refused(family: Family, own: Value, words: &[&str]) {
        let error = windows(family, own.clone()).expect_err(&own.to_string());
        for word in words {
            assert!(error.contains(word), "{own}: {word:?} is not in: {error}");
        }
    }

    const SOME: [&str; 4] =
        ["sliding_attention", "full_attention", "sliding_attention", "full_attention"];

    #[test]
    fn a_list_of_types_decides_which_layers_slide() {
        let eight = Ok(vec![Some(8), None, Some(8), None]);
        for family in [
            Family::Qwen2,
            Family::Qwen3,
            Family::SmolLm3,
            Family::Mistral,
            Family::Gemma3,
            Family::Gemma4,
        ] {
            let listed = json!({"layer_types": SOME, "sliding_window": 8});
            assert_eq!(windows(family, listed), eight, "{family:?}");
        }

        // A list counts more than the number of full layers, or a pattern.
        let switched = json!({"layer_types": SOME, "sliding_window": 8, "use_sliding_window": true,
            "max_window_layers": 4});
        assert_eq!(windows(Family::Qwen2, switched), eight);
        let pattern =
            json!({"layer_types": SOME, "sliding_window": 8, "sliding_window_pattern": 4});
        assert_eq!(windows(Family::Gemma3, pattern), eight);

        // SmolLM3 slides as listed whatever the switch says.
        let off = json!({"layer_types": SOME, "sliding_window": 8, "use_sliding_window": false});
        assert_eq!(windows(Family::SmolLm3, off.clone()), eight);

        assert_eq!(windows(Family::Exaone4, off.clone()), eight);

        // These families have one window for all layers, or none, whatever the list says.
        for family in [Family::Phi3, Family::Mixtral, Family::Ministral3] {
            assert_eq!(windows(family, off.clone()), Ok(vec![Some(8); 4]), "{family:?}");
        }
        for family in [
            Family::Llama,
            Family::Olmo2,
            Family::Olmoe,
            Family::Gemma,
            Family::Qwen3Moe,
            Family::Granite,
            Family::Glm4,
            Family::Glm4Moe,
            Family::MiniMaxM2,
            Family::Ernie45,
            Family::HunYuan,
            Family::SeedOss,
            Family::Arcee,
        ] {
            assert_eq!(windows(family, off.clone()), Ok(vec![None; 4]), "{family:?}");
        }

        let full = ["attention"; 4];
        let older = json!({"layer_types": full, "use_sliding_window": true});
        assert_eq!(windows(Family::Qwen3, older), Ok(vec![None; 4]));
    }

    #[test]
    fn sliding_layers_without_a_window_are_refused() {
        let size = ["\"sliding_window\" should be the size of the window", "layer 0 slides"];
        for family in [Family::Qwen2, Family::Qwen3, Family::SmolLm3] {
            refused(family, json!({"layer_types": SOME}), &size);
        }

        for family in [
            Family::Qwen2,
            Family::Qwen3,
            Family::SmolLm3,
            Family::Mistral,
            Family::Gemma3,
            Family::Olmo3,
            Family::Exaone4,
        ] {
            refused(family, json!({"layer_types": SOME, "sliding_window": null}), &size);
        }

        // These families slide even without a list.
        for family in [Family::Gemma3, Family::Olmo3] {
            refused(family, json!({"sliding_window": null}), &size);
        }

        // Without a window and without a list, transformers divides by zero.
        refused(Family::Exaone4, json!({"sliding_window": null}), &["\"layer_types\" should be"]);

        let off = json!({"layer_types": SOME, "sliding_window": 8});
        assert_eq!(windows(Family::Lfm2, json!({})), Ok(vec![None; 4]));
        refused(Family::Qwen2Moe, off, &["layer 0 slides, but use_sliding_window is false"]);
        let on = json!({"use_sliding_window": true, "max_window_layers": 2, "sliding_window": 8});
        assert_eq!(windows(Family::Qwen2Moe, on), Ok(vec![Some(8), None, None, None]));

        for family in [Family::Qwen2, Family::Qwen3] {
            let off =
                json!({"layer_types": SOME, "sliding_window": 8, "use_sliding_window": false});
            refused(family, off, &["layer 0 slides, but use_sliding_window is false"]);

            let none = json!({"use_sliding_window": true, "sliding_window": null});
            assert_eq!(windows(family, none), Ok(vec![None; 4]));
        }
    }

    #[test]
    fn a_list_of_types_that_cannot_be_is_refused_for_every_family() {
        for family in Family::ALL {
            let with = |types: Value| json!({"layer_types": types, "sliding_window": 8});
            let full = "full_attention";
            for types in [json!([full, full, full]), json!([full, full, full, full, full])] {
                refused(family, with(types), &["layer_types has ", "num_hidden_layers is 4"]);
            }
            for unknown in [json!("chunked_attention"), json!("hybrid"), json!(1), json!(null)] {
                let words =
                    [&format!("layer_types has {unknown} for layer 3")[..], "expected full"];
                refused(family, with(json!([full, full, full, unknown])), &words);
            }

            let foreign = match family {
                Family::Llama => "conv",
                _ if recurs(family) => "sliding_attention",
                _ => "linear_attention",
            };
            refused(family, with(json!([full, foreign, full, full])), &[foreign, "for layer 1"]);
            refused(family, with(json!("full_attention")), &["a list with one entry"]);
        }
    }

    #[test]
    fn no_layer_is_every_zeroth() {
        for (family, field) in [
            (Family::Gemma3, "sliding_window_pattern"),
            (Family::SmolLm3, "no_rope_layer_interval"),
            (Family::Qwen35, "full_attention_interval"),
            (Family::Qwen3Next, "decoder_sparse_step"),
            (Family::Qwen3Moe, "decoder_sparse_step"),
            (Family::Qwen2Moe, "decoder_sparse_step"),
            (Family::Exaone4, "sliding_window_pattern"),
        ] {
            refused(family, json!({field: 0}), &[field, "a number of layers from 1, but is 0"]);
            refused(family, json!({field: null}), &[field, "but is null"]);
        }
    }
}
