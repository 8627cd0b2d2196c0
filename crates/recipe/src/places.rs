//! Where the paths of a recipe begin: those in its file at the file's folder, those of `--set` at the
//! current one. So a folder with a recipe and its data can be trained from anywhere, and be moved.

use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item, Value};

use super::{Loaded, Recipe, Reward, RewardKind, overrides::Override};

/// Makes the relative paths of `loaded`, which was read from `file`, begin where they should: in the
/// values so that they lead there from the current folder, in the text so that they do from anywhere.
pub(super) fn settled(mut loaded: Loaded, file: &Path, overrides: &[Override]) -> Loaded {
    let folder = file.parent().unwrap_or(Path::new(""));
    let begin = |key: &[String]| match overrides.iter().any(|set| key.starts_with(&set.path)) {
        true => Path::new(""),
        false => folder,
    };
    let mut changed = moved(&mut loaded.recipe, begin);
    let current = current();
    changed.extend(moved(&mut loaded.recipe.clone(), |_| &current));
    if !changed.is_empty()
        && let Ok(mut document) = loaded.text.parse::<DocumentMut>()
    {
        for (key, path) in changed {
            put(document.as_item_mut(), &key, path);
        }
        loaded.text = document.to_string();
    }
    loaded
}

impl Loaded {
    /// The same with absolute paths in its text, relative ones being taken from the current folder: for
    /// a copy that is read from another place.
    #[must_use]
    pub fn with_absolute_text(self) -> Self {
        settled(self, Path::new(""), &[])
    }
}

/// The recipe with its paths as the text of a [`Loaded`] has them.
pub(super) fn absolute(recipe: &Recipe) -> Recipe {
    let (mut recipe, current) = (recipe.clone(), current());
    moved(&mut recipe, |_| &current);
    recipe
}

/// The current folder; an empty path, which changes nothing, where there is none any more.
fn current() -> PathBuf {
    std::env::current_dir().unwrap_or_default()
}

/// Makes each relative path begin at the folder that `begin` gives for its key; gives the keys of those
/// that changed, with the new paths.
fn moved<'a>(
    recipe: &mut Recipe,
    begin: impl Fn(&[String]) -> &'a Path,
) -> Vec<(Vec<String>, String)> {
    let mut changed = Vec::new();
    let Recipe { model, data, reward, .. } = recipe;
    let tokenizer = model.new.as_mut().and_then(|new| new.tokenizer.as_mut());
    let paths = [
        ("model.path", model.path.as_mut(), true),
        ("model.new.tokenizer", tokenizer, false),
        ("data.train", data.train.as_mut(), true),
        ("data.heldout", data.heldout.as_mut(), true),
    ];
    let mut join = |key: Vec<String>, path: &mut PathBuf, hub: bool| {
        let there = begin(&key).join(&*path);
        let is_path = !hub || !may_be_a_name(path) || there.exists();
        if is_path && there != *path {
            // TOML holds no path that is no text; such a one stays in the values alone.
            changed.extend(there.to_str().map(|text| (key, text.to_owned())));
            *path = there;
        }
    };
    for (key, path, hub) in paths {
        let key = key.split('.').map(String::from).collect();
        path.into_iter().for_each(|path| join(Vec::clone(&key), path, hub));
    }
    for (key, kind) in verifiers(reward) {
        match kind {
            RewardKind::Model { path, .. } => join([key, vec!["path".into()]].concat(), path, true),
            RewardKind::Command { program, .. } => {
                for (index, word) in program.iter_mut().enumerate() {
                    let key = [&key[..], &["program".into(), index.to_string()]].concat();
                    // The first word is looked for where programs are, unless it is a path; another
                    // one is a path if it leads to a file.
                    let mut path = PathBuf::from(&*word);
                    let is_path = index > 0 || path.components().count() > 1;
                    if is_path && begin(&key).join(&path).is_file() {
                        join(key, &mut path, false);
                        *word = path.to_string_lossy().into_owned();
                    }
                }
            }
            _ => {}
        }
    }
    changed
}

/// The verifier with its key; its parts instead where it has parts.
fn verifiers(reward: &mut Reward) -> Vec<(Vec<String>, &mut RewardKind)> {
    let key = || vec!["reward".to_owned()];
    match &mut reward.kind {
        Some(RewardKind::Weighted { parts }) => {
            let key = |index: usize| [key(), vec!["parts".into(), index.to_string()]].concat();
            let parts = parts.iter_mut().enumerate();
            parts.map(|(index, part)| (key(index), &mut part.kind)).collect()
        }
        kind => kind.iter_mut().map(|kind| (key(), kind)).collect(),
    }
}

/// Whether a model or a data set on the Hub may be meant: `owner/name`, with or without `@revision`, and no
/// ending of a file of data. What the Hub itself takes for a name is `firebrick-data`'s to say.
fn may_be_a_name(path: &Path) -> bool {
    let data = ["json", "jsonl", "ndjson", "parquet"];
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let text = path.to_str().unwrap_or_default();
    let (name, _) = text.split_once('@').unwrap_or((text, ""));
    let parts: Vec<&str> = name.split('/').collect();
    let plain =
        |part: &&str| !part.is_empty() && !part.starts_with('.') && !part.contains(['\\', ':']);
    parts.len() == 2 && parts.iter().all(plain) && !data.contains(&ending.to_lowercase().as_str())
}

/// Replaces the value at `key`; numbers in it count the items of a list.
fn put(item: &mut Item, key: &[String], text: String) {
    let Some((first, rest)) = key.split_first() else {
        if let Some(value) = item.as_value_mut() {
            let decor = value.decor().clone();
            *value = Value::from(text);
            *value.decor_mut() = decor;
        }
        return;
    };
    let inner = match first.parse::<usize>() {
        Ok(index) => item.get_mut(index),
        Err(_) => item.get_mut(first.as_str()),
    };
    if let Some(inner) = inner {
        put(inner, rest, text);
    }
}
