//! What a checkpoint calls the parameters of a decoder.

use crate::{DecoderConfig, family::Piece};

/// Checkpoint names of the parameter at `path`, with the rows of each.
pub(crate) fn pieces(path: &str, config: &DecoderConfig) -> Vec<Piece> {
    let piece = |name: String, rows| Piece { name, rows };
    let hidden = config.hidden_size;
    let (layer, rest) = match path {
        "embedding" => return vec![piece("model.embed_tokens.weight".into(), config.vocab_size)],
        "norm" => return vec![piece("model.norm.weight".into(), hidden)],
        "head" => return vec![piece("lm_head.weight".into(), config.vocab_size)],
        _ => {
            let mut parts = path.splitn(3, '.').skip(1);
            (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
        }
    };
    let name = |rest: &str| format!("model.layers.{layer}.{rest}");
    let vector = |rest: &str, rows| vec![piece(name(&format!("{rest}.weight")), rows)];
    match rest {
        "attention_norm" => return vector("input_layernorm", hidden),
        "attention_norm_behind" => return vector("post_attention_layernorm", hidden),
        // With a norm behind the attention the name of Llama's second norm is taken.
        "mlp_norm" if config.norms.behind() => return vector("pre_feedforward_layernorm", hidden),
        "mlp_norm" => return vector("post_attention_layernorm", hidden),
        "mlp_norm_behind" => return vector("post_feedforward_layernorm", hidden),
        "attention.query_norm" => return vector("self_attn.q_norm", config.look_norms()[0]),
        "attention.key_norm" => return vector("self_attn.k_norm", config.look_norms()[1]),
        _ => {}
    }
    let (projection, kind) = rest.rsplit_once('.').unwrap_or((rest, "weight"));
    let of = |part: &(&str, usize)| piece(name(&format!("{}.{kind}", part.0)), part.1);
    projections(projection, config).iter().map(of).collect()
}

/// Checkpoint names of the maps that the projection at `path` of layer `layer` joins, such as
/// `model.layers.0.self_attn.q_proj`.
pub(crate) fn of_projection(layer: usize, path: &str, config: &DecoderConfig) -> Vec<String> {
    let name = |(name, _): &(&str, usize)| format!("model.layers.{layer}.{name}");
    projections(path, config).iter().map(name).collect()
}

/// The linear maps that the projection at `path` (of a layer) joins: their names in a layer and their
/// outputs.
pub(crate) fn projections(path: &str, config: &DecoderConfig) -> Vec<(&'static str, usize)> {
    let (query, key) = (config.query_width(), config.key_width());
    match path {
        "attention.qkv" if config.fused => vec![("self_attn.qkv_proj", query + 2 * key)],
        "gate_up" if config.fused => vec![("mlp.gate_up_proj", 2 * config.intermediate_size)],
        "attention.qkv" => {
            vec![("self_attn.q_proj", query), ("self_attn.k_proj", key), ("self_attn.v_proj", key)]
        }
        "attention.output" => vec![("self_attn.o_proj", config.hidden_size)],
        "gate_up" => vec![
            ("mlp.gate_proj", config.intermediate_size),
            ("mlp.up_proj", config.intermediate_size),
        ],
        "down" => vec![("mlp.down_proj", config.hidden_size)],
        other => unreachable!("the decoder has no projection \"{other}\""),
    }
}

/// Whether the parameter at `path` belongs to an adapter.
pub(crate) fn is_adapter(path: &str) -> bool {
    path.contains(".adapters.")
}

/// Whether the parameter at `path` is of a matrix in 8 or 4 bits.
pub(crate) fn is_packed(path: &str) -> bool {
    path.contains(".packed.")
}

/// PEFT's name of the adapter's parameter at `path`, such as `layers.0.attention.qkv.adapters.1.a`.
pub(crate) fn of_adapter(path: &str, config: &DecoderConfig) -> Option<String> {
    let (projection, adapter) = path.split_once(".adapters.")?;
    let (place, matrix) = adapter.split_once('.')?;
    let mut parts = projection.splitn(3, '.').skip(1);
    let (layer, projection) = (parts.next()?.parse().ok()?, parts.next()?);
    let name = of_projection(layer, projection, config).into_iter().nth(place.parse().ok()?)?;
    Some(of_adapter_matrix(&name, &matrix.to_uppercase()))
}

/// PEFT's name of the matrix `A` or `B` beside the projection of that name.
pub(crate) fn of_adapter_matrix(projection: &str, matrix: &str) -> String {
    format!("base_model.model.{projection}.lora_{matrix}.weight")
}
