//! Names of tensors in a GGUF file and in a folder.

use crate::family::Family;

/// Returns a tensor's name in a folder. A tensor that is part of no known model keeps its own name after `model.`,
/// where the reader of the model will refuse it. Blocks starting at number `layers` predict further tokens, so they are
/// not part of the model.
pub(crate) fn in_folder(name: &str, family: Option<Family>, layers: Option<u64>) -> String {
    let (stem, kind) = name.rsplit_once('.').unwrap_or((name, ""));
    let whole = match stem {
        "token_embd" => Some("model.embed_tokens"),
        "output_norm" => Some("model.norm"),
        "output" => Some("lm_head"),
        // The factors of the rotary frequencies become a part of the configuration.
        "rope_freqs" => return name.to_owned(),
        "rope_factors_long" | "rope_factors_short" if family == Some(Family::Phi3) => {
            return name.to_owned();
        }
        _ => None,
    };

    if let Some(whole) = whole {
        return format!("{whole}.{kind}");
    }

    let of_layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
    let part = of_layer.and_then(|(layer, part)| Some((layer.parse::<u32>().ok()?, part)));
    let Some((layer, part)) = part else { return format!("model.{name}") };

    if layers.is_some_and(|layers| u64::from(layer) >= layers) {
        return format!("mtp.{name}");
    }

    // In a folder these two have no `.weight` or `.bias` after their names.
    if family == Some(Family::Qwen35) {
        let whole = match part {
            "ssm_a" => Some("A_log"),
            "ssm_dt.bias" => Some("dt_bias"),
            _ => None,
        };
        if let Some(whole) = whole {
            return format!("model.layers.{layer}.linear_attn.{whole}");
        }
    }

    let Some((part, kind)) = part.rsplit_once('.') else { return format!("model.{name}") };
    format!("model.layers.{layer}.{}.{kind}", in_layer(part, family))
}

/// Returns the name that a part of a layer has in a folder.
fn in_layer(part: &str, family: Option<Family>) -> &str {
    match (part, family) {
        // The second norm of such a layer is after the attention, and the third is before the MLP.
        ("ffn_norm", Some(Family::Gemma3)) => "pre_feedforward_layernorm",
        ("post_attention_norm", Some(Family::Gemma3 | Family::Olmo2 | Family::Qwen35)) => {
            "post_attention_layernorm"
        }
        ("post_ffw_norm", Some(Family::Gemma3 | Family::Olmo2)) => "post_feedforward_layernorm",
        ("attn_qkv", Some(Family::Phi3)) => "self_attn.qkv_proj",
        ("ffn_up", Some(Family::Phi3)) => "mlp.gate_up_proj",
        ("ffn_gate_inp", Some(Family::Qwen3Moe)) => "mlp.gate",
        ("attn_qkv", Some(Family::Qwen35)) => "linear_attn.in_proj_qkv",
        ("attn_gate", Some(Family::Qwen35)) => "linear_attn.in_proj_z",
        ("ssm_beta", Some(Family::Qwen35)) => "linear_attn.in_proj_b",
        ("ssm_alpha", Some(Family::Qwen35)) => "linear_attn.in_proj_a",
        ("ssm_conv1d", Some(Family::Qwen35)) => "linear_attn.conv1d",
        ("ssm_norm", Some(Family::Qwen35)) => "linear_attn.norm",
        ("ssm_out", Some(Family::Qwen35)) => "linear_attn.out_proj",
        ("attn_norm", _) => "input_layernorm",
        ("ffn_norm", _) => "post_attention_layernorm",
        ("attn_q", _) => "self_attn.q_proj",
        ("attn_k", _) => "self_attn.k_proj",
        ("attn_v", _) => "self_attn.v_proj",
        ("attn_output", _) => "self_attn.o_proj",
        ("attn_q_norm", _) => "self_attn.q_norm",
        ("attn_k_norm", _) => "self_attn.k_norm",
        ("ffn_gate", _) => "mlp.gate_proj",
        ("ffn_up", _) => "mlp.up_proj",
        ("ffn_down", _) => "mlp.down_proj",
        (other, _) => other,
    }
}

/// Returns the layer and the maps of each expert, in their order, if `name` is that of a stacked tensor.
pub(crate) fn stacked(name: &str) -> Option<(&str, &'static [&'static str])> {
    let (layer, maps): (_, &[&str]) = match name.rsplit_once('.')? {
        (stem, "weight") => match stem.rsplit_once('.')? {
            (layer, "ffn_gate_exps") => (layer, &["gate_proj"]),
            (layer, "ffn_up_exps") => (layer, &["up_proj"]),
            (layer, "ffn_down_exps") => (layer, &["down_proj"]),
            (layer, "ffn_gate_up_exps") => (layer, &["gate_proj", "up_proj"]),
            _ => return None,
        },
        _ => return None,
    };
    Some((layer, maps))
}
