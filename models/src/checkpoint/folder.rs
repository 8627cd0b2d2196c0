use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use safetensors::tensor::TensorInfo;
use serde::Deserialize;

use super::{CheckpointError, file::TensorFile, json, pictures::text_name};

/// The one file of a model that is not in shards.
pub(super) const SINGLE: &str = "model.safetensors";

/// The file that says in which shard a tensor is.
pub(super) const INDEX: &str = "model.safetensors.index.json";

/// Weights as PyTorch pickles them, which are not read: to unpickle is to run what the file says.
const PICKLED: [&str; 2] = ["pytorch_model.bin", "pytorch_model.bin.index.json"];

/// The safetensors files of a model folder, open.
#[derive(Debug)]
pub(super) struct Shards {
    /// The one file, or the index, for messages.
    path: PathBuf,
    files: Vec<TensorFile>,
    /// Which file holds a tensor, and the name that it has there, which is another in models that see pictures.
    home: BTreeMap<String, (usize, String)>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Shards {
    /// Opens `model.safetensors`, or else the shards of `model.safetensors.index.json`: the order of
    /// `transformers`, so that a folder with both is the same model to it and to us.
    pub(super) fn open(folder: &Path) -> Result<Self, CheckpointError> {
        let (single, index) = (folder.join(SINGLE), folder.join(INDEX));
        let pickled = PICKLED.map(|name| folder.join(name)).into_iter().find(|path| path.exists());
        if let Some(path) = pickled.filter(|_| !single.exists() && !index.exists()) {
            return Err(CheckpointError::Pickled { path });
        }
        if single.exists() || !index.exists() {
            let mut tensors = Shards::empty(single.clone());
            tensors.add(TensorFile::open(&single)?)?;
            return Ok(tensors);
        }
        let map = weight_map(&index)?;
        let mut tensors = Shards::empty(index);
        for shard in map.values().collect::<BTreeSet<_>>() {
            let path = folder.join(shard);
            if !path.exists() {
                return Err(tensors.contradiction(format!("there is no {shard:?}")));
            }
            tensors.add(TensorFile::open(&path)?)?;
        }
        tensors.check(&map)?;
        Ok(tensors)
    }

    /// The one file, or the index, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Every tensor's name, in alphabetical order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.home.keys().map(String::as_str)
    }

    /// Where a tensor is and what it is.
    pub(super) fn find(&self, name: &str) -> Option<(&TensorFile, &TensorInfo)> {
        let (file, name) = self.home.get(name)?;
        let file = &self.files[*file];
        Some((file, file.info(name)?))
    }

    fn empty(path: PathBuf) -> Self {
        Shards { path, files: Vec::new(), home: BTreeMap::new() }
    }

    fn add(&mut self, file: TensorFile) -> Result<(), CheckpointError> {
        for name in file.names() {
            let home = (self.files.len(), name.clone());
            if let Some((other, _)) = self.home.insert(text_name(&name), home) {
                // It may be this very file, where two names mean the same tensor.
                let other = self.files.get(other).unwrap_or(&file).path().display();
                let one = file.path().display();
                let problem = format!("tensor {name:?} is in {other} and again in {one}");
                return Err(self.contradiction(problem));
            }
        }
        self.files.push(file);
        Ok(())
    }

    /// Every tensor has to be where the index says. One that the index leaves out may be anywhere.
    fn check(&self, map: &BTreeMap<String, String>) -> Result<(), CheckpointError> {
        for (name, shard) in map {
            let home = self.home.get(&text_name(name)).map(|(file, _)| self.files[*file].path());
            let home = home.and_then(Path::file_name).map(|name| name.to_string_lossy());
            if home.as_deref() != Some(shard) {
                let came =
                    home.map_or("none of the shards has it".into(), |it| format!("{it:?} has it"));
                return Err(self
                    .contradiction(format!("tensor {name:?} should be in {shard:?}, but {came}")));
            }
        }
        Ok(())
    }

    fn contradiction(&self, problem: String) -> CheckpointError {
        CheckpointError::Index { path: self.path.clone(), problem }
    }
}

/// Which tensor the index says is in which shard: plain names of files beside it, at least one.
fn weight_map(path: &Path) -> Result<BTreeMap<String, String>, CheckpointError> {
    let wrong = |problem| CheckpointError::Index { path: path.to_owned(), problem };
    let map = match json::read::<Index>(path, json::INDEX) {
        Err(CheckpointError::Json { source, .. }) if source.is_data() => {
            return Err(wrong(format!(
                "its weight_map should give a file to every tensor: {source}"
            )));
        }
        other => other?.weight_map,
    };
    if map.is_empty() {
        return Err(wrong("its weight_map is empty".into()));
    }
    // A link in the folder may lead anywhere, as those of the Hub's cache do: whoever could put one
    // there could have put the file. A name comes from whoever made the checkpoint.
    let outside = |name: &str| {
        name.is_empty() || name.starts_with('.') || name.contains(['/', '\\', ':', '\0'])
    };
    match map.values().find(|shard| outside(shard)) {
        None => Ok(map),
        Some(shard) => Err(CheckpointError::Shard { path: path.to_owned(), shard: shard.clone() }),
    }
}
