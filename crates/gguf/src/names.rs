//! Names of tensors in a GGUF file and in a folder.

use crate::family::{Family, RECURRENT, SHARED};

/// Tensors outside the layers: names in a file and in a folder.
const WHOLE: [(&str, &str); 7] = [
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.norm"),
    // LFM2 has its last norm under this name.
    ("token_embd_norm", "model.embedding_norm"),
    ("output", "lm_head"),
    ("per_layer_token_embd", "model.embed_tokens_per_layer"),
    ("per_layer_model_proj", "model.per_layer_model_projection"),
    ("per_layer_proj_norm", "model.per_layer_projection_norm"),
];

/// Tensors of a layer whose names in a folder have no `.weight` or `.bias` at their end, and the families that have
/// them.
const BARE: [(&str, &str, &[Family]); 6] = [
    ("ssm_a", "linear_attn.A_log", RECURRENT),
    ("ssm_dt.bias", "linear_attn.dt_bias", RECURRENT),
    ("attn_sinks.weight", "self_attn.sinks", &[Family::GptOss]),
    ("exp_probs_b.bias", "mlp.gate.e_score_correction_bias", &[Family::Glm4Moe]),
    ("exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias", &[Family::MiniMaxM2]),
    ("layer_output_scale.weight", "layer_scalar", &[Family::Gemma4]),
];

/// Parts of a layer: names in a file and in a folder, and the families that have them. No family means any. The first
/// line that fits is taken, in both directions.
const PARTS: [(&str, &str, &[Family]); 54] = [
    // The second norm of such a layer is after the attention, and the third is before the MLP.
    ("ffn_norm", "pre_feedforward_layernorm", &[Family::Gemma3, Family::Gemma4]),
    (
        "post_attention_norm",
        "post_attention_layernorm",
        &[
            Family::Gemma3,
            Family::Gemma4,
            Family::Olmo2,
            Family::Qwen3Next,
            Family::Qwen35,
            Family::Qwen35Moe,
            Family::Exaone4,
            Family::SeedOss,
            Family::GptOss,
            Family::Glm4Moe,
        ],
    ),
    ("post_attention_norm", "post_self_attn_layernorm", &[Family::Glm4]),
    (
        "post_ffw_norm",
        "post_feedforward_layernorm",
        &[Family::Gemma3, Family::Gemma4, Family::Olmo2, Family::Exaone4],
    ),
    ("post_ffw_norm", "post_mlp_layernorm", &[Family::Glm4]),
    ("inp_gate", "per_layer_input_gate", &[Family::Gemma4]),
    ("proj", "per_layer_projection", &[Family::Gemma4]),
    ("post_norm", "post_per_layer_input_norm", &[Family::Gemma4]),
    ("attn_q_norm", "self_attn.query_layernorm", &[Family::HunYuan]),
    ("attn_k_norm", "self_attn.key_layernorm", &[Family::HunYuan]),
    ("attn_qkv", "self_attn.qkv_proj", &[Family::Phi3]),
    ("ffn_up", "mlp.gate_up_proj", &[Family::Phi3, Family::Glm4]),
    ("ffn_down", "shared_mlp.output_linear", &[Family::GraniteHybrid]),
    (
        "ffn_gate_inp",
        "mlp.gate",
        &[
            Family::Qwen2Moe,
            Family::Qwen3Moe,
            Family::Qwen3Next,
            Family::Qwen35Moe,
            Family::Olmoe,
            Family::Glm4Moe,
        ],
    ),
    ("ffn_gate_inp", "block_sparse_moe.gate", &[Family::Mixtral, Family::MiniMaxM2]),
    ("ffn_gate_inp", "mlp.router", &[Family::GptOss]),
    ("ffn_gate_inp_shexp", "mlp.shared_expert_gate", SHARED),
    ("ffn_gate_shexp", "mlp.shared_expert.gate_proj", SHARED),
    ("ffn_up_shexp", "mlp.shared_expert.up_proj", SHARED),
    ("ffn_down_shexp", "mlp.shared_expert.down_proj", SHARED),
    ("ffn_gate_shexp", "mlp.shared_experts.gate_proj", &[Family::Glm4Moe]),
    ("ffn_up_shexp", "mlp.shared_experts.up_proj", &[Family::Glm4Moe]),
    ("ffn_down_shexp", "mlp.shared_experts.down_proj", &[Family::Glm4Moe]),
    ("attn_qkv", "linear_attn.in_proj_qkv", RECURRENT),
    ("attn_gate", "linear_attn.in_proj_z", RECURRENT),
    // Files of the first months have both as one.
    ("ssm_in", "linear_attn.in_proj_qkvz", &[Family::Qwen3Next]),
    ("ssm_ba", "linear_attn.in_proj_ba", &[Family::Qwen3Next]),
    ("ssm_beta", "linear_attn.in_proj_b", &[Family::Qwen35, Family::Qwen35Moe]),
    ("ssm_alpha", "linear_attn.in_proj_a", &[Family::Qwen35, Family::Qwen35Moe]),
    ("ssm_conv1d", "linear_attn.conv1d", RECURRENT),
    ("ssm_norm", "linear_attn.norm", RECURRENT),
    ("ssm_out", "linear_attn.out_proj", RECURRENT),
    ("shortconv.conv", "conv.conv", &[Family::Lfm2]),
    ("shortconv.in_proj", "conv.in_proj", &[Family::Lfm2]),
    ("shortconv.out_proj", "conv.out_proj", &[Family::Lfm2]),
    ("attn_norm", "operator_norm", &[Family::Lfm2]),
    ("ffn_norm", "ffn_norm", &[Family::Lfm2]),
    ("attn_output", "self_attn.out_proj", &[Family::Lfm2]),
    ("attn_q_norm", "self_attn.q_layernorm", &[Family::Lfm2]),
    ("attn_k_norm", "self_attn.k_layernorm", &[Family::Lfm2]),
    ("ffn_gate", "feed_forward.w1", &[Family::Lfm2]),
    ("ffn_up", "feed_forward.w3", &[Family::Lfm2]),
    ("ffn_down", "feed_forward.w2", &[Family::Lfm2]),
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

/// Tensors that hold one map, or two, of all experts of a layer, or the biases of such maps: names in a file, and in a
/// folder those of the layer's part and of the maps. The families are as in [`PARTS`]. Files are written with one map
/// in each.
const STACKED: [(&str, &str, &[&str], &[Family]); 8] = [
    ("ffn_gate_exps", "block_sparse_moe", &["w1"], AS_MIXTRAL),
    ("ffn_up_exps", "block_sparse_moe", &["w3"], AS_MIXTRAL),
    ("ffn_down_exps", "block_sparse_moe", &["w2"], AS_MIXTRAL),
    ("ffn_gate_up_exps", "block_sparse_moe", &["w1", "w3"], AS_MIXTRAL),
    ("ffn_gate_exps", "mlp", &["gate_proj"], &[]),
    ("ffn_up_exps", "mlp", &["up_proj"], &[]),
    ("ffn_down_exps", "mlp", &["down_proj"], &[]),
    ("ffn_gate_up_exps", "mlp", &["gate_proj", "up_proj"], &[]),
];

/// Families whose folders have Mixtral's names for the parts of experts.
const AS_MIXTRAL: &[Family] = &[Family::Mixtral, Family::MiniMaxM2];

/// Tensors that a folder has as one and a file as two, the rows of the first before those of the second: names in a
/// folder, of the whole and of what the two would be there by themselves, the fields of `config.json` whose product is
/// the number of rows of the second, and the family.
const JOINED: [(&str, [&str; 2], &[&str], Family); 2] = [
    (
        "shared_mlp.input_linear",
        ["mlp.gate_proj", "mlp.up_proj"],
        &["shared_intermediate_size"],
        Family::GraniteHybrid,
    ),
    (
        "linear_attn.in_proj_qkvz",
        ["linear_attn.in_proj_qkv", "linear_attn.in_proj_z"],
        &["linear_num_value_heads", "linear_value_head_dim"],
        Family::Qwen3Next,
    ),
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

    let bare = BARE.iter().find(|(in_file, _, of)| *in_file == part && has(of, family));
    if let Some((_, bare, _)) = bare {
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
    /// Number of the expert whose matrix or bias this is, if the file's tensor has those of all experts.
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
    let bare = BARE.iter().find(|(_, in_folder, of)| *in_folder == part && has(of, Some(family)));
    if let Some((bare, ..)) = bare {
        return one(format!("blk.{layer}.{bare}"));
    }

    let (part, kind) = part.rsplit_once('.')?;
    if let Some((module, expert)) = part.split_once(".experts.") {
        let (expert, map) = expert.split_once('.')?;
        let fits = |own: &str, maps: &[&str], of: &[Family]| {
            own == module && maps == [map] && has(of, Some(family))
        };
        let (stacked, ..) = STACKED.iter().find(|(_, own, maps, of)| fits(own, maps, of))?;
        let name = format!("blk.{layer}.{stacked}.{kind}");
        return Some(InFile { name, expert: Some(expert.parse().ok()?) });
    }

    let fits = |in_folder: &str, of: &[Family]| in_folder == part && has(of, Some(family));
    let (part, ..) = PARTS.iter().find(|(_, in_folder, of)| fits(in_folder, of))?;
    one(format!("blk.{layer}.{part}.{kind}"))
}

/// What a file's tensor holds of all experts of a layer.
pub(crate) struct Stacked {
    /// Name that the experts have together in a folder, such as `model.layers.0.mlp.experts`.
    pub(crate) experts: String,
    /// Maps of each expert, in their order.
    pub(crate) maps: &'static [&'static str],
    /// `weight` if these are the matrices of the maps, and `bias` if they are the biases.
    pub(crate) kind: &'static str,
}

/// Tells what is stacked in a tensor, if `name` is that of a stacked one.
pub(crate) fn stacked(name: &str, family: Family) -> Option<Stacked> {
    let (stem, kind) = name.rsplit_once('.')?;
    // Other kinds, such as scales, are part of no model that is read.
    let kind = ["weight", "bias"].into_iter().find(|known| *known == kind)?;

    let (layer, part) = stem.rsplit_once('.')?;
    let fits = |in_file: &str, of: &[Family]| in_file == part && has(of, Some(family));
    let (_, module, maps, _) = STACKED.iter().find(|(in_file, _, _, of)| fits(in_file, of))?;
    Some(Stacked { experts: format!("{layer}.{module}.experts"), maps, kind })
}

/// Returns the names that the parts of a folder's tensor would have there, in their order, and the fields whose product
/// is the number of rows of the last part, if a file has it in parts.
pub(crate) fn parts(name: &str, family: Family) -> Option<([String; 2], &'static [&'static str])> {
    let line = JOINED.iter().find(|(whole, .., of)| *of == family && name.contains(whole));
    let (whole, parts, rows, _) = line?;
    Some((parts.map(|part| name.replace(whole, part)), *rows))
}

/// Returns the names of both parts of a folder's tensor, and its own, if `name` is that of the first part.
pub(crate) fn joined(name: &str, family: Family) -> Option<[String; 3]> {
    let line = JOINED.iter().find(|(_, [first, _], _, of)| *of == family && name.contains(first));
    let (whole, [first, second], ..) = line?;
    Some([name.to_owned(), name.replace(first, second), name.replace(first, whole)])
}
