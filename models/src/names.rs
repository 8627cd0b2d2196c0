//! The names that checkpoints have for the parameters of a decoder.

use std::borrow::Cow;

use firebrick_core::config::Family;

use crate::config::{DecoderConfig, Fused, LayerKind};

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
        "per_layer.table" => {
            let rows = config.per_layer.map_or(0, |sizes| sizes.vocab_size);
            return vec![piece("model.embed_tokens_per_layer.weight".into(), rows)];
        }
        "per_layer.projection.weight" => {
            let name = format!("model.{PER_LAYER_PROJECTION}.weight");
            return vec![piece(name, config.per_layer_width())];
        }
        "per_layer.norm" => {
            let rows = config.per_layer.map_or(0, |sizes| sizes.width);
            return vec![piece("model.per_layer_projection_norm.weight".into(), rows)];
        }
        _ => {
            let mut parts = path.splitn(3, '.').skip(1);
            (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
        }
    };

    let kind = kind_at(path, config);
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
        "per_layer.norm" => return vector("post_per_layer_input_norm", hidden),
        "scale" => return vec![piece(name("layer_scalar"), 1)],
        "experts.router" => {
            let count = config.experts.map_or(0, |experts| experts.count);
            return vector("mlp.gate", count);
        }
        "experts.router_bias" => {
            let count = config.experts.map_or(0, |experts| experts.count);
            let router = own(config.family, "mlp.gate");
            return vec![piece(name(&format!("{router}.bias")), count)];
        }
        "experts.correction" => {
            let count = config.experts.map_or(0, |experts| experts.count);
            return vec![piece(
                name(own(config.family, "mlp.gate.e_score_correction_bias")),
                count,
            )];
        }
        "attention.sinks" => return vec![piece(name("self_attn.sinks"), config.heads)],
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
        "attention.query_norm" => {
            return vector("self_attn.q_norm", config.qk_norm_widths(kind)[0]);
        }
        "attention.key_norm" => {
            return vector("self_attn.k_norm", config.qk_norm_widths(kind)[1]);
        }
        _ => {}
    }

    let (projection, suffix) = rest.rsplit_once('.').unwrap_or((rest, "weight"));
    let of = |(part, rows): (String, usize)| piece(name(&format!("{part}.{suffix}")), rows);
    projections(projection, kind, config).into_iter().map(of).collect()
}

/// Name in a checkpoint of the projection of the embedding to a part of all embeddings per layer.
const PER_LAYER_PROJECTION: &str = "per_layer_model_projection";

/// Path of that projection, the only one that is not in a layer.
pub(crate) const OUTSIDE: &str = "per_layer.projection";

/// Returns the kind of the layer whose parameter is at `path`, such as `layers.0.attention.qkv.weight`.
pub(crate) fn kind_at(path: &str, config: &DecoderConfig) -> LayerKind {
    let layer = path.split('.').nth(1).and_then(|layer| layer.parse().ok());
    layer.map_or(LayerKind::default(), |layer| kind_of(layer, config))
}

fn kind_of(layer: usize, config: &DecoderConfig) -> LayerKind {
    config.kinds.get(layer).copied().unwrap_or_default()
}

/// Returns the checkpoint names of the maps that the projection at `path` of layer `layer` joins, such as
/// `model.layers.0.self_attn.q_proj`.
pub(crate) fn of_projection(layer: usize, path: &str, config: &DecoderConfig) -> Vec<String> {
    let name = |(name, _): &(String, usize)| format!("model.layers.{layer}.{name}");
    projections(path, kind_of(layer, config), config).iter().map(name).collect()
}

/// Returns the checkpoint name of the projection outside of the layers, [`OUTSIDE`].
pub(crate) fn of_outside() -> String {
    format!("model.{PER_LAYER_PROJECTION}")
}

/// Returns the linear maps that the projection at `path` in a layer of this kind joins: their names in a layer and
/// their numbers of outputs.
pub(crate) fn projections(
    path: &str,
    kind: LayerKind,
    config: &DecoderConfig,
) -> Vec<(String, usize)> {
    let query = config.query_outputs(kind);
    let key = config.key_width(kind);
    let inner = config.mlp_width(kind);

    let delta = || config.delta.expect("a recurrent layer has its sizes");
    let shared = || shared_width(config);
    let maps = match path {
        "attention.qkv" if config.fused == Fused::All => {
            vec![("self_attn.qkv_proj", query + 2 * key)]
        }
        "gate_up" if config.fused != Fused::None => vec![("mlp.gate_up_proj", 2 * inner)],
        "gate_up" if config.squared_relu => vec![("mlp.up_proj", inner)],
        "attention.qkv" => {
            let maps = [("self_attn.k_proj", key), ("self_attn.v_proj", key)];
            let keys_values = maps.into_iter().take(config.kv_maps(kind));
            [("self_attn.q_proj", query)].into_iter().chain(keys_values).collect()
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
        "per_layer.gate" => {
            vec![("per_layer_input_gate", config.per_layer.map_or(0, |sizes| sizes.width))]
        }
        "per_layer.output" => vec![("per_layer_projection", config.hidden_size)],
        OUTSIDE => vec![(PER_LAYER_PROJECTION, config.per_layer_width())],
        "experts.shared.gate_up" => {
            vec![("mlp.shared_expert.gate_proj", shared()), ("mlp.shared_expert.up_proj", shared())]
        }
        "experts.shared.down" => vec![("mlp.shared_expert.down_proj", config.hidden_size)],
        other => return of_expert(other, config),
    };
    maps.into_iter().map(|(name, outputs)| (own(config.family, name).to_owned(), outputs)).collect()
}

/// What a family calls by another name than the other families: the usual name and its own.
const OWN: [(Family, &str, &str); 31] = [
    // GLM calls the norm before the MLP by the name that other families with norms on both sides have for the norm
    // after the attention.
    (Family::Glm4, "post_attention_layernorm", "post_self_attn_layernorm"),
    (Family::Glm4, "pre_feedforward_layernorm", "post_attention_layernorm"),
    (Family::Glm4, "post_feedforward_layernorm", "post_mlp_layernorm"),
    (Family::Glm4Moe, "mlp.shared_expert.gate_proj", "mlp.shared_experts.gate_proj"),
    (Family::Glm4Moe, "mlp.shared_expert.up_proj", "mlp.shared_experts.up_proj"),
    (Family::Glm4Moe, "mlp.shared_expert.down_proj", "mlp.shared_experts.down_proj"),
    (Family::GptOss, "mlp.gate", "mlp.router"),
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
    (Family::MiniMaxM2, "mlp.gate", "block_sparse_moe.gate"),
    (
        Family::MiniMaxM2,
        "mlp.gate.e_score_correction_bias",
        "block_sparse_moe.e_score_correction_bias",
    ),
    (Family::MiniMaxM2, "mlp.experts", "block_sparse_moe.experts"),
    (Family::MiniMaxM2, "gate_proj", "w1"),
    (Family::MiniMaxM2, "up_proj", "w3"),
    (Family::MiniMaxM2, "down_proj", "w2"),
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

/// Lists every map that may have an adapter, with its numbers of inputs and outputs.
pub(crate) fn adaptable(config: &DecoderConfig) -> impl Iterator<Item = (String, [usize; 2])> + '_ {
    adaptable_projections(config).flatten()
}

/// Lists the maps of every projection that may have adapters, as [`adaptable`] does.
pub(crate) fn adaptable_projections(
    config: &DecoderConfig,
) -> impl Iterator<Item = Vec<(String, [usize; 2])>> + '_ {
    let outside = config.per_layer.map(|_| {
        let sides = [config.hidden_size, config.per_layer_width()];
        vec![(of_outside(), sides)]
    });

    let in_layers = config.kinds.iter().enumerate().flat_map(move |(layer, kind)| {
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
        if config.per_layer.is_some() {
            paths.extend(["per_layer.gate", "per_layer.output"]);
        }

        paths.into_iter().map(move |path| {
            let inputs = inputs(path, *kind, config);
            let maps = projections(path, *kind, config).into_iter();
            maps.map(|(name, outputs)| (format!("model.layers.{layer}.{name}"), [inputs, outputs]))
                .collect::<Vec<_>>()
        })
    });
    outside.into_iter().chain(in_layers)
}

/// Returns the number of inputs of the matrix at `path` in a layer of this kind: matrices that are not named here read
/// the residual stream.
pub(crate) fn inputs(path: &str, kind: LayerKind, config: &DecoderConfig) -> usize {
    let of_expert = path.starts_with("experts.each.");
    let of_shared = path.starts_with("experts.shared.");
    match path.rsplit('.').next().unwrap_or(path) {
        "output" if path.starts_with("delta.") => config.delta.map_or(0, |delta| delta.values()),
        "output" if path.starts_with("convolution.") => config.hidden_size,
        "output" if path.starts_with("per_layer.") => {
            config.per_layer.map_or(0, |sizes| sizes.width)
        }
        "table" => config.per_layer_width(),
        "output" => config.query_width(kind),
        "down" if of_expert => config.experts.map_or(0, |experts| experts.inner),
        "down" if of_shared => shared_width(config),
        "down" => config.mlp_width(kind),
        _ => config.hidden_size,
    }
}

/// Returns the width of the inner layer of the expert that all tokens go through; 0 if there is none.
fn shared_width(config: &DecoderConfig) -> usize {
    config.experts.and_then(|experts| experts.shared).map_or(0, |shared| shared.inner)
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
    let matrix = matrix.to_uppercase();
    if projection == OUTSIDE {
        return Some(of_adapter_matrix(&of_outside(), &matrix));
    }

    let mut parts = projection.splitn(3, '.').skip(1);
    let layer = parts.next()?.parse().ok()?;
    let projection = parts.next()?;
    let name = of_projection(layer, projection, config).into_iter().nth(index.parse().ok()?)?;
    Some(of_adapter_matrix(&name, &matrix))
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
