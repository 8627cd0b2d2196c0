//! Errors of GGUF files.

use std::{io, path::PathBuf};

/// A GGUF file that can't be used, and the reason.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The file could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is no GGUF file, or not a whole one.
    #[error("{path}, byte {at}: {problem}; download or copy the file again")]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// The place in the file, in bytes.
        at: u64,
        /// The problem, with the expected and the actual value.
        problem: String,
    },
    /// The file is whole, but of a kind that is not read.
    #[error("{path}, byte {at}: {problem}")]
    Unread {
        /// The path of the file.
        path: PathBuf,
        /// The place in the file, in bytes.
        at: u64,
        /// The problem, with the expected and the actual value, and the way out.
        problem: String,
    },
    /// The metadata describe no model that can be read.
    #[error("{path}: {problem}")]
    Model {
        /// The path of the file.
        path: PathBuf,
        /// The problem, with the expected and the actual value, and the way out.
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
