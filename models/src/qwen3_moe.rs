//! Qwen3 with experts. All layers or some of them have many small MLPs instead of one, and a router chooses some of
//! these, often eight, for each token.

use serde_json::{Value, json};

use crate::{
    config::{Biases, DecoderConfig, ExpertSizes, QkNorm},
    family::Family,
    fields::{ConfigError, Fields},
    layer_types,
    layout::{self, Defaults},
};

/// Sets the parts in which the family differs from Llama. A new model has eight experts, two for each token.
pub(crate) fn shape(config: &mut DecoderConfig) {
    config.qk_norm = QkNorm::Heads;
    config.experts = Some(ExpertSizes {
        count: 8,
        chosen: 2,
        inner: config.intermediate_size.div_ceil(2),
        normalised: true,
    });
    for kind in &mut config.kinds {
        kind.sparse = true;
    }
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

    // transformers writes the second of the two names, and takes it if a file has both.
    let count = fields.size_or("num_experts", 128)?;
    let count = fields.size_or("num_local_experts", count)?;
    config.experts = Some(ExpertSizes {
        count,
        chosen: fields.size_or("num_experts_per_tok", 8)?,
        inner: fields.size_or("moe_intermediate_size", 768)?,
        normalised: fields.flag_or("norm_topk_prob", false)?,
    });

    let every = fields.interval_or("decoder_sparse_step", 1)?;
    let dense = dense(fields)?;
    for (layer, kind) in config.kinds.iter_mut().enumerate() {
        kind.sparse = (layer + 1) % every == 0 && !dense.contains(&(layer as u64));
    }

    Ok(config)
}

/// Reads the list of layers that have one MLP, whatever the other layers have.
fn dense(fields: &Fields) -> Result<Vec<u64>, ConfigError> {
    const LIST: &str = "mlp_only_layers";
    let list = match fields.0.get(LIST) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(list) => list,
    };

    let numbers = list.as_array().and_then(|list| list.iter().map(Value::as_u64).collect());
    numbers.ok_or_else(|| ConfigError::Field {
        field: LIST.into(),
        expected: "a list of layers",
        actual: list.to_string(),
    })
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    let mut fields = json!({
        "attention_bias": config.biases.qkv,
        "decoder_sparse_step": 1,
        "mlp_only_layers": config.kinds.iter().enumerate().filter(|(_, kind)| !kind.sparse)
            .map(|(layer, _)| layer).collect::<Vec<_>>(),
        "sliding_window": config.window(),
        "use_sliding_window": config.window().is_some(),
    });

    if let Some(experts) = &config.experts {
        fields["moe_intermediate_size"] = experts.inner.into();
        fields["norm_topk_prob"] = experts.normalised.into();
        fields["num_experts"] = experts.count.into();
        fields["num_experts_per_tok"] = experts.chosen.into();
        fields["output_router_logits"] = false.into();
    }
    fields
}
