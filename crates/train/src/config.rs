//! Rules of the loop.

pub use firebrick_core::config::OldLogprobs;
use firebrick_core::{
    Step,
    config::{AdaptiveUpdates, TisGate},
};

/// Rules of the loop.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TrainConfig {
    /// Allowed lag, in steps, between the weights that a step is sampled with and the weights that are trained
    /// on it, surplus groups aside: 0 or 1.
    pub max_staleness: u64,
    /// Last step that may be prefetched.
    pub last_step: Step,
    /// Completions per optimizer update.
    pub mini_batch: usize,
    /// Rule for the number of updates of a mini-batch; `None` means one update.
    pub adaptive: Option<AdaptiveUpdates>,
    /// Cap of truncated importance sampling (TIS), if it is on: each token's loss is multiplied by
    /// min(cap, π_old / π_rollout) ([`Sample::set_tis_weights`](crate::Sample::set_tis_weights)), where π_old is the policy that the update
    /// starts from, and π_rollout the policy that sampled the token. The log-probabilities under π_old are
    /// then recomputed before the update. This is for engines whose numerics or weights differ from the
    /// trainer's.
    pub tis_cap: Option<f64>,
    /// TIS mask: smallest and largest ratio π_old / π_rollout, as the geometric mean over a completion's
    /// tokens. Completions outside are masked. It only applies with a cap.
    pub tis_mask: Option<[f64; 2]>,
    /// Largest divergence of π_old and π_rollout. Tokens or completions beyond it have no weight in the loss, and count in its
    /// divisor. It only applies with a cap.
    pub tis_gate: Option<TisGate>,
    /// Source of the old policy's log-probabilities; with a cap they are recomputed.
    pub old_logprobs: OldLogprobs,
    /// Interval, in steps, at which each token's ratio and entropy are recorded ([`StepReport::trained`](crate::StepReport::trained)); 0
    /// means never.
    pub token_stats_every: u64,
}

impl Default for TrainConfig {
    /// Makes one update per step, of everything that it sampled.
    fn default() -> Self {
        TrainConfig {
            max_staleness: 0,
            last_step: Step::MAX,
            mini_batch: usize::MAX,
            adaptive: None,
            tis_cap: None,
            tis_mask: None,
            tis_gate: None,
            old_logprobs: OldLogprobs::Auto,
            token_stats_every: 0,
        }
    }
}
