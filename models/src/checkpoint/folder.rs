//! The safetensors files of a model folder, read as one.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use safetensors::tensor::TensorInfo;
use serde::Deserialize;

use super::{CheckpointError, WeightDtype, file::TensorFile, json, pictures::text_name};

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
    /// For each tensor by name, the file that holds it and its place there. Its name there differs in models that see
    /// pictures, and the matrices of all experts of a layer may be one tensor.
    home: BTreeMap<String, (usize, TensorInfo)>,
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
            tensors.add(TensorFile::open(&single)?)?;
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
            tensors.add(TensorFile::open(&path)?)?;
        }

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

    /// Returns the file of a tensor, and its type, shape and offsets.
    pub(super) fn find(&self, name: &str) -> Option<(&TensorFile, &TensorInfo)> {
        let (file, info) = self.home.get(name)?;
        Some((&self.files[*file], info))
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

    fn add(&mut self, file: TensorFile) -> Result<(), CheckpointError> {
        let mut split = 0;
        for (name, info) in file.names().into_iter().flat_map(|name| parts(&file, name, &mut split))
        {
            // Names of models that see pictures are brought to those of the text part alone.
            let home = (self.files.len(), info);
            if let Some((other, _)) = self.home.insert(text_name(&name), home) {
                // The other file may be this very file, if two names mean the same tensor.
                let other = self.files.get(other).unwrap_or(&file).path().display();
                let one = file.path().display();
                let problem = format!("tensor {name:?} is in {other} and again in {one}");
                return Err(self.contradiction(problem));
            }
        }

        self.files.push(file);
        Ok(())
    }

    /// Checks that every tensor is where the index says. A tensor that the index leaves out may be anywhere.
    fn check(&self, map: &BTreeMap<String, String>) -> Result<(), CheckpointError> {
        // The name in the file counts, because the index has that one too.
        for (name, shard) in map {
            let first = of_experts(name).map(|(layer, maps)| of_expert(layer, 0, maps[0]));
            let home = [Some(name), first.as_ref()].into_iter().flatten();
            let home = home.map(|name| self.home.get(&text_name(name))).find_map(|home| home);
            let home = home.map(|(file, _)| self.files[*file].path());
            let home = home.and_then(Path::file_name).map(|name| name.to_string_lossy());
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

/// Ends of the names of tensors with one map, or two, of all experts of a layer, `[experts, outputs, inputs]`, and the
/// maps of each expert in them.
const STACKED: [(&str, &[&str]); 2] = [
    (".mlp.experts.gate_up_proj", &["gate_proj", "up_proj"]),
    (".mlp.experts.down_proj", &["down_proj"]),
];

/// Returns the layer of such a tensor, and the maps in it.
fn of_experts(name: &str) -> Option<(&str, &'static [&'static str])> {
    STACKED.iter().find_map(|(end, maps)| Some((name.strip_suffix(end)?, *maps)))
}

/// Returns the name of an expert's matrix by itself.
fn of_expert(layer: &str, expert: usize, map: &str) -> String {
    format!("{layer}.mlp.experts.{expert}.{map}.weight")
}

/// Lists the tensors that a tensor of a file stands for: itself, or each expert's matrices. `split` counts these in the
/// file. Beyond a number that no model has, they stay together, and no model takes them.
fn parts(file: &TensorFile, name: String, split: &mut usize) -> Vec<(String, TensorInfo)> {
    /// The most experts that a layer may have, and the most matrices of experts in a file.
    const EXPERTS: usize = 1 << 12;
    const MATRICES: usize = 1 << 18;

    let info = file.info(&name).expect("the name is one of the file's").clone();
    let stacked = of_experts(&name).filter(|_| {
        text_name(&name).starts_with("model.layers.") && WeightDtype::of(info.dtype).is_some()
    });
    let (Some((layer, maps)), &[experts @ 1..=EXPERTS, outputs, inputs]) =
        (stacked, &info.shape[..])
    else {
        return vec![(name, info)];
    };
    *split += experts * maps.len();
    let fits = outputs * inputs > 0 && outputs.is_multiple_of(maps.len());
    if !fits || *split > MATRICES {
        return vec![(name, info)];
    }

    let (begin, end) = info.data_offsets;
    let bytes = (end - begin) / (experts * maps.len());
    let names =
        (0..experts).flat_map(|expert| maps.iter().map(move |map| of_expert(layer, expert, map)));
    let part = |(at, name): (usize, String)| {
        let first = begin + at * bytes;
        let info = TensorInfo {
            dtype: info.dtype,
            shape: vec![outputs / maps.len(), inputs],
            data_offsets: (first, first + bytes),
        };
        (name, info)
    };
    names.enumerate().map(part).collect()
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
