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
}

/// Why a tracker could not record something.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TrackError(pub Box<dyn std::error::Error + Send + Sync>);
