use std::{io, path::PathBuf};

use crate::ConfigError;

/// What is wrong with a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A file could not be read.
    #[error(
        "cannot read {path}: {source}; expected a Hugging Face model folder with config.json, model.safetensors and tokenizer.json"
    )]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Weights in a format that can run code.
    #[error(
        "{path} is not read, since opening it can run code, and there is no model.safetensors; convert \
         it: in Python, AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(OUT, \
         safe_serialization=True)"
    )]
    Pickled {
        /// Which file.
        path: PathBuf,
    },
    /// A GGUF file is damaged, or is of no model that can be read.
    #[error(transparent)]
    Gguf(#[from] firebrick_gguf::GgufError),
    /// A file could not be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A JSON file is not what it should be.
    #[error("{path} is not valid JSON: {source}; download the file again")]
    Json {
        /// Which file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// A JSON file is larger than any that belongs to a model.
    #[error(
        "{path} has {bytes} bytes, expected at most {limit}: it is not what its name says; download the file again"
    )]
    TooLarge {
        /// Which file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// What it may have.
        limit: u64,
    },
    /// `config.json` describes a model that cannot be read.
    #[error("{path}: {source}")]
    Config {
        /// Which file.
        path: PathBuf,
        /// What about it.
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
        /// Which file.
        path: PathBuf,
        /// What was expected and what came.
        problem: String,
    },
    /// The index of the shards and the shards contradict each other.
    #[error("{path} does not list the shards beside it: {problem}; download the folder again")]
    Index {
        /// The index file.
        path: PathBuf,
        /// What was expected and what came.
        problem: String,
    },
    /// The index of the shards names a file outside its folder.
    #[error("{path} lists the shard {shard:?}; a shard must be a file in the same folder")]
    Shard {
        /// The index file.
        path: PathBuf,
        /// What it lists.
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
        /// As `config.json` says.
        layers: usize,
    },
    /// The files hold more layers than the configuration.
    #[error(
        "{path} has the tensor {name:?}, but config.json says {layers} layers: is this the right folder?"
    )]
    Surplus {
        /// The file, or the index of the shards.
        path: PathBuf,
        /// The first tensor too many.
        name: String,
        /// As `config.json` says.
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
        /// Which file.
        path: PathBuf,
        /// The checkpoint's name of the tensor.
        name: String,
        /// Shape and type in the file.
        came: String,
        /// Shape and type expected.
        expected: String,
    },
    /// An adapter is broken, or is not for this model.
    #[error("{path}: {problem}")]
    Adapter {
        /// Which file.
        path: PathBuf,
        /// What was expected and what came.
        problem: String,
    },
    /// A file of parameters is broken, or is not this model's.
    #[error("{path} {problem}")]
    Parameters {
        /// Which file.
        path: PathBuf,
        /// What was expected and what came.
        problem: String,
    },
    /// A weight is too large for the type that it should be written in.
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
    /// The device could not give its values back.
    #[error("the device could not read back a parameter: {0}")]
    Device(String),
}
