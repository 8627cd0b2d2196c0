//! Rules of the loop.

use firebrick_core::Step;

use crate::adaptive::AdaptiveUpdates;

/// Rules of the loop.
#[derive(Clone, Debug, PartialEq)]
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
            old_logprobs: OldLogprobs::Auto,
            token_stats_every: 0,
        }
    }
}

/// Source of the old policy's log-probabilities in the loss: those of the policy that an update starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OldLogprobs {
    /// The updater computes them if they differ from the engine's by more than
    /// [`OldLogprobs::MAX_LOGPROB_DIFF`], and, before the difference is known, if the matmul precision makes
    /// such a difference likely. With [`TrainConfig::max_staleness`] they are the engine's.
    #[default]
    Auto,
    /// They are the engine's.
    Sampled,
    /// The updater computes them.
    Recomputed,
}

impl OldLogprobs {
    /// Mean difference, on the same weights, above which log-probabilities are recomputed. It is a fortieth
    /// of DAPO's lower clip: the difference between two ways of rounding should not clip a token.
    pub const MAX_LOGPROB_DIFF: f64 = 0.005;
}
