//! Names of tensors in a GGUF file and in a folder.

use crate::family::Family;

/// Tensors outside the layers: names in a file and in a folder.
const WHOLE: [(&str, &str); 3] =
    [("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")];

/// Tensors of a recurrence whose names in a folder have no `.weight` or `.bias` at their end.
const BARE: [(&str, &str); 2] =
    [("ssm_a", "linear_attn.A_log"), ("ssm_dt.bias", "linear_attn.dt_bias")];

/// Parts of a layer: names in a file and in a folder, and the families that have them. No family means any. The first
/// line that fits is taken, in both directions.
const PARTS: [(&str, &str, &[Family]); 24] = [
    // The second norm of such a layer is after the attention, and the third is before the MLP.
    ("ffn_norm", "pre_feedforward_layernorm", &[Family::Gemma3]),
    (
        "post_attention_norm",
        "post_attention_layernorm",
        &[Family::Gemma3, Family::Olmo2, Family::Qwen35],
    ),
    ("post_ffw_norm", "post_feedforward_layernorm", &[Family::Gemma3, Family::Olmo2]),
    ("attn_qkv", "self_attn.qkv_proj", &[Family::Phi3]),
    ("ffn_up", "mlp.gate_up_proj", &[Family::Phi3]),
    ("ffn_gate_inp", "mlp.gate", &[Family::Qwen3Moe]),
    ("attn_qkv", "linear_attn.in_proj_qkv", &[Family::Qwen35]),
    ("attn_gate", "linear_attn.in_proj_z", &[Family::Qwen35]),
    ("ssm_beta", "linear_attn.in_proj_b", &[Family::Qwen35]),
    ("ssm_alpha", "linear_attn.in_proj_a", &[Family::Qwen35]),
    ("ssm_conv1d", "linear_attn.conv1d", &[Family::Qwen35]),
    ("ssm_norm", "linear_attn.norm", &[Family::Qwen35]),
    ("ssm_out", "linear_attn.out_proj", &[Family::Qwen35]),
    ("attn_norm", "input_layernorm", &[]),
    ("ffn_norm", "post_attention_layernorm", &[]),
    ("attn_q", "self_attn.q_proj", &[]),
    ("attn_k", "self_attn.k_proj", &[]),
    ("attn_v", "self_attn.v_proj", &[]),
    ("attn_output", "self_attn.o_proj", &[]),
    ("attn_q_norm", "self_attn.q_norm", &[]),
    ("attn_k_norm", "self_attn.k_norm", &[]),
    ("ffn_gate", "mlp.gate_proj", &[]),
    ("ffn_up", "mlp.up_proj", &[]),
    ("ffn_down", "mlp.down_proj", &[]),
];

/// Tensors that hold one map, or two, of all experts of a layer. Files are written with one map in each.
const STACKED: [(&str, &[&str]); 4] = [
    ("ffn_gate_exps", &["gate_proj"]),
    ("ffn_up_exps", &["up_proj"]),
    ("ffn_down_exps", &["down_proj"]),
    ("ffn_gate_up_exps", &["gate_proj", "up_proj"]),
];

/// Returns a tensor's name in a folder. A tensor that is part of no known model keeps its own name after `model.`,
/// where the reader of the model will refuse it. Blocks starting at number `layers` predict further tokens, so they are
/// not part of the model.
pub(crate) fn in_folder(name: &str, family: Option<Family>, layers: Option<u64>) -> String {
    let (stem, kind) = name.rsplit_once('.').unwrap_or((name, ""));
    match stem {
        // The factors of the rotary frequencies become a part of the configuration.
        "rope_freqs" => return name.to_owned(),
        "rope_factors_long" | "rope_factors_short" if family == Some(Family::Phi3) => {
            return name.to_owned();
        }
        _ => {}
    }

    if let Some((_, whole)) = WHOLE.iter().find(|(in_file, _)| *in_file == stem) {
        return format!("{whole}.{kind}");
    }

    let of_layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
    let part = of_layer.and_then(|(layer, part)| Some((layer.parse::<u32>().ok()?, part)));
    let Some((layer, part)) = part else { return format!("model.{name}") };

    if layers.is_some_and(|layers| u64::from(layer) >= layers) {
        return format!("mtp.{name}");
    }

    if family == Some(Family::Qwen35)
        && let Some((_, bare)) = BARE.iter().find(|(in_file, _)| *in_file == part)
    {
        return format!("model.layers.{layer}.{bare}");
    }

    let Some((part, kind)) = part.rsplit_once('.') else { return format!("model.{name}") };
    let line = PARTS.iter().find(|(in_file, _, of)| *in_file == part && has(of, family));
    let part = line.map_or(part, |(_, in_folder, _)| in_folder);
    format!("model.layers.{layer}.{part}.{kind}")
}

/// Tells whether a line of the table is for a family.
fn has(of: &[Family], family: Option<Family>) -> bool {
    of.is_empty() || family.is_some_and(|family| of.contains(&family))
}

/// Name of a folder's tensor in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InFile {
    pub(crate) name: String,
    /// Number of the expert whose matrix this is, if the file's tensor has the matrices of all experts.
    pub(crate) expert: Option<usize>,
}

/// Returns the name that a folder's tensor has in a file. `None` if the family has no such tensor.
pub(crate) fn in_file(name: &str, family: Family) -> Option<InFile> {
    let one = |name: String| Some(InFile { name, expert: None });
    let (stem, kind) = name.rsplit_once('.')?;
    if let Some((whole, _)) = WHOLE.iter().find(|(_, in_folder)| *in_folder == stem) {
        return one(format!("{whole}.{kind}"));
    }

    let (layer, part) = name.strip_prefix("model.layers.")?.split_once('.')?;
    if let Some((bare, _)) = BARE.iter().find(|(_, in_folder)| *in_folder == part) {
        return one(format!("blk.{layer}.{bare}"));
    }

    let (part, kind) = part.rsplit_once('.')?;
    if let Some(expert) = part.strip_prefix("mlp.experts.") {
        let (expert, map) = expert.split_once('.')?;
        let (stacked, _) = STACKED.iter().find(|(_, maps)| *maps == [map])?;
        let name = format!("blk.{layer}.{stacked}.{kind}");
        return Some(InFile { name, expert: Some(expert.parse().ok()?) });
    }

    let fits = |in_folder: &str, of: &[Family]| in_folder == part && has(of, Some(family));
    let (part, ..) = PARTS.iter().find(|(_, in_folder, of)| fits(in_folder, of))?;
    one(format!("blk.{layer}.{part}.{kind}"))
}

/// Returns the layer and the maps of each expert, in their order, if `name` is that of a stacked tensor.
pub(crate) fn stacked(name: &str) -> Option<(&str, &'static [&'static str])> {
    let (layer, part) = name.strip_suffix(".weight")?.rsplit_once('.')?;
    let (_, maps) = STACKED.iter().find(|(in_file, _)| *in_file == part)?;
    Some((layer, *maps))
}
