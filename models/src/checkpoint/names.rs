//! Which tensors of a folder a model reads, and what to think of the others.

use std::{collections::BTreeSet, path::Path};

use burn::tensor::Device;

use super::{CheckpointError, folder::Tensors, layout, read::load_config};
use crate::{Decoder, DecoderConfig, init::ParameterSource};

/// The tensors of a model folder that its model does not read, by name; reads no weights.
///
/// # Errors
/// When a file is missing or damaged.
pub fn unread_tensors(folder: &Path) -> Result<Vec<String>, CheckpointError> {
    let (config, _) = load_config(folder)?;
    unread(&Tensors::open(folder)?, &config)
}

/// The names in `tensors` that a model of `config` does not read.
pub(super) fn unread(
    tensors: &Tensors,
    config: &DecoderConfig,
) -> Result<Vec<String>, CheckpointError> {
    let read = names_of_one_layer(config)?;
    let is_read = |name: &str| match layer(name) {
        Some((layer, rest)) => layer < config.layers && read.contains(&format!("{LAYERS}0.{rest}")),
        None => read.contains(name),
    };
    Ok(tensors.names().filter(|name| !is_read(name)).map(str::to_owned).collect())
}

/// Refuses tensors without which the model would silently be another one: more layers than
/// `config.json` says, or parts that its architecture does not have. What lies outside the model, such
/// as the head of a classifier, is left to whoever wants it.
pub(super) fn refuse_foreign(
    path: &Path,
    unread: &[String],
    config: &DecoderConfig,
) -> Result<(), CheckpointError> {
    let path = || path.to_owned();
    for name in unread.iter().filter(|name| !is_harmless(name, config)) {
        let (name, layers) = (name.clone(), config.layers);
        if layer(&name).is_some_and(|(layer, _)| layer >= layers) {
            return Err(CheckpointError::Surplus { path: path(), name, layers });
        }
        if name.starts_with("model.") || name.starts_with("lm_head") {
            return Err(CheckpointError::Foreign { path: path(), name });
        }
    }
    Ok(())
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
