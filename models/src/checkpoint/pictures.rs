//! The text part of a model that also sees pictures: its part of `config.json`, and its tensors' names. Such a model is
//! read as its text part alone, which is a model of a known family.

use firebrick_core::config::Family;
use serde_json::{Map, Value, json};

use crate::names::TextPrefix;

/// Model types, the families whose models compute the same as their text part, and whether the head is the embedding if
/// the file is silent. That may differ from the default of the text part by itself.
const KNOWN: [(&str, Family, bool); 7] = [
    ("gemma3", Family::Gemma3, true),
    ("gemma4", Family::Gemma4, true),
    (UNIFIED, Family::Gemma4, true),
    ("mistral3", Family::Mistral, true),
    ("mistral3", Family::Ministral3, true),
    ("qwen3_5", Family::Qwen35, false),
    ("qwen3_5_moe", Family::Qwen35Moe, false),
];

/// Gemma 4 of 12 billion parameters. Its text part has a type and defaults of its own, and nothing else.
const UNIFIED: &str = "gemma4_unified";

/// Fields that this type does not have, and fields for which it has other defaults than Gemma 4.
const OF_UNIFIED: [(&str, u64); 3] = [
    ("hidden_size_per_layer_input", 0),
    ("max_position_embeddings", 262_144),
    ("sliding_window", 1024),
];

/// Prefixes of the text part's tensors, and their prefixes in the text part alone. Files of transformers 5 and 4
/// differ; the last one is the head's.
const TEXT: [(&str, &str); 3] = [
    ("model.language_model.", "model."),
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
];

/// Prefixes of tensors of the part that sees, or hears, which begin like names of a language model.
const SEES: [&str; 7] = [
    "model.visual.",
    "model.vision_tower.",
    "model.multi_modal_projector.",
    "model.embed_vision.",
    "model.vision_embedder.",
    "model.audio_tower.",
    "model.embed_audio.",
];

/// Returns the `config.json` of the text part if `fields` are of a model that has one; otherwise `fields` as they are.
pub(super) fn text_part(mut fields: Map<String, Value>) -> Map<String, Value> {
    let of = |fields: &Map<String, Value>, name: &str| {
        fields.get(name).and_then(Value::as_str).map(str::to_owned)
    };

    let model_type = of(&fields, "model_type");
    let text = fields.get("text_config").and_then(Value::as_object);
    let text_type = text.and_then(|text| of(text, "model_type"));
    let known = KNOWN.iter().find(|(name, family, _)| {
        let of_text = text_type.as_deref().is_none_or(|text_type| {
            text_type == family.model_type() || text_type.strip_suffix("_text") == Some(UNIFIED)
        });
        of_text && model_type.as_deref() == Some(name)
    });
    let Some((name, family, tied)) = known else { return fields };

    match fields.remove("text_config") {
        Some(Value::Object(mut text)) => {
            text.insert("model_type".into(), family.model_type().into());
            text.insert("architectures".into(), json!([family.language_model()]));
            for (field, default) in OF_UNIFIED.into_iter().filter(|_| *name == UNIFIED) {
                text.entry(field).or_insert_with(|| default.into());
            }

            // The head is outside the text part, so what the text part says about it is ignored.
            let tied = match fields.remove(TIED) {
                // Gemma's class reads a null as a no.
                Some(Value::Null) if *family == Family::Gemma3 => json!(false),
                Some(found) => found,
                None => json!(tied),
            };
            text.insert(TIED.into(), tied);

            if *family == Family::Mistral {
                with_one_type(&mut text);
            }

            // These may be outside the text part and apply to it.
            for name in SHARED {
                if let (None, Some(value)) = (text.get(name), fields.remove(name)) {
                    text.insert(name.into(), value);
                }
            }

            text
        }
        Some(other) => {
            fields.insert("text_config".into(), other);
            fields
        }
        None => fields,
    }
}

const TIED: &str = "tie_word_embeddings";

/// Makes the layers in the list of types alike. For such a model, transformers ignores the list when it decides which
/// layers look back through the window, although it reads it for a text part by itself, as which the part may be saved.
fn with_one_type(text: &mut Map<String, Value>) {
    let full = text.get("sliding_window").is_some_and(Value::is_null);
    let one = if full { "full_attention" } else { "sliding_attention" };
    let types = text.get_mut("layer_types").and_then(Value::as_array_mut);

    for kind in types.into_iter().flatten() {
        // Other types stay, so that they are refused later.
        if matches!(kind.as_str(), Some("attention" | "full_attention" | "sliding_attention")) {
            *kind = one.into();
        }
    }
}

/// Fields of the full model that apply to its text part, unless the part has its own.
const SHARED: [&str; 7] = [
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "pad_token_id",
    "quantization_config",
    "torch_dtype",
    "transformers_version",
];

/// Returns where `AutoModelForCausalLM` of `transformers` 5 has the text model of a folder with this `config.json`. It
/// makes the text model alone for Qwen3.5, but the full model for Gemma 3 and 4. So it would for Mistral 3 if it knew
/// that type, which only `AutoModelForImageTextToText` does.
pub(super) fn text_prefix(fields: &Map<String, Value>) -> TextPrefix {
    match fields.get("model_type").and_then(Value::as_str) {
        Some("gemma3" | "gemma4" | UNIFIED | "mistral3") => TextPrefix::Within,
        _ => TextPrefix::Alone,
    }
}

/// Returns where the class keeps the text model that has a module of this name. `None` if the name has no prefix of a
/// text model, as that of the head alone.
pub(super) fn text_prefix_of(name: &str) -> Option<TextPrefix> {
    let begins = |prefix: &str| name.starts_with(prefix);
    if begins("model.language_model.") {
        Some(TextPrefix::Within)
    } else if begins("language_model.") {
        Some(TextPrefix::Around)
    } else if begins("model.") {
        Some(TextPrefix::Alone)
    } else {
        None
    }
}

/// Returns the name of a tensor in the text part alone. Other names stay as they are.
pub(super) fn text_name(name: &str) -> String {
    let inside =
        |(prefix, own): &(&str, &str)| Some(format!("{own}{}", name.strip_prefix(prefix)?));
    TEXT.iter().find_map(inside).unwrap_or_else(|| name.to_owned())
}

/// Tells whether a tensor is of the part that sees.
pub(super) fn sees(name: &str) -> bool {
    SEES.iter().any(|part| name.starts_with(part))
}

/// Tells whether a module of any class is of the part that sees: in older classes that part is not within `model`.
pub(super) fn sees_in_any_class(name: &str) -> bool {
    SEES.iter().any(|part| name.starts_with(part) || name.starts_with(&part["model.".len()..]))
}

/// Matches the modules of the part that sees.
pub(super) const SEEING: &str = concat!(
    r"(?:.*\.)?",
    r"(?:vision_tower|multi_modal_projector|visual|embed_vision|vision_embedder|audio_tower|embed_audio)\..*"
);
