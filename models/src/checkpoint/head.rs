//! The head of a model whose `config.json` says that it is the embedding. The files may hold a head nevertheless. As in
//! transformers, a head with other values is then a separate head, and a head without an embedding is both.

use std::path::Path;

use firebrick_gguf::is_gguf;

use super::{CheckpointError, file, folder::Shards, tensors::Tensors};
use crate::DecoderConfig;

/// Tensor of the embedding.
const EMBEDDING: &str = "model.embed_tokens.weight";

/// Tensor of the head.
pub(super) const HEAD: &str = "lm_head.weight";

/// Tells whether the head of the model in `folder` is the embedding: `config.json` says so, and the files hold no head
/// with other values. If both are there, both are read once.
///
/// # Errors
/// Fails if the files hold a head that does not fit the embedding.
pub(super) fn is_tied(folder: &Path, config: &DecoderConfig) -> Result<bool, CheckpointError> {
    if !config.tied || is_gguf(folder) {
        return Ok(config.tied);
    }

    // If the weights are missing or damaged, their reader says so.
    let Ok(shards) = Shards::open(folder) else { return Ok(true) };
    let (Some(embedding), Some(head)) = (shards.find(EMBEDDING), shards.find(HEAD)) else {
        return Ok(true);
    };

    let expected = [config.vocab_size, config.hidden_size];
    for (name, (file, stored)) in [(EMBEDDING, embedding), (HEAD, head)] {
        let info = &stored.info;
        if info.shape != expected || stored.plain().is_none() {
            return Err(CheckpointError::Shape {
                path: file.path().to_owned(),
                name: name.to_owned(),
                actual: format!("{} {:?}", info.dtype, info.shape),
                expected: format!("F32, BF16 or F16 {expected:?}"),
            });
        }
    }
    file::same((embedding.0, &embedding.1.info), (head.0, &head.1.info))
}

/// Opens the tensors of the model in `folder`. If the head is the embedding and there is only a tensor named as the
/// head, it gets the name of the embedding.
pub(super) fn open(folder: &Path, config: &DecoderConfig) -> Result<Tensors, CheckpointError> {
    let mut tensors = Tensors::open(folder)?;
    // GGUF files have other names, which their reader translates.
    if config.tied
        && let Tensors::Folder(shards) = &mut tensors
        && shards.find(EMBEDDING).is_none()
    {
        shards.rename(HEAD, EMBEDDING);
    }
    Ok(tensors)
}
