//! Relative paths of a recipe, and the folders in which they begin. A path in the file begins at the file's
//! folder, a path in `--set` at the current folder, so that a folder with a recipe and its data can be used
//! from anywhere, and be moved.

use std::path::{Component, Path, PathBuf};

use firebrick_core::{hub_name, is_data_file};
use toml_edit::{DocumentMut, Item, Value};

use super::{
    CodeOptions, Loaded, Recipe, RewardKind, TeacherKind, TrainData, UpdateEngine,
    overrides::Override,
};

/// Makes the relative paths of `loaded`, which was read from `file`, begin at the right folder. In the values
/// they then lead there from the current folder, in the text from any folder.
pub(super) fn resolve_paths(mut loaded: Loaded, file: &Path, overrides: &[Override]) -> Loaded {
    let folder = file.parent().unwrap_or(Path::new(""));
    let base = |key: &[String]| {
        let is_set = overrides.iter().any(|set| key.starts_with(&set.path));
        if is_set { Path::new("") } else { folder }
    };

    let mut changed =
        replace_paths(&mut loaded.recipe, |key, given, kind| resolve(base(key), given, kind));
    // The text has absolute paths: it may be read from any folder.
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
    /// Returns the recipe with absolute paths in its text, for a copy that is read from another folder.
    /// Relative paths begin at the current folder.
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

/// Returns the recipe for a reader on another machine. An absolute path keeps only its last name, and an
/// address only its index in the list: the names of machines are nobody else's business.
pub(super) fn without_folders(recipe: &Recipe) -> Recipe {
    let mut recipe = recipe.clone();
    replace_paths(&mut recipe, |_, given, _| {
        let name = given.file_name().filter(|_| given.is_absolute());
        name.map(PathBuf::from)
    });
    let hide = |servers: &mut Vec<String>| {
        for (number, address) in (1..).zip(servers) {
            *address = format!("http://server-{number}");
        }
    };

    hide(&mut recipe.rollout.engine.servers);
    if let UpdateEngine::Tinker(server) = &mut recipe.engine {
        server.url = "http://server".into();
    }
    hide(&mut recipe.environment.servers);
    let sources = match &mut recipe.data.train {
        Some(TrainData::Several(sources)) => &mut sources[..],
        _ => &mut [],
    };
    let teachers = sources.iter_mut().filter_map(|source| source.teacher.as_mut());
    let teachers = teachers.chain(recipe.teacher.iter_mut().map(|teacher| &mut teacher.kind));
    for teacher in teachers {
        match teacher {
            TeacherKind::Vllm(it) | TeacherKind::Sglang(it) => hide(&mut it.servers),
            TeacherKind::Local { .. } | TeacherKind::Policy => {}
        }
    }
    let judges = recipe.reward_kinds_mut().map(|kind| (Vec::new(), kind));
    for (_, judge) in judges.flat_map(parts) {
        if let RewardKind::Judge { servers, .. } = judge {
            hide(servers);
        }
    }
    recipe
}

/// Returns every path of the recipe with its key. Words of a program are left out: a script may be one of them.
pub(super) fn all_paths(recipe: &Recipe) -> Vec<(String, PathBuf)> {
    // `replace_paths` takes an `Fn`, which can only change what is in a cell.
    let paths = std::cell::RefCell::new(Vec::new());
    replace_paths(&mut recipe.clone(), |key, given, kind| {
        if kind != Kind::Word {
            paths.borrow_mut().push((key.join("."), given.to_owned()));
        }
        None
    });
    paths.into_inner()
}

/// What a word that may be a path is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// A file or a folder.
    Path,
    /// A file, a folder, or a name on the Hub.
    PathOrName,
    /// First word of a program. It is searched where programs are, unless it is a path.
    Program,
    /// A further word of a program. It is a path if it leads to a file.
    Word,
}

/// Returns `given` as a path that begins at `folder`, or `None` if it is not a path. The path can't be taken
/// for a name on the Hub. A name on the Hub is changed if it could be taken for a path in the current folder.
fn resolve(folder: &Path, given: &Path, kind: Kind) -> Option<PathBuf> {
    let joined = folder.join(given);
    let is_name = |path: &Path| {
        !is_data_file(path) && path.to_str().is_some_and(|text| hub_name(text).is_some())
    };

    let is_path = match kind {
        Kind::Path => true,
        Kind::PathOrName => !is_name(given) || joined.exists(),
        Kind::Program => given.components().count() > 1 && joined.is_file(),
        Kind::Word => joined.is_file(),
    };

    match (is_path, kind) {
        (true, Kind::PathOrName) if is_name(&joined) && !joined.exists() => {
            Some(Path::new(".").join(joined))
        }
        (true, _) => Some(joined),
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
    let components: Vec<Component<'_>> = path.components().collect();
    let Some(last_parent) = components.iter().rposition(|part| *part == Component::ParentDir)
    else {
        return Some(path);
    };

    let (upper, lower) = components.split_at(last_parent + 1);
    let upper = upper.iter().collect::<PathBuf>().canonicalize();
    Some(upper.map_or(path.clone(), |upper| upper.join(lower.iter().collect::<PathBuf>())))
}

/// Replaces each path by what `to` returns for its key. Returns the keys of the paths that changed, with the
/// new paths.
fn replace_paths(
    recipe: &mut Recipe,
    to: impl Fn(&[String], &Path, Kind) -> Option<PathBuf>,
) -> Vec<(Vec<String>, String)> {
    let mut changed = Vec::new();
    let Recipe { model, data, sft, reward, teacher, eval, rollout, .. } = recipe;
    let tokenizer = model.new.as_mut().and_then(|new| new.tokenizer.as_mut());
    let (train, sources) = match &mut data.train {
        Some(TrainData::One(path)) => (Some(path), &mut [][..]),
        Some(TrainData::Several(sources)) => (None, &mut sources[..]),
        None => (None, &mut [][..]),
    };
    let paths = [
        ("model.path", model.path.as_mut(), Kind::PathOrName),
        ("model.new.tokenizer", tokenizer, Kind::Path),
        ("data.train", train, Kind::PathOrName),
        ("data.heldout", data.heldout.as_mut(), Kind::PathOrName),
        ("sft.data", sft.data.as_mut(), Kind::PathOrName),
        ("rollout.engine.weights", rollout.engine.weights.as_mut(), Kind::Path),
    ];

    // TOML can't hold a path that is not Unicode. Such a path stays as it is.
    let mut change = |key: Vec<String>, path: &Path, kind: Kind| {
        let new_path = to(&key, path, kind)?.to_str()?.to_owned();
        (Path::new(&new_path) != path).then(|| {
            changed.push((key, new_path.clone()));
            new_path
        })
    };

    for (key, path, kind) in paths {
        let key = key.split('.').map(String::from).collect();
        if let Some(path) = path
            && let Some(new_path) = change(key, path, kind)
        {
            *path = new_path.into();
        }
    }

    for (index, set) in eval.sets.iter_mut().enumerate() {
        let key = ["eval", "sets", &index.to_string(), "data"].map(String::from);
        if let Some(new_path) = change(key.into(), &set.data, Kind::PathOrName) {
            set.data = new_path.into();
        }
    }

    let mut judges: Vec<(Vec<String>, &mut RewardKind)> = Vec::new();
    let mut teachers: Vec<(Vec<String>, &mut TeacherKind)> = Vec::new();
    for (index, source) in sources.iter_mut().enumerate() {
        let of =
            |name: &str| ["data", "train", &index.to_string(), name].map(String::from).to_vec();
        if let Some(new_path) = change(of("path"), &source.path, Kind::PathOrName) {
            source.path = new_path.into();
        }
        judges.extend(source.reward.iter_mut().map(|kind| (of("reward"), kind)));
        teachers.extend(source.teacher.iter_mut().map(|kind| (of("teacher"), kind)));
    }
    judges.extend(reward.kind.iter_mut().map(|kind| (vec!["reward".to_owned()], kind)));
    teachers.extend(teacher.iter_mut().map(|it| (vec!["teacher".to_owned()], &mut it.kind)));

    for (key, teacher) in teachers {
        if let TeacherKind::Local { path, .. } = teacher
            && let Some(new_path) =
                change([key, vec!["path".into()]].concat(), path, Kind::PathOrName)
        {
            *path = new_path.into();
        }
    }

    for (key, verifier) in judges.into_iter().flat_map(parts) {
        match verifier {
            RewardKind::Model { path, .. } => {
                let key = [key, vec!["path".into()]].concat();
                if let Some(new_path) = change(key, path, Kind::PathOrName) {
                    *path = new_path.into();
                }
            }
            RewardKind::Command { program, .. } => {
                words(&[key, vec!["program".into()]].concat(), program, "", &mut change);
            }
            RewardKind::Code(CodeOptions { python, command, file, checker, mounts, .. }) => {
                let of = |name: &str| [&key[..], &[name.to_owned()]].concat();
                words(&of("command"), command, file, &mut change);
                words(&of("checker"), checker, "", &mut change);
                if let Some(new_path) = change(of("python"), Path::new(&*python), Kind::Program) {
                    *python = new_path;
                }
                for (index, mount) in mounts.iter_mut().enumerate() {
                    let key = [of("mounts"), vec![index.to_string()]].concat();
                    if let Some(new_path) = change(key, mount, Kind::Path) {
                        *mount = new_path.into();
                    }
                }
            }
            RewardKind::Python { file, python, .. } => {
                let of = |name: &str| [&key[..], &[name.to_owned()]].concat();
                if let Some(new_path) = change(of("file"), file, Kind::Path) {
                    *file = new_path.into();
                }
                if let Some(new_path) = change(of("python"), Path::new(&*python), Kind::Program) {
                    *python = new_path;
                }
            }
            _ => {}
        }
    }

    changed
}

/// Replaces the words of a program that are paths. A word that is `file` is not, wherever there is such a file.
fn words(
    key: &[String],
    program: &mut [String],
    file: &str,
    change: &mut impl FnMut(Vec<String>, &Path, Kind) -> Option<String>,
) {
    for (index, word) in program.iter_mut().enumerate().filter(|(_, word)| *word != file) {
        let key = [key, &[index.to_string()]].concat();
        let kind = if index == 0 { Kind::Program } else { Kind::Word };
        if let Some(new_path) = change(key, Path::new(&*word), kind) {
            *word = new_path;
        }
    }
}

/// Returns the verifier with its key, or each of its parts if it has parts.
fn parts((key, verifier): (Vec<String>, &mut RewardKind)) -> Vec<(Vec<String>, &mut RewardKind)> {
    match verifier {
        RewardKind::Weighted { parts } => {
            let of = |index: usize| [&key[..], &["parts".into(), index.to_string()]].concat();
            let parts = parts.iter_mut().enumerate();
            parts.map(|(index, part)| (of(index), &mut part.kind)).collect()
        }
        kind => vec![(key, kind)],
    }
}

/// Replaces the value at `key`. A number in the key is the index of a list's item.
fn put(item: &mut Item, key: &[String], text: String) {
    let Some((first, rest)) = key.split_first() else {
        if let Some(value) = item.as_value_mut() {
            // A comment after the value stays.
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
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("org/there")).unwrap();
        let path = |base: &str, given: &str| {
            resolve(Path::new(base), Path::new(given), Kind::PathOrName)
                .map(|path| path.to_str().unwrap().to_owned())
        };

        // Joined to a folder, a name of one part becomes one of two parts, which the Hub might have.
        assert_eq!(path("task", "qwen").as_deref(), Some("./task/qwen"));
        assert_eq!(path("/task", "qwen").as_deref(), Some("/task/qwen"));
        assert_eq!(path("task", "org/elsewhere"), None);
        assert_eq!(path("task", "rows/a.jsonl").as_deref(), Some("task/rows/a.jsonl"));
        assert!(path(folder.path().to_str().unwrap(), "org/there").is_some());
        // `src/yaml` lies in the current folder, which is this package's, and not in the recipe's folder.
        assert_eq!(path("/task", "src/yaml").as_deref(), Some("src/yaml@main"));
        assert_eq!(path("", "src/yaml").as_deref(), Some("src/yaml"));
    }

    #[test]
    fn a_reader_elsewhere_learns_no_folders_and_no_addresses() {
        let text = "[model]\npath = \"/home/me/small\"\n[data]\n[environment]\nkind = \"openenv\"\n\
                    servers = [\"http://secret:8000\", \"http://other:8000\"]\n\
                    [teacher]\nkind = \"vllm\"\nservers = [\"http://secret:8001\"]\n\
                    [reward]\nkind = \"weighted\"\nparts = [{ name = \"a\", weight = 1.0, kind = \"judge\", \
                    servers = [\"http://secret:8002/v1\"], model = \"m\", rubric = \"r\" }]\n";
        let recipe: Recipe = toml::from_str(text).unwrap();
        let shown = without_folders(&recipe);
        assert_eq!(shown.model.path.as_deref(), Some(Path::new("small")));
        assert_eq!(shown.environment.servers, ["http://server-1", "http://server-2"]);
        assert!(!shown.to_toml().contains("secret"), "{}", shown.to_toml());
    }

    #[test]
    fn a_path_has_one_spelling() {
        let root = tempfile::tempdir().unwrap();
        let here = root.path().canonicalize().unwrap();
        for folder in ["a", "b"] {
            std::fs::create_dir(here.join(folder)).unwrap();
        }

        let rows = |given: &str| to_absolute(&[], &here.join(given), Kind::Path).unwrap();
        for given in ["rows", "./rows", "a/../rows", "b/./../rows"] {
            assert_eq!(rows(given), here.join("rows"), "{given}");
        }
    }
}
