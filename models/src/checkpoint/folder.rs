//! The safetensors files of a model folder, read as one.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{
    CheckpointError,
    file::TensorFile,
    json,
    pictures::text_name,
    stored::{self, Stored},
};

/// Only file of a model that is not in shards.
pub(super) const SINGLE: &str = "model.safetensors";

/// File that names the shard of each tensor.
pub(super) const INDEX: &str = "model.safetensors.index.json";

/// Weights that PyTorch pickled, which are not read, because unpickling a file runs the code in it.
const PICKLED: [&str; 2] = ["pytorch_model.bin", "pytorch_model.bin.index.json"];

/// Open safetensors files of a model folder.
#[derive(Debug)]
pub(super) struct Shards {
    /// Single file, or the index, for messages.
    path: PathBuf,
    files: Vec<TensorFile>,
    /// Where each tensor is, by name. Its name there differs in models that see pictures, and the matrices of all
    /// experts of a layer may be one tensor.
    home: BTreeMap<String, Stored>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Shards {
    /// Opens `model.safetensors`, or else the shards of `model.safetensors.index.json`. The order is that of
    /// `transformers`, so that a folder with both is the same model to both programs.
    pub(super) fn open(folder: &Path) -> Result<Self, CheckpointError> {
        let single = folder.join(SINGLE);
        let index = folder.join(INDEX);
        let pickled = PICKLED.map(|name| folder.join(name)).into_iter().find(|path| path.exists());
        if let Some(path) = pickled.filter(|_| !single.exists() && !index.exists()) {
            return Err(CheckpointError::Pickled { path });
        }

        if single.exists() || !index.exists() {
            let mut tensors = Shards::empty(single.clone());
            tensors.files.push(TensorFile::open(&single)?);
            tensors.find_all()?;
            return Ok(tensors);
        }

        let map = weight_map(&index)?;
        let mut tensors = Shards::empty(index);
        for shard in map.values().collect::<BTreeSet<_>>() {
            let path = folder.join(shard);
            if !path.exists() {
                // `path` of the error is the index, which is the file that promises the shard.
                return Err(tensors.contradiction(format!("there is no {shard:?}")));
            }
            tensors.files.push(TensorFile::open(&path)?);
        }

        tensors.find_all()?;
        tensors.check(&map)?;
        Ok(tensors)
    }

    /// Returns the path of the single file, or of the index, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Lists every tensor's name, in alphabetical order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.home.keys().map(String::as_str)
    }

    /// Returns the file of a tensor, and how it is stored.
    pub(super) fn find(&self, name: &str) -> Option<(&TensorFile, &Stored)> {
        let stored = self.home.get(name)?;
        Some((&self.files[stored.file], stored))
    }

    /// Appends the values of a tensor to `values`, and tells whether all are finite. `None` if there is no such tensor,
    /// or if it has a type that is not read.
    pub(super) fn read(
        &self,
        name: &str,
        values: &mut Vec<f32>,
    ) -> Result<Option<bool>, CheckpointError> {
        match self.home.get(name) {
            Some(stored) => stored.read(&self.files, values),
            None => Ok(None),
        }
    }

    /// Renames a tensor, if it is there.
    pub(super) fn rename(&mut self, name: &str, new: &str) {
        if let Some(home) = self.home.remove(name) {
            self.home.insert(new.to_owned(), home);
        }
    }

    fn empty(path: PathBuf) -> Self {
        Shards { path, files: Vec::new(), home: BTreeMap::new() }
    }

    /// Finds where each tensor is.
    fn find_all(&mut self) -> Result<(), CheckpointError> {
        for (name, stored) in stored::all(&self.files) {
            let one = stored.file;
            // Names of models that see pictures are brought to those of the text part alone.
            if let Some(other) = self.home.insert(text_name(&name), stored) {
                // The other file may be this very file, if two names mean the same tensor.
                let [other, one] = [other.file, one].map(|file| self.files[file].path().display());
                let problem = format!("tensor {name:?} is in {other} and again in {one}");
                return Err(self.contradiction(problem));
            }
        }
        Ok(())
    }

    /// Checks that every tensor is where the index says. A tensor that the index leaves out may be anywhere.
    fn check(&self, map: &BTreeMap<String, String>) -> Result<(), CheckpointError> {
        // The name in the file counts, because the index has that one too.
        for (name, shard) in map {
            let home = self.files.iter().find(|file| file.info(name).is_some());
            let home = home.and_then(|file| file.path().file_name());
            let home = home.map(|name| name.to_string_lossy());
            if home.as_deref() != Some(shard) {
                let actual =
                    home.map_or("none of the shards has it".into(), |it| format!("{it:?} has it"));
                return Err(self.contradiction(format!(
                    "tensor {name:?} should be in {shard:?}, but {actual}"
                )));
            }
        }
        Ok(())
    }

    fn contradiction(&self, problem: String) -> CheckpointError {
        CheckpointError::Index { path: self.path.clone(), problem }
    }
}

/// Reads the index: the shard of each tensor. It must have at least one entry, and each shard must be the plain name of
/// a file next to the index.
fn weight_map(path: &Path) -> Result<BTreeMap<String, String>, CheckpointError> {
    let wrong = |problem| CheckpointError::Index { path: path.to_owned(), problem };
    let map = match json::read::<Index>(path, json::INDEX) {
        Err(CheckpointError::Json { source, .. }) if source.is_data() => {
            return Err(wrong(format!(
                "its weight_map should name a file for every tensor: {source}"
            )));
        }
        other => other?.weight_map,
    };

    if map.is_empty() {
        return Err(wrong("its weight_map is empty".into()));
    }

    // Although a link in the folder may lead anywhere, as those of the Hub's cache do, a name may not: whoever can
    // put a link there could have put the file, while the name comes from whoever made the checkpoint.
    let outside = |name: &str| {
        name.is_empty() || name.starts_with('.') || name.contains(['/', '\\', ':', '\0'])
    };

    match map.values().find(|shard| outside(shard)) {
        None => Ok(map),
        Some(shard) => Err(CheckpointError::Shard { path: path.to_owned(), shard: shard.clone() }),
    }
}
