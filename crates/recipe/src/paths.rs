//! Relative paths of a recipe, and the folders in which they begin. A path in the file begins at the file's folder, a
//! path in `--set` at the current folder. So a folder with a recipe and its data can be used from anywhere, and be
//! moved.

use std::path::{Component, Path, PathBuf};

use firebrick_core::{hub_name, is_data_file};
use toml_edit::{DocumentMut, Item, Value};

use super::{Loaded, Recipe, Reward, RewardKind, overrides::Override};

/// Makes the relative paths of `loaded`, which was read from `file`, begin at the right place. In the values they
/// then lead there from the current folder, in the text from any folder.
pub(super) fn resolve_paths(mut loaded: Loaded, file: &Path, overrides: &[Override]) -> Loaded {
    let folder = file.parent().unwrap_or(Path::new(""));
    let base = |key: &[String]| match overrides.iter().any(|set| key.starts_with(&set.path)) {
        true => Path::new(""),
        false => folder,
    };
    let mut changed =
        replace_paths(&mut loaded.recipe, |key, given, kind| resolve(base(key), given, kind));
    changed.extend(replace_paths(&mut loaded.recipe.clone(), to_absolute));
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
    /// Returns the recipe with absolute paths in its text, for a copy that is read from another place. Relative
    /// paths begin at the current folder.
    #[must_use]
    pub fn with_absolute_text(self) -> Self {
        resolve_paths(self, Path::new(""), &[])
    }
}

/// Returns the recipe with absolute paths, as the text of a [`Loaded`] has them.
pub(super) fn with_absolute_paths(recipe: &Recipe) -> Recipe {
    let mut recipe = recipe.clone();
    replace_paths(&mut recipe, to_absolute);
    recipe
}

/// Returns the recipe for a reader on another machine. An absolute path keeps only its last name, and an address
/// only its place in the list: the names of machines are nobody else's business.
pub(super) fn without_folders(recipe: &Recipe) -> Recipe {
    let mut recipe = recipe.clone();
    replace_paths(&mut recipe, |_, given, _| {
        let name = given.file_name().filter(|_| given.is_absolute());
        name.map(PathBuf::from)
    });
    for servers in [&mut recipe.rollout.engine.servers, &mut recipe.environment.servers] {
        for (number, address) in (1..).zip(servers) {
            *address = format!("http://server-{number}");
        }
    }
    recipe
}

/// The advice for a path that was written with backslashes.
pub(super) const BACKSLASH: &str = "write a path in single quotes, 'C:\\new', or with `/`: in double quotes a backslash \
    begins an escape, as in `\\n` for a line break";

/// Returns that advice if the text stops being TOML behind a backslash in double quotes.
pub(super) fn backslash_help(text: &str, at: usize) -> Option<String> {
    let line = text.get(..at)?.rsplit('\n').next()?;
    line.split_once('"')
        .is_some_and(|(_, inside)| inside.contains('\\'))
        .then(|| BACKSLASH.to_owned())
}

/// Returns every path of the recipe with its key. Words of a program are left out: a script may be one of them.
pub(super) fn all_paths(recipe: &Recipe) -> Vec<(String, PathBuf)> {
    let found = std::cell::RefCell::new(Vec::new());
    replace_paths(&mut recipe.clone(), |key, given, kind| {
        if kind != Kind::Word {
            found.borrow_mut().push((key.join("."), given.to_owned()));
        }
        None
    });
    found.into_inner()
}

/// A kind of word that may be a path.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// A file or a folder.
    Path,
    /// A file, a folder, or a name on the Hub.
    PathOrName,
    /// The first word of a program. It is looked for where programs are, unless it is a path.
    Program,
    /// A further word of a program. It is a path if it leads to a file.
    Word,
}

/// Returns `given` as a path that begins at `folder`, or `None` if it is no path. The path can't be taken for a
/// name on the Hub. A name on the Hub is changed if it could be taken for a path in the current folder.
fn resolve(folder: &Path, given: &Path, kind: Kind) -> Option<PathBuf> {
    let there = folder.join(given);
    let name = |path: &Path| {
        !is_data_file(path) && path.to_str().is_some_and(|text| hub_name(text).is_some())
    };
    let is_path = match kind {
        Kind::Path => true,
        Kind::PathOrName => !name(given) || there.exists(),
        Kind::Program => given.components().count() > 1 && there.is_file(),
        Kind::Word => there.is_file(),
    };
    match (is_path, kind) {
        (true, Kind::PathOrName) if name(&there) && !there.exists() => {
            Some(Path::new(".").join(there))
        }
        (true, _) => Some(there),
        (false, Kind::PathOrName) if given.exists() && !given.to_str()?.contains('@') => {
            Some(PathBuf::from(format!("{}@main", given.to_str()?)))
        }
        (false, _) => None,
    }
}

/// Returns `given`, which leads somewhere from the current folder, as an absolute path in one spelling.
fn to_absolute(_: &[String], given: &Path, kind: Kind) -> Option<PathBuf> {
    let path = std::path::absolute(resolve(Path::new(""), given, kind)?).ok()?;
    // Only the system can say where `..` leads, because a folder may be a link.
    let parts: Vec<Component<'_>> = path.components().collect();
    let Some(last) = parts.iter().rposition(|part| *part == Component::ParentDir) else {
        return Some(path);
    };
    let (up, down) = parts.split_at(last + 1);
    let up = up.iter().collect::<PathBuf>().canonicalize();
    Some(up.map_or(path.clone(), |up| up.join(down.iter().collect::<PathBuf>())))
}

/// Replaces each path by what `to` gives for its key. Returns the keys of the paths that changed, with the new
/// paths.
fn replace_paths(
    recipe: &mut Recipe,
    to: impl Fn(&[String], &Path, Kind) -> Option<PathBuf>,
) -> Vec<(Vec<String>, String)> {
    let mut changed = Vec::new();
    let Recipe { model, data, reward, eval, rollout, .. } = recipe;
    let tokenizer = model.new.as_mut().and_then(|new| new.tokenizer.as_mut());
    let paths = [
        ("model.path", model.path.as_mut(), Kind::PathOrName),
        ("model.new.tokenizer", tokenizer, Kind::Path),
        ("data.train", data.train.as_mut(), Kind::PathOrName),
        ("data.heldout", data.heldout.as_mut(), Kind::PathOrName),
        ("rollout.engine.weights", rollout.engine.weights.as_mut(), Kind::Path),
    ];
    // TOML can't hold a path that is no text. Such a path stays as it is.
    let mut change = |key: Vec<String>, path: &Path, kind: Kind| {
        let there = to(&key, path, kind)?.to_str()?.to_owned();
        (Path::new(&there) != path).then(|| {
            changed.push((key, there.clone()));
            there
        })
    };
    for (key, path, kind) in paths {
        let key = key.split('.').map(String::from).collect();
        if let Some(path) = path
            && let Some(there) = change(key, path, kind)
        {
            *path = there.into();
        }
    }
    for (index, set) in eval.sets.iter_mut().enumerate() {
        let key = ["eval", "sets", &index.to_string(), "data"].map(String::from);
        if let Some(there) = change(key.into(), &set.data, Kind::PathOrName) {
            set.data = there.into();
        }
    }
    for (key, verifier) in verifiers(reward) {
        match verifier {
            RewardKind::Model { path, .. } => {
                let key = [key, vec!["path".into()]].concat();
                if let Some(there) = change(key, path, Kind::PathOrName) {
                    *path = there.into();
                }
            }
            RewardKind::Command { program, .. } => {
                for (index, word) in program.iter_mut().enumerate() {
                    let key = [&key[..], &["program".into(), index.to_string()]].concat();
                    let kind = if index == 0 { Kind::Program } else { Kind::Word };
                    if let Some(there) = change(key, Path::new(&*word), kind) {
                        *word = there;
                    }
                }
            }
            _ => {}
        }
    }
    changed
}

/// Returns the verifier with its key, or each of its parts if it has parts.
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

/// Replaces the value at `key`. A number in the key is the index of a list's item.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_no_name_and_a_name_is_no_path() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(place.path().join("org/there")).unwrap();
        let path = |folder: &str, given: &str| {
            resolve(Path::new(folder), Path::new(given), Kind::PathOrName)
                .map(|path| path.to_str().unwrap().to_owned())
        };
        // Joined to a folder, a name of one part becomes one of two parts, which the Hub might have.
        assert_eq!(path("task", "qwen").as_deref(), Some("./task/qwen"));
        assert_eq!(path("/task", "qwen").as_deref(), Some("/task/qwen"));
        assert_eq!(path("task", "org/elsewhere"), None);
        assert_eq!(path("task", "rows/a.jsonl").as_deref(), Some("task/rows/a.jsonl"));
        assert!(path(place.path().to_str().unwrap(), "org/there").is_some());
        // `src/yaml` lies in the current folder, which is this package's, and not in the recipe's folder.
        assert_eq!(path("/task", "src/yaml").as_deref(), Some("src/yaml@main"));
        assert_eq!(path("", "src/yaml").as_deref(), Some("src/yaml"));
    }

    #[test]
    fn a_reader_elsewhere_learns_no_folders_and_no_addresses() {
        let text = "[model]\npath = \"/home/me/small\"\n[data]\n[environment]\nkind = \"openenv\"\n\
                    servers = [\"http://secret:8000\", \"http://other:8000\"]\n";
        let recipe: Recipe = toml::from_str(text).unwrap();
        let told = without_folders(&recipe);
        assert_eq!(told.model.path.as_deref(), Some(Path::new("small")));
        assert_eq!(told.environment.servers, ["http://server-1", "http://server-2"]);
    }

    #[test]
    fn a_path_has_one_spelling() {
        let place = tempfile::tempdir().unwrap();
        let here = place.path().canonicalize().unwrap();
        for folder in ["a", "b"] {
            std::fs::create_dir(here.join(folder)).unwrap();
        }
        let rows = |given: &str| to_absolute(&[], &here.join(given), Kind::Path).unwrap();
        for given in ["rows", "./rows", "a/../rows", "b/./../rows"] {
            assert_eq!(rows(given), here.join("rows"), "{given}");
        }
    }
}
