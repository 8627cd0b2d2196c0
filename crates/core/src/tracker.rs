//! The trait `Tracker`, which records the metrics and the groups of each step.

use crate::{Metrics, RewardedGroup, Step};

/// Keeps the numbers of a run: in a database, on a terminal, at a remote service.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not record metrics",
    label = "needs `fn log(&mut self, step: Step, metrics: &Metrics) -> Result<(), TrackError>`"
)]
pub trait Tracker: Send {
    /// Records the metrics of a step.
    ///
    /// # Errors
    /// Fails if the metrics could not be stored. The run continues, and the program says so.
    fn log(&mut self, step: Step, metrics: &Metrics) -> Result<(), TrackError>;

    /// Records the groups that a step sampled, kept or not. By default they are not stored.
    ///
    /// # Errors
    /// Fails like [`Tracker::log`].
    fn log_groups(&mut self, step: Step, groups: &[RewardedGroup]) -> Result<(), TrackError> {
        let _ = (step, groups);
        Ok(())
    }

    /// Called when the run continues from `step`, and so repeats later steps that were logged. By default these are
    /// kept.
    ///
    /// # Errors
    /// Fails like [`Tracker::log`].
    fn resume(&mut self, step: Step) -> Result<(), TrackError> {
        let _ = step;
        Ok(())
    }
}

impl<T: Tracker + ?Sized> Tracker for Box<T> {
    fn log(&mut self, step: Step, metrics: &Metrics) -> Result<(), TrackError> {
        (**self).log(step, metrics)
    }

    fn log_groups(&mut self, step: Step, groups: &[RewardedGroup]) -> Result<(), TrackError> {
        (**self).log_groups(step, groups)
    }

    fn resume(&mut self, step: Step) -> Result<(), TrackError> {
        (**self).resume(step)
    }
}

/// Why a tracker could not record something.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TrackError(pub Box<dyn std::error::Error + Send + Sync>);
