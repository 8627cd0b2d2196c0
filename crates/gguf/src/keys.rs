//! Keys of an architecture in the metadata, and the shape that they give a model.

use crate::{error::quoted, family::Family, metadata::Metadata};

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
    pub(crate) fn of(metadata: &Metadata) -> Result<Self, String> {
        let Some(name) = metadata.text("general.architecture")? else {
            return Err("it has no general.architecture: it is not a model".into());
        };
        let Some(family) = Family::of(metadata) else {
            let known = Family::names();
            return Err(format!("its architecture is {}, expected one of {known}", quoted(name)));
        };

        let name = family.name();
        let keys = Keys { metadata, name };
        let heads = keys.needed("attention.head_count")?;
        let kv_heads = keys.size("attention.head_count_kv")?.unwrap_or(heads);
        // Without its own width, a head has its share of the hidden size.
        let hidden = keys.size("embedding_length")?.unwrap_or_default();
        let head = keys.size("attention.key_length")?.unwrap_or(hidden / heads.max(1));
        Ok(Shape { family, name, heads, kv_heads, head })
    }
}

/// Keys of one architecture.
pub(crate) struct Keys<'a> {
    pub(crate) metadata: &'a Metadata,
    pub(crate) name: &'static str,
}

impl<'a> Keys<'a> {
    /// Returns the keys of the architecture that the metadata name.
    pub(crate) fn of(metadata: &'a Metadata) -> Result<Self, String> {
        Ok(Keys { metadata, name: Shape::of(metadata)?.name })
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
