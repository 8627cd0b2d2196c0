//! Reads and writes Hugging Face model folders.

mod adapter;
mod dtype;
mod error;
mod file;
mod folder;
mod formats;
mod gguf;
mod head;
mod inventory;
mod json;
mod layout;
mod names;
mod parameters;
mod pictures;
mod read;
mod save;
mod stored;
mod tensors;

pub use adapter::{
    AdapterBase, adapter_config, adapter_lora, check_adapter, is_adapter, load_adapter,
    save_adapter,
};
pub use dtype::WeightDtype;
pub use error::CheckpointError;
pub use firebrick_gguf::is_gguf;
pub use formats::Formats;
pub use gguf::save_gguf;
pub use inventory::{Inventory, TensorInfo, inventory};
pub use layout::{NamedTensor, named_tensors};
pub use parameters::{ParameterSet, load_parameters, save_parameters};
pub use read::{Loaded, load, load_config, load_noting, unread_tensors};
pub(crate) use read::{load_scorer, scorer_config};
pub use save::{SaveOptions, save, save_as};
