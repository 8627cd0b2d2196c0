//! Where models and data sets are: at a path, or under a name on the Hugging Face Hub.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
};

use firebrick_core::{check_run_name, is_data_file};
use firebrick_data::{DataError, Hub, HubError, HubName, Part, Progress, data_set_files};
use firebrick_models::is_gguf;
use firebrick_runs::{Newest, RUNS, RunFolder, newest_checkpoint, recipe_text};

use crate::{
    Error,
    recipe::{Loaded, Recipe},
};

type Listener = dyn FnMut(Progress<'_>) + Send;

/// Part of a model that is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// All of the model.
    Model,
    /// Everything but the weights.
    Text,
    /// Only the model's sizes, for which `config.json` alone is downloaded.
    Sizes,
}

/// A finder of the models and data sets that a recipe names.
pub struct Sources {
    /// The Hub; `None` if names are not looked up.
    hub: Option<Hub>,
    progress: RefCell<Box<Listener>>,
}

impl Sources {
    /// Makes sources with a Hub.
    pub fn of_hub(hub: Hub) -> Self {
        Sources { hub: Some(hub), ..Sources::here() }
    }

    /// Makes sources as Python's `huggingface_hub` would have them: with the Hub, the cache and the token that
    /// the environment's variables name.
    pub fn of_environment() -> Self {
        Sources::of_hub(hub_of(|name| std::env::var(name).ok(), std::env::home_dir()))
    }

    /// Reports downloads to `progress`.
    pub fn hearing(self, progress: impl FnMut(Progress<'_>) + Send + 'static) -> Self {
        Sources { progress: RefCell::new(Box::new(progress)), ..self }
    }

    /// Makes sources that look only on this machine, and not in the Hub's cache.
    pub fn here() -> Self {
        Sources { hub: None, progress: RefCell::new(Box::new(|_| {})) }
    }

    /// Makes sources with the same cache, and without the network.
    pub(crate) fn cached(&self) -> Self {
        let hub = self.hub.clone().map(|hub| Hub { offline: true, ..hub });
        Sources { hub, ..Sources::here() }
    }

    /// Returns the folder of the model at `path`, or of the model of that name at a revision. `key` is the option that
    /// names it, for error messages.
    ///
    /// # Errors
    /// When there is no such model, or it can't be downloaded.
    pub fn model_folder(
        &self,
        key: &'static str,
        path: &Path,
        revision: Option<&str>,
        need: Need,
    ) -> Result<PathBuf, Error> {
        if path.is_dir() || is_gguf(path) {
            return match revision {
                Some(_) => Err(Error::RevisionOfFolder { folder: path.to_owned() }),
                None => Ok(path.to_owned()),
            };
        }

        let none = || Error::NoModel { folder: path.to_owned() };
        let mut name = model_name(path).ok_or_else(none)?;
        if let Some(revision) = revision {
            let no_revision = || Error::NoRevision { revision: revision.to_owned() };
            name = name.at(revision).ok_or_else(no_revision)?;
        }

        let hub = self.hub.as_ref().ok_or_else(none)?;
        let progress = &mut *self.progress.borrow_mut();
        let found = match need {
            Need::Model => hub.model(&name, progress),
            Need::Text => hub.model_text(&name, progress),
            Need::Sizes => hub.model_config(&name, progress),
        };

        found.map_err(|error| not_there(error, key, name, ""))
    }

    /// Returns the newest whole checkpoint of the run that `name` is: the path of its folder, or its name in the folder
    /// [`RUNS`]. Says which checkpoint that is. `None` if it is no run; a model in a folder of that name comes first.
    ///
    /// # Errors
    /// When the run has no whole checkpoint.
    pub fn checkpoint_of_run(&self, name: &Path) -> Result<Option<PathBuf>, Error> {
        let run = match name.to_str() {
            _ if name.exists() => name.to_owned(),
            Some(text) if check_run_name(text).is_ok() => Path::new(RUNS).join(text),
            _ => return Ok(None),
        };
        if !RunFolder::is_run(&run) || run.join("config.json").is_file() {
            return Ok(None);
        }

        let Newest { path, passed_over } = newest_checkpoint(&run)?;
        let mut note = format!("{} is {}", name.display(), path.display());
        if let Some(newer) = passed_over {
            note += &format!("; {} lacks a file", newer.display());
        }
        (self.progress.borrow_mut())(Progress::Note(&note));
        Ok(Some(path))
    }

    /// Returns the files of the data set at `path`, a file or a folder, or of the data set of that name. `key` is the
    /// option that names it, for error messages.
    ///
    /// # Errors
    /// When there are no such files, or it is not clear which files are meant.
    pub fn data_files(
        &self,
        key: &'static str,
        path: &Path,
        part: &Part,
    ) -> Result<Vec<PathBuf>, Error> {
        if let Some((name, hub)) = data_name(path).zip(self.hub.as_ref()) {
            let progress = &mut *self.progress.borrow_mut();
            let found = hub.data_set(&name, part, progress);
            return found.map_err(|error| not_there(error, key, name, " --repo-type dataset"));
        }

        if path.exists() || is_data_file(path) {
            Ok(data_set_files(path, part)?)
        } else {
            Err(Error::NoData { path: path.to_owned() })
        }
    }
}

/// Returns the run that a checkpoint belongs to, if its recipe is there: the folder two above.
pub fn run_of_checkpoint(checkpoint: &Path) -> Option<PathBuf> {
    let checkpoint = std::path::absolute(checkpoint).ok()?;
    let run = checkpoint.parent().and_then(Path::parent)?;
    run.join("recipe.toml").symlink_metadata().is_ok().then(|| run.to_owned())
}

/// Reads the recipe that the run in `folder` keeps. It has to be a file of that folder, and not a link out of it.
///
/// # Errors
/// When it can't be read, or is not a valid recipe.
pub fn recipe_of_run(folder: &Path) -> Result<Loaded, Error> {
    let text = recipe_text(folder)?;
    Ok(Recipe::load_text(&folder.join("recipe.toml"), &text, &[])?)
}

/// Returns the name on the Hub that `model.path` is. `None` if the path is on this machine, or can't be a name.
pub fn model_name(path: &Path) -> Option<HubName> {
    if path.exists() { None } else { HubName::parse(path.to_str()?) }
}

/// Returns the name on the Hub that `data.train` or `data.heldout` is, like [`model_name`]. The path of a data file is
/// not a name.
pub fn data_name(path: &Path) -> Option<HubName> {
    if is_data_file(path) { None } else { model_name(path) }
}

/// Explains why a name was not found. A mistyped path may look like a name, so the message says first that it is
/// not here.
fn not_there(error: HubError, key: &'static str, name: HubName, option: &str) -> Error {
    match error {
        HubError::NotBuilt { .. }
        | HubError::Offline { .. }
        | HubError::Unreachable { .. }
        | HubError::NotFound { .. }
        | HubError::Answer { .. } => {
            let download = format!("hf download {}{option} --local-dir DIR", name.repository());
            Error::NotHere { key, name, error: Box::new(error), download }
        }
        other => DataError::from(other).into(),
    }
}

/// Environment variable with the Hub's token.
pub(crate) const TOKEN: &str = "HF_TOKEN";

/// Reads the variables of Python's `huggingface_hub` into a Hub. `variable` returns their values, and `home` is
/// the user's folder.
fn hub_of(variable: impl Fn(&str) -> Option<String>, home: Option<PathBuf>) -> Hub {
    let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    // Python expands `~` in them, and so does this function.
    let path = |name: &str| {
        let path = PathBuf::from(set(name)?);
        Some(match (path.strip_prefix("~"), &home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => path,
        })
    };

    let caches = path("XDG_CACHE_HOME").unwrap_or_else(|| match &home {
        Some(home) => home.join(".cache"),
        None => PathBuf::from(".cache"),
    });
    let folder = path("HF_HOME").unwrap_or_else(|| caches.join("huggingface"));
    let token_file = path("HF_TOKEN_PATH").unwrap_or_else(|| folder.join("token"));

    let token = set(TOKEN).or_else(|| std::fs::read_to_string(token_file).ok());
    let token = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
    let yes = |value: String| ["1", "ON", "YES", "TRUE"].contains(&value.to_uppercase().as_str());

    Hub {
        cache: path("HF_HUB_CACHE").unwrap_or_else(|| folder.join("hub")),
        token,
        endpoint: set("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into()),
        offline: set("HF_HUB_OFFLINE").is_some_and(yes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(set: &[(&str, &str)]) -> Hub {
        let variable =
            |name: &str| set.iter().find(|(is, _)| *is == name).map(|(_, value)| value.to_string());
        hub_of(variable, Some("/home/me".into()))
    }

    #[test]
    fn the_variables_of_python_mean_the_same() {
        let hub = environment(&[]);
        assert_eq!(hub.cache, Path::new("/home/me/.cache/huggingface/hub"));
        assert_eq!(hub.endpoint, "https://huggingface.co");
        assert!(!hub.offline && hub.token.is_none());

        let hub =
            environment(&[("HF_HOME", "~/hf"), ("HF_TOKEN", " t\n"), ("HF_HUB_OFFLINE", "1")]);
        assert_eq!(hub.cache, Path::new("/home/me/hf/hub"));
        assert!(hub.offline && hub.token.as_deref() == Some("t"));

        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "from a file\n").unwrap();
        let home = folder.path().to_str().unwrap();
        let hub =
            environment(&[("HF_HOME", home), ("HF_HUB_CACHE", "/c"), ("HF_HUB_OFFLINE", "0")]);
        assert_eq!((hub.token.as_deref(), hub.cache), (Some("from a file"), PathBuf::from("/c")));
        assert!(!hub.offline);
    }

    #[test]
    fn what_is_there_wins_and_what_is_no_name_is_said() {
        let sources = Sources::of_hub(environment(&[("HF_HUB_OFFLINE", "1")]));
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(
            sources.model_folder("model.path", folder.path(), None, Need::Model).unwrap(),
            folder.path()
        );
        let part = Part { default_split: "train", ..Part::default() };

        let message = |path: &str| {
            let data =
                sources.data_files("data.train", Path::new(path), &part).unwrap_err().to_string();
            let model = sources.model_folder("model.path", Path::new(path), None, Need::Model);
            let model = model.unwrap_err().to_string();
            (data, model)
        };

        let (data, model) = message("nobody/nothing");
        assert!(data.contains("HF_HUB_OFFLINE") && model.contains("HF_HUB_OFFLINE"), "{data}");
        assert!(data.starts_with("data.train is nobody/nothing, and there is no such"), "{data}");
        assert!(model.starts_with("model.path is nobody/nothing, and there is no such"), "{model}");

        let (data, model) = message("nothing");
        assert!(data.starts_with("there is no data at nothing"), "{data}");
        assert!(model.starts_with("model.path is nothing"), "{model}");

        let alone = Sources::here();
        let nowhere = alone.data_files("data.train", Path::new("nobody/nothing"), &part);
        assert!(matches!(nowhere.unwrap_err(), Error::NoData { .. }));
        assert!(message("nobody/nothing.jsonl").0.starts_with("cannot read nobody/nothing.jsonl"));
    }
}
