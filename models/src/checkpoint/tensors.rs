//! The tensors of a model, whether they come from a folder or from a GGUF file.

use std::path::Path;

use firebrick_gguf::{Gguf, is_gguf};

use super::{CheckpointError, TensorInfo, folder::Shards};

/// Tensors of a model, by their names in a Hugging Face folder.
#[derive(Debug)]
pub(super) enum Tensors {
    /// Those of a folder's safetensors files.
    Folder(Shards),
    /// Those of a GGUF file.
    Gguf(Box<Gguf>),
}

impl Tensors {
    /// Opens a model folder or a GGUF file, and reads headers only.
    pub(super) fn open(folder: &Path) -> Result<Self, CheckpointError> {
        if is_gguf(folder) {
            Ok(Tensors::Gguf(Box::new(Gguf::open(folder)?)))
        } else {
            Shards::open(folder).map(Tensors::Folder)
        }
    }

    /// Returns the path of the single file, or of the index of several files, for messages.
    pub(super) fn path(&self) -> &Path {
        match self {
            Tensors::Folder(shards) => shards.path(),
            Tensors::Gguf(file) => file.path(),
        }
    }

    /// Lists every tensor's name, in alphabetical order.
    pub(super) fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match self {
            Tensors::Folder(shards) => Box::new(shards.names()),
            Tensors::Gguf(file) => Box::new(file.tensors().keys().map(String::as_str)),
        }
    }

    /// Describes a tensor and its bytes in the file.
    pub(super) fn info(&self, name: &str) -> Option<TensorInfo> {
        match self {
            Tensors::Folder(shards) => {
                let (file, stored) = shards.find(name)?;
                Some(TensorInfo {
                    name: name.to_owned(),
                    dtype: stored.dtype(),
                    shape: stored.info.shape.clone(),
                    bytes: stored.bytes() as u64,
                    file: file.path().to_owned(),
                })
            }

            Tensors::Gguf(file) => {
                let tensor = file.tensors().get(name)?;
                Some(TensorInfo {
                    name: name.to_owned(),
                    dtype: tensor.kind.name().to_owned(),
                    shape: tensor.shape.clone(),
                    bytes: tensor.bytes,
                    file: file.path().to_owned(),
                })
            }
        }
    }

    /// Checks that a tensor has this shape and a type that weights are read from.
    pub(super) fn check(&self, name: &str, shape: &[usize]) -> Result<(), CheckpointError> {
        let Some(info) = self.info(name) else { return Ok(()) };
        let read = match self {
            Tensors::Folder(shards) => {
                shards.find(name).is_some_and(|(_, stored)| stored.is_read())
            }
            // Types that are not read were refused when the file was opened.
            Tensors::Gguf(_) => true,
        };

        if info.shape == shape && read {
            return Ok(());
        }

        Err(not_of(shape, info))
    }

    /// Appends the values of a tensor to `values`, and tells whether all are finite. `None` if there is no such
    /// tensor, or if its type is not one of weights.
    pub(super) fn read(
        &self,
        name: &str,
        values: &mut Vec<f32>,
    ) -> Result<Option<bool>, CheckpointError> {
        match self {
            Tensors::Folder(shards) => shards.read(name, values),
            Tensors::Gguf(file) if file.tensors().contains_key(name) => {
                Ok(Some(file.read(name, values)?))
            }
            Tensors::Gguf(_) => Ok(None),
        }
    }
}

/// Makes the error about a tensor that has another shape than this one, or a type that weights are not read from.
pub(super) fn not_of(shape: &[usize], info: TensorInfo) -> CheckpointError {
    let expected = if info.shape != shape {
        format!("{shape:?}")
    } else if info.dtype == "F8_E4M3" {
        // The type is read, so the scales are what is wrong.
        format!(
            "{shape:?} with a \"…_scale_inv\" in F32, BF16 or F16 that has one number, or one for each 128 · 128"
        )
    } else {
        format!("F32, BF16 or F16 {shape:?}")
    };
    let actual = format!("{} {:?}", info.dtype, info.shape);
    CheckpointError::Shape { path: info.file, name: info.name, actual, expected }
}
