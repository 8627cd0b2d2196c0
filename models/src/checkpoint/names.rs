//! The tensors of a folder that a model reads, and the treatment of the others.

use std::collections::BTreeMap;

use burn::tensor::Device;
use firebrick_core::config::Family;

use super::{CheckpointError, head::HEAD, layout, pictures, tensors::Tensors};
use crate::{
    config::{
        DecoderConfig, ExpertSizes, GatedDeltaSizes, GlobalHeads, KvSharing, LayerKind,
        PerLayerSizes, SharedExpert,
    },
    decoder::Decoder,
    source::ParameterSource,
};

/// Checks by names, shapes and types alone that `tensors` are a model of `config`, before any weight is read, so that
/// nobody with the wrong folder waits for gigabytes. Returns the names that the model does not read.
///
/// Tensors are refused if the model without them would silently be another one: more layers than `config.json` says, or
/// parts that its architecture does not have. Other tensors outside the model, such as the head of a classifier, are
/// ignored, and so are GLM-4.5's layers for [further tokens](predicts_further).
pub(super) fn check(
    tensors: &Tensors,
    config: &DecoderConfig,
) -> Result<Vec<String>, CheckpointError> {
    let path = || tensors.path().to_owned();
    let layers = config.layers;

    let read = Names::of(config)?;
    let unread: Vec<String> =
        tensors.names().filter(|name| !read.contains(name)).map(str::to_owned).collect();

    let further = |name: &str| predicts_further(name, tensors, config);
    let deeper = |name: &&String| layer(name).is_some_and(|(layer, _)| layer >= layers);
    if let Some(name) = unread.iter().find(|name| deeper(name) && !further(name)).cloned() {
        return Err(CheckpointError::Surplus { path: path(), name, layers });
    }

    // The first missing name ends the search, so a config.json with a million layers costs no time.
    if let Some(name) = read.all().find(|name| tensors.info(name).is_none()) {
        return Err(CheckpointError::Missing { path: path(), name, layers });
    }

    let foreign = |name: &&String| {
        let of_model = name.starts_with("model.") || name.starts_with("lm_head");
        of_model && !is_harmless(name, config) && !further(name)
    };
    if let Some(name) = unread.iter().find(foreign).cloned() {
        return Err(CheckpointError::Foreign { path: path(), name });
    }

    for (name, shape) in read.shapes() {
        tensors.check(&name, shape)?;
    }
    Ok(unread)
}

/// Names in a checkpoint of everything that a decoder reads.
struct Names {
    /// Those outside the layers.
    outside: Parts,
    /// Those within a layer, for each kind of layer in the model.
    kinds: Vec<(LayerKind, Parts)>,
    /// Index of each layer's kind in `kinds`.
    layers: Vec<usize>,
}

/// Names, each with the tensor's index in the order of reading and its shape.
type Parts = BTreeMap<String, (usize, Vec<usize>)>;

impl Names {
    /// Collects the names from a decoder that is made for this purpose, with sizes of one and a layer of each kind, so
    /// that no second list of its parameters has to keep up with the first.
    fn of(config: &DecoderConfig) -> Result<Self, CheckpointError> {
        let mut names = Names { outside: Parts::new(), kinds: Vec::new(), layers: Vec::new() };

        for kind in &config.kinds {
            let found = names.kinds.iter().position(|(known, _)| known == kind);
            names.layers.push(found.unwrap_or(names.kinds.len()));
            if found.is_none() {
                names.kinds.push((*kind, Parts::new()));
            }
        }

        // The sizes of a layer's tensors depend on its kind.
        let kinds: Vec<LayerKind> = names.kinds.iter().map(|(kind, _)| *kind).collect();
        let of_kinds = DecoderConfig { layers: kinds.len(), kinds, ..config.clone() };

        let small = DecoderConfig {
            vocab_size: 1,
            hidden_size: 1,
            heads: 1,
            kv_heads: 1,
            head_dim: 2,
            global_heads: config.global_heads.map(|global| GlobalHeads {
                kv_heads: 1,
                head_dim: 2,
                ..global
            }),
            intermediate_size: 1,
            per_layer: config.per_layer.map(|_| PerLayerSizes { vocab_size: 1, width: 1 }),
            experts: config.experts.map(|experts| ExpertSizes {
                inner: 1,
                shared: experts.shared.map(|shared| SharedExpert { inner: 1, ..shared }),
                ..experts
            }),
            delta: config.delta.map(|_| GatedDeltaSizes {
                key_heads: 1,
                value_heads: 1,
                key_dim: 1,
                value_dim: 1,
                kernel: 1,
            }),
            ..of_kinds.clone()
        };

        let mut source = Asked { config, of_kinds: &of_kinds, names: &mut names };
        Decoder::from_source(&small, &mut source, &Device::flex())?;
        Ok(names)
    }

    fn contains(&self, name: &str) -> bool {
        match layer(name) {
            Some((layer, rest)) => {
                self.layers.get(layer).is_some_and(|kind| self.kinds[*kind].1.contains_key(rest))
            }
            None => self.outside.contains_key(name),
        }
    }

    /// Lists all names, layer by layer.
    fn all(&self) -> impl Iterator<Item = String> {
        let layers = self.layers.iter().enumerate().flat_map(|(layer, kind)| {
            self.kinds[*kind].1.keys().map(move |rest| format!("{LAYERS}{layer}.{rest}"))
        });
        self.outside.keys().cloned().chain(layers)
    }

    /// Lists all names with their shapes, in the order in which each part of the model is read.
    fn shapes(&self) -> impl Iterator<Item = (String, &[usize])> {
        let outside = in_order(&self.outside);
        let kinds: Vec<_> = self.kinds.iter().map(|(_, parts)| in_order(parts)).collect();
        let layers = self.layers.iter().enumerate().flat_map(move |(layer, kind)| {
            let named = |(rest, shape): &(String, _)| (format!("{LAYERS}{layer}.{rest}"), *shape);
            kinds[*kind].iter().map(named).collect::<Vec<_>>()
        });
        outside.into_iter().chain(layers)
    }
}

/// Puts parts in the order in which they are read.
fn in_order(parts: &Parts) -> Vec<(String, &[usize])> {
    let mut parts: Vec<_> = parts.iter().collect();
    parts.sort_by_key(|(_, (asked, _))| *asked);
    parts.into_iter().map(|(name, (_, shape))| (name.clone(), shape.as_slice())).collect()
}

/// A source that notes the names of the parameters that it is asked for.
struct Asked<'a> {
    config: &'a DecoderConfig,
    /// The model with a layer of each kind, whose layers are asked for.
    of_kinds: &'a DecoderConfig,
    names: &'a mut Names,
}

impl ParameterSource for Asked<'_> {
    fn values(&mut self, path: &str, shape: &[usize]) -> Result<Vec<f32>, CheckpointError> {
        // Outside of the layers, a size may depend on the number of layers.
        let config = if path.starts_with("layers.") { self.of_kinds } else { self.config };
        // The sizes asked for are those of the small decoder. The pieces take the numbers of rows from the
        // configuration, and the other sizes from here.
        let true_shape = match shape {
            [_, _] => vec![layout::inputs(config, path); 2],
            [channels, one, _] => {
                let kernel = config.delta.map(|delta| delta.kernel);
                vec![*channels, *one, kernel.or(config.convolution).unwrap_or(0)]
            }
            other => other.to_vec(),
        };

        for (name, shape) in layout::pieces(config, path, &true_shape) {
            let (parts, name) = match layer(&name) {
                Some((layer, rest)) => (&mut self.names.kinds[layer].1, rest.to_owned()),
                None => (&mut self.names.outside, name),
            };
            parts.insert(name, (parts.len(), shape));
        }
        Ok(vec![0.0; shape.iter().product()])
    }
}

/// Tells whether a tensor can be left out safely. There are four such kinds: rotary frequencies, which older checkpoints
/// hold although every program computes them; the head of a model whose embedding is its head, which some programs write
/// twice; keys and values of layers that attend to those of others, which published files of Gemma 4 hold; and the part
/// of a model that sees.
fn is_harmless(name: &str, config: &DecoderConfig) -> bool {
    let head = config.tied && name == HEAD;
    name.ends_with(".rotary_emb.inv_freq")
        || head
        || makes_unused_keys(name, config)
        || pictures::sees(name)
}

/// Tells whether a tensor would make or normalise keys or values of a layer that has none.
fn makes_unused_keys(name: &str, config: &DecoderConfig) -> bool {
    const PARTS: [&str; 4] = ["k_proj", "v_proj", "k_norm", "v_norm"];
    let Some((layer, rest)) = layer(name) else { return false };
    let part = rest.strip_prefix("self_attn.").and_then(|rest| rest.split_once('.'));
    let reuses = config.kinds.get(layer).is_some_and(|kind| kind.kv == KvSharing::Reuse);
    reuses && part.is_some_and(|(part, _)| PARTS.contains(&part))
}

/// Tells whether a tensor is of a layer that predicts the token after the next one (multi-token prediction). GLM-4.5 has
/// such a layer after its last one, for drafts alone, which transformers passes over too. What tells it from a layer
/// that is too many is its projection from the residual stream and an embedding.
fn predicts_further(name: &str, tensors: &Tensors, config: &DecoderConfig) -> bool {
    let projects =
        |layer: usize| tensors.info(&format!("{LAYERS}{layer}.eh_proj.weight")).is_some();
    let of_further = |layer: usize| layer >= config.layers && projects(layer);
    config.family == Family::Glm4Moe && layer(name).is_some_and(|(layer, _)| of_further(layer))
}

const LAYERS: &str = "model.layers.";

/// Splits a tensor's name into the number of its layer and its name within the layer.
fn layer(name: &str) -> Option<(usize, &str)> {
    let (digits, rest) = name.strip_prefix(LAYERS)?.split_once('.')?;
    // The number has only one form: `model.layers.01.` is of no layer.
    let layer = digits.parse::<usize>().ok().filter(|layer| layer.to_string() == digits)?;
    Some((layer, rest))
}
