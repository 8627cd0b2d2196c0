//! The names that checkpoints have for the parameters of a decoder.

use std::borrow::Cow;

use firebrick_core::config::Family;

use crate::config::{DecoderConfig, Fused};

/// What a class of `transformers` puts before the names of the text model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TextPrefix {
    /// Nothing: the class is the text model alone.
    #[default]
    Alone,
    /// `language_model` within `model`: the class also sees pictures.
    Within,
    /// `language_model` around `model`: such a class in transformers up to 4.51.
    Around,
}

impl TextPrefix {
    /// Returns the name within the class of a module, given its name in the text model alone.
    pub(crate) fn name(self, name: &str) -> Cow<'_, str> {
        match (self, name.strip_prefix("model.")) {
            (TextPrefix::Within, Some(rest)) => format!("model.language_model.{rest}").into(),
            (TextPrefix::Around, Some(rest)) => format!("language_model.model.{rest}").into(),
            (TextPrefix::Around, None) => format!("language_model.{name}").into(),
            _ => name.into(),
        }
    }
}

/// A checkpoint tensor that is all or part of one parameter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Piece {
    pub(crate) name: String,
    /// Size of its first dimension in the checkpoint.
    pub(crate) rows: usize,
}

/// Returns the checkpoint names of the parameter at `path`, with the rows of each. A fused projection has several, in
/// the order in which they are joined.
pub(crate) fn pieces(path: &str, config: &DecoderConfig) -> Vec<Piece> {
    let piece = |name: String, rows| Piece { name, rows };
    let hidden = config.hidden_size;
    let (layer, rest) = match path {
        "embedding" => return vec![piece("model.embed_tokens.weight".into(), config.vocab_size)],
        "norm" => {
            let name = own(config.family, "model.norm");
            return vec![piece(format!("{name}.weight"), hidden)];
        }
        "head" => return vec![piece("lm_head.weight".into(), config.vocab_size)],
        _ => {
            let mut parts = path.splitn(3, '.').skip(1);
            (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
        }
    };

    let name = |rest: &str| format!("model.layers.{layer}.{rest}");
    let vector = |usual: &str, rows| {
        vec![piece(name(&format!("{}.weight", own(config.family, usual))), rows)]
    };

    match rest {
        "attention_norm" => return vector("input_layernorm", hidden),
        "attention_post_norm" => return vector("post_attention_layernorm", hidden),
        // With a post-norm, the norm after the attention has the name of Llama's second norm.
        "mlp_norm" if config.norms.has_post_norm() => {
            return vector("pre_feedforward_layernorm", hidden);
        }
        "mlp_norm" => return vector("post_attention_layernorm", hidden),
        "mlp_post_norm" => return vector("post_feedforward_layernorm", hidden),
        "experts.router" => {
            let count = config.experts.map_or(0, |experts| experts.count);
            return vector("mlp.gate", count);
        }
        "delta.convolution" => {
            let channels = config.delta.map_or(0, |delta| delta.channels());
            return vector("linear_attn.conv1d", channels);
        }
        "delta.decay" | "delta.decay_bias" => {
            let suffix = if rest == "delta.decay" { "A_log" } else { "dt_bias" };
            let heads = config.delta.map_or(0, |delta| delta.value_heads);
            return vec![piece(name(&format!("linear_attn.{suffix}")), heads)];
        }
        "delta.scale" => {
            return vector("linear_attn.norm", config.delta.map_or(0, |delta| delta.value_dim));
        }

        "convolution.kernel" => return vector("conv.conv", hidden),
        "experts.shared_gate" => return vector("mlp.shared_expert_gate", 1),
        "attention.query_norm" => return vector("self_attn.q_norm", config.qk_norm_widths()[0]),
        "attention.key_norm" => return vector("self_attn.k_norm", config.qk_norm_widths()[1]),
        _ => {}
    }

    let (projection, kind) = rest.rsplit_once('.').unwrap_or((rest, "weight"));
    let of = |(part, rows): (String, usize)| piece(name(&format!("{part}.{kind}")), rows);
    projections(projection, config).into_iter().map(of).collect()
}

/// Returns the checkpoint names of the maps that the projection at `path` of layer `layer` joins, such as
/// `model.layers.0.self_attn.q_proj`.
pub(crate) fn of_projection(layer: usize, path: &str, config: &DecoderConfig) -> Vec<String> {
    let name = |(name, _): &(String, usize)| format!("model.layers.{layer}.{name}");
    projections(path, config).iter().map(name).collect()
}

/// Returns the linear maps that the projection at `path` (in a layer) joins: their names in a layer and their numbers
/// of outputs.
pub(crate) fn projections(path: &str, config: &DecoderConfig) -> Vec<(String, usize)> {
    let query = config.query_outputs();
    let key = config.key_width();
    let inner = config.intermediate_size;

    let delta = || config.delta.expect("a recurrent layer has its sizes");
    let shared = || config.experts.and_then(|experts| experts.shared).unwrap_or(0);
    let maps = match path {
        "attention.qkv" if config.fused == Fused::All => {
            vec![("self_attn.qkv_proj", query + 2 * key)]
        }
        "gate_up" if config.fused != Fused::None => vec![("mlp.gate_up_proj", 2 * inner)],
        "gate_up" if config.squared_relu => vec![("mlp.up_proj", inner)],
        "attention.qkv" => {
            vec![("self_attn.q_proj", query), ("self_attn.k_proj", key), ("self_attn.v_proj", key)]
        }
        "attention.output" => vec![("self_attn.o_proj", config.hidden_size)],
        "delta.input" if config.family == Family::Qwen3Next => vec![
            ("linear_attn.in_proj_qkvz", delta().channels() + delta().values()),
            ("linear_attn.in_proj_ba", 2 * delta().value_heads),
        ],
        "delta.input" => vec![
            ("linear_attn.in_proj_qkv", delta().channels()),
            ("linear_attn.in_proj_z", delta().values()),
            ("linear_attn.in_proj_b", delta().value_heads),
            ("linear_attn.in_proj_a", delta().value_heads),
        ],
        "delta.output" => vec![("linear_attn.out_proj", config.hidden_size)],
        "convolution.input" => vec![("conv.in_proj", 3 * config.hidden_size)],
        "convolution.output" => vec![("conv.out_proj", config.hidden_size)],
        "gate_up" => vec![("mlp.gate_proj", inner), ("mlp.up_proj", inner)],
        "down" => vec![("mlp.down_proj", config.hidden_size)],
        "experts.shared.gate_up" => {
            vec![("mlp.shared_expert.gate_proj", shared()), ("mlp.shared_expert.up_proj", shared())]
        }
        "experts.shared.down" => vec![("mlp.shared_expert.down_proj", config.hidden_size)],
        other => return of_expert(other, config),
    };
    maps.into_iter().map(|(name, outputs)| (own(config.family, name).to_owned(), outputs)).collect()
}

/// What a family calls by another name than the other families: the usual name and its own.
const OWN: [(Family, &str, &str); 21] = [
    // GLM calls the norm before the MLP by the name that other families with norms on both sides have for the norm
    // after the attention.
    (Family::Glm4, "post_attention_layernorm", "post_self_attn_layernorm"),
    (Family::Glm4, "pre_feedforward_layernorm", "post_attention_layernorm"),
    (Family::Glm4, "post_feedforward_layernorm", "post_mlp_layernorm"),
    (Family::GraniteHybrid, "mlp.gate_up_proj", "shared_mlp.input_linear"),
    (Family::GraniteHybrid, "mlp.down_proj", "shared_mlp.output_linear"),
    (Family::HunYuan, "self_attn.q_norm", "self_attn.query_layernorm"),
    (Family::HunYuan, "self_attn.k_norm", "self_attn.key_layernorm"),
    (Family::Lfm2, "model.norm", "model.embedding_norm"),
    (Family::Lfm2, "input_layernorm", "operator_norm"),
    (Family::Lfm2, "post_attention_layernorm", "ffn_norm"),
    (Family::Lfm2, "self_attn.q_norm", "self_attn.q_layernorm"),
    (Family::Lfm2, "self_attn.k_norm", "self_attn.k_layernorm"),
    (Family::Lfm2, "self_attn.o_proj", "self_attn.out_proj"),
    (Family::Lfm2, "mlp.gate_proj", "feed_forward.w1"),
    (Family::Lfm2, "mlp.up_proj", "feed_forward.w3"),
    (Family::Lfm2, "mlp.down_proj", "feed_forward.w2"),
    (Family::Mixtral, "mlp.gate", "block_sparse_moe.gate"),
    (Family::Mixtral, "mlp.experts", "block_sparse_moe.experts"),
    (Family::Mixtral, "gate_proj", "w1"),
    (Family::Mixtral, "up_proj", "w3"),
    (Family::Mixtral, "down_proj", "w2"),
];

/// Returns the name that `family` has for a part of a layer, or for the last norm.
pub(crate) fn own(family: Family, usual: &str) -> &str {
    let line = OWN.iter().find(|(of, name, _)| *of == family && *name == usual);
    line.map_or(usual, |(.., own)| own)
}

/// Lists every projection that may have an adapter, with its numbers of inputs and outputs.
pub(crate) fn adaptable(config: &DecoderConfig) -> impl Iterator<Item = (String, [usize; 2])> + '_ {
    config.kinds.iter().enumerate().flat_map(move |(layer, kind)| {
        let mut paths = if kind.recurrent && config.convolution.is_some() {
            vec!["convolution.input", "convolution.output"]
        } else if kind.recurrent {
            vec!["delta.input", "delta.output"]
        } else {
            vec!["attention.qkv", "attention.output"]
        };

        if !kind.sparse {
            paths.extend(["gate_up", "down"]);
        }

        paths.into_iter().flat_map(move |path| {
            let inputs = inputs(path, config);
            let maps = projections(path, config).into_iter();
            maps.map(move |(name, outputs)| {
                (format!("model.layers.{layer}.{name}"), [inputs, outputs])
            })
        })
    })
}

/// Returns the number of inputs of the matrix at `path` in a layer: matrices that are not named here read the residual
/// stream.
pub(crate) fn inputs(path: &str, config: &DecoderConfig) -> usize {
    let of_expert = path.starts_with("experts.each.");
    let of_shared = path.starts_with("experts.shared.");
    match path.rsplit('.').next().unwrap_or(path) {
        "output" if path.starts_with("delta.") => config.delta.map_or(0, |delta| delta.values()),
        "output" if path.starts_with("convolution.") => config.hidden_size,
        "output" => config.query_width(),
        "down" if of_expert => config.experts.map_or(0, |experts| experts.inner),
        "down" if of_shared => config.experts.and_then(|experts| experts.shared).unwrap_or(0),
        "down" => config.intermediate_size,
        _ => config.hidden_size,
    }
}

/// Returns the [`projections`] of an expert, such as `experts.each.7.gate_up`.
fn of_expert(path: &str, config: &DecoderConfig) -> Vec<(String, usize)> {
    let parts = path.strip_prefix("experts.each.").and_then(|rest| rest.split_once('.'));
    let Some((number, part)) = parts else {
        unreachable!("the decoder has no projection \"{path}\"")
    };

    let inner = config.experts.map_or(0, |experts| experts.inner);
    let of_family = |usual| own(config.family, usual);
    let name = |map| format!("{}.{number}.{}", of_family("mlp.experts"), of_family(map));
    match part {
        "gate_up" => vec![(name("gate_proj"), inner), (name("up_proj"), inner)],
        _ => vec![(name("down_proj"), config.hidden_size)],
    }
}

/// Tells whether the parameter at `path` belongs to an adapter.
pub(crate) fn is_adapter(path: &str) -> bool {
    path.contains(".adapters.")
}

/// Tells whether the parameter at `path` belongs to a matrix in 8 or 4 bits.
pub(crate) fn is_quantised(path: &str) -> bool {
    path.contains(".quantised.")
}

/// Returns PEFT's name of the adapter's parameter at `path`, such as `layers.0.attention.qkv.adapters.1.a`.
pub(crate) fn of_adapter(path: &str, config: &DecoderConfig) -> Option<String> {
    let (projection, adapter) = path.split_once(".adapters.")?;
    let (index, matrix) = adapter.split_once('.')?;

    let mut parts = projection.splitn(3, '.').skip(1);
    let layer = parts.next()?.parse().ok()?;
    let projection = parts.next()?;
    let name = of_projection(layer, projection, config).into_iter().nth(index.parse().ok()?)?;
    Some(of_adapter_matrix(&name, &matrix.to_uppercase()))
}

/// Returns PEFT's name of a matrix that is trained in full in addition to adapters.
pub(crate) fn of_full_matrix(module: &str) -> String {
    let prefix = if module == "embed_tokens" { "model." } else { "" };
    format!("{OF_PEFT}{prefix}{module}.weight")
}

/// Returns PEFT's name of the module at `path`, if it may be trained in full in addition to adapters.
pub(crate) fn full_module(path: &str) -> Option<&'static str> {
    match path {
        "embedding" => Some("embed_tokens"),
        "head" => Some("lm_head"),
        _ => None,
    }
}

/// PEFT begins every name with this.
pub(crate) const OF_PEFT: &str = "base_model.model.";

/// Returns PEFT's name of the matrix `A` or `B` for the projection of that name.
pub(crate) fn of_adapter_matrix(projection: &str, matrix: &str) -> String {
    format!("{OF_PEFT}{projection}.lora_{matrix}.weight")
}
