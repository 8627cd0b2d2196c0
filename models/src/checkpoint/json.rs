//! Reads JSON files of limited size.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::Path,
};

use firebrick_core::without_bom;
use firebrick_gguf::file_within;
use serde::de::{DeserializeOwned, Error as _};

use super::CheckpointError;

/// Largest `config.json` that is read, in bytes. The longest ones list a thousand labels in about 100 kB.
pub(super) const CONFIG: u64 = 16 << 20;

/// Largest index that is read, in bytes. The longest ones list a hundred thousand tensors in about 10 MB.
pub(super) const INDEX: u64 = 64 << 20;

/// Reads a JSON file of at most `limit` bytes.
pub(super) fn read<T: DeserializeOwned>(path: &Path, limit: u64) -> Result<T, CheckpointError> {
    // A GGUF file replaces a folder, and its content is read as that folder's files.
    if let Some(text) = file_within(path) {
        let text = text?.unwrap_or_default();
        return parse(path, &text);
    }

    let (file, bytes) = open(path)?;
    if bytes > limit {
        return Err(CheckpointError::TooLarge { path: path.to_owned(), bytes, limit });
    }

    let mut text = Vec::new();
    // The limit holds here too, because a file may grow while it is read.
    file.take(limit)
        .read_to_end(&mut text)
        .map_err(|source| CheckpointError::Read { path: path.to_owned(), source })?;

    parse(path, &text)
}

fn parse<T: DeserializeOwned>(path: &Path, text: &[u8]) -> Result<T, CheckpointError> {
    without_bom(text)
        .map_err(serde_json::Error::custom)
        .and_then(serde_json::from_slice)
        .map_err(|source| CheckpointError::Json { path: path.to_owned(), source })
}

/// Opens a file, and returns it with its size in bytes.
pub(super) fn open(path: &Path) -> Result<(File, u64), CheckpointError> {
    // Its kind is checked first, because opening a pipe waits for somebody to write into it.
    let opened = match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(io::Error::other("it is not a file")),
        Ok(metadata) => File::open(path).map(|file| (file, metadata.len())),
        Err(error) => Err(error),
    };
    opened.map_err(|source| CheckpointError::Read { path: path.to_owned(), source })
}
