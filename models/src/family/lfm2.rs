//! LFM2. Most layers have a short convolution instead of attention, and the others a norm on every head of queries and
//! keys.

use firebrick_core::config::Family;
use serde_json::{Value, json};

use crate::{
    config::{DecoderConfig, QkNorm},
    fields::{ConfigError, Fields, not_implemented},
    layer_types::{self, LayerType},
    layout::{self, Defaults},
};

/// Width of the MLP before it is rounded, under the older of its two names.
const OLDER_WIDTH: &str = "block_ff_dim";
const WIDTH: &str = "intermediate_size";
const TIED: &str = "tie_word_embeddings";

/// Sets the parts in which the family differs from Llama. In a new model, every third layer has attention.
pub(crate) fn shape(config: &mut DecoderConfig) {
    config.qk_norm = QkNorm::Heads;
    config.convolution = Some(3);
    for (layer, kind) in config.kinds.iter_mut().enumerate() {
        kind.recurrent = (layer + 1) % 3 != 0;
    }
}

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let defaults = Defaults {
        kv_heads: Some(8),
        max_position_embeddings: 128_000,
        tied: true,
        rope_theta: 1_000_000.0,
        norm_epsilon: 1e-5,
        nulls: &[],
        ..Defaults::LLAMA
    };

    // The older names count if a file has both, and the epsilon has a name of its own.
    let mut changed = fields.0.clone();
    let tied = fields.flag_or(TIED, defaults.tied)?;
    changed.insert(TIED.into(), fields.flag_or("tie_embedding", tied)?.into());
    let epsilon = fields.number_or("norm_eps", defaults.norm_epsilon)?;
    changed.insert("rms_norm_eps".into(), epsilon.into());
    changed.insert(WIDTH.into(), width(fields)?.into());

    let fields = &Fields(&changed);
    let mut config = layout::read(fields, Family::Lfm2, shape, defaults)?;
    if fields.flag_or("conv_bias", false)? {
        return Err(not_implemented("conv_bias"));
    }
    config.convolution = Some(fields.size_or("conv_L_cache", 3)?);

    let types = layer_types::listed(fields, Family::Lfm2, config.layers)?;
    let attentions = layer_types::numbers(fields, "full_attn_idxs")?;
    for (layer, kind) in config.kinds.iter_mut().enumerate() {
        kind.recurrent = match (&types, &attentions) {
            (Some(types), _) => types[layer] == LayerType::Convolution,
            (None, Some(attentions)) => !attentions.contains(&(layer as u64)),
            (None, None) => false,
        };
    }
    Ok(config)
}

/// Computes the width of the MLP, which is two thirds of what the file says, times a factor, and rounded up.
fn width(fields: &Fields) -> Result<usize, ConfigError> {
    let width = fields.size_or(WIDTH, 12288)?;
    let width = fields.size_or(OLDER_WIDTH, width)?;
    if !fields.flag_or("block_auto_adjust_ff_dim", true)? {
        return Ok(width);
    }

    let mut width = (2.0 * width as f64 / 3.0) as usize;
    let factor = match fields.0.get("block_ffn_dim_multiplier") {
        Some(Value::Null) => return Ok(width),
        _ => fields.number_or("block_ffn_dim_multiplier", 1.0)?,
    };
    width = (factor * width as f64) as usize;
    let multiple = fields.interval_or("block_multiple_of", 256)?;
    width.checked_next_multiple_of(multiple).ok_or_else(|| {
        ConfigError::Size(format!("the MLP is {width} wide; expected 1 to 16777216"))
    })
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    let kind = |recurrent| if recurrent { "conv" } else { "full_attention" };
    json!({
        "block_auto_adjust_ff_dim": false,
        "conv_L_cache": config.convolution,
        "conv_bias": false,
        "layer_types": config.kinds.iter().map(|it| kind(it.recurrent)).collect::<Vec<_>>(),
        "norm_eps": config.norm_epsilon,
    })
}
