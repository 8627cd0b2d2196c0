//! GLM-4.5, 4.6 and 4.7, with experts in all layers but the first ones. A router scores the experts by sigmoids, and one
//! more expert, without a gate, is for all tokens. Half of each head is rotated, and larger models normalise every head.

use firebrick_core::config::Family;
use serde_json::{Value, json};

use super::experts;
use crate::{
    config::{Biases, DecoderConfig, ExpertSizes, QkNorm, RouterScores, SharedExpert},
    fields::{ConfigError, Fields, not_implemented},
    layout::{self, Defaults},
};

/// Share of a head that is rotated, if the file does not say it.
const SHARE: f64 = 0.5;

/// Sets the parts in which the family differs from Llama. In a new model, all layers but the first have eight experts,
/// two for each token, and heads are normalised.
pub(crate) fn shape(config: &mut DecoderConfig) {
    config.qk_norm = QkNorm::Heads;
    config.rope.share = SHARE;
    let inner = config.intermediate_size.div_ceil(4);
    let sizes = ExpertSizes {
        inner,
        scores: RouterScores::Sigmoid { scale: 1.0 },
        shared: Some(SharedExpert { inner, gated: false }),
        ..ExpertSizes::default()
    };
    experts::everywhere(config, sizes);
    experts::after(config, 1);
}

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let defaults = Defaults {
        kv_heads: Some(8),
        max_position_embeddings: 131_072,
        norm_epsilon: 1e-5,
        rotary_share: SHARE,
        partial_rotary: true,
        nulls: &[],
        ..Defaults::LLAMA
    };
    let mut config = layout::read(fields, Family::Glm4Moe, shape, defaults)?;
    layout::activation(fields, &["silu"])?;

    // Published models have one group. With more, a token's experts would be of the best groups alone.
    for groups in ["n_group", "topk_group"] {
        let count = fields.size_or(groups, 1)?;
        if count != 1 {
            return Err(not_implemented(&format!("{groups} = {count}")));
        }
    }

    config.biases = Biases { qkv: fields.flag_or("attention_bias", false)?, ..Biases::default() };
    let normed = fields.flag_or("use_qk_norm", false)?;
    config.qk_norm = if normed { QkNorm::Heads } else { QkNorm::None };

    let inner = fields.size_or("moe_intermediate_size", 1408)?;
    let shared = inner.saturating_mul(fields.size_or("n_shared_experts", 1)?);
    config.experts = Some(ExpertSizes {
        count: experts::count(fields, ["n_routed_experts", "num_local_experts"], 128)?,
        chosen: fields.size_or("num_experts_per_tok", 8)?,
        inner,
        scores: RouterScores::Sigmoid { scale: fields.number_or("routed_scaling_factor", 1.0)? },
        normalised: fields.flag_or("norm_topk_prob", true)?,
        shared: Some(SharedExpert { inner: shared, gated: false }),
        ..ExpertSizes::default()
    });
    experts::after(&mut config, fields.size_or("first_k_dense_replace", 1)?);
    Ok(config)
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    let mut fields = json!({
        "attention_bias": config.biases.qkv,
        "first_k_dense_replace": config.kinds.iter().take_while(|kind| !kind.sparse).count(),
        "n_group": 1,
        "num_nextn_predict_layers": 0,
        "partial_rotary_factor": config.rope.share,
        "topk_group": 1,
        "use_qk_norm": config.qk_norm != QkNorm::None,
    });
    if let Some(experts) = &config.experts {
        let shared = experts.shared.map_or(0, |shared| shared.inner);
        fields["moe_intermediate_size"] = experts.inner.into();
        fields["n_routed_experts"] = experts.count.into();
        fields["n_shared_experts"] = (shared / experts.inner.max(1)).into();
        fields["norm_topk_prob"] = experts.normalised.into();
        fields["num_experts_per_tok"] = experts.chosen.into();
        if let RouterScores::Sigmoid { scale } = experts.scores {
            fields["routed_scaling_factor"] = scale.into();
        }
    }
    fields
}
