//! Writes what `config.json` says as keys of a file, and what no key says as tensors.
//!
//! Only keys that llama.cpp obeys are written. What remains unsaid is found by whoever reads the file again and
//! compares: a file that says more than llama.cpp computes would be another model there.

use serde_json::Value;

use super::new_keys::NewKeys;
use crate::{
    change::Recurrence,
    config::{EPSILON, FACTORS, SIZES, SWIGLU},
    family::{Family, RECURRENT, ROTATES, SHARED, SIGMOIDS},
    rope::{CONTEXT, ENDS, FACTOR, FREQUENCIES, GROWTH, LONG, Llama3, MULTIPLIER, SHORT, STILL},
};

/// A tensor that is part of the configuration: its name and its values.
type Further = (&'static str, Vec<f32>);

/// Fields that have to be false, because llama.cpp has no such biases, or no model without a head of its own, and the
/// families for which that holds.
const FALSE: [(&str, &[Family]); 6] = [
    ("attention_bias", &[Family::Olmoe, Family::HunYuan, Family::Arcee, Family::Gemma4]),
    ("attention_bias", RECURRENT),
    ("attention_out_bias", &[Family::SeedOss]),
    ("mlp_bias", &[Family::SeedOss, Family::Arcee]),
    ("use_bias", &[Family::Ernie45]),
    ("tie_word_embeddings", &[Family::Qwen2Moe, Family::Olmoe, Family::GptOss, Family::MiniMaxM2]),
];

/// Widths of experts, if they have keys of their own: fields and keys, and the families that have them.
const EXPERTS: [(&str, &str, &[Family]); 3] = [
    ("intermediate_size", "expert_feed_forward_length", &[Family::GptOss, Family::MiniMaxM2]),
    (
        "moe_intermediate_size",
        "expert_feed_forward_length",
        &[
            Family::Qwen2Moe,
            Family::Qwen3Moe,
            Family::Qwen3Next,
            Family::Qwen35Moe,
            Family::Glm4Moe,
        ],
    ),
    ("shared_expert_intermediate_size", "expert_shared_feed_forward_length", SHARED),
];

/// Writes the configuration of a model, and returns the tensors that belong to it.
pub(super) fn write(
    config: &Value,
    family: Family,
    keys: &mut NewKeys,
) -> Result<Vec<Further>, String> {
    let head = head_field(family);
    let further_sizes = [
        ("num_hidden_layers", "block_count"),
        ("num_attention_heads", "attention.head_count"),
        (head, "attention.key_length"),
        (head, "attention.value_length"),
        ("vocab_size", "vocab_size"),
    ];
    for (field, key) in SIZES.into_iter().chain(further_sizes) {
        match (field, config["use_double_wide_mlp"].as_bool()) {
            ("intermediate_size", Some(true)) => mlp_widths(config, key, keys)?,
            _ => set_size(config, field, key, keys)?,
        }
    }
    keys.float(&keys.own(EPSILON), number(config, "rms_norm_eps")?);
    key_heads(config, family, keys)?;

    check(config, family)?;
    if family == Family::GptOss {
        check_gpt_oss(config)?;
    }
    windows(config, family, keys)?;
    if let Some(count) = family.experts() {
        set_size(config, count, "expert_count", keys)?;
        set_size(config, "num_experts_per_tok", "expert_used_count", keys)?;
        for (field, key, _) in EXPERTS.iter().filter(|(.., of)| of.contains(&family)) {
            set_size(config, field, key, keys)?;
        }
    }
    if SIGMOIDS.contains(&family) {
        // The format's number of the sigmoid.
        keys.number(&keys.own("expert_gating_func"), 2);
    }
    if family == Family::Glm4Moe {
        glm4_moe(config, keys)?;
    }
    if RECURRENT.contains(&family) {
        recurrence(config, keys)?;
    }
    if family == Family::Lfm2 {
        set_size(config, "conv_L_cache", "shortconv.l_cache", keys)?;
    }
    if family == Family::Gemma4 {
        gemma4(config, keys)?;
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

/// Refuses a gpt-oss that differs from what llama.cpp's code says of all of them.
fn check_gpt_oss(config: &Value) -> Result<(), String> {
    for (field, known) in SWIGLU {
        let actual = config[field].as_f64().unwrap_or(known);
        if actual != known {
            return Err(format!(
                "its {field} is {actual}, and llama.cpp expects {known} in gpt-oss"
            ));
        }
    }

    if config["attention_bias"] == false {
        return Err("its attention_bias is false, and llama.cpp expects true in gpt-oss".into());
    }

    let windowed = layers_of(config, "sliding_attention")?;
    let alternate = (0..windowed.len()).map(|layer| layer.is_multiple_of(2));
    if !windowed.iter().copied().eq(alternate) {
        let types = &config["layer_types"];
        return Err(format!(
            "its layer_types is {types}, and llama.cpp expects every other layer of gpt-oss to have the window, from \
             the first on"
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

/// Returns the field with the width of a head that keys without a mark state: in Gemma 4 that of layers which see
/// everything.
fn head_field(family: Family) -> &'static str {
    if family == Family::Gemma4 { "global_head_dim" } else { "head_dim" }
}

/// Writes what only GLM-4.5 has of experts.
fn glm4_moe(config: &Value, keys: &mut NewKeys) -> Result<(), String> {
    for (field, key) in [
        ("first_k_dense_replace", "leading_dense_block_count"),
        ("n_shared_experts", "expert_shared_count"),
    ] {
        set_size(config, field, key, keys)?;
    }
    let scale = number(config, "routed_scaling_factor")?;
    keys.float(&keys.own("expert_weights_scale"), scale);
    keys.flag(&keys.own("expert_weights_norm"), config["norm_topk_prob"] == true);
    Ok(())
}

/// Writes the width of each layer's MLP, which is twice as wide in layers of Gemma 4 that have no keys and values.
fn mlp_widths(config: &Value, key: &str, keys: &mut NewKeys) -> Result<(), String> {
    let width = size(config, "intermediate_size")? as i32;
    let layers = size(config, "num_hidden_layers")?;
    let own = layers.saturating_sub(size(config, "num_kv_shared_layers")?);
    let widths: Vec<i32> =
        (0..layers).map(|layer| if layer < own { width } else { 2 * width }).collect();
    keys.integers(&keys.own(key), &widths);
    Ok(())
}

/// Writes what only Gemma 4 has.
fn gemma4(config: &Value, keys: &mut NewKeys) -> Result<(), String> {
    for key in
        ["attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"]
    {
        set_size(config, "head_dim", key, keys)?;
    }
    for (field, key) in [
        ("hidden_size_per_layer_input", "embedding_length_per_layer_input"),
        ("num_kv_shared_layers", "attention.shared_kv_layers"),
    ] {
        set_size(config, field, key, keys)?;
    }

    can_share(config)?;
    let cap = "final_logit_softcapping";
    if !config[cap].is_null() {
        keys.float(&keys.own(cap), number(config, cap)?);
    }
    Ok(())
}

/// Refuses a Gemma 4 that llama.cpp would compute otherwise: it takes the keys and values that layers share from the two
/// layers before them, the first of which slides, and expects a row of the table for each token.
fn can_share(config: &Value) -> Result<(), String> {
    let slides = layers_of(config, "sliding_attention")?;
    if !slides.contains(&true) {
        return Err("no layer has a window, and llama.cpp expects one".into());
    }

    let own = slides.len().saturating_sub(size(config, "num_kv_shared_layers")?);
    let last_two = own.checked_sub(2).map(|first| &slides[first..own]);
    if own < slides.len() && last_two != Some(&[true, false]) {
        return Err(format!(
            "its num_kv_shared_layers is {}, and llama.cpp expects that of the two layers before these the first slides \
             and the second sees everything",
            slides.len() - own
        ));
    }

    let [tokens, rows] = ["vocab_size", "vocab_size_per_layer_input"].map(|field| &config[field]);
    let has_table = size(config, "hidden_size_per_layer_input")? > 0;
    if has_table && tokens != rows {
        return Err(format!(
            "its vocab_size_per_layer_input is {rows}, and llama.cpp expects vocab_size, {tokens}"
        ));
    }
    Ok(())
}

/// Writes the number of key heads. LFM2 has one for each layer, and none where a convolution replaces attention. So has
/// Gemma 4, and another one in layers that see everything.
fn key_heads(config: &Value, family: Family, keys: &mut NewKeys) -> Result<(), String> {
    const FIELD: &str = "num_key_value_heads";
    const KEY: &str = "attention.head_count_kv";
    let (kind, others) = match family {
        Family::Lfm2 => ("conv", 0),
        Family::Gemma4 => ("full_attention", size(config, "num_global_key_value_heads")? as i32),
        _ => return set_size(config, FIELD, KEY, keys),
    };

    let heads = size(config, FIELD)? as i32;
    let of_kind = layers_of(config, kind)?.into_iter();
    let heads: Vec<i32> = of_kind.map(|it| if it { others } else { heads }).collect();
    keys.integers(&keys.own(KEY), &heads);
    Ok(())
}

/// Writes the window, and which layers have it.
fn windows(config: &Value, family: Family, keys: &mut NewKeys) -> Result<(), String> {
    let some_layers = match family {
        Family::Gemma3 | Family::Gemma4 | Family::Olmo2 | Family::Exaone4 => true,
        Family::Llama | Family::Mixtral | Family::Phi3 | Family::GptOss => false,
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
        | Family::Glm4Moe
        | Family::MiniMaxM2
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
    // A gpt-oss without a window is none that llama.cpp loads.
    if window.is_null() && family != Family::GptOss {
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
    if family == Family::Gemma4 {
        let local = number(&config["rope_parameters"]["sliding_attention"], "rope_theta")?;
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
    let head = size(config, head_field(family))?;
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

    if family == Family::Gemma4 {
        return proportional(&config["rope_parameters"]["full_attention"], head);
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
        // Ministral 3 alone. That it rounds these ends or not, as in gpt-oss, has none.
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

/// Makes the divisors of all pairs of a head in layers of Gemma 4 that see everything. llama.cpp rotates all pairs, so
/// those that stand still get a huge divisor.
fn proportional(rope: &Value, head: usize) -> Result<Vec<Further>, String> {
    let kind = &rope["rope_type"];
    if kind != "proportional" {
        return Err(format!(
            "its rope of layers that see everything is {kind}, and llama.cpp expects proportional in gemma4"
        ));
    }

    let factor = number(rope, "factor")? as f32;
    let rotated = (head as f64 * number(rope, "partial_rotary_factor")?) as usize / 2;
    let divisor = |pair: usize| if pair < rotated { factor } else { STILL };
    Ok(vec![(FREQUENCIES, (0..head / 2).map(divisor).collect())])
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
            | Family::Glm4Moe
            | Family::MiniMaxM2
            | Family::Ernie45
            | Family::HunYuan
            | Family::SeedOss
            | Family::Lfm2
            | Family::GptOss
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
