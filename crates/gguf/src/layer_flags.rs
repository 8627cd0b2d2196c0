//! Lists with a value for each layer, which are too long for the metadata and stay in the file.

use crate::{
    file::Gguf,
    keys::{Keys, LAYERS},
};

impl Keys<'_> {
    /// Tells for each layer whether it has a window. The file has a flag for each layer, or a period whose last layer
    /// has no window, or nothing.
    pub(crate) fn windows(
        &self,
        file: &Gguf,
        layers: usize,
        usual: usize,
    ) -> Result<Vec<bool>, String> {
        const PATTERN: &str = "attention.sliding_window_pattern";
        if self.metadata.array(&self.key(PATTERN)).is_ok_and(|array| array.is_some()) {
            return Ok(self.flags(file, PATTERN, layers)?.unwrap_or_default());
        }
        let period = self.size(PATTERN)?.unwrap_or(usual);
        // In llama.cpp, a period of 0 means a window in every layer, and one of 1 means none.
        let windowed = |layer: usize| period == 0 || layer % period < period - 1;
        Ok((0..layers.min(LAYERS)).map(windowed).collect())
    }

    /// Reads a list with a flag for each layer.
    pub(crate) fn flags(
        &self,
        file: &Gguf,
        key: &str,
        layers: usize,
    ) -> Result<Option<Vec<bool>>, String> {
        let key = self.key(key);
        let Some(array) = self.metadata.array(&key)? else { return Ok(None) };
        if array.count < layers as u64 || array.count > LAYERS as u64 {
            let count = array.count;
            return Err(format!(
                "{key:?} has {count} flags, expected one for each of {layers} layers"
            ));
        }
        let numbers = file.numbers(&key).map_err(|error| error.to_string())?.unwrap_or_default();
        Ok(Some(numbers.into_iter().take(layers).map(|flag| flag != 0.0).collect()))
    }
}
