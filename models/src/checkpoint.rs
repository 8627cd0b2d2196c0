//! Hugging Face model folders, in and out.

mod adapter;
mod dtype;
mod error;
mod file;
mod folder;
mod inventory;
mod json;
mod layout;
mod names;
mod read;
mod save;

pub use adapter::{AdapterBase, adapter_config, is_adapter, load_adapter, save_adapter};
pub use dtype::WeightDtype;
pub use error::CheckpointError;
pub use inventory::{Inventory, TensorInfo, inventory};
pub use layout::{NamedTensor, named_tensors};
pub use names::unread_tensors;
pub(crate) use read::load_scorer;
pub use read::{Loaded, load, load_config, load_noting};
pub use save::{SaveOptions, save};
