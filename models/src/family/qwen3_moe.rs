//! Qwen3 with experts. All layers or some of them have many small MLPs instead of one, and a router chooses some of
//! these, often eight, for each token.

use firebrick_core::config::Family;
use serde_json::Value;

use super::experts;
use crate::{
    config::{Biases, DecoderConfig, ExpertSizes, QkNorm},
    fields::{ConfigError, Fields},
    layer_types,
    layout::{self, Defaults},
};

/// Sets the parts in which the family differs from Llama. A new model has eight experts, two for each token.
pub(crate) fn shape(config: &mut DecoderConfig) {
    config.qk_norm = QkNorm::Heads;
    let inner = config.intermediate_size.div_ceil(2);
    let sizes = ExpertSizes { inner, ..ExpertSizes::default() };
    experts::everywhere(config, sizes);
}

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let defaults = Defaults {
        kv_heads: Some(4),
        max_position_embeddings: 32768,
        nulls: &[],
        ..Defaults::LLAMA
    };

    let mut config = layout::read(fields, Family::Qwen3Moe, shape, defaults)?;
    layout::activation(fields, &["silu"])?;
    let bias = fields.flag_or("attention_bias", false)?;
    config.biases = Biases { qkv: bias, output: bias, mlp: false };

    if fields.flag_or("use_sliding_window", false)? {
        // As in transformers, such a window is for every layer, whatever types the file lists.
        let window = layer_types::window(fields, layer_types::DEFAULT_WINDOW)?;
        config.kinds.iter_mut().for_each(|kind| kind.window = window);
    }

    config.experts = Some(ExpertSizes {
        count: experts::count(fields, ["num_experts", "num_local_experts"], 128)?,
        chosen: fields.size_or("num_experts_per_tok", 8)?,
        inner: fields.size_or("moe_intermediate_size", 768)?,
        normalised: fields.flag_or("norm_topk_prob", false)?,
        ..ExpertSizes::default()
    });
    experts::layers(fields, &mut config)?;
    Ok(config)
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    let mut fields = experts::to_json(config);
    fields["attention_bias"] = config.biases.qkv.into();
    fields
}
