//! Which tensors of a folder a model reads, and what to think of the others.

use std::{collections::BTreeSet, path::Path};

use burn::tensor::Device;

use super::{CheckpointError, layout, read::load_config, tensors::Tensors};
use crate::{Decoder, DecoderConfig, init::ParameterSource};

/// The tensors of a model folder that its model does not read, by name; reads no weights.
///
/// # Errors
/// When a file is missing or damaged, and when the names of the tensors are not those of the model that
/// `config.json` describes.
pub fn unread_tensors(folder: &Path) -> Result<Vec<String>, CheckpointError> {
    let (config, _) = load_config(folder)?;
    check(&Tensors::open(folder)?, &config)
}

/// Finds by the names alone whether `tensors` are a model of `config`, before any weight is read:
/// whoever has the wrong folder should not wait for gigabytes to hear it. Gives the names that the
/// model does not read.
///
/// Refused are tensors without which it would silently be another model: more layers than
/// `config.json` says, or parts that its architecture does not have. What lies outside the model, such
/// as the head of a classifier, is left to whoever wants it.
pub(super) fn check(
    tensors: &Tensors,
    config: &DecoderConfig,
) -> Result<Vec<String>, CheckpointError> {
    let (path, layers) = (|| tensors.path().to_owned(), config.layers);
    let read = names_of_one_layer(config)?;
    let unread = unread(tensors, config, &read);
    let deeper = |name: &&String| layer(name).is_some_and(|(layer, _)| layer >= layers);
    if let Some(name) = unread.iter().find(deeper).cloned() {
        return Err(CheckpointError::Surplus { path: path(), name, layers });
    }
    let is_there = |name: &String| tensors.info(name).is_some();
    // The first that is missing ends it, so a config.json with a million layers costs no time.
    let needed = (0..layers).flat_map(|layer| read.iter().map(move |name| in_layer(name, layer)));
    if let Some(name) = needed.into_iter().find(|name| !is_there(name)) {
        return Err(CheckpointError::Missing { path: path(), name, layers });
    }
    let foreign = |name: &&String| {
        (name.starts_with("model.") || name.starts_with("lm_head")) && !is_harmless(name, config)
    };
    match unread.iter().find(foreign).cloned() {
        Some(name) => Err(CheckpointError::Foreign { path: path(), name }),
        None => Ok(unread),
    }
}

/// The names in `tensors` that a model of `config` does not read; `read` is what it does with one
/// layer.
fn unread(tensors: &Tensors, config: &DecoderConfig, read: &BTreeSet<String>) -> Vec<String> {
    let is_read = |name: &str| match layer(name) {
        Some((layer, rest)) => layer < config.layers && read.contains(&format!("{LAYERS}0.{rest}")),
        None => read.contains(name),
    };
    tensors.names().filter(|name| !is_read(name)).map(str::to_owned).collect()
}

/// The name that a tensor of the first layer has in another; a tensor of no layer has one name.
fn in_layer(name: &str, number: usize) -> String {
    match layer(name) {
        Some((_, rest)) => format!("{LAYERS}{number}.{rest}"),
        None => name.to_owned(),
    }
}

/// Rotary frequencies, which older checkpoints hold and everybody computes; and the head of a model
/// whose embedding is its head, which is written again by some.
fn is_harmless(name: &str, config: &DecoderConfig) -> bool {
    name.ends_with(".rotary_emb.inv_freq") || (config.tied && name == "lm_head.weight")
}

const LAYERS: &str = "model.layers.";

/// The layer that a tensor belongs to, and its name in there.
fn layer(name: &str) -> Option<(usize, &str)> {
    let (digits, rest) = name.strip_prefix(LAYERS)?.split_once('.')?;
    // No other way to write the number: `model.layers.01.` is no layer's.
    let layer = digits.parse::<usize>().ok().filter(|layer| layer.to_string() == digits)?;
    Some((layer, rest))
}

/// The checkpoint's names for everything that a decoder of `config` reads if it has one layer.
///
/// They are asked of a decoder that is made for it, with sizes of one, so that there is no second
/// list of its parameters to keep up with the first.
fn names_of_one_layer(config: &DecoderConfig) -> Result<BTreeSet<String>, CheckpointError> {
    struct Names<'a> {
        config: &'a DecoderConfig,
        names: BTreeSet<String>,
    }
    impl ParameterSource for Names<'_> {
        fn values(&mut self, path: &str, shape: &[usize]) -> Result<Vec<f32>, CheckpointError> {
            let pieces = layout::pieces(self.config, path, shape);
            self.names.extend(pieces.into_iter().map(|(name, _)| name));
            Ok(vec![0.0; shape.iter().product()])
        }
    }
    let small = DecoderConfig {
        vocab_size: 1,
        hidden_size: 1,
        layers: 1,
        heads: 1,
        kv_heads: 1,
        head_dim: 2,
        intermediate_size: 1,
        ..config.clone()
    };
    let mut source = Names { config: &small, names: BTreeSet::new() };
    Decoder::from_source(&small, &mut source, &Device::flex())?;
    Ok(source.names)
}
