//! What a folder stands for: the recipes in it, or the runs in it.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use firebrick::{
    recipe::{Loaded, Recipe},
    recipe_of_run,
};
use firebrick_recipes::ALL;

use crate::{
    ProgramError,
    commands::recipes::{is_file_name, load},
    compare::{Compared, Outcome, State, differences},
};

/// Loads the recipes that the paths stand for. A folder without a recipe of its own stands for all recipes in it, in the
/// order of their names.
pub(super) fn recipes(
    paths: &[PathBuf],
    set: &[String],
) -> Result<Vec<(PathBuf, Loaded)>, ProgramError> {
    let mut loaded = Vec::new();
    for path in paths {
        let inside = if path.is_dir() { files(path)? } else { built_in(path) };
        let all = if inside.is_empty() { vec![path.clone()] } else { inside };
        for path in all {
            let recipe = load(&path, set)?;
            loaded.push((path, recipe));
        }
    }
    Ok(loaded)
}

/// Lists the recipes in a folder, unless it stands for its own.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>, ProgramError> {
    if has_recipe(folder) {
        return Ok(Vec::new());
    }
    let is_recipe = |path: &PathBuf| is_file_name(path) && path.is_file();
    Ok(entries(folder)?.into_iter().filter(is_recipe).collect())
}

/// Lists the built-in recipes of a folder, such as `ablation`.
fn built_in(folder: &Path) -> Vec<PathBuf> {
    let paths = ALL.iter().map(|recipe| Path::new(recipe.name));
    let inside = paths.filter(|path| path.parent() == Some(folder));
    if folder.as_os_str().is_empty() { Vec::new() } else { inside.map(Path::to_owned).collect() }
}

/// Lists the runs in a folder, FOLDER/ANY and FOLDER/NAME/ANY. Nothing of a run is read. Folders that can't be listed are
/// left out, and `left_out` says so.
pub(super) fn runs(
    folder: &Path,
    left_out: &mut Vec<String>,
) -> Result<Vec<PathBuf>, ProgramError> {
    // The folder of a task or of a run is no folder of runs.
    let inside = if has_recipe(folder) { Vec::new() } else { entries(folder)? };

    let mut runs = Vec::new();
    for path in inside {
        if is_run(&path) {
            runs.push(path);
        } else if path.is_dir() {
            match entries(&path) {
                Ok(inside) => runs.extend(inside.into_iter().filter(|path| is_run(path))),
                Err(error) => left_out.push(format!("{}: {error}", path.display())),
            }
        }
    }
    Ok(runs)
}

/// Reads the runs that were found in a folder, by the variants that they are runs of, each with the recipe of its first
/// run. A run whose recipe can't be read is of no variant: it is left out, and `left_out` says why.
pub(super) fn variants(
    folder: &Path,
    runs: Vec<PathBuf>,
    metrics: &[String],
    left_out: &mut Vec<String>,
) -> Result<Vec<(Compared, Recipe)>, ProgramError> {
    let mut found: BTreeMap<OsString, Vec<(Outcome, Recipe)>> = BTreeMap::new();
    for run in runs {
        match recipe_of_run(&run) {
            Ok(Loaded { recipe, .. }) => {
                let name = variant_name(folder, &run, recipe.seed);
                let state = State::read(&run, metrics);
                let run = Outcome::new(recipe.seed, run, state);
                found.entry(name).or_default().push((run, recipe));
            }
            Err(error) => left_out.push(format!("{}: {error}", run.display())),
        }
    }

    // Two names that are no text may look alike, and are of two variants all the same.
    let variant = |(name, runs): (OsString, _)| {
        variant(folder.join(&name), name.to_string_lossy().into_owned(), runs)
    };
    found.into_iter().map(variant).collect()
}

/// Returns the name of the variant that a run is of: NAME for the run FOLDER/NAME/ANY, and for FOLDER/NAME-seed17 with
/// the seed 17, since that is how `firebrick compare` calls its runs. Any other run FOLDER/NAME is a variant by itself.
fn variant_name(folder: &Path, run: &Path, seed: u64) -> OsString {
    let parent = run.parent().filter(|parent| *parent != folder);
    if let Some(name) = parent.and_then(Path::file_name) {
        return name.to_owned();
    }

    let name = run.file_name().unwrap_or_default();
    let end = format!("-seed{seed}");
    let without_seed = name.to_str().and_then(|name| name.strip_suffix(end.as_str()));
    without_seed.map_or_else(|| name.to_owned(), OsString::from)
}

/// Makes a variant of its runs, of which there is at least one.
fn variant(
    path: PathBuf,
    name: String,
    mut runs: Vec<(Outcome, Recipe)>,
) -> Result<(Compared, Recipe), ProgramError> {
    runs.sort_by_key(|(run, _)| run.seed);
    if let Some(pair) = runs.windows(2).find(|pair| pair[0].0.seed == pair[1].0.seed) {
        let folders = [0, 1].map(|index: usize| pair[index].0.folder.clone());
        return Err(ProgramError::SameSeed { name, seed: pair[0].0.seed, folders });
    }
    check_settings(&name, &runs)?;

    let recipe = runs.first().map(|(_, recipe)| recipe.clone()).unwrap_or_default();
    let runs = runs.into_iter().map(|(run, _)| run).collect();
    Ok((Compared::new(name, path, runs), recipe))
}

/// Checks that the runs of a variant differ in nothing but their seeds and devices, because a mean over several settings
/// is a mean of none of them.
fn check_settings(name: &str, runs: &[(Outcome, Recipe)]) -> Result<(), ProgramError> {
    let Some(((first, recipe), others)) = runs.split_first() else { return Ok(()) };
    for (other, other_recipe) in others {
        let differences = differences(&[recipe.clone(), other_recipe.clone()]);
        let keys = differences.into_iter().map(|difference| difference.key);
        let keys: Vec<String> =
            keys.filter(|key| key != "seed" && !key.starts_with("device")).collect();

        if !keys.is_empty() {
            let runs = [first, other].map(|run| run.folder.clone());
            return Err(ProgramError::MixedSettings { name: name.to_owned(), runs, keys });
        }
    }
    Ok(())
}

/// Tells whether a folder stands for its own recipe, as those of tasks and runs do.
fn has_recipe(folder: &Path) -> bool {
    folder.join("recipe.toml").is_file()
}

fn is_run(folder: &Path) -> bool {
    folder.join("run.db").is_file()
}

/// Lists what is in a folder, in the order of the names.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, ProgramError> {
    let list = || -> std::io::Result<Vec<PathBuf>> {
        let paths = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
        let mut paths = paths.collect::<std::io::Result<Vec<PathBuf>>>()?;
        paths.sort();
        Ok(paths)
    };
    list().map_err(ProgramError::file(folder))
}
