//! Keys of an architecture in the metadata, and the shape that they give a model.

use crate::{
    error::{GgufError, quoted},
    family::Family,
    file::Gguf,
    metadata::Metadata,
};

/// Part of the metadata that is needed to read a weight.
pub(crate) struct Shape {
    pub(crate) family: Family,
    /// Name of the architecture, with which its keys begin.
    pub(crate) name: &'static str,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    /// Width of a head.
    pub(crate) head: usize,
}

impl Shape {
    pub(crate) fn of(file: &Gguf) -> Result<Self, GgufError> {
        let invalid = |problem| file.model(problem);
        let metadata = file.metadata();
        let Some(name) = metadata.text("general.architecture").map_err(invalid)? else {
            return Err(invalid("it has no general.architecture: it is not a model".into()));
        };
        let Some(&(name, family)) = Family::ALL.iter().find(|(known, _)| *known == name) else {
            let known = Family::ALL.map(|(name, _)| name).join(", ");
            let actual = quoted(name);
            return Err(invalid(format!("its architecture is {actual}, expected one of {known}")));
        };

        let keys = Keys { metadata, name };
        let heads = keys.needed("attention.head_count").map_err(invalid)?;
        let kv_heads = keys.size("attention.head_count_kv").map_err(invalid)?.unwrap_or(heads);
        // Without its own width, a head has its share of the hidden size.
        let hidden = keys.size("embedding_length").map_err(invalid)?.unwrap_or_default();
        let head = keys.size("attention.key_length").map_err(invalid)?;
        let head = head.unwrap_or(hidden / heads.max(1));
        Ok(Shape { family, name, heads, kv_heads, head })
    }
}

/// Keys of one architecture.
pub(crate) struct Keys<'a> {
    pub(crate) metadata: &'a Metadata,
    pub(crate) name: &'static str,
}

impl<'a> Keys<'a> {
    /// Returns the keys of a file's architecture.
    pub(crate) fn of(file: &'a Gguf) -> Result<Self, GgufError> {
        Ok(Keys { metadata: file.metadata(), name: Shape::of(file)?.name })
    }

    /// Returns the number of layers. Blocks after them predict further tokens and are not counted.
    pub(crate) fn layers(&self) -> Result<usize, String> {
        let blocks = self.needed("block_count")?;
        let further = self.size("nextn_predict_layers")?.unwrap_or(0);
        blocks.checked_sub(further).ok_or_else(|| {
            let key = self.key("nextn_predict_layers");
            format!("{key} is {further}, expected at most the {blocks} blocks of the model")
        })
    }

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

    pub(crate) fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.name)
    }

    pub(crate) fn size(&self, key: &str) -> Result<Option<usize>, String> {
        let key = self.key(key);
        let size = self.metadata.count(&key)?;
        size.map(|size| usize::try_from(size).map_err(|_| format!("{key} is {size}"))).transpose()
    }

    pub(crate) fn needed(&self, key: &str) -> Result<usize, String> {
        self.size(key)?.ok_or_else(|| self.missing(key))
    }

    pub(crate) fn missing(&self, key: &str) -> String {
        format!("it has no {}", self.key(key))
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>, String> {
        self.metadata.number(&self.key(key))
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>, String> {
        self.metadata.text(&self.key(key))
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, String> {
        self.metadata.flag(&self.key(key))
    }
}

/// Limit on the layers that are listed one by one. The deepest models have some hundred.
pub(crate) const LAYERS: usize = 1 << 16;
