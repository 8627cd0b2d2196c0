//! Granite, the dense models of the third and fourth generation: Llama, with factors for the embedding, the scores, the
//! outputs of sublayers and the logits. In Granite 4, gate and up are one matrix, and some models rotate nothing.

use firebrick_core::config::Family;
use serde_json::{Value, json};

use crate::{
    config::{Biases, DecoderConfig, Fused, RopeKind},
    fields::{ConfigError, Fields, not_implemented},
    layer_types,
    layout::{self, Defaults},
};

/// Width of the MLP's inner layer, in Granite 4.
const INNER: &str = "shared_intermediate_size";

/// Sets the parts in which the family differs from Llama. A new model has factors of 1: those of published models are
/// for widths of thousands, and a small model learns nothing with them.
pub(crate) fn shape(config: &mut DecoderConfig) {
    if config.family == Family::GraniteHybrid {
        config.fused = Fused::GateUp;
    }
}

pub(crate) fn read(fields: &Fields, family: Family) -> Result<DecoderConfig, ConfigError> {
    let hybrid = family == Family::GraniteHybrid;
    let mut changed = fields.0.clone();
    if hybrid {
        // The width of experts has the usual name, and a dense model has none.
        changed.insert("intermediate_size".into(), fields.size_or(INNER, 1024)?.into());
        // Another name of the list, which counts if a file has both.
        if let Some(types) = changed.remove("layers_block_type") {
            changed.insert("layer_types".into(), types);
        }
    }

    let fields = &Fields(&changed);
    let defaults = Defaults { nulls: &[layout::KV_HEADS], ..Defaults::LLAMA };
    let mut config = layout::read(fields, family, shape, defaults)?;
    layout::activation(fields, &["silu"])?;

    let attention = fields.flag_or("attention_bias", false)?;
    let mlp = !hybrid && fields.flag_or("mlp_bias", false)?;
    config.biases = Biases { qkv: attention, output: attention, mlp };

    config.embedding_scale = fields.number_or("embedding_multiplier", 1.0)?;
    config.residual_scale = fields.number_or("residual_multiplier", 1.0)?;
    config.logit_scale = 1.0 / fields.number_or("logits_scaling", 1.0)?;
    // Attention divides by √head_dim, and the family does not.
    let multiplier = fields.number_or("attention_multiplier", 1.0)?;
    config.query_scale = multiplier * (config.head_dim as f64).sqrt();

    if hybrid {
        if fields.size_or("num_local_experts", 8)? != 0 {
            return Err(not_implemented("num_local_experts above 0"));
        }
        if layer_types::listed(fields, family, config.layers)?.is_none() {
            return Err(ConfigError::Field {
                field: "layer_types".into(),
                expected: "a list of attention layers, because layers are recurrent without it",
                actual: "missing".into(),
            });
        }
        let rotates = fields.optional(POSITIONS, |fields, name| Ok(fields.text(name)? == ROPE))?;
        if rotates != Some(true) {
            config.kinds.iter_mut().for_each(|kind| kind.rope = RopeKind::None);
        }
    }
    Ok(config)
}

const POSITIONS: &str = "position_embedding_type";
const ROPE: &str = "rope";

pub(crate) fn write(config: &DecoderConfig) -> Value {
    let mut fields = json!({
        "attention_bias": config.biases.qkv,
        "attention_multiplier": config.query_scale / (config.head_dim as f64).sqrt(),
        "embedding_multiplier": config.embedding_scale,
        "logits_scaling": 1.0 / config.logit_scale,
        "mlp_bias": config.biases.mlp,
        "residual_multiplier": config.residual_scale,
    });
    if config.family == Family::GraniteHybrid {
        let rotated = config.kinds.iter().any(|kind| kind.rope != RopeKind::None);
        fields["layer_types"] = vec!["attention"; config.layers].into();
        fields["num_local_experts"] = 0.into();
        // Sizes of recurrent layers, which transformers checks even if there are none.
        fields["mamba_expand"] = 1.into();
        fields["mamba_n_heads"] = 1.into();
        fields[POSITIONS] = if rotated { ROPE } else { "nope" }.into();
        fields[INNER] = config.intermediate_size.into();
    }
    fields
}
