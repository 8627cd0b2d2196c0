//! Gemma 3, the text models. They have Gemma's embedding, norms and gate. Norms are before and after both sublayers and
//! on every head of queries and keys. Five of six layers have a sliding window and another rope base.

use firebrick_core::config::Family;
use firebrick_kernels::Activation;
use serde_json::{Value, json};

use crate::{
    config::{Biases, DecoderConfig, LayerNorms, QkNorm},
    fields::{ConfigError, Fields, not_implemented},
    layer_types,
    layout::{self, Defaults},
    rope::Rope,
};

/// Rotary base of layers that see everything, and that of layers with a window.
const THETAS: [f64; 2] = [1_000_000.0, 10_000.0];

/// Sets the parts in which the family differs from Llama.
pub(crate) fn shape(config: &mut DecoderConfig) {
    config.norm_offset = 1.0;
    config.embedding_scale = (config.hidden_size as f64).sqrt();
    config.activation = Activation::GeluTanh;
    config.norms = LayerNorms::Both;
    config.qk_norm = QkNorm::Heads;
    config.rope.theta = THETAS[0];
    config.local_rope = Some(Rope::new(THETAS[1]));
    layer_types::slide(config, Some(512), |layer| (layer + 1) % 6 != 0);
}

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let defaults = Defaults {
        vocab_size: Some(262_208),
        heads: Some(8),
        kv_heads: Some(4),
        head_dim: Some(256),
        max_position_embeddings: 131_072,
        tied: true,
        nulls: &[],
        ..Defaults::LLAMA
    };
    let mut config = layout::read(fields, Family::Gemma3, shape, defaults)?;

    layout::activation_in(fields, "hidden_activation", &["gelu_pytorch_tanh"])?;
    for capping in ["attn_logit_softcapping", "final_logit_softcapping"] {
        if fields.optional(capping, Fields::number)?.is_some() {
            return Err(not_implemented(capping));
        }
    }
    if fields.optional("use_bidirectional_attention", Fields::flag)? == Some(true) {
        return Err(not_implemented("use_bidirectional_attention"));
    }

    let bias = fields.flag_or("attention_bias", false)?;
    config.biases = Biases { qkv: bias, output: bias, mlp: false };
    // Attention divides by √head_dim and the family by √scalar, so the factor is their ratio.
    let scalar = fields.size_or("query_pre_attn_scalar", 256)?;
    config.query_scale = (config.head_dim as f64 / scalar as f64).sqrt();

    let every = fields.interval_or("sliding_window_pattern", 6)?;
    let sliding = layer_types::sliding(fields, &config, |layer| (layer + 1) % every != 0)?;
    let window = layer_types::window_of(fields, layer_types::DEFAULT_WINDOW, &sliding)?;
    layer_types::slide(&mut config, window, |layer| sliding[layer]);

    let theta = fields.number_or("rope_theta", THETAS[0])?;
    let local = fields.number_or("rope_local_base_freq", THETAS[1])?;
    let [rope, local] = Rope::read_both(fields, config.max_position_embeddings, [theta, local])?;
    config.rope = rope;
    config.local_rope = Some(local);
    Ok(config)
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    let local = config.local_rope.as_ref().map_or(config.rope.theta, |rope| rope.theta);
    json!({
        "attention_bias": config.biases.qkv,
        "attn_logit_softcapping": null,
        "final_logit_softcapping": null,
        "hidden_act": null,
        "hidden_activation": "gelu_pytorch_tanh",
        "layer_types": layer_types::to_json(config),
        // This is a whole number in every file.
        "query_pre_attn_scalar":
            (config.head_dim as f64 / config.query_scale.powi(2)).round() as u64,
        "rope_local_base_freq": local,
        "sliding_window": config.window(),
    })
}
