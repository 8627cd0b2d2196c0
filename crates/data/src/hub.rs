//! Models and data sets of the Hugging Face Hub. They are kept in the cache of Python's `huggingface_hub`, so either
//! program finds what the other has downloaded.

mod cache;
mod error;
mod name;
#[cfg(feature = "hub")]
mod net;
#[cfg(test)]
#[cfg(feature = "hub")]
mod tests;

use std::{fmt, path::PathBuf};

use crate::Part;
use cache::{Listing, Repo};

pub use error::HubError;
pub use name::HubName;

/// Address of the Hub, and its cache on this machine.
#[derive(Clone, PartialEq, Eq)]
pub struct Hub {
    /// Folder of the cache, in Python's layout.
    pub cache: PathBuf,
    /// An access token. It is sent to the endpoint's own host and nowhere else, and never shown.
    pub token: Option<String>,
    /// Address of the Hub, such as `https://huggingface.co`.
    pub endpoint: String,
    /// True if only the cache is used, and no connection is ever made.
    pub offline: bool,
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        f.debug_struct("Hub")
            .field("cache", &self.cache)
            .field("token", &token)
            .field("endpoint", &self.endpoint)
            .field("offline", &self.offline)
            .finish()
    }
}

/// Progress of a download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// A file begins.
    Begin {
        /// Name of the file on the Hub.
        file: &'a str,
        /// Size of the file.
        bytes: u64,
    },
    /// This many more bytes of the file are there.
    Advance(u64),
    /// The file is complete.
    End,
    /// A line of text for a person.
    Note(&'a str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Model,
    DataSet,
}

impl Hub {
    /// Finds the folder of a model: its configuration, tokenizer, chat template and `*.safetensors`. Code is never
    /// downloaded, nor are weights in other formats, which may run code.
    ///
    /// A model that is complete in the cache is taken from there, without the network, whatever its branch has become
    /// since. Otherwise the missing files are downloaded.
    ///
    /// # Errors
    /// Fails if the model is not there, is not for this account, or can't be downloaded.
    pub fn model(
        &self,
        name: &HubName,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<PathBuf, HubError> {
        Ok(self.fetch(Kind::Model, name, &model_files, progress)?.0.snapshot())
    }

    /// Finds the folder of a model of which only `config.json` is needed, in the way of [`Hub::model`].
    ///
    /// # Errors
    /// Fails as [`Hub::model`] does.
    pub fn model_config(
        &self,
        name: &HubName,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<PathBuf, HubError> {
        let choose = |files: &[&str]| {
            if files.contains(&CONFIG) { Ok(vec![CONFIG.to_owned()]) } else { Err(lacks(CONFIG)) }
        };
        Ok(self.fetch(Kind::Model, name, &choose, progress)?.0.snapshot())
    }

    /// Finds the folder of a model whose weights are not needed, in the way of [`Hub::model`].
    ///
    /// # Errors
    /// Fails as [`Hub::model`] does.
    pub fn model_text(
        &self,
        name: &HubName,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<PathBuf, HubError> {
        let choose = |files: &[&str]| text_files(files);
        Ok(self.fetch(Kind::Model, name, &choose, progress)?.0.snapshot())
    }

    /// Finds the files of a part of a data set, sorted, in the way of [`Hub::model`].
    ///
    /// # Errors
    /// Fails as [`Hub::model`] does, and if it is not clear which files are meant.
    pub fn data_set(
        &self,
        name: &HubName,
        part: &Part,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Vec<PathBuf>, HubError> {
        let choose = |files: &[&str]| {
            let chosen = part.choose(files)?;
            Ok(chosen.into_iter().map(str::to_owned).collect())
        };
        let (repo, chosen) = self.fetch(Kind::DataSet, name, &choose, progress)?;
        Ok(chosen.iter().map(|file| repo.file(file)).collect())
    }

    /// Brings files of `name` into the cache. `choose` picks them among all of its files.
    fn fetch(
        &self,
        kind: Kind,
        name: &HubName,
        choose: &Choose<'_>,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(Repo, Vec<String>), HubError> {
        let unclear = |problem| HubError::Choice { name: name.clone(), problem };

        let cached = Repo::find(&self.cache, kind, name);
        if let Some(repo) = &cached
            && let Some(listing) = repo.listing()
        {
            // The listing tells the sizes, so a file that is cut off counts as missing.
            let chosen = choose(&names(&listing)).map_err(unclear)?;
            if chosen.iter().all(|file| repo.has(file, listing[file].size)) {
                return Ok((repo.clone(), chosen));
            }
        }

        // Python may have left no listing, although the files in the cache are all that is needed.
        let at_hand = || {
            let repo = cached.clone()?;
            let files = repo.files();
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            let chosen = if repo.listing().is_none() { choose(&files).ok()? } else { return None };
            Some((repo, chosen))
        };

        if self.offline {
            let missing = || HubError::Offline { name: name.clone(), cache: self.cache.clone() };
            return at_hand().ok_or_else(missing);
        }

        // Without a network, this takes some seconds before it fails.
        progress(Progress::Note(&format!("looking for {name} on the Hub")));
        let client = net::Client::new(self, kind, name);
        let (commit, listing) = match client.listing() {
            Ok(found) => found,
            Err(error @ HubError::Unreachable { .. }) => {
                let Some(found) = at_hand() else { return Err(error) };
                progress(Progress::Note(&format!(
                    "{error}; continuing with the files in the cache"
                )));
                return Ok(found);
            }
            Err(error) => return Err(error),
        };

        let chosen = choose(&names(&listing)).map_err(unclear)?;
        let repo = Repo::at(&self.cache, kind, name, &commit);
        repo.save_listing(&listing)?;

        for file in &chosen {
            let entry = &listing[file];
            if !repo.has(file, entry.size) {
                repo.add(file, entry, progress, |partial, progress| {
                    client.download(&commit, file, entry, partial, progress)
                })?;
            }
        }
        // The branch is moved last, so a download that was broken off doesn't count as the branch's commit.
        repo.save_revision(&name.revision)?;
        Ok((repo, chosen))
    }
}

/// Picks the wanted files among a repository's. The error says in words why there are none.
type Choose<'a> = dyn Fn(&[&str]) -> Result<Vec<String>, String> + 'a;

fn names(listing: &Listing) -> Vec<&str> {
    listing.keys().map(String::as_str).collect()
}

/// File with a model's sizes.
const CONFIG: &str = "config.json";

fn lacks(file: &str) -> String {
    format!("it has no {file}, which a model needs")
}

/// Files of a model that are read, if a repository has them.
const MODEL_FILES: [&str; 7] = [
    CONFIG,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
];

/// Chooses the files of a model among all files of a repository.
fn model_files(files: &[&str]) -> Result<Vec<String>, String> {
    let has = |file: &str| files.contains(&file);
    let mut chosen = Vec::new();

    let is_shard = |file: &&&str| {
        file.starts_with("model-") && file.contains("-of-") && file.ends_with(".safetensors")
    };

    let shards: Vec<&&str> = files.iter().filter(is_shard).collect();
    let of = |shard: &str| shard.rsplit_once("-of-")?.1.split('.').next()?.parse::<usize>().ok();

    // All weights are in one file, or in shards with an index, whose names tell how many there should be.
    if has("model.safetensors") {
        chosen.push("model.safetensors".into());
    } else if has("model.safetensors.index.json") && !shards.is_empty() {
        if of(shards[0]).is_some_and(|count| count != shards.len()) {
            return Err(format!(
                "the number of its shards is {}, but the name {} gives another number",
                shards.len(),
                shards[0]
            ));
        }
        chosen.push("model.safetensors.index.json".into());
        chosen.extend(shards.into_iter().map(|shard| shard.to_string()));
    } else {
        return Err(
            "it has no model.safetensors: choose a repository with weights in that format".into()
        );
    }

    let mut all = text_files(files)?;
    all.append(&mut chosen);
    Ok(all)
}

/// Chooses the files of a model besides its weights.
fn text_files(files: &[&str]) -> Result<Vec<String>, String> {
    for needed in [CONFIG, "tokenizer.json"] {
        if !files.contains(&needed) {
            return Err(lacks(needed));
        }
    }
    let has = |file: &&str| files.contains(file);
    Ok(MODEL_FILES.into_iter().filter(has).map(str::to_owned).collect())
}

/// Stands for the network in a build without it.
#[cfg(not(feature = "hub"))]
mod net {
    use std::path::Path;

    use super::{Hub, HubError, HubName, Kind, Progress, cache::Entry, cache::Listing};

    pub(super) struct Client(HubName);

    impl Client {
        pub(super) fn new(_: &Hub, _: Kind, name: &HubName) -> Self {
            Client(name.clone())
        }

        pub(super) fn listing(&self) -> Result<(String, Listing), HubError> {
            Err(HubError::NotBuilt { name: self.0.clone() })
        }

        pub(super) fn download(
            &self,
            _: &str,
            _: &str,
            _: &Entry,
            _: &Path,
            _: &mut dyn FnMut(Progress<'_>),
        ) -> Result<(), HubError> {
            Err(HubError::NotBuilt { name: self.0.clone() })
        }
    }
}
