//! Weights of a run for inference servers: a folder for each version.

use std::{
    collections::BTreeMap,
    error::Error as StdError,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use firebrick_core::{Completion, FinishReason, TokenId, Version};
use firebrick_data::Tokenizer;
use firebrick_models::Decoder;
use firebrick_runs::{publish_folder, sums_of, write_atomically};
use firebrick_servers::{Weights, WeightsKind};
use firebrick_train::{
    Sample,
    learner::{Updater, fingerprint},
};
use serde_json::json;

use crate::{Error, HuggingFace, PolicyFiles};

/// A run's folder with a folder for each version of the weights that was published and is in use.
///
/// A version's folder is named for the step and for its number among all published folders, so no path is ever reused.
/// It is written under another name, synced, and renamed, so a reader sees all of it. `manifest.json` in it has the
/// hash of each file.
pub(crate) struct PublishedWeights {
    folder: PathBuf,
    /// Path of the same folder as servers see it.
    there: PathBuf,
    files: HuggingFace,
    tokenizer: Arc<Tokenizer>,
    /// Updater that computes log-probabilities, at temperature 1.
    updater: Updater,
    /// Number of folders that were published, also by earlier processes.
    published: u64,
}

/// Prefix of the name of a folder that is not complete.
const UNFINISHED: &str = ".tmp-v";

/// Name of the file that says what a version's folder holds.
const MANIFEST: &str = "manifest.json";

impl PublishedWeights {
    /// Publishes below `folder`, which servers see as `there`.
    pub(crate) fn new(
        folder: PathBuf,
        there: Option<PathBuf>,
        files: HuggingFace,
        tokenizer: Arc<Tokenizer>,
        mut updater: Updater,
    ) -> Self {
        let there = there.unwrap_or_else(|| folder.clone());
        // A killed process may have left half a folder. Nobody else writes here.
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                drop(fs::remove_dir_all(entry.path()));
            }
        }
        updater.temperature = 1.0;
        PublishedWeights { folder, there, files, tokenizer, updater, published: 0 }
    }

    /// Lists the folders that are there, by their numbers.
    fn numbered(&self) -> impl Iterator<Item = (u64, PathBuf)> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let (version, number) = name.strip_prefix('v')?.split_once('-')?;
            version.parse::<u64>().ok()?;
            Some((number.parse().ok()?, entry.path()))
        })
    }

    fn write_version(&mut self, policy: &Decoder, version: Version) -> Result<PathBuf, Error> {
        let disk = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::File { path, source }
        };

        fs::create_dir_all(&self.folder).map_err(disk(&self.folder))?;
        // An earlier process may have published too, and a server may still use its folder.
        let largest = self.numbered().map(|(number, _)| number).max().unwrap_or(0);
        self.published = self.published.max(largest) + 1;
        let name = format!("v{version:06}-{:04}", self.published);

        let temporary = self.folder.join(format!(".tmp-{name}"));
        if temporary.exists() {
            fs::remove_dir_all(&temporary).map_err(disk(&temporary))?;
        }
        fs::create_dir(&temporary).map_err(disk(&temporary))?;
        self.files.write(policy, &temporary)?;
        // With the tokenizer, a server can also be started from the folder.
        self.tokenizer.save(&temporary)?;

        let files: BTreeMap<String, String> = sums_of(&temporary)?.into_iter().collect();
        let manifest = json!({"version": version, "number": self.published, "sha256": files});
        let bytes = serde_json::to_vec_pretty(&manifest).unwrap_or_default();
        write_atomically(&temporary.join(MANIFEST), &bytes)?;

        let folder = self.folder.join(name);
        publish_folder(&temporary, &folder)?;
        Ok(folder)
    }
}

impl Weights<Decoder> for PublishedWeights {
    fn fingerprint(&mut self, policy: &Decoder) -> Option<[u8; 32]> {
        fingerprint(policy).ok()
    }

    fn write(
        &mut self,
        policy: &Decoder,
        version: Version,
    ) -> Result<PathBuf, Box<dyn StdError + Send + Sync>> {
        Ok(self.write_version(policy, version).map_err(|error| error.to_string())?)
    }

    fn keep_only(&mut self, in_use: &[PathBuf]) {
        for (_, folder) in self.numbered().filter(|(_, folder)| !in_use.contains(folder)) {
            // A folder that can't be removed takes space, and the next version tries again.
            drop(fs::remove_dir_all(folder));
        }
    }

    fn seen_by_servers(&self, folder: &Path) -> PathBuf {
        folder
            .strip_prefix(&self.folder)
            .map_or_else(|_| folder.into(), |name| self.there.join(name))
    }

    fn kind(&self) -> WeightsKind {
        if self.files.adapter { WeightsKind::Adapter } else { WeightsKind::Model }
    }

    fn logprobs(
        &mut self,
        policy: &Decoder,
        prompt: &[TokenId],
        completion: &[TokenId],
    ) -> Result<Vec<f32>, Box<dyn StdError + Send + Sync>> {
        let unknown = vec![0.0; completion.len()];
        let completion = Completion::written(completion.into(), unknown, FinishReason::Length);
        let samples = [Sample::new(prompt, &completion, 0)];
        Ok(self.updater.logprobs(policy, &samples)?.into_iter().flatten().collect())
    }
}
