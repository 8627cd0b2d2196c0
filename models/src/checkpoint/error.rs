//! Errors of checkpoints.

use std::{io, path::PathBuf};

use crate::ConfigError;

/// An error while reading or writing a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A file could not be read.
    #[error(
        "cannot read {path}: {source}; expected a Hugging Face model folder with config.json, model.safetensors and tokenizer.json"
    )]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// Weights in a format that can run code.
    #[error(
        "{path} is not read, since opening it can run code, and there is no model.safetensors; convert \
         it: in Python, AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(OUT, \
         safe_serialization=True)"
    )]
    Pickled {
        /// Path of the file.
        path: PathBuf,
    },
    /// A GGUF file is damaged, or has no model that can be read.
    #[error(transparent)]
    Gguf(#[from] firebrick_gguf::GgufError),
    /// A file could not be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// A JSON file is not what it should be.
    #[error("{path} is not valid JSON: {source}; download the file again")]
    Json {
        /// Path of the file.
        path: PathBuf,
        /// Line, column and what went wrong.
        source: serde_json::Error,
    },
    /// A JSON file is larger than any file of a model.
    #[error(
        "{path} has {bytes} bytes, expected at most {limit}: it is not what its name says; download the file again"
    )]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
        /// Size of the file.
        bytes: u64,
        /// Size that it may have.
        limit: u64,
    },
    /// `config.json` describes a model that cannot be read.
    #[error("{path}: {source}")]
    Config {
        /// Path of the file.
        path: PathBuf,
        /// What went wrong.
        source: ConfigError,
    },
    /// Sizes of a new model that do not fit together.
    #[error("the new model's sizes do not fit: {0}")]
    NewModel(ConfigError),
    /// A safetensors file is damaged.
    #[error(
        "{path} is not a complete safetensors file: {problem}; it may be truncated: download or copy it again"
    )]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// What was expected and what was found.
        problem: String,
    },
    /// A contradiction between the index of the shards and the shards.
    #[error("{path} does not list the shards next to it: {problem}; download the folder again")]
    Index {
        /// Path of the index.
        path: PathBuf,
        /// What was expected and what was found.
        problem: String,
    },
    /// An index of shards that names a file outside its folder.
    #[error("{path} lists the shard {shard:?}; a shard must be a file in the same folder")]
    Shard {
        /// Path of the index.
        path: PathBuf,
        /// Name that the index lists.
        shard: String,
    },
    /// A tensor that the configuration asks for is in none of the files.
    #[error(
        "{path} has no tensor \"{name}\", which a model with num_hidden_layers = {layers} needs: is this the right folder?"
    )]
    Missing {
        /// Path of the file, or of the index of the shards.
        path: PathBuf,
        /// Name of the tensor in the checkpoint.
        name: String,
        /// Number of layers in `config.json`.
        layers: usize,
    },
    /// More layers in the files than in the configuration.
    #[error(
        "{path} has the tensor {name:?}, but config.json has num_hidden_layers = {layers}: is this the right folder?"
    )]
    Surplus {
        /// Path of the file, or of the index of the shards.
        path: PathBuf,
        /// First surplus tensor.
        name: String,
        /// Number of layers in `config.json`.
        layers: usize,
    },
    /// A part of a model in the files that the configuration's architecture does not have.
    #[error(
        "{path} has the tensor {name:?}, which the architecture of config.json does not read: without it the model would be a different one"
    )]
    Foreign {
        /// Path of the file, or of the index of the shards.
        path: PathBuf,
        /// First such tensor.
        name: String,
    },
    /// A tensor has another shape or type than the configuration says.
    #[error(
        "{path}: tensor \"{name}\" is {actual}, but config.json makes it {expected}: do the two files belong together?"
    )]
    Shape {
        /// Path of the file.
        path: PathBuf,
        /// Name of the tensor in the checkpoint.
        name: String,
        /// Shape and type in the file.
        actual: String,
        /// Shape and type that were expected.
        expected: String,
    },
    /// An adapter is broken, or belongs to another model.
    #[error("{path}: {problem}")]
    Adapter {
        /// Path of the file.
        path: PathBuf,
        /// What was expected and what was found.
        problem: String,
    },
    /// A file of parameters is broken, or belongs to another model.
    #[error("{path} {problem}")]
    Parameters {
        /// Path of the file.
        path: PathBuf,
        /// What was expected and what was found.
        problem: String,
    },
    /// A weight is too large for the type in which it should be written.
    #[error("tensor \"{name}\" holds {value:e}, which is beyond {dtype}: save it as {remedy}")]
    Range {
        /// Name of the tensor in the checkpoint.
        name: String,
        /// Value of the weight.
        value: f32,
        /// Type that was asked for.
        dtype: &'static str,
        /// A type with more range.
        remedy: &'static str,
    },
    /// A parameter whose values could not be read back from the device.
    #[error("the device could not read back a parameter: {0}")]
    Device(String),
}
