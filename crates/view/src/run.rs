use std::path::{Path, PathBuf};

use firebrick::{
    Recipe,
    diagnose::{Diagnosis, ENDED, diagnose},
    runs::Store,
};

use crate::ViewError;

/// Turns tokens into the texts that they stand for, one for each.
pub type Pieces = Box<dyn Fn(&[u32]) -> Vec<String> + Send>;

/// A run to be looked at, which may still be going.
pub struct Run {
    /// As it is called on the page.
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) store: Store,
    /// The recipe as the run keeps it.
    pub(crate) recipe: String,
    pub(crate) pieces: Option<Pieces>,
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
        Ok(Run { name, folder: folder.into(), store, recipe, pieces: None })
    }

    /// Shows tokens as `pieces` has them, where the record has tokens.
    #[must_use]
    pub fn with_pieces(mut self, pieces: Pieces) -> Self {
        self.pieces = Some(pieces);
        self
    }

    /// The run's folder, as it was given.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What is wrong with it; none where its recipe can't be read.
    pub(crate) fn diagnosis(&self) -> Option<Result<Diagnosis, ViewError>> {
        let recipe = self.settings()?;
        Some(diagnose(&self.store, &recipe).map_err(ViewError::from))
    }

    /// The recipe's settings, as far as they can be read.
    pub(crate) fn settings(&self) -> Option<Recipe> {
        Recipe::read(self.folder.join("recipe.toml")).ok().map(|loaded| loaded.recipe)
    }

    /// How far it is, and whether it goes on, as far as one can tell.
    pub(crate) fn status(&self) -> Result<Status, ViewError> {
        let ended = self.store.info(ENDED)?.filter(|why| !why.is_empty());
        let steps = self.settings().map(|recipe| recipe.train.steps);
        Ok(Status { step: self.store.last_step()?, steps, ended })
    }
}

/// How far a run is.
pub(crate) struct Status {
    pub(crate) step: u64,
    pub(crate) steps: Option<u64>,
    /// Why its last process ended; none while it goes on, or when it could not say so.
    pub(crate) ended: Option<String>,
}

impl Status {
    pub(crate) fn text(&self) -> String {
        let of = self.steps.map_or(String::new(), |steps| format!(" of {steps}"));
        let ended = match self.ended.as_deref() {
            Some("steps") => "; it has done all its steps".to_owned(),
            Some(why) => format!("; it ended: {why}"),
            None => String::new(),
        };
        format!("step {}{of}{ended}", self.step)
    }
}

/// Gives runs of the same name different ones.
pub(crate) fn distinguish(runs: &mut [Run]) {
    let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
    for run in runs {
        if names.iter().filter(|name| **name == run.name).count() > 1 {
            run.name = run.folder.display().to_string();
        }
    }
}
