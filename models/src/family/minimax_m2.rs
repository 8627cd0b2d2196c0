//! MiniMax-M2, with experts in all layers, which a router scores by sigmoids. All query heads are normalised together,
//! and so are all key heads; half of each head is rotated in published models.

use firebrick_core::config::Family;
use serde_json::{Map, Value, json};

use super::experts;
use crate::{
    config::{DecoderConfig, ExpertSizes, QkNorm, RouterScores},
    fields::{ConfigError, Fields},
    layout::{self, Defaults},
};

/// Width of a head if the file does not say it.
const HEAD: usize = 128;

/// Field with the number of a head's elements that are rotated, which published files have instead of their share.
const ROTATED: &str = "rotary_dim";
const SHARE: &str = "partial_rotary_factor";

/// Sets the parts in which the family differs from Llama. A new model has eight experts, two for each token, and rotates
/// half of a head.
pub(crate) fn shape(config: &mut DecoderConfig) {
    config.qk_norm = QkNorm::Whole;
    config.rope.share = 0.5;
    let inner = config.intermediate_size;
    let scores = RouterScores::Sigmoid { scale: 1.0 };
    experts::everywhere(config, ExpertSizes { inner, scores, ..ExpertSizes::default() });
}

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let defaults = Defaults {
        kv_heads: Some(8),
        head_dim: Some(HEAD),
        max_position_embeddings: 196_608,
        rope_theta: 5_000_000.0,
        partial_rotary: true,
        nulls: &[],
        ..Defaults::LLAMA
    };
    let with_share = with_share(fields)?;
    let fields = &Fields(with_share.as_ref().unwrap_or(fields.0));
    let mut config = layout::read(fields, Family::MiniMaxM2, shape, defaults)?;
    layout::activation(fields, &["silu"])?;

    config.experts = Some(ExpertSizes {
        count: experts::count(fields, ["num_local_experts", "num_experts"], 256)?,
        chosen: fields.size_or("num_experts_per_tok", 8)?,
        inner: config.intermediate_size,
        scores: RouterScores::Sigmoid { scale: 1.0 },
        ..ExpertSizes::default()
    });
    Ok(config)
}

/// Adds the share of a head that is rotated, if the file has the number of its elements instead.
fn with_share(fields: &Fields) -> Result<Option<Map<String, Value>>, ConfigError> {
    let Some(rotated) = fields.optional(ROTATED, Fields::size)? else { return Ok(None) };
    if fields.0.contains_key(SHARE) {
        return Ok(None);
    }

    let head = fields.size_or(layout::HEAD_DIM, HEAD)?;
    let mut changed = fields.0.clone();
    changed.insert(SHARE.into(), (rotated as f64 / head.max(1) as f64).into());
    Ok(Some(changed))
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    let mut fields = json!({
        SHARE: config.rope.share,
        ROTATED: (config.head_dim as f64 * config.rope.share) as usize,
    });
    experts::local_to_json(config, &mut fields);
    fields
}
