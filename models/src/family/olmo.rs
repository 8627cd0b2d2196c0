//! OLMo 2 and OLMo 3. They have post-norm and no pre-norm: a norm is after each sublayer. One norm is over all query
//! heads together, and one over all key heads. In OLMo 3, three of four layers have a sliding window, and keep their
//! frequencies if those of the others are scaled.

use firebrick_core::config::Family;
use serde_json::{Value, json};

use crate::{
    config::{Biases, DecoderConfig, LayerNorms, QkNorm},
    fields::{ConfigError, Fields},
    layer_types,
    layout::{self, Defaults},
    rope::Rope,
};

/// OLMo 3's base if a file does not have it.
const THETA: f64 = 500_000.0;

/// Sets the parts in which the family differs from Llama.
pub(crate) fn shape(config: &mut DecoderConfig) {
    config.norms = LayerNorms::Post;
    config.qk_norm = QkNorm::Whole;
    config.norm_epsilon = 1e-5;
    if config.family == Family::Olmo3 {
        config.local_rope = Some(Rope::new(THETA));
        layer_types::slide(config, Some(4096), |layer| (layer + 1) % 4 != 0);
    }
}

pub(crate) fn read(fields: &Fields, family: Family) -> Result<DecoderConfig, ConfigError> {
    let defaults = Defaults { norm_epsilon: 1e-5, nulls: &[layout::KV_HEADS], ..Defaults::LLAMA };

    let mut config = layout::read(fields, family, shape, defaults)?;
    layout::activation(fields, &["silu"])?;
    let bias = fields.flag_or("attention_bias", false)?;
    config.biases = Biases { qkv: bias, output: bias, mlp: false };
    if family == Family::Olmo2 {
        return Ok(config);
    }

    let sliding = layer_types::sliding(fields, &config, |layer| (layer + 1) % 4 != 0)?;
    let window = layer_types::window_of(fields, layer_types::DEFAULT_WINDOW, &sliding)?;
    layer_types::slide(&mut config, window, |layer| sliding[layer]);

    // A base next to the sizes is only for layers that see everything.
    let theta = fields.number_or("rope_theta", THETA)?;
    let [rope, local] = Rope::read_both(fields, config.max_position_embeddings, [theta, THETA])?;
    config.rope = rope;
    config.local_rope = Some(local);
    Ok(config)
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    let mut fields = json!({ "attention_bias": config.biases.qkv });
    if config.family == Family::Olmo3 {
        fields["layer_types"] = layer_types::to_json(config);
        fields["sliding_window"] = config.window().into();
    }
    fields
}
