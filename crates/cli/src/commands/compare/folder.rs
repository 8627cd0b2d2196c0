//! What a folder stands for: the recipes in it, or the runs in it.

use std::{
    collections::BTreeMap,
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
    compare::{Compared, Measured, Outcome, State},
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

/// Lists the recipes in a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>, ProgramError> {
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

/// Reads the runs in a folder, by the variants that they are runs of, each with the recipe of its first run. The run
/// FOLDER/NAME-seed17 with the seed 17 is one of the variant NAME, since that is how `firebrick compare` calls its
/// runs, and so is every run FOLDER/NAME/ANY.
pub(super) fn variants(
    folder: &Path,
    metrics: &[String],
) -> Result<Vec<(Compared, Recipe)>, ProgramError> {
    let mut found: BTreeMap<String, Vec<(Outcome, Recipe)>> = BTreeMap::new();
    // The folder of a task or of a run is no folder of runs.
    let inside = if has_recipe(folder) { Vec::new() } else { entries(folder)? };
    for path in inside {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if is_run(&path) {
            let run = read(path, metrics)?;
            let end = format!("-seed{}", run.0.seed);
            let name = name.strip_suffix(end.as_str()).unwrap_or(&name).to_owned();
            found.entry(name).or_default().push(run);
        } else if path.is_dir() {
            for run in entries(&path)?.into_iter().filter(|run| is_run(run)) {
                found.entry(name.clone()).or_default().push(read(run, metrics)?);
            }
        }
    }

    let variants = found.into_iter().map(|(name, runs)| variant(folder, name, runs));
    let variants = variants.collect::<Result<Vec<_>, _>>()?;
    check_metrics(metrics, &variants)?;
    Ok(variants)
}

/// Makes a variant of its runs, of which there is at least one.
fn variant(
    folder: &Path,
    name: String,
    mut runs: Vec<(Outcome, Recipe)>,
) -> Result<(Compared, Recipe), ProgramError> {
    runs.sort_by_key(|(run, _)| run.seed);
    if let Some(pair) = runs.windows(2).find(|pair| pair[0].0.seed == pair[1].0.seed) {
        let folders = [0, 1].map(|index: usize| pair[index].0.folder.clone());
        return Err(ProgramError::SameSeed { name, seed: pair[0].0.seed, folders });
    }

    let recipe = runs.first().map(|(_, recipe)| recipe.clone()).unwrap_or_default();
    let runs = runs.into_iter().map(|(run, _)| run).collect();
    let path = folder.join(&name);
    Ok((Compared::new(name, path, runs), recipe))
}

fn read(folder: PathBuf, metrics: &[String]) -> Result<(Outcome, Recipe), ProgramError> {
    let recipe = recipe_of_run(&folder)?.recipe;
    let state = State::read(&folder, metrics)?;
    Ok((Outcome::new(recipe.seed, folder, state), recipe))
}

/// Checks that each metric is in some finished run. Not every run has every metric: a run without a penalty has no
/// `loss/kl`.
fn check_metrics(metrics: &[String], variants: &[(Compared, Recipe)]) -> Result<(), ProgramError> {
    let finished: Vec<(&Path, &Measured)> = variants
        .iter()
        .flat_map(|(variant, _)| &variant.runs)
        .filter_map(|run| Some((run.folder.as_path(), run.state.measured()?)))
        .collect();
    let Some((first, _)) = finished.first() else { return Ok(()) };

    let is_logged = |name: &str| {
        let metrics = finished.iter().flat_map(|(_, run)| &run.metrics);
        metrics.filter(|metric| metric.name == name).any(|metric| metric.end.is_some())
    };
    match metrics.iter().find(|name| !is_logged(name)) {
        Some(name) => Err(ProgramError::NoMetric { run: first.to_path_buf(), name: name.clone() }),
        None => Ok(()),
    }
}

/// Tells whether a folder stands for its own recipe, as those of tasks and runs do.
fn has_recipe(folder: &Path) -> bool {
    folder.join("recipe.toml").is_file()
}

fn is_run(folder: &Path) -> bool {
    has_recipe(folder) && folder.join("run.db").is_file()
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
