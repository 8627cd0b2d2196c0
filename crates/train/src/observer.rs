//! The trait `Observer`, which follows the progress of a phase.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use firebrick_rollout::RolloutEngine;

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

    /// Notes that the phase has sampled this many tokens so far, of `most` if every completion gets as long as it may.
    /// Not every engine knows.
    fn tokens(&mut self, sampled: u64, most: u64) {
        let _ = (sampled, most);
    }

    /// Notes that the phase has ended.
    fn end(&mut self);
}

/// Tokens of a phase, for an engine that counts them.
pub struct PhaseTokens {
    counter: Option<Arc<AtomicU64>>,
    before: u64,
}

impl PhaseTokens {
    /// Begins to count at the tokens that the engine has sampled until now.
    pub fn begin<M>(engine: &dyn RolloutEngine<M>) -> Self {
        let counter = engine.token_counter();
        let before = counter.as_ref().map_or(0, |counter| counter.load(Ordering::Relaxed));
        PhaseTokens { counter, before }
    }

    /// Returns the number of tokens since then; `None` if the engine does not know.
    pub fn sampled(&self) -> Option<u64> {
        let counter = self.counter.as_ref()?;
        Some(counter.load(Ordering::Relaxed).saturating_sub(self.before))
    }
}

/// Ignores everything.
impl Observer for () {
    fn begin(&mut self, _: Phase, _: usize) {}
    fn extend(&mut self, _: usize) {}
    fn advance(&mut self, _: usize) {}
    fn end(&mut self) {}
}
