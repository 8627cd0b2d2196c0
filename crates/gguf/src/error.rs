//! Errors of GGUF files.

use std::{io, path::PathBuf};

use crate::FileType;

/// A GGUF file that can't be used, and the reason.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The file could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file is not a GGUF file, or is incomplete.
    #[error("{path}, byte {at}: {problem}; download or copy the file again")]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Position in the file, in bytes.
        at: u64,
        /// Problem, with the expected and the actual value.
        problem: String,
    },
    /// The file is complete, but of a kind that is not read.
    #[error("{path}, byte {at}: {problem}")]
    Unread {
        /// Path of the file.
        path: PathBuf,
        /// Position in the file, in bytes.
        at: u64,
        /// Problem, with the expected and the actual value, and the way out.
        problem: String,
    },
    /// The file could not be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The format has no words for the model.
    #[error("the model can't be written as GGUF: {problem}")]
    Unwritable {
        /// Problem, with the expected and the actual value.
        problem: String,
    },
    /// A weight is too large for the type in which it should be written.
    #[error(
        "tensor \"{name}\" holds {value:e}, which is beyond {}: take {} instead",
        kind.block().name(),
        kind.wider().block().name()
    )]
    Range {
        /// Name of the tensor in a folder.
        name: String,
        /// Value of the weight.
        value: f32,
        /// Type that was asked for.
        kind: FileType,
    },
    /// The metadata describe no model that can be read.
    #[error("{path}: {problem}")]
    Model {
        /// Path of the file.
        path: PathBuf,
        /// Problem, with the expected and the actual value, and the way out.
        problem: String,
    },
}

/// Quotes a text of the file for a message: its first characters, with control characters spelt out.
pub(crate) fn quoted(text: &str) -> String {
    const SHOWN: usize = 80;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}
