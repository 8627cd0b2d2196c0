//! Rules that hold for every GGUF file. The fuzz target calls them with files of its own making.

use std::path::Path;

use crate::Gguf;

/// Checks that a file is read or refused. Whatever it claims, nothing panics, and a tensor has as many values as its
/// shape says.
pub fn open(path: &Path) {
    let Ok(file) = Gguf::open(path) else { return };
    for name in ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"]
    {
        if let Ok(Some(bytes)) = file.file(name) {
            assert!(serde_json::from_slice::<serde_json::Value>(&bytes).is_ok(), "{name}");
        }
    }

    for (name, tensor) in file.tensors() {
        let mut values = Vec::new();
        if file.read(name, &mut values).is_ok() {
            assert_eq!(values.len(), tensor.shape.iter().product::<usize>(), "{name}");
        }
    }
}
