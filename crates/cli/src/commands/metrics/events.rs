//! Writes the numbers of a run as files for TensorBoard or W&B.

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use firebrick::{
    Step, Watcher, follow::Follow, is_done, recipe_of_run, resume::values, runs::Store,
};
use firebrick_core::Metrics;
use firebrick_runs::shell_word;
use firebrick_view::{
    EventLog, ViewError,
    tensorboard::TensorBoard,
    wandb::{Identity, Wandb},
};

use super::{super::train::interrupted, Column, Form};
use crate::ProgramError;

/// A run to be written as another viewer's file.
pub(super) struct Export<'a> {
    /// Folder of the run.
    pub(super) run: &'a Path,
    pub(super) store: &'a Store,
    /// Either [`Form::TensorBoard`] or [`Form::Wandb`].
    pub(super) form: Form,
    /// Folder that gets the file.
    pub(super) out: &'a Path,
    /// Names the metrics.
    pub(super) column: &'a Named<'a>,
}

/// A function that returns the name of a stored metric in the file, or `None` to leave the metric out.
type Named<'a> = dyn Fn(&str) -> Option<Column> + Sync + 'a;

impl Export<'_> {
    /// Writes all steps so far. With `follow` it also writes the steps to come, until the run ends or the user presses
    /// Ctrl-C. A run that continues from an earlier checkpoint is written from the beginning again, because neither
    /// format allows a step to be withdrawn.
    pub(super) fn write(&self, follow: bool) -> Result<(), ProgramError> {
        let stop = if follow { interrupted(None) } else { Arc::default() };
        loop {
            let (log, next_command) = self.create().map_err(ProgramError::View)?;

            let clock =
                Clock { began: seconds(self.started().map_err(ProgramError::View)?), spent: 0.0 };
            let mut steps = Steps { column: self.column, log, clock, step: None, failed: None };
            let mut follows = Follow::new();
            let mut end_reason = None;

            let goes_back = loop {
                end_reason = follows.catch_up(self.store, &mut steps)?.or(end_reason);
                // A step may have several events; W&B wants a step in one piece.
                if self.form == Form::TensorBoard {
                    steps.flush();
                }
                if end_reason.is_some() || !follow || stop.load(Ordering::Relaxed) {
                    break false;
                }
                if steps.failed.is_some() || follows.has_gone_back(self.store)? {
                    break steps.failed.is_none();
                }
                thread::sleep(Duration::from_millis(500));
            };

            if goes_back {
                continue;
            }

            steps.flush();
            if let Some(error) = steps.failed {
                return Err(ProgramError::View(error));
            }
            if let Some(why) = end_reason {
                steps.log.finish(i32::from(!is_done(&why))).map_err(ProgramError::View)?;
            }

            return super::super::print(&format!("{next_command}\n"));
        }
    }

    /// Makes a new file, and returns it with the command that reads it. TensorBoard takes each folder within its
    /// own for a run.
    fn create(&self) -> Result<(Box<dyn EventLog>, String), ViewError> {
        let started = self.started()?;
        let out = self.out.to_string_lossy();
        let identity = self.identity(started);

        if self.form == Form::Wandb {
            let next_command =
                format!("wandb sync {}/wandb/offline-run-*-{}", shell_word(&out), identity.id);
            return Ok((Box::new(Wandb::create(self.out, &identity)?), next_command));
        }

        let next_command = format!("tensorboard --logdir {}", shell_word(&out));
        Ok((Box::new(TensorBoard::create(&self.out.join(&identity.name), started)?), next_command))
    }

    /// Returns when the run began: by the clock of its first step or, while the record has no clock yet, by the date
    /// of the recipe file.
    fn started(&self) -> Result<SystemTime, ViewError> {
        let first =
            |name: &str| Ok::<_, ViewError>(self.store.metrics(name)?.first().map(|point| point.1));

        let Some(clock) = first(CLOCK)? else {
            let recipe = self.run.join("recipe.toml").metadata();
            return Ok(recipe.and_then(|file| file.modified()).unwrap_or(UNIX_EPOCH));
        };

        // The clock is read when a step is done, so the first step's own time is subtracted.
        let began = (clock - first("time/step")?.unwrap_or(0.0)).floor();
        let since = Duration::try_from_secs_f64(began).unwrap_or_default();
        Ok(UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH))
    }

    fn identity(&self, started: SystemTime) -> Identity {
        let folder = self.run.canonicalize().unwrap_or_else(|_| self.run.into());
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let recipe = recipe_of_run(&folder).ok();
        let config = recipe.map(|loaded| values(&loaded.recipe)).unwrap_or_default();

        // W&B allows fewer letters in an id than a folder allows in its name. An id belongs to one run permanently,
        // but other runs may have the same name.
        let began = started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let letter = |letter: char| {
            if letter.is_alphanumeric() || "._-".contains(letter) { letter } else { '-' }
        };

        Identity {
            project: "firebrick".into(),
            id: name.chars().map(letter).chain(format!("-{began}").chars()).collect(),
            name,
            started,
            config: config.into_iter().collect(),
        }
    }
}

/// Metric that says when a step was done, in seconds since 1970.
const CLOCK: &str = "time/clock";

/// Collects the numbers of one step at a time. Those of an evaluation come later than the others of their step.
struct Steps<'a> {
    column: &'a Named<'a>,
    log: Box<dyn EventLog>,
    clock: Clock,
    step: Option<(Step, Metrics)>,
    /// Keeps the first error, because a watcher can't return one.
    failed: Option<ViewError>,
}

/// Computes when steps were done, since records of earlier versions have only the time that each step took.
struct Clock {
    began: f64,
    spent: f64,
}

impl Clock {
    fn at(&mut self, metrics: &Metrics) -> f64 {
        self.spent += metrics.get("time/step").filter(|seconds| seconds.is_finite()).unwrap_or(0.0);
        metrics.get(CLOCK).unwrap_or(self.began + self.spent)
    }
}

/// Converts a time to seconds since 1970.
fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

impl Steps<'_> {
    fn flush(&mut self) {
        let Some((step, metrics)) = self.step.take() else { return };

        let time = self.clock.at(&metrics);
        let renamed = metrics
            .0
            .iter()
            .filter_map(|(name, value)| (self.column)(name).map(|(_, called)| (called, *value)));
        let renamed: Vec<_> = renamed.collect();

        // After an error nothing more is written.
        if self.failed.is_none() {
            self.failed = self.log.log(step, time, &renamed).err();
        }
    }
}

impl Watcher for Steps<'_> {
    fn metrics(&mut self, step: Step, metrics: &Metrics) {
        if self.step.as_ref().is_some_and(|(known, _)| *known != step) {
            self.flush();
        }

        let (_, all) = self.step.get_or_insert_with(|| (step, Metrics::default()));
        all.0.extend(metrics.0.clone());
    }
}
