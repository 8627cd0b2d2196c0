//! Backing off when the device runs out of memory: an update is split smaller, and retried.

use firebrick_core::{Cause, Failure};
use serde::{Deserialize, Serialize};

use crate::{error::TrainError, learner::micro_batch::MicroBatching, sample::Sample};

/// Limits within which an update fits into a device's memory, as far as a run has found them. They change
/// memory and speed, and the result by rounding at most ([`MicroBatching`]). A run begins without limits, and
/// keeps those that it finds until it ends. The fields' names are those of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomBackoff {
    /// Maximum of a micro-batch's tokens, if it is not one sequence.
    pub micro_batch_tokens: usize,
    /// Maximum of [`MicroBatching::layers_without_recompute`].
    pub whole_layers: usize,
    /// Maximum of [`MicroBatching::max_logits`] and [`MicroBatching::max_saved_logits`].
    pub logits: usize,
    /// How often the policy's own chunks were halved ([`PolicyModel::halve_chunks`](firebrick_models::PolicyModel::halve_chunks)).
    pub halvings: usize,
}

impl Default for OomBackoff {
    /// Sets no limits.
    fn default() -> Self {
        let max = usize::MAX;
        OomBackoff { micro_batch_tokens: max, whole_layers: max, logits: max, halvings: 0 }
    }
}

/// Number of logits up to which a block of them is too small to fill the memory.
const MIN_LOGITS: usize = 1 << 16;

impl OomBackoff {
    /// Returns `micro_batching` within the limits.
    pub(crate) fn limit(&self, micro_batching: MicroBatching) -> MicroBatching {
        MicroBatching {
            micro_batch_tokens: micro_batching.micro_batch_tokens.min(self.micro_batch_tokens),
            max_logits: micro_batching.max_logits.min(self.logits),
            max_saved_logits: micro_batching.max_saved_logits.min(self.logits),
            layers_without_recompute: micro_batching
                .layers_without_recompute
                .min(self.whole_layers),
            ..micro_batching
        }
    }

    /// Sets the next limit on an update of `samples` under `micro_batching`, the cheapest limit first: half
    /// of a micro-batch costs little time, while recomputed layers cost a quarter to a third. Returns false if
    /// nothing is left to cut. `vocab` is the width of the logits, and `halve` halves the policy's chunks.
    pub(crate) fn back_off(
        &mut self,
        micro_batching: MicroBatching,
        samples: &[Sample],
        vocab: usize,
        halve: impl FnOnce() -> bool,
    ) -> bool {
        let lengths =
            || samples.iter().filter(|sample| sample.loss_tokens() > 0).map(Sample::length);
        let all = lengths().sum::<usize>();
        let longest = lengths().max().unwrap_or(0);
        let tokens = micro_batching.micro_batch_tokens.min(all);

        if tokens > longest {
            self.micro_batch_tokens = (tokens / 2).max(longest);
        } else if micro_batching.layers_without_recompute > 0 {
            self.whole_layers = 0;
        } else {
            let fewer_logits = micro_batching.max_logits > MIN_LOGITS;
            if fewer_logits {
                self.logits = micro_batching.max_logits.min(all * vocab) / 2;
            }

            let halved = halve();
            self.halvings += usize::from(halved);
            return fewer_logits || halved;
        }
        true
    }
}

impl TrainError {
    /// Returns true if the device had no memory.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        match self {
            TrainError::Device(message) => {
                matches!(Failure::new(message.as_str()).cause(), Cause::OutOfMemory { .. })
            }
            _ => false,
        }
    }
}
