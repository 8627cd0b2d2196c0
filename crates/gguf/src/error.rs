use std::{io, path::PathBuf};

/// What is wrong with a GGUF file.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// It could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no GGUF file, or not a whole one.
    #[error("{path}, byte {at}: {problem}; download or copy the file again")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where in it.
        at: u64,
        /// What was expected and what came.
        problem: String,
    },
    /// It is whole, and of a kind that is not read.
    #[error("{path}, byte {at}: {problem}")]
    Unread {
        /// Which file.
        path: PathBuf,
        /// Where in it.
        at: u64,
        /// What was expected, what came, and what to do.
        problem: String,
    },
    /// Its metadata describe no model that can be read.
    #[error("{path}: {problem}")]
    Model {
        /// Which file.
        path: PathBuf,
        /// What was expected, what came, and what to do.
        problem: String,
    },
}

/// A text of the file as a message has it: its first characters, control characters spelt out.
pub(crate) fn quoted(text: &str) -> String {
    const SHOWN: usize = 80;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}
