use crate::{Metrics, RewardedGroup, Step};

/// Where the numbers of a run go: a store, a terminal, a remote service.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not record metrics",
    label = "needs `fn log(&mut self, step: Step, metrics: &Metrics) -> Result<(), TrackError>`"
)]
pub trait Tracker: Send {
    /// Records the metrics of a step.
    ///
    /// # Errors
    /// When they could not be stored; the run goes on, and the program says so.
    fn log(&mut self, step: Step, metrics: &Metrics) -> Result<(), TrackError>;

    /// Records the groups that a step sampled, kept or not; by default they are not stored.
    ///
    /// # Errors
    /// As for [`Tracker::log`].
    fn log_groups(&mut self, step: Step, groups: &[RewardedGroup]) -> Result<(), TrackError> {
        let _ = (step, groups);
        Ok(())
    }

    /// Hears that the run goes on from `step`: later steps that were logged are done again. By default
    /// nothing is done about those.
    ///
    /// # Errors
    /// As for [`Tracker::log`].
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
