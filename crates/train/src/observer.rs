//! The trait `Observer`, which follows the progress of a phase.

/// Part of the run that takes long enough to show its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Sampling completions.
    Rollout,
    /// Optimizer updates.
    Update,
    /// Evaluation.
    Eval,
}

/// Follows the progress of a phase.
pub trait Observer {
    /// Notes that `phase` begins and will take `total` units: completions for a rollout, mini-batches for an
    /// update.
    fn begin(&mut self, phase: Phase, total: usize);

    /// Notes that the phase will take `units` more than `begin` said.
    fn extend(&mut self, units: usize);

    /// Notes that `units` more are done.
    fn advance(&mut self, units: usize);

    /// Notes that the phase has ended.
    fn end(&mut self);
}

/// Ignores everything.
impl Observer for () {
    fn begin(&mut self, _: Phase, _: usize) {}
    fn extend(&mut self, _: usize) {}
    fn advance(&mut self, _: usize) {}
    fn end(&mut self) {}
}
