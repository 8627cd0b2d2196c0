//! Qwen2 and Qwen2.5: what their `config.json` says and how their tensors are called.

use serde_json::{Value, json};

use crate::config::{ConfigError, DecoderConfig, Family, Fields, Piece};

/// Reads both layouts in use: `rope_theta` and `torch_dtype` beside the sizes (transformers 4),
/// or `rope_parameters` and `dtype` (transformers 5).
pub(crate) fn read(config: &Fields) -> Result<DecoderConfig, ConfigError> {
    let heads = config.size("num_attention_heads")?;
    let hidden_size = config.size("hidden_size")?;
    refuse_what_is_not_implemented(config)?;
    Ok(DecoderConfig {
        family: Family::Qwen2,
        vocab_size: config.size("vocab_size")?,
        hidden_size,
        layers: config.size("num_hidden_layers")?,
        heads,
        kv_heads: config.optional("num_key_value_heads", Fields::size)?.unwrap_or(heads),
        head_dim: config.optional("head_dim", Fields::size)?.unwrap_or(hidden_size / heads.max(1)),
        intermediate_size: config.size("intermediate_size")?,
        max_position_embeddings: config
            .optional("max_position_embeddings", Fields::size)?
            .unwrap_or(32768),
        rope_theta: rope_theta(config)?,
        norm_epsilon: config.optional("rms_norm_eps", Fields::number)?.unwrap_or(1e-6),
        tied: config.optional("tie_word_embeddings", Fields::flag)?.unwrap_or(false),
        qkv_bias: true,
    })
}

/// The `config.json` of a new model, in the layout that transformers 4 and 5 both read.
pub(crate) fn write(config: &DecoderConfig, pad: Option<u32>, eos: u32) -> Value {
    json!({
        "architectures": ["Qwen2ForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": null,
        "eos_token_id": eos,
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_position_embeddings,
        "max_window_layers": config.layers,
        "model_type": "qwen2",
        "num_attention_heads": config.heads,
        "num_hidden_layers": config.layers,
        "num_key_value_heads": config.kv_heads,
        "pad_token_id": pad,
        "rms_norm_eps": config.norm_epsilon,
        "rope_theta": config.rope_theta,
        "sliding_window": null,
        "tie_word_embeddings": config.tied,
        "torch_dtype": "float32",
        "use_cache": true,
        "use_sliding_window": false,
        "vocab_size": config.vocab_size,
    })
}

/// Checkpoint names of the parameter at `path`.
pub(crate) fn pieces(path: &str, config: &DecoderConfig) -> Vec<Piece> {
    let piece = |name: String, rows| Piece { name, rows };
    let hidden = config.hidden_size;
    match path {
        "embedding" => vec![piece("model.embed_tokens.weight".into(), config.vocab_size)],
        "norm" => vec![piece("model.norm.weight".into(), hidden)],
        "head" => vec![piece("lm_head.weight".into(), config.vocab_size)],
        _ => {
            let mut parts = path.splitn(3, '.').skip(1);
            let layer = parts.next().unwrap_or_default();
            let name = |rest: &str| format!("model.layers.{layer}.{rest}");
            let qkv = |kind: &str| {
                ["q", "k", "v"]
                    .map(|part| {
                        let rows =
                            if part == "q" { config.query_width() } else { config.key_width() };
                        piece(name(&format!("self_attn.{part}_proj.{kind}")), rows)
                    })
                    .to_vec()
            };
            let inner = config.intermediate_size;
            match parts.next().unwrap_or_default() {
                "attention_norm" => vec![piece(name("input_layernorm.weight"), hidden)],
                "attention.qkv" => qkv("weight"),
                "attention.qkv_bias" => qkv("bias"),
                "attention.output" => vec![piece(name("self_attn.o_proj.weight"), hidden)],
                "mlp_norm" => vec![piece(name("post_attention_layernorm.weight"), hidden)],
                "gate_up" => vec![
                    piece(name("mlp.gate_proj.weight"), inner),
                    piece(name("mlp.up_proj.weight"), inner),
                ],
                "down" => vec![piece(name("mlp.down_proj.weight"), hidden)],
                other => unreachable!("the decoder has no parameter \"{other}\""),
            }
        }
    }
}

fn rope_theta(config: &Fields) -> Result<f64, ConfigError> {
    match config.0.get("rope_parameters") {
        Some(Value::Object(parameters)) => Fields(parameters).number("rope_theta"),
        _ => Ok(config.optional("rope_theta", Fields::number)?.unwrap_or(10000.0)),
    }
}

/// A checkpoint that needs more than this file computes would load and give wrong logits; it is
/// refused by name instead.
fn refuse_what_is_not_implemented(config: &Fields) -> Result<(), ConfigError> {
    let refuse = |what: String| {
        Err(ConfigError::Size(format!(
            "{what} is not implemented for Qwen2; use a checkpoint without it"
        )))
    };
    if config.optional("use_sliding_window", Fields::flag)?.unwrap_or(false) {
        return refuse("use_sliding_window = true".into());
    }
    let activation =
        config.optional("hidden_act", |config, field| config.text(field).map(str::to_owned))?;
    if let Some(activation) = activation.filter(|activation| activation != "silu") {
        return refuse(format!("hidden_act = {activation:?}"));
    }
    for field in ["rope_scaling", "rope_parameters"] {
        if let Some(Value::Object(scaling)) = config.0.get(field) {
            let kind = scaling.get("rope_type").or(scaling.get("type")).and_then(Value::as_str);
            if let Some(kind) = kind.filter(|&kind| kind != "default") {
                return refuse(format!("{field}.rope_type = {kind:?}"));
            }
        }
    }
    Ok(())
}
