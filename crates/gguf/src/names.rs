//! The names of tensors in a GGUF file and in a folder, and the difference between their values.

/// Returns a tensor's name in a folder. A tensor that is part of no known model keeps its own name behind
/// `model.`. The reader of the model will find it foreign there.
pub(crate) fn in_folder(name: &str) -> String {
    let (stem, kind) = name.rsplit_once('.').unwrap_or((name, ""));
    let whole = match stem {
        "token_embd" => Some("model.embed_tokens"),
        "output_norm" => Some("model.norm"),
        "output" => Some("lm_head"),
        // The factors of the rotary frequencies become a part of the configuration.
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

/// The change that turned a folder's values into the file's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    /// The rows of each head stand in pairs: a row of the first half beside a row of the second half. ggml turns
    /// neighbours, transformers turns halves.
    Pairs {
        heads: usize,
    },
    /// 1 was added to each value.
    PlusOne,
}

impl Change {
    /// Undoes the change, for a tensor whose first size is `rows`.
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
