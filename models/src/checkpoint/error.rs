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
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Weights in a format that can run code.
    #[error(
        "{path} is not read, since opening it can run code, and there is no model.safetensors; convert \
         it: in Python, AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(OUT, \
         safe_serialization=True)"
    )]
    Pickled {
        /// The file.
        path: PathBuf,
    },
    /// A GGUF file is damaged, or has no model that can be read.
    #[error(transparent)]
    Gguf(#[from] firebrick_gguf::GgufError),
    /// A file could not be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A JSON file is not what it should be.
    #[error("{path} is not valid JSON: {source}; download the file again")]
    Json {
        /// The file.
        path: PathBuf,
        /// The line, the column and the cause.
        source: serde_json::Error,
    },
    /// A JSON file is larger than any file of a model.
    #[error(
        "{path} has {bytes} bytes, expected at most {limit}: it is not what its name says; download the file again"
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The size of the file.
        bytes: u64,
        /// The size that it may have.
        limit: u64,
    },
    /// `config.json` describes a model that cannot be read.
    #[error("{path}: {source}")]
    Config {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: ConfigError,
    },
    /// The sizes of a new model do not fit together.
    #[error("the new model's sizes do not fit: {0}")]
    NewModel(ConfigError),
    /// A safetensors file is damaged.
    #[error(
        "{path} is not a whole safetensors file: {problem}; it may be cut off: download or copy it again"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// A text that says what was expected and what was found.
        problem: String,
    },
    /// The index of the shards and the shards contradict each other.
    #[error("{path} does not list the shards next to it: {problem}; download the folder again")]
    Index {
        /// The index file.
        path: PathBuf,
        /// A text that says what was expected and what was found.
        problem: String,
    },
    /// The index of the shards names a file outside its folder.
    #[error("{path} lists the shard {shard:?}; a shard must be a file in the same folder")]
    Shard {
        /// The index file.
        path: PathBuf,
        /// The name that the index lists.
        shard: String,
    },
    /// A tensor that the configuration asks for is in none of the files.
    #[error(
        "{path} has no tensor \"{name}\", which a model of {layers} layers needs: is this the right folder?"
    )]
    Missing {
        /// The file, or the index of the shards.
        path: PathBuf,
        /// The checkpoint's name of the tensor.
        name: String,
        /// The number of layers in `config.json`.
        layers: usize,
    },
    /// The files hold more layers than the configuration.
    #[error(
        "{path} has the tensor {name:?}, but config.json says {layers} layers: is this the right folder?"
    )]
    Surplus {
        /// The file, or the index of the shards.
        path: PathBuf,
        /// The first surplus tensor.
        name: String,
        /// The number of layers in `config.json`.
        layers: usize,
    },
    /// The files hold a part of the model that the configuration's architecture does not have.
    #[error(
        "{path} has the tensor {name:?}, which the architecture of config.json does not read: without it the model would be another one"
    )]
    Foreign {
        /// The file, or the index of the shards.
        path: PathBuf,
        /// The first such tensor.
        name: String,
    },
    /// A tensor has another shape or type than the configuration says.
    #[error(
        "{path}: tensor \"{name}\" is {came}, but config.json makes it {expected}: do the two files belong together?"
    )]
    Shape {
        /// The file.
        path: PathBuf,
        /// The checkpoint's name of the tensor.
        name: String,
        /// The shape and type in the file.
        came: String,
        /// The expected shape and type.
        expected: String,
    },
    /// An adapter is broken, or belongs to another model.
    #[error("{path}: {problem}")]
    Adapter {
        /// The file.
        path: PathBuf,
        /// A text that says what was expected and what was found.
        problem: String,
    },
    /// A file of parameters is broken, or belongs to another model.
    #[error("{path} {problem}")]
    Parameters {
        /// The file.
        path: PathBuf,
        /// A text that says what was expected and what was found.
        problem: String,
    },
    /// A weight is too large for the type in which it should be written.
    #[error("tensor \"{name}\" holds {value:e}, which is beyond {dtype}: save it as {remedy}")]
    Range {
        /// The checkpoint's name of the tensor.
        name: String,
        /// The weight.
        value: f32,
        /// The type that was asked for.
        dtype: &'static str,
        /// A type with more range.
        remedy: &'static str,
    },
    /// The device could not give the values of a parameter back.
    #[error("the device could not read back a parameter: {0}")]
    Device(String),
}
