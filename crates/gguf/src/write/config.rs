//! Writes what `config.json` says as keys of a file, and what no key says as tensors.
//!
//! Only keys that llama.cpp obeys are written. What remains unsaid is found by whoever reads the file again and
//! compares: a file that says more than llama.cpp computes would be another model there.

use serde_json::Value;

use super::new_keys::NewKeys;
use crate::{
    change::Recurrence,
    config::{EPSILON, FACTORS, SIZES},
    family::{Family, RECURRENT, ROTATES, SHARED},
    rope::{CONTEXT, ENDS, FACTOR, FREQUENCIES, GROWTH, LONG, Llama3, MULTIPLIER, SHORT},
};

/// A tensor that is part of the configuration: its name and its values.
type Further = (&'static str, Vec<f32>);

/// Fields that have to be false, because llama.cpp has no such biases, or no model without a head of its own, and the
/// families for which that holds.
const FALSE: [(&str, &[Family]); 6] = [
    ("attention_bias", &[Family::Olmoe, Family::HunYuan, Family::Arcee]),
    ("attention_bias", RECURRENT),
    ("attention_out_bias", &[Family::SeedOss]),
    ("mlp_bias", &[Family::SeedOss, Family::Arcee]),
    ("use_bias", &[Family::Ernie45]),
    ("tie_word_embeddings", &[Family::Qwen2Moe, Family::Olmoe]),
];

/// Widths of experts, if they differ from that of a single MLP: fields and keys, and the families that have them.
const EXPERTS: [(&str, &str, &[Family]); 2] = [
    (
        "moe_intermediate_size",
        "expert_feed_forward_length",
        &[Family::Qwen2Moe, Family::Qwen3Moe, Family::Qwen3Next, Family::Qwen35Moe],
    ),
    ("shared_expert_intermediate_size", "expert_shared_feed_forward_length", SHARED),
];

/// Writes the configuration of a model, and returns the tensors that belong to it.
pub(super) fn write(
    config: &Value,
    family: Family,
    keys: &mut NewKeys,
) -> Result<Vec<Further>, String> {
    let further_sizes = [
        ("num_hidden_layers", "block_count"),
        ("num_attention_heads", "attention.head_count"),
        ("head_dim", "attention.key_length"),
        ("head_dim", "attention.value_length"),
        ("vocab_size", "vocab_size"),
    ];
    for (field, key) in SIZES.into_iter().chain(further_sizes) {
        set_size(config, field, key, keys)?;
    }
    keys.float(&keys.own(EPSILON), number(config, "rms_norm_eps")?);
    key_heads(config, family, keys)?;

    check(config, family)?;
    windows(config, family, keys)?;
    if let Some(count) = family.experts() {
        set_size(config, count, "expert_count", keys)?;
        set_size(config, "num_experts_per_tok", "expert_used_count", keys)?;
        for (field, key, _) in EXPERTS.iter().filter(|(.., of)| of.contains(&family)) {
            set_size(config, field, key, keys)?;
        }
    }
    if RECURRENT.contains(&family) {
        recurrence(config, keys)?;
    }
    if family == Family::Lfm2 {
        set_size(config, "conv_L_cache", "shortconv.l_cache", keys)?;
    }
    if matches!(family, Family::Granite | Family::GraniteHybrid) {
        for (field, key) in FACTORS {
            keys.float(&keys.own(key), number(config, field)?);
        }
    }
    if family == Family::GraniteHybrid {
        keys.flag(&keys.own(ROTATES), config["position_embedding_type"] == "rope");
    }
    rope(config, family, keys)
}

/// Refuses what llama.cpp can't load in the architecture, or would pass over.
fn check(config: &Value, family: Family) -> Result<(), String> {
    let name = family.name();
    let told = FALSE.iter().find(|(field, of)| of.contains(&family) && config[*field] == true);
    if let Some((field, _)) = told {
        return Err(format!("its {field} is true, and llama.cpp expects false in {name}"));
    }

    let dense = &config["mlp_only_layers"];
    if dense.as_array().is_some_and(|layers| !layers.is_empty()) {
        return Err(format!(
            "its mlp_only_layers is {dense}, and llama.cpp expects experts in every layer"
        ));
    }

    let heads = size(config, "num_attention_heads")?;
    let key_heads = size(config, "num_key_value_heads")?;
    if family == Family::Olmoe && key_heads != heads {
        return Err(format!(
            "its num_key_value_heads is {key_heads}, and llama.cpp expects {heads} in {name}, as many as \
             num_attention_heads"
        ));
    }

    let [hidden, head] = [size(config, "hidden_size")?, size(config, "head_dim")?];
    let as_wide = [Family::Qwen2Moe, Family::Olmoe, Family::Exaone4, Family::Lfm2];
    if as_wide.contains(&family) && heads * head != hidden {
        return Err(format!(
            "its head_dim is {head}, and llama.cpp expects {heads} heads to be as wide as hidden_size in {name}, \
             {hidden}"
        ));
    }
    Ok(())
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

/// Writes the number of key heads. LFM2 has one for each layer, and none where a convolution replaces attention.
fn key_heads(config: &Value, family: Family, keys: &mut NewKeys) -> Result<(), String> {
    const FIELD: &str = "num_key_value_heads";
    const KEY: &str = "attention.head_count_kv";
    if family != Family::Lfm2 {
        return set_size(config, FIELD, KEY, keys);
    }

    let heads = size(config, FIELD)? as i32;
    let convolutions = layers_of(config, "conv")?;
    let heads: Vec<i32> = convolutions.into_iter().map(|it| if it { 0 } else { heads }).collect();
    keys.integers(&keys.own(KEY), &heads);
    Ok(())
}

/// Writes the window, and which layers have it.
fn windows(config: &Value, family: Family, keys: &mut NewKeys) -> Result<(), String> {
    let some_layers = match family {
        Family::Gemma3 | Family::Olmo2 | Family::Exaone4 => true,
        Family::Llama | Family::Mixtral | Family::Phi3 => false,
        Family::Qwen2
        | Family::Qwen2Moe
        | Family::Qwen3
        | Family::Qwen3Moe
        | Family::Qwen3Next
        | Family::Qwen35
        | Family::Qwen35Moe
        | Family::Gemma
        | Family::SmolLm3
        | Family::Ministral3
        | Family::Olmoe
        | Family::Granite
        | Family::GraniteHybrid
        | Family::Glm4
        | Family::Ernie45
        | Family::HunYuan
        | Family::SeedOss
        | Family::Arcee
        | Family::Lfm2 => return Ok(()),
    };

    let window = &config["sliding_window"];
    if family == Family::Exaone4 {
        let windowed = layers_of(config, "sliding_attention")?;
        let large = windowed.len() == 64;
        let known = (0..windowed.len()).map(|layer| large && layer % 4 < 3);
        if !windowed.iter().copied().eq(known) {
            return Err(format!(
                "its sliding_window is {window}, and llama.cpp expects one in three of four layers if the model has \
                 64, and none in other models"
            ));
        }
    }
    if window.is_null() {
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
    if matches!(family, Family::Qwen35 | Family::Qwen35Moe) {
        // Pairs that turn by time, by height and by width in a picture. In a text all three are the position.
        let pairs = rotated / 2;
        let sections = [pairs.div_ceil(3), (pairs + 1) / 3, pairs / 3, 0].map(|pairs| pairs as i32);
        keys.integers(&keys.own("rope.dimension_sections"), &sections);
    }
    if family == Family::Phi3 {
        // Without scaling too, since llama.cpp asks for it.
        set_size(config, "original_max_position_embeddings", CONTEXT, keys)?;
    }

    let scaling = match family {
        Family::Ministral3 => &config["rope_parameters"],
        _ => &config["rope_scaling"],
    };
    if family == Family::Ministral3 {
        set_size(scaling, "original_max_position_embeddings", CONTEXT, keys)?;
        keys.float(&keys.own(GROWTH), number(scaling, "llama_4_scaling_beta")?);
    }

    let Some(kind) = scaling["rope_type"].as_str() else { return Ok(Vec::new()) };
    match kind {
        "default" => Ok(Vec::new()),
        "linear" => {
            keys.text(&keys.own("rope.scaling.type"), kind);
            keys.float(&keys.own("rope.scaling.factor"), number(scaling, "factor")?);
            Ok(Vec::new())
        }
        // The ends of the blended range and the factor of queries and keys have keys, which llama.cpp obeys in
        // Ministral 3 alone.
        "yarn" => {
            keys.text(&keys.own("rope.scaling.type"), kind);
            keys.float(&keys.own("rope.scaling.factor"), number(scaling, "factor")?);
            match family {
                Family::Ministral3 => yarn(scaling, keys)?,
                _ => set_size(scaling, "original_max_position_embeddings", CONTEXT, keys)?,
            }
            Ok(Vec::new())
        }
        "llama3" if has_divisors(family) => {
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
            "its rope_scaling is {other:?}, and llama.cpp knows linear and yarn in {}, llama3 in some architectures, \
             and longrope in phi3",
            family.name()
        )),
    }
}

/// Tells whether llama.cpp looks for the divisors of frequencies of Llama 3.1. It loads no file in which they are for
/// nothing.
fn has_divisors(family: Family) -> bool {
    !matches!(
        family,
        Family::Qwen2Moe
            | Family::Qwen3Next
            | Family::Qwen35
            | Family::Qwen35Moe
            | Family::Ministral3
            | Family::Olmoe
            | Family::Glm4
            | Family::Ernie45
            | Family::HunYuan
            | Family::SeedOss
            | Family::Lfm2
    )
}

/// Writes the ends of YaRN's blended range, and the factor of queries and keys.
fn yarn(scaling: &Value, keys: &mut NewKeys) -> Result<(), String> {
    for (key, field, _) in ENDS {
        keys.float(&keys.own(key), number(scaling, field)?);
    }

    // The factor is (1 + g) / (1 + multiplier · g), and 1 + g if there is no multiplier.
    let grown = 0.1 * number(scaling, "factor")?.ln();
    let multiplier = ((1.0 + grown) / number(scaling, "attention_factor")? - 1.0) / grown;
    if multiplier.is_finite() && multiplier.abs() > 1e-6 {
        keys.float(&keys.own(MULTIPLIER), multiplier);
    }
    Ok(())
}
