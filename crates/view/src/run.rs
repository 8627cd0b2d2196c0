use std::{
    cell::{OnceCell, RefCell},
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use firebrick::{
    Recipe, Step,
    diagnose::{Diagnosis, ENDED, diagnose},
    reason,
    runs::Store,
};
use firebrick_train::interval;

use crate::ViewError;

/// Turns tokens into the texts that they stand for, one for each.
pub type Pieces = Box<dyn Fn(&[u32]) -> Vec<String> + Send>;

/// For how many prompts, and from where to where.
type Interval = (usize, (f64, f64));

/// A run to be looked at, which may still be going.
pub struct Run {
    /// As it is called on the page.
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) store: Store,
    /// The recipe as the run keeps it.
    pub(crate) recipe: String,
    pieces: OnceCell<Pieces>,
    find_pieces: Option<Box<dyn Fn() -> Option<Pieces> + Send>>,
    /// Those that were worked out, by their evaluations' steps.
    intervals: RefCell<BTreeMap<Step, Interval>>,
}

impl Run {
    /// Opens the run in `folder` to read.
    ///
    /// # Errors
    /// When it holds no run, or its database is too old or can't be read.
    pub fn open(folder: &Path) -> Result<Self, ViewError> {
        let database = folder.join("run.db");
        if !database.is_file() {
            return Err(ViewError::NotARun { path: folder.into() });
        }
        let store = Store::open_to_ask(&database)?;
        // A program that trains from its own parts need not write one.
        let recipe = std::fs::read_to_string(folder.join("recipe.toml")).unwrap_or_default();
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

    /// Shows tokens where the record has them, as soon as `find` knows their texts: a run has a tokenizer with its first
    /// checkpoint.
    #[must_use]
    pub fn with_pieces(mut self, find: impl Fn() -> Option<Pieces> + Send + 'static) -> Self {
        self.find_pieces = Some(Box::new(find));
        self
    }

    /// How tokens are read, once that is known.
    pub(crate) fn pieces(&self) -> Option<&Pieces> {
        if self.pieces.get().is_none()
            && let Some(pieces) = self.find_pieces.as_ref().and_then(|find| find())
        {
            let _ = self.pieces.set(pieces);
        }
        self.pieces.get()
    }

    /// The 95 % confidence interval of an accuracy, from the shares of right answers of each prompt. It is worked out once for each
    /// step.
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

    /// Its diagnosis; none where its recipe can't be read.
    pub(crate) fn diagnosis(&self) -> Option<Result<Diagnosis, ViewError>> {
        let recipe = self.settings()?;
        Some(diagnose(&self.store, &recipe).map_err(ViewError::from))
    }

    /// The recipe's settings, as far as they can be read.
    pub(crate) fn settings(&self) -> Option<Recipe> {
        Recipe::read(self.folder.join("recipe.toml")).ok().map(|loaded| loaded.recipe)
    }

    /// Why its last process ended; none while it goes on, or when it could not say so.
    pub(crate) fn ended(&self) -> Result<Option<String>, ViewError> {
        Ok(self.store.info(ENDED)?.filter(|why| !why.is_empty()))
    }

    /// How far it is, in words.
    pub(crate) fn status(&self) -> Result<String, ViewError> {
        let of = match self.settings() {
            Some(recipe) => format!(" of {}", recipe.train.steps),
            None => String::new(),
        };
        let ended = match self.ended()? {
            Some(why) => format!("; it ended: {}", reason(&why)),
            None => String::new(),
        };
        Ok(format!("step {}{of}{ended}", self.store.last_step()?))
    }
}

/// Gives runs of the same name different ones.
pub(crate) fn distinguish(runs: &mut [Run]) {
    let is_taken = |runs: &[Run], at: usize, name: &str| {
        runs.iter().enumerate().any(|(other, run)| other != at && run.name == name)
    };
    for at in 0..runs.len() {
        if is_taken(runs, at, &runs[at].name.clone()) {
            let path = runs[at].folder.display().to_string();
            // The same folder may be given twice.
            runs[at].name = match is_taken(runs, at, &path) {
                true => format!("{path} ({})", at + 1),
                false => path,
            };
        }
    }
}
