//! Backing off when the device runs out of memory: an update is split smaller, and retried.

use firebrick_core::{Cause, Failure, guard_memory};
use firebrick_models::{PolicyModel, parameters};
use serde::{Deserialize, Serialize};

use crate::{MicroBatching, Sample, TrainError, Trainer, optim::read};

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
    /// How often the policy's own chunks were halved ([`PolicyModel::halve_chunks`]).
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
    fn limit(&self, micro_batching: MicroBatching) -> MicroBatching {
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
    fn back_off(
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

impl<M: PolicyModel> Trainer<M> {
    /// Continues with the limits that an earlier process of the run has found.
    pub fn restore_oom_backoff(&mut self) {
        self.updater.micro_batching = self.state.oom_backoff.limit(self.updater.micro_batching);
        (0..self.state.oom_backoff.halvings).for_each(|_| _ = self.halve_chunks());
    }

    /// Halves the chunks of every model that samples pass through. Returns false if the policy has none to
    /// halve.
    fn halve_chunks(&mut self) -> bool {
        let Trainer { policy, reference, critic, .. } = self;
        let trunk = critic.as_mut().and_then(|critic| critic.model.trunk.as_mut());
        for model in [reference.as_mut(), trunk].into_iter().flatten() {
            model.halve_chunks();
        }

        policy.halve_chunks()
    }

    /// Does work that leaves the trainer as it was. If the device has no memory for it, this and all later
    /// updates are split smaller, and the work is retried, with the same result.
    pub(crate) fn retry_on_oom<T>(
        &mut self,
        samples: &[Sample],
        work: impl Fn(&Self) -> Result<T, TrainError>,
    ) -> Result<T, TrainError> {
        loop {
            let error = match guard_memory(|| work(self)) {
                Ok(Err(error)) if error.is_out_of_memory() => error,
                Ok(result) => return result,
                Err(Failure { message, .. }) => TrainError::Device(message),
            };

            self.back_off(samples, error)?;
        }
    }

    /// Splits updates smaller, because an update of these samples failed with `error`.
    ///
    /// # Errors
    /// Returns `error` if nothing is left to cut.
    pub(crate) fn back_off(
        &mut self,
        samples: &[Sample],
        error: TrainError,
    ) -> Result<(), TrainError> {
        // Weights that the optimizer had no memory for can't be read either, however an update is split.
        for parameter in parameters(&self.policy) {
            read(parameter.values.sum())?;
        }

        let micro_batching = self.updater.micro_batching;
        let vocab = self.policy.head().dims()[0];
        let mut backoff = self.state.oom_backoff;
        if !backoff.back_off(micro_batching, samples, vocab, || self.halve_chunks()) {
            return Err(error);
        }

        self.state.oom_backoff = backoff;
        self.updater.micro_batching = backoff.limit(micro_batching);
        // Dropped tensors leave blocks of the old sizes, which are returned to the device.
        self.policy.device().memory_cleanup();
        Ok(())
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
