//! Plans a comparison: its runs, those that are still to be made, and the baseline.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use firebrick::{
    recipe::{Loaded, Recipe},
    recipe_of_run,
    resume::{Change, changes},
};

use super::{Compare, check_metrics, folder};
use crate::{
    ProgramError,
    commands::{device_settings, recipes::load},
    compare::{Compared, Difference, Outcome, State, differences, sft_folders},
};

/// Number of runs of each recipe if `--seeds` gives none. The help names it.
const SEEDS: u64 = 3;

/// Everything that a comparison begins with.
pub(super) struct Plan {
    /// Folder of the runs.
    pub(super) folder: PathBuf,
    /// Folder of the tables and the figures; `None` if the tables are only printed.
    pub(super) out: Option<PathBuf>,
    /// Recipes with all of their runs, the baseline first.
    pub(super) recipes: Vec<Compared>,
    /// Values of the recipes.
    pub(super) values: Vec<Recipe>,
    pub(super) differences: Vec<Difference>,
    /// Runs to be made; `None` if there is nothing to make, because runs were given.
    pub(super) jobs: Option<Vec<Job>>,
    /// What looks like a run and can't be read, each with the reason.
    pub(super) left_out: Vec<String>,
}

/// A run to be made.
pub(super) struct Job {
    /// Index of its recipe.
    pub(super) recipe: usize,
    /// Index of the run among the recipe's runs.
    pub(super) run: usize,
    pub(super) loaded: Loaded,
    /// Folder of the shared state after its SFT, which exists or will be written.
    pub(super) sft: Option<PathBuf>,
}

impl Compare {
    /// Plans the runs of recipes, or finds the runs in the only folder that is given.
    pub(super) fn plan(&self) -> Result<Plan, ProgramError> {
        if let [folder] = &self.recipes[..]
            && folder.is_dir()
        {
            let mut left_out = Vec::new();
            let runs = folder::runs(folder, &mut left_out)?;
            if !runs.is_empty() {
                // With `--out FOLDER` the runs of these recipes may be there, and the same command is to resume them.
                if !folder::files(folder)?.is_empty() {
                    return Err(ProgramError::RecipesAndRuns { folder: folder.clone() });
                }
                return self.plan_to_read(folder, runs, left_out);
            }
        }
        self.plan_to_make()
    }

    fn plan_to_read(
        &self,
        folder: &Path,
        runs: Vec<PathBuf>,
        mut left_out: Vec<String>,
    ) -> Result<Plan, ProgramError> {
        let of_runs_to_make = [
            ("--seeds", self.seeds.is_some()),
            ("--set", !self.set.is_empty()),
            ("--device", self.device.is_some()),
        ];
        if let Some((option, _)) = of_runs_to_make.into_iter().find(|(_, is_given)| *is_given) {
            return Err(ProgramError::RunsAreThere { option, folder: folder.to_owned() });
        }

        let mut variants = folder::variants(folder, runs, &self.metric, &mut left_out)?;
        self.put_baseline_first(&mut variants, |(variant, _)| variant.name.as_str())?;
        let (recipes, values): (Vec<Compared>, Vec<Recipe>) = variants.into_iter().unzip();
        check_metrics(&self.metric, &recipes)?;

        let mut differences = differences(&values);
        // The first runs may have any of the seeds.
        differences.retain(|difference| difference.key != "seed");
        let (folder, out) = (folder.to_owned(), self.out.clone());
        Ok(Plan { folder, out, recipes, values, differences, jobs: None, left_out })
    }

    fn plan_to_make(&self) -> Result<Plan, ProgramError> {
        let set = [self.set.clone(), device_settings(self.device)].concat();
        let mut bases = folder::recipes(&self.recipes, &set)?;
        // Runs are named after their recipes, so two recipes of one name would share folders.
        check_names(&bases)?;

        let folder = self.out.clone().unwrap_or_else(|| folder_for(&self.recipes, &bases));
        self.put_baseline_first(&mut bases, |(_, base)| base.name.as_str())?;
        let (recipes, jobs) = self.jobs(&bases, &set, &folder)?;

        let values: Vec<Recipe> = bases.into_iter().map(|(_, base)| base.recipe).collect();
        let differences = differences(&values);
        let (out, jobs) = (Some(folder.clone()), Some(jobs));
        Ok(Plan { folder, out, recipes, values, differences, jobs, left_out: Vec::new() })
    }

    /// Puts the baseline first: the one that `--baseline` names, or the one called `without`, or else the first one.
    fn put_baseline_first<T>(
        &self,
        all: &mut [T],
        name_of: impl Fn(&T) -> &str,
    ) -> Result<(), ProgramError> {
        let index_of = |name: &str| all.iter().position(|one| name_of(one) == name);
        let index = match &self.baseline {
            None => index_of("without").unwrap_or(0),
            Some(name) => index_of(name).ok_or_else(|| ProgramError::NoBaseline {
                name: name.clone(),
                names: all.iter().map(|one| name_of(one).to_owned()).collect(),
            })?,
        };

        if let Some(up_to_it) = all.get_mut(..=index) {
            up_to_it.rotate_right(1);
        }
        Ok(())
    }

    /// Returns every run, and the runs that are still to be made, in their order. They are ordered seed by seed, so
    /// that a machine that slows down meanwhile is slower for all recipes.
    fn jobs(
        &self,
        bases: &[(PathBuf, Loaded)],
        set: &[String],
        out: &Path,
    ) -> Result<(Vec<Compared>, Vec<Job>), ProgramError> {
        let mut recipes: Vec<Compared> = bases
            .iter()
            .map(|(path, base)| Compared::new(base.name.clone(), path.clone(), Vec::new()))
            .collect();

        let mut jobs = Vec::new();
        for run in 0..self.seeds.unwrap_or(SEEDS) {
            for (index, (path, base)) in bases.iter().enumerate() {
                let seed = base.recipe.seed.saturating_add(run);
                let name = format!("{}-seed{seed}", base.name);
                let own =
                    [format!("seed={seed}"), format!("name={}", toml_edit::Value::from(&name))];

                let loaded = load(path, &[set, &own].concat())?;
                let folder = out.join(&name);
                let state = state(&folder, &loaded.recipe, &self.metric)?;
                let runs = &mut recipes[index].runs;
                jobs.push(Job { recipe: index, run: runs.len(), loaded, sft: None });
                runs.push(Outcome::new(seed, folder, state));
            }
        }

        // Sharing is decided over all runs, finished ones included, so those are removed only afterwards.
        let values: Vec<&Recipe> = jobs.iter().map(|job| &job.loaded.recipe).collect();
        let folders = sft_folders(&values, out);
        jobs.iter_mut().zip(folders).for_each(|(job, sft)| job.sft = sft);
        jobs.retain(|job| recipes[job.recipe].runs[job.run].state.measured().is_none());

        Ok((recipes, jobs))
    }
}

/// Reads the state of the run in `folder`, which has to be a run of this recipe.
fn state(folder: &Path, recipe: &Recipe, metrics: &[String]) -> Result<State, ProgramError> {
    let kept = folder.join("recipe.toml");
    if !kept.is_file() {
        return Ok(State::Unfinished);
    }

    let changes = changes(&recipe_of_run(folder)?.recipe, recipe);
    if !changes.is_empty() {
        let changes = changes.iter().map(Change::to_string).collect();
        return Err(ProgramError::OtherSettings { run: folder.to_owned(), changes });
    }
    Ok(State::read(folder, metrics))
}

fn check_names(bases: &[(PathBuf, Loaded)]) -> Result<(), ProgramError> {
    let mut seen = BTreeSet::new();
    match bases.iter().find(|(_, base)| !seen.insert(&base.name)) {
        Some((_, base)) => Err(ProgramError::SameName { name: base.name.clone() }),
        None => Ok(()),
    }
}

/// Returns the folder of a comparison that was given none: after the folder of its recipes, or after the first and the
/// last recipe.
fn folder_for(paths: &[PathBuf], bases: &[(PathBuf, Loaded)]) -> PathBuf {
    let folder = match paths {
        [folder] if bases.len() > 1 => folder.file_name(),
        _ => None,
    };
    let names = match (folder, bases) {
        (Some(folder), _) => folder.to_string_lossy().into_owned(),
        (None, [(_, first), .., (_, last)]) => format!("{}-{}", first.name, last.name),
        (None, all) => all.iter().map(|(_, base)| base.name.as_str()).collect(),
    };
    Path::new("runs").join(format!("compare-{names}"))
}
