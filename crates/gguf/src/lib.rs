//! GGUF files, read as if they were Hugging Face model folders, and written from them.
//!
//! A GGUF file holds everything of a model: its sizes, its weights in blocks of a few bits, its tokenizer and its chat
//! template. [`Gguf::file`] makes the files that the same model has as a folder. [`Gguf::read`] reads the weights
//! under the names that they have there, dequantised and in the order of rows that `transformers` wants.
//!
//! Because anybody can make such a file, its claims are checked before they are used: lengths against the file's
//! end, counts against limits, tensors against each other. Memory holds only what a model needs, however much the
//! file claims. Arrays stay in the file until somebody asks for one.
//!
//! [`NewGguf`] writes a file from the same content. Tables of names, keys and changes serve both directions.
//!
//! ```no_run
//! use firebrick_gguf::Gguf;
//!
//! let model = Gguf::open("model.gguf".as_ref())?;
//! let config = model.file("config.json")?.expect("every model has one");
//! let mut values = Vec::new();
//! model.read("model.norm.weight", &mut values)?;
//! # Ok::<(), firebrick_gguf::GgufError>(())
//! ```

mod arrays;
mod blocks;
mod change;
mod config;
mod cursor;
mod error;
mod family;
mod file;
mod file_type;
mod keys;
mod layer_flags;
mod metadata;
mod names;
mod pieces;
mod rope;
mod tokenizer;
mod write;

#[doc(hidden)]
pub mod fuzzing;

pub use blocks::BlockType;
pub use error::GgufError;
pub use file::{Gguf, Tensor, file_within, is_gguf};
pub use file_type::FileType;
pub use write::{NewGguf, NewModel, Vocabulary};
