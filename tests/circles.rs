//! Files of a crate do not import each other in circles, so each can be read after those that it imports.
//!
//! A file may import the file of its folder and be imported by it: a folder is one subject. What counts are circles
//! among siblings and across folders. Imports by `use super::*`, and those that a macro writes, are not seen.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

#[test]
fn no_file_imports_itself_around_corners() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut crates: Vec<_> = fs::read_dir(repository.join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .chain([repository.join("models")])
        .filter(|folder| folder.join("src/lib.rs").is_file())
        .collect();
    crates.sort();
    assert!(crates.len() > 15, "{crates:?}");

    let mut found = BTreeMap::new();
    for folder in crates {
        let imports = imports(&folder.join("src"));
        for file in imports.keys().filter(|file| reaches(&imports, file, file)) {
            let name = folder.file_name().unwrap().to_string_lossy().into_owned();
            found.entry(name).or_insert_with(Vec::new).push(file.clone());
        }
    }

    assert!(found.is_empty(), "{found:#?}");
}

/// Tells whether imports lead from one file to another.
fn reaches(imports: &BTreeMap<String, BTreeSet<String>>, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for next in imports.get(file).into_iter().flatten() {
            if next == to {
                return true;
            }
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    false
}

/// Returns the files of each module's imports. A module is named by its path in the crate, such as `learner::local`.
fn imports(source: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut texts = BTreeMap::new();
    read(source, "", &mut texts);

    // What the crate's root only passes on is imported from where it is.
    let root = fs::read_to_string(source.join("lib.rs")).expect("a crate has a root");
    let mut passed_on = Vec::new();
    let public = root.split("\npub use ").skip(1);
    for statement in public.chain(root.split("\npub(crate) use ").skip(1)) {
        tree(statement, "", &mut passed_on);
    }
    let passed_on: BTreeMap<&str, &str> = passed_on
        .iter()
        .filter_map(|path| Some((path.rsplit_once("::")?.1, path.as_str())))
        .collect();

    let mut imports = BTreeMap::new();
    for (module, text) in &texts {
        let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
        let file_of = |path: &str| {
            let mut path = path;
            loop {
                if texts.contains_key(path) {
                    return Some(path.to_owned());
                }
                path = path.rsplit_once("::")?.0;
            }
        };

        let mut of_module = BTreeSet::new();
        for path in paths(text, parent) {
            let path = passed_on.get(path.as_str()).map_or(path.as_str(), |path| *path);
            let Some(file) = file_of(path) else { continue };
            let of_folder = file == parent
                || file.strip_prefix(module.as_str()).is_some_and(|rest| rest.starts_with("::"));
            if file != *module && !of_folder {
                of_module.insert(file);
            }
        }
        imports.insert(module.clone(), of_module);
    }
    imports
}

/// Reads the sources below a folder, without their tests.
fn read(folder: &Path, module: &str, texts: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        let inner = if module.is_empty() { name.clone() } else { format!("{module}::{name}") };
        if path.is_dir() {
            read(&path, &inner, texts);
        } else if path.extension().is_some_and(|kind| kind == "rs")
            && name != "lib"
            && name != "main"
        {
            let text = fs::read_to_string(&path).expect("sources are UTF-8");
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
            texts.insert(inner, lines.collect::<Vec<_>>().join("\n"));
        }
    }
}

/// Returns the paths in the crate that a text names: in `use` and elsewhere. `super` is `parent`.
fn paths(text: &str, parent: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (word, base) in [("crate::", String::new()), ("super::", format!("{parent}::"))] {
        for (at, _) in text.match_indices(word) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$' || c == ':') {
                continue;
            }
            let base = if base == "::" { "" } else { base.as_str() };
            tree(&text[at + word.len()..], base, &mut found);
        }
    }
    found
}

/// Adds the paths of a tree such as `a::{b, c::d}`, and returns what follows it.
fn tree<'a>(text: &'a str, base: &str, found: &mut Vec<String>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = tree(rest, base, found).trim_start();
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => return rest.strip_prefix('}').unwrap_or(rest),
            }
        }
    }

    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    // What follows the last comma of a tree is no path.
    if name.is_empty() {
        return rest;
    }
    let path = format!("{base}{name}");
    match rest.strip_prefix("::") {
        Some(rest) => tree(rest, &format!("{path}::"), found),
        None => {
            found.push(path.trim_end_matches("::self").to_owned());
            rest.trim_start().strip_prefix("as ").map_or(rest, |rest| {
                let rest = rest.trim_start();
                &rest[rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())..]
            })
        }
    }
}
