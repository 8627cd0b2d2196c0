//! A run that is opened for a view.

use std::{
    cell::{OnceCell, RefCell},
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use firebrick::{
    Recipe, Step,
    diagnose::{Diagnosis, ENDED, diagnose},
    is_done, reason, recipe_of_run,
    resume::changes,
    runs::{PromptFrame, Store, recipe_text},
};
use firebrick_train::eval::interval;

use crate::ViewError;

/// A function that turns tokens into their texts, one text for each token.
pub type TokenTexts = Box<dyn Fn(&[u32]) -> Vec<String> + Send>;

/// A confidence interval: the number of prompts that it is for, and its two ends.
type Interval = (usize, (f64, f64));

/// A run to view, which may still be running.
pub struct Run {
    /// Name of the run on the page.
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) store: Store,
    /// Text of the recipe as the run keeps it, or why it can't be read.
    pub(crate) recipe: Result<String, String>,
    pieces: OnceCell<TokenTexts>,
    find_pieces: Option<Box<dyn Fn() -> Option<TokenTexts> + Send>>,
    /// Confidence intervals that were computed, by the steps of their evaluations.
    intervals: RefCell<BTreeMap<Step, Interval>>,
}

impl Run {
    /// Opens the run in `folder` for reading.
    ///
    /// # Errors
    /// Fails if the folder holds no run, or if the run's database is too old or can't be read.
    pub fn open(folder: &Path) -> Result<Self, ViewError> {
        let database = folder.join("run.db");
        if !database.is_file() {
            return Err(ViewError::NotARun { path: folder.into() });
        }
        let store = Store::open_to_ask(&database)?;

        // A program that trains from its own parts need not write a recipe.
        let recipe = match folder.join("recipe.toml").symlink_metadata() {
            Ok(_) => recipe_text(folder).map_err(|error| error.to_string()),
            Err(_) => Ok(String::new()),
        };
        // A path such as `.` does not end in a name.
        let name = folder.canonicalize().unwrap_or_else(|_| folder.into());
        let name = name.file_name().map_or_else(String::new, |name| name.to_string_lossy().into());

        Ok(Run {
            name,
            folder: folder.into(),
            store,
            recipe,
            pieces: OnceCell::new(),
            find_pieces: None,
            intervals: RefCell::default(),
        })
    }

    /// Shows tokens if the record has them, as soon as `find` knows their texts. A run has a tokenizer once it has a
    /// checkpoint.
    #[must_use]
    pub fn with_pieces(mut self, find: impl Fn() -> Option<TokenTexts> + Send + 'static) -> Self {
        self.find_pieces = Some(Box::new(find));
        self
    }

    /// Returns the function that reads tokens, once it is known.
    pub(crate) fn pieces(&self) -> Option<&TokenTexts> {
        if self.pieces.get().is_none()
            && let Some(pieces) = self.find_pieces.as_ref().and_then(|find| find())
        {
            let _ = self.pieces.set(pieces);
        }
        self.pieces.get()
    }

    /// Returns the 95 % confidence interval of an accuracy, computed from each prompt's share of right answers. It
    /// is computed once for each step.
    pub(crate) fn interval(&self, step: Step, shares: &[f64]) -> (f64, f64) {
        let mut intervals = self.intervals.borrow_mut();
        match intervals.get(&step) {
            Some((prompts, interval)) if *prompts == shares.len() => *interval,
            _ => {
                let interval = interval(shares);
                intervals.insert(step, (shares.len(), interval));
                interval
            }
        }
    }

    /// Diagnoses the run; `None` if its recipe can't be read.
    pub(crate) fn diagnosis(&self) -> Option<Result<Diagnosis, ViewError>> {
        let recipe = self.settings()?;
        Some(diagnose(&self.store, &recipe).map_err(ViewError::from))
    }

    /// Returns the recipe's settings, if the recipe can be read.
    pub(crate) fn settings(&self) -> Option<Recipe> {
        recipe_of_run(&self.folder).ok().map(|loaded| loaded.recipe)
    }

    /// Returns why the run's last process ended; `None` while the process is running, or if it could not record a
    /// reason.
    pub(crate) fn ended(&self) -> Result<Option<String>, ViewError> {
        Ok(self.store.info(ENDED)?.filter(|why| !why.is_empty()))
    }

    /// Describes the progress of the run.
    pub(crate) fn status(&self) -> Result<String, ViewError> {
        let train = self.settings().map(|recipe| recipe.train);
        let of_total =
            train.as_ref().map_or_else(String::new, |train| format!(" of {}", train.steps));
        let step = self.store.last_step()?;
        let Some(why) = self.ended()? else { return Ok(format!("step {step}{of_total}")) };

        let end = if is_done(&why) { "finished" } else { "stopped" };
        let reached = train.and_then(|train| train.stop_at).filter(|_| why == "stop_at");
        let reason = match reached {
            Some(accuracy) => format!("held-out accuracy reached {accuracy}"),
            None => reason(&why).to_owned(),
        };
        Ok(format!("{end} at step {step}{of_total}: {reason}"))
    }

    /// Returns what the run's prompts have in common.
    pub(crate) fn frame(&self) -> PromptFrame {
        // A run that has only begun may have too few prompts, so they are read anew.
        self.store.prompt_frame().unwrap_or_default()
    }
}

/// Puts the held-out accuracy before the first step before the others, since it is not a metric of a step. `shares` are
/// those of right answers, by step and prompt.
pub(crate) fn with_first(heldout: &mut Vec<(Step, f64)>, shares: &BTreeMap<Step, Vec<f64>>) {
    if let Some(first) = shares.get(&0)
        && heldout.first().is_none_or(|(step, _)| *step > 0)
    {
        heldout.insert(0, (0, first.iter().sum::<f64>() / first.len() as f64));
    }
}

/// Runs of the same recipe, with different seeds.
pub(crate) struct RecipeRuns {
    /// Name of the runs without what tells them apart.
    pub(crate) name: String,
    /// Indices of the runs.
    pub(crate) runs: Vec<usize>,
}

impl RecipeRuns {
    /// Groups runs by their recipes, in the order of the first runs. A run without a recipe has a group of its own.
    pub(crate) fn of(runs: &[Run]) -> Vec<RecipeRuns> {
        let recipes: Vec<Option<Recipe>> = runs.iter().map(Run::settings).collect();
        let is_same = |one: usize, other: usize| match (&recipes[one], &recipes[other]) {
            (Some(one), Some(other)) => {
                changes(one, other).iter().all(|change| change.key == "seed")
            }
            _ => false,
        };

        let mut groups: Vec<RecipeRuns> = Vec::new();
        for number in 0..runs.len() {
            match groups.iter_mut().find(|group| is_same(group.runs[0], number)) {
                Some(group) => group.runs.push(number),
                None => groups.push(RecipeRuns { name: String::new(), runs: vec![number] }),
            }
        }
        for group in &mut groups {
            let names: Vec<&str> = group.runs.iter().map(|&run| runs[run].name.as_str()).collect();
            group.name = common_name(&names);
        }
        groups
    }
}

/// Returns what the names of a recipe's runs begin with, such as `dapo` for `dapo-seed1` and `dapo-seed2`.
fn common_name(names: &[&str]) -> String {
    let [first, others @ ..] = names else { return String::new() };
    if others.is_empty() {
        return (*first).to_owned();
    }
    let is_common = |end: &usize| {
        first.get(..*end).is_some_and(|begin| others.iter().all(|other| other.starts_with(begin)))
    };
    let end = (0..=first.len()).rev().find(is_common).unwrap_or(0);
    let is_separator = |letter: char| matches!(letter, '-' | '_' | '.' | ' ');
    let begin = first[..end].trim_end_matches(|letter: char| letter.is_ascii_digit());
    let begin = begin.trim_end_matches(is_separator);
    let begin = begin.strip_suffix("seed").unwrap_or(begin).trim_end_matches(is_separator);
    if begin.is_empty() { (*first).to_owned() } else { begin.to_owned() }
}

/// Renames runs of the same name, so that they can be told apart.
pub(crate) fn distinguish(runs: &mut [Run]) {
    let is_taken = |runs: &[Run], at: usize, name: &str| {
        runs.iter().enumerate().any(|(other, run)| other != at && run.name == name)
    };
    for at in 0..runs.len() {
        if is_taken(runs, at, &runs[at].name.clone()) {
            let path = runs[at].folder.display().to_string();
            // The same folder may be given twice.
            runs[at].name =
                if is_taken(runs, at, &path) { format!("{path} ({})", at + 1) } else { path };
        }
    }
}
