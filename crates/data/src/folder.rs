//! Reads the files of a model folder, with a limit on their size.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use firebrick_core::{text_from, without_bom};
use firebrick_gguf::file_within;
use serde_json::{Map, Value};

use crate::DataError;

/// Limit on a file of a model folder, in bytes. The largest tokenizers have some 40 MB.
const MAX_BYTES: u64 = 256 << 20;

/// Names under which templates and configurations know special tokens.
pub(crate) const SPECIAL_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Reads the bytes of a file in a model folder, or in the folder that a GGUF file stands for. Returns `None` if
/// there is no such file.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, DataError> {
    // The path may lead into a GGUF file, which is read like a folder.
    if let Some(file) = file_within(path) {
        return Ok(file?);
    }

    let error = |source| DataError::Read { path: path.to_owned(), source };
    let size = match fs::metadata(path) {
        // The kind is checked before the file is opened, because opening a pipe waits until somebody writes to it.
        Ok(metadata) if !metadata.is_file() => {
            return Err(error(io::Error::other("it is not a file")));
        }
        Ok(metadata) => metadata.len(),
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(other) => return Err(error(other)),
    };

    if size > MAX_BYTES {
        let path = path.to_owned();
        return Err(DataError::TooLarge { path, line: None, limit: MAX_BYTES });
    }

    fs::read(path).map(Some).map_err(error)
}

/// Opens a file with rows. Links are followed, because the cache of the Hub is made of them.
///
/// # Errors
/// When it can't be opened, or is neither a file nor a folder.
pub(crate) fn open(path: &Path) -> io::Result<fs::File> {
    let metadata = fs::metadata(path)?;
    if metadata.is_file() || metadata.is_dir() {
        fs::File::open(path)
    } else {
        Err(io::Error::other(
            "it is a pipe, a socket or a device, expected a file: write its rows into one",
        ))
    }
}

/// Reads a file in a model folder as text. Returns `None` if there is no such file.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>, DataError> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    text_from(&bytes).map(Some).map_err(|source| DataError::Read { path: path.to_owned(), source })
}

/// Reads the object in a JSON file of a model folder. It is empty if there is no such file.
pub(crate) fn read_object(path: &Path) -> Result<Map<String, Value>, DataError> {
    let Some(bytes) = read(path)? else { return Ok(Map::new()) };
    let json =
        without_bom(&bytes).map_err(|source| DataError::Read { path: path.to_owned(), source })?;
    serde_json::from_slice(json).map_err(|error| {
        let line = error.line() as u64;
        let column = error.column() as u64;
        json_error(path.to_owned(), line, column, &error, "the file should hold one JSON object")
    })
}

/// Turns an error of `serde_json` into ours, without the position that `serde_json` appends to its message.
pub(crate) fn json_error(
    path: PathBuf,
    line: u64,
    column: u64,
    error: &serde_json::Error,
    remedy: &'static str,
) -> DataError {
    let message = error.to_string();
    let problem = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
    DataError::Json { path, line, column, problem: problem.to_owned(), remedy }
}

/// Reads the special tokens of a model folder by name, such as `eos_token`, as texts. `additional_special_tokens`
/// is a list.
///
/// The tokens come from `tokenizer_config.json`. Tokens that it lacks come from `special_tokens_map.json`.
pub(crate) fn special_tokens(folder: &Path) -> Result<Map<String, Value>, DataError> {
    let mut tokens = Map::new();
    for file in ["tokenizer_config.json", "special_tokens_map.json"] {
        let object = read_object(&folder.join(file))?;
        // The first file that names a token wins.
        for name in SPECIAL_TOKENS {
            if let Some(content) = object.get(name).and_then(content)
                && !tokens.contains_key(name)
            {
                tokens.insert(name.into(), content.into());
            }
        }

        let additional = "additional_special_tokens";
        if let Some(Value::Array(list)) = object.get(additional)
            && !tokens.contains_key(additional)
        {
            let list: Vec<Value> = list.iter().filter_map(content).map(Value::from).collect();
            tokens.insert(additional.into(), list.into());
        }
    }

    Ok(tokens)
}

/// Returns the text of a token, which is written as its text alone, or as an object that also says how the token is
/// matched.
fn content(token: &Value) -> Option<&str> {
    token.as_str().or_else(|| token.get("content")?.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_skipped_and_utf_16_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer_config.json");
        fs::write(&path, "\u{feff}{\"a\": 1}").unwrap();
        assert_eq!(read_text(&path).unwrap().unwrap(), "{\"a\": 1}");
        assert_eq!(read_object(&path).unwrap()["a"], 1);

        let utf16: Vec<u8> = "\u{feff}{}".encode_utf16().flat_map(u16::to_le_bytes).collect();
        fs::write(&path, utf16).unwrap();
        let expected = format!(
            "cannot read {}: it is UTF-16 text, expected UTF-8: save it as UTF-8",
            path.display()
        );
        assert_eq!(read_text(&path).unwrap_err().to_string(), expected);
        assert_eq!(read_object(&path).unwrap_err().to_string(), expected);
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert!(read(&path).unwrap_err().to_string().contains("it is not a file"));
    }
}
