//! What tensors are called in a GGUF file and in a folder, and how their values differ.

/// A tensor's name in a folder. One that is part of no model here keeps its own behind `model.`, where whoever reads
/// the model finds it foreign.
pub(crate) fn in_folder(name: &str) -> String {
    let (stem, kind) = name.rsplit_once('.').unwrap_or((name, ""));
    let whole = match stem {
        "token_embd" => Some("model.embed_tokens"),
        "output_norm" => Some("model.norm"),
        "output" => Some("lm_head"),
        // Factors of the rotary frequencies, which the configuration has.
        "rope_freqs" => return name.to_owned(),
        _ => None,
    };
    if let Some(whole) = whole {
        return format!("{whole}.{kind}");
    }
    let of_layer = stem.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
    let part = of_layer.and_then(|(layer, part)| Some((layer.parse::<u32>().ok()?, part)));
    let Some((layer, part)) = part else { return format!("model.{name}") };
    let part = match part {
        "attn_norm" => "input_layernorm",
        "ffn_norm" => "post_attention_layernorm",
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_output" => "self_attn.o_proj",
        "attn_q_norm" => "self_attn.q_norm",
        "attn_k_norm" => "self_attn.k_norm",
        "ffn_gate" => "mlp.gate_proj",
        "ffn_up" => "mlp.up_proj",
        "ffn_down" => "mlp.down_proj",
        other => other,
    };
    format!("model.layers.{layer}.{part}.{kind}")
}

/// How the values in the file come to be those of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    /// The rows of each of so many heads stand in pairs, the first half's beside the second's: ggml turns
    /// neighbours, transformers halves.
    Pairs {
        heads: usize,
    },
    /// One was added to each.
    PlusOne,
}

impl Change {
    /// Undoes it, for a tensor whose first size is `rows`.
    pub(crate) fn undo(self, rows: usize, values: &mut [f32]) {
        match self {
            Change::None => {}
            Change::PlusOne => values.iter_mut().for_each(|value| *value -= 1.0),
            Change::Pairs { heads } => {
                let (of_head, width) = (rows / heads, values.len() / rows);
                let mut turned = Vec::with_capacity(of_head * width);
                for head in values.chunks_mut(of_head * width) {
                    turned.clear();
                    for row in (0..of_head).step_by(2).chain((1..of_head).step_by(2)) {
                        turned.extend_from_slice(&head[row * width..][..width]);
                    }
                    head.copy_from_slice(&turned);
                }
            }
        }
    }
}
