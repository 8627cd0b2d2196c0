//! Writes what `config.json` says as keys of a file, and what no key says as tensors.
//!
//! Only keys that llama.cpp obeys are written. What remains unsaid is found by whoever reads the file again and
//! compares: a file that says more than llama.cpp computes would be another model there.

use serde_json::Value;

use super::new_keys::NewKeys;
use crate::{
    change::Recurrence,
    config::{EPSILON, SIZES},
    family::Family,
    rope::{CONTEXT, FACTOR, FREQUENCIES, LONG, Llama3, SHORT},
};

/// A tensor that is part of the configuration: its name and its values.
type Further = (&'static str, Vec<f32>);

/// Writes the configuration of a model, and returns the tensors that belong to it.
pub(super) fn write(
    config: &Value,
    family: Family,
    keys: &mut NewKeys,
) -> Result<Vec<Further>, String> {
    let further_sizes = [
        ("num_hidden_layers", "block_count"),
        ("num_attention_heads", "attention.head_count"),
        ("num_key_value_heads", "attention.head_count_kv"),
        ("head_dim", "attention.key_length"),
        ("head_dim", "attention.value_length"),
        ("vocab_size", "vocab_size"),
    ];
    for (field, key) in SIZES.into_iter().chain(further_sizes) {
        set_size(config, field, key, keys)?;
    }
    keys.float(&keys.own(EPSILON), number(config, "rms_norm_eps")?);

    windows(config, family, keys)?;
    if family == Family::Qwen3Moe {
        let dense = &config["mlp_only_layers"];
        if dense.as_array().is_some_and(|layers| !layers.is_empty()) {
            return Err(format!(
                "its mlp_only_layers is {dense}, and llama.cpp expects experts in every layer"
            ));
        }
        for (field, key) in [
            ("num_experts", "expert_count"),
            ("num_experts_per_tok", "expert_used_count"),
            ("moe_intermediate_size", "expert_feed_forward_length"),
        ] {
            set_size(config, field, key, keys)?;
        }
    }
    if family == Family::Qwen35 {
        recurrence(config, keys)?;
    }
    rope(config, family, keys)
}

/// Returns a size of the configuration.
pub(super) fn size(config: &Value, field: &str) -> Result<usize, String> {
    let size = config[field].as_u64().and_then(|size| u32::try_from(size).ok());
    size.map(|size| size as usize).ok_or_else(|| missing(field, "a size"))
}

fn number(config: &Value, field: &str) -> Result<f64, String> {
    config[field].as_f64().ok_or_else(|| missing(field, "a number"))
}

fn missing(field: &str, expected: &str) -> String {
    format!("its config.json should have {expected} as {field:?}")
}

fn set_size(config: &Value, field: &str, key: &str, keys: &mut NewKeys) -> Result<(), String> {
    keys.number(&keys.own(key), size(config, field)? as u64);
    Ok(())
}

/// Writes the window, and which layers have it.
fn windows(config: &Value, family: Family, keys: &mut NewKeys) -> Result<(), String> {
    let some_layers = match family {
        Family::Gemma3 | Family::Olmo2 => true,
        Family::Llama | Family::Phi3 => false,
        Family::Qwen2
        | Family::Qwen3
        | Family::Qwen3Moe
        | Family::Qwen35
        | Family::Gemma
        | Family::SmolLm3 => return Ok(()),
    };
    if config["sliding_window"].is_null() {
        return Ok(());
    }

    set_size(config, "sliding_window", "attention.sliding_window", keys)?;
    if some_layers {
        let windowed = layers_of(config, "sliding_attention")?;
        keys.flags(&keys.own("attention.sliding_window_pattern"), &windowed);
    }
    if family == Family::Gemma3 {
        let local = number(config, "rope_local_base_freq")?;
        keys.float(&keys.own("rope.freq_base_swa"), local);
    }
    Ok(())
}

/// Tells for each layer whether its type is `kind`.
fn layers_of(config: &Value, kind: &str) -> Result<Vec<bool>, String> {
    let types = config["layer_types"].as_array();
    let types = types.ok_or_else(|| missing("layer_types", "a type for each layer"))?;
    Ok(types.iter().map(|it| it == kind).collect())
}

fn recurrence(config: &Value, keys: &mut NewKeys) -> Result<(), String> {
    let sizes = Recurrence {
        key_heads: size(config, "linear_num_key_heads")?,
        value_heads: size(config, "linear_num_value_heads")?,
        key_dim: size(config, "linear_key_head_dim")?,
        value_dim: size(config, "linear_value_head_dim")?,
        kernel: size(config, "linear_conv_kernel_dim")?,
    };
    for (key, size) in sizes.keys() {
        keys.number(&keys.own(key), size as u64);
    }

    let recurrent = layers_of(config, "linear_attention")?;
    keys.flags(&keys.own("attention.recurrent_layers"), &recurrent);
    Ok(())
}

/// Writes the rotary embedding.
fn rope(config: &Value, family: Family, keys: &mut NewKeys) -> Result<Vec<Further>, String> {
    let head = size(config, "head_dim")?;
    let share = config["partial_rotary_factor"].as_f64().unwrap_or(1.0);
    let rotated = (head as f64 * share).round() as usize;
    let theta = number(config, "rope_theta")?;

    keys.number(&keys.own("rope.dimension_count"), rotated as u64);
    keys.float(&keys.own("rope.freq_base"), theta);
    if family == Family::Qwen35 {
        // Pairs that turn by time, by height and by width in a picture. In a text all three are the position.
        let pairs = rotated / 2;
        let sections = [pairs.div_ceil(3), (pairs + 1) / 3, pairs / 3, 0].map(|pairs| pairs as i32);
        keys.integers(&keys.own("rope.dimension_sections"), &sections);
    }
    if family == Family::Phi3 {
        // Without scaling too, since llama.cpp asks for it.
        set_size(config, "original_max_position_embeddings", CONTEXT, keys)?;
    }

    let scaling = &config["rope_scaling"];
    let Some(kind) = scaling["rope_type"].as_str() else { return Ok(Vec::new()) };
    match kind {
        "linear" => {
            keys.text(&keys.own("rope.scaling.type"), kind);
            keys.float(&keys.own("rope.scaling.factor"), number(scaling, "factor")?);
            Ok(Vec::new())
        }
        // The ends of the blended range and the factor of queries and keys have keys, which llama.cpp does not obey.
        "yarn" => {
            keys.text(&keys.own("rope.scaling.type"), kind);
            keys.float(&keys.own("rope.scaling.factor"), number(scaling, "factor")?);
            set_size(scaling, "original_max_position_embeddings", CONTEXT, keys)?;
            Ok(Vec::new())
        }
        "llama3" => {
            set_size(scaling, "original_max_position_embeddings", CONTEXT, keys)?;
            let scaling = Llama3 {
                factor: number(scaling, "factor")?,
                low: number(scaling, "low_freq_factor")?,
                high: number(scaling, "high_freq_factor")?,
                context: number(scaling, "original_max_position_embeddings")?,
            };
            let positions = |pair: usize| theta.powf(2.0 * pair as f64 / head as f64);
            let divisors = (0..head / 2).map(|pair| scaling.divisor(positions(pair)) as f32);
            Ok(vec![(FREQUENCIES, divisors.collect())])
        }
        "longrope" if family == Family::Phi3 => {
            keys.text(&keys.own("rope.scaling.type"), kind);
            keys.float(&keys.own(FACTOR), number(scaling, "attention_factor")?);
            let divisors = |field: &str| -> Result<Vec<f32>, String> {
                let list = scaling[field].as_array().into_iter().flatten();
                let values: Option<_> = list.map(|it| it.as_f64().map(|it| it as f32)).collect();
                values.ok_or_else(|| missing(field, "a list of numbers"))
            };
            Ok(vec![(LONG, divisors("long_factor")?), (SHORT, divisors("short_factor")?)])
        }
        other => Err(format!(
            "its rope_scaling is {other:?}, and the format knows linear, yarn, llama3, and longrope for Phi-3"
        )),
    }
}
