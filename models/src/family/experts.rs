//! Fields of `config.json` about experts, which several families share.

use serde_json::{Value, json};

use crate::{
    config::{DecoderConfig, ExpertSizes, SharedExpert},
    fields::{ConfigError, Fields},
    layer_types,
};

/// Field with the width of the expert that all tokens go through.
pub(super) const SHARED: &str = "shared_expert_intermediate_size";

/// Gives experts of these sizes to all layers.
pub(super) fn everywhere(config: &mut DecoderConfig, sizes: ExpertSizes) {
    config.experts = Some(sizes);
    config.kinds.iter_mut().for_each(|kind| kind.sparse = true);
}

/// Gives experts to all layers but the `dense` first ones.
pub(super) fn after(config: &mut DecoderConfig, dense: usize) {
    for (layer, kind) in config.kinds.iter_mut().enumerate() {
        kind.sparse = layer >= dense;
    }
}

/// Makes an expert of this width for all tokens, with a gate, as the families of Qwen have.
pub(super) fn gated(inner: usize) -> Option<SharedExpert> {
    Some(SharedExpert { inner, gated: true })
}

/// Returns the width of the expert that all tokens go through, and null if there is none.
pub(super) fn shared_width(config: &DecoderConfig) -> Value {
    config.experts.and_then(|experts| experts.shared).map(|shared| shared.inner).into()
}

/// Reads the number of experts in a family in which it has two names. The second one counts if a file has both, as in
/// transformers.
pub(super) fn count(
    fields: &Fields,
    names: [&str; 2],
    default: usize,
) -> Result<usize, ConfigError> {
    names.into_iter().try_fold(default, |count, name| fields.size_or(name, count))
}

/// Reads which layers have experts.
pub(super) fn layers(fields: &Fields, config: &mut DecoderConfig) -> Result<(), ConfigError> {
    let every = fields.interval_or("decoder_sparse_step", 1)?;
    // These have one MLP, whatever the other layers have.
    let dense = layer_types::numbers(fields, "mlp_only_layers")?.unwrap_or_default();
    for (layer, kind) in config.kinds.iter_mut().enumerate() {
        kind.sparse = (layer + 1) % every == 0 && !dense.contains(&(layer as u64));
    }
    Ok(())
}

/// Adds the fields of families that call experts local.
pub(super) fn local_to_json(config: &DecoderConfig, fields: &mut Value) {
    if let Some(experts) = &config.experts {
        fields["num_experts_per_tok"] = experts.chosen.into();
        fields["num_local_experts"] = experts.count.into();
        fields["output_router_logits"] = false.into();
    }
}

/// Makes the fields that the families of Qwen have.
pub(super) fn to_json(config: &DecoderConfig) -> Value {
    let dense = config.kinds.iter().enumerate().filter(|(_, kind)| !kind.sparse);
    let mut fields = json!({
        "decoder_sparse_step": 1,
        "mlp_only_layers": dense.map(|(layer, _)| layer).collect::<Vec<_>>(),
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
