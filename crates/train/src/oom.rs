//! Backs off when the device runs out of memory: cuts an update smaller, and makes it again.

use firebrick_core::{Cause, Failure, guard_memory};
use firebrick_models::{PolicyModel, parameters};
use serde::{Deserialize, Serialize};

use crate::{MicroBatching, Sample, TrainError, Trainer, optim::read};

/// The limits within which an update fits into a device's memory, as far as a run has found them. They change memory
/// and speed, and the result by rounding at most ([`MicroBatching`]). A run begins without limits, and keeps those that
/// it has found until it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomBackoff {
    /// The most tokens of a micro-batch, if it is not one sequence.
    pub micro_batch_tokens: usize,
    /// The most layers that are kept whole.
    pub whole_layers: usize,
    /// The most logits at once, roughly.
    pub logits: usize,
    /// The number of times that the policy's own chunks were halved ([`PolicyModel::halve_chunks`]).
    pub halvings: usize,
}

impl Default for OomBackoff {
    /// Sets no limits.
    fn default() -> Self {
        let most = usize::MAX;
        OomBackoff { micro_batch_tokens: most, whole_layers: most, logits: most, halvings: 0 }
    }
}

/// The number of logits up to which a block of them is too small to fill the memory.
const FEW_LOGITS: usize = 1 << 16;

impl OomBackoff {
    /// Gives `micro_batching` with its numbers within the limits.
    fn limit(&self, micro_batching: MicroBatching) -> MicroBatching {
        MicroBatching {
            micro_batch_tokens: micro_batching.micro_batch_tokens.min(self.micro_batch_tokens),
            whole_layers: micro_batching.whole_layers.min(self.whole_layers),
            logits: micro_batching.logits.min(self.logits),
            waiting_logits: micro_batching.waiting_logits.min(self.logits),
            ..micro_batching
        }
    }

    /// Sets the next limit on an update of `samples` under `micro_batching`, the cheapest limit first: half of a
    /// micro-batch costs little time, and layers gone through once more cost a quarter to a third. Gives false if
    /// nothing is left to cut. `vocab` is the width of the logits, and `halve` halves the policy's chunks.
    fn back_off(
        &mut self,
        micro_batching: MicroBatching,
        samples: &[Sample],
        vocab: usize,
        halve: impl FnOnce() -> bool,
    ) -> bool {
        let lengths = || samples.iter().filter(|sample| sample.counted() > 0).map(Sample::length);
        let (all, longest) = (lengths().sum::<usize>(), lengths().max().unwrap_or(0));
        let tokens = micro_batching.micro_batch_tokens.min(all);
        if tokens > longest {
            self.micro_batch_tokens = (tokens / 2).max(longest);
        } else if micro_batching.whole_layers > 0 {
            self.whole_layers = 0;
        } else {
            let fewer = micro_batching.logits > FEW_LOGITS;
            if fewer {
                self.logits = micro_batching.logits.min(all * vocab) / 2;
            }
            let halved = halve();
            self.halvings += usize::from(halved);
            return fewer || halved;
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

    /// Halves the chunks of every model that goes through samples. Gives false if the policy has no chunks to halve.
    fn halve_chunks(&mut self) -> bool {
        let Trainer { policy, reference, critic, .. } = self;
        let trunk = critic.as_mut().and_then(|critic| critic.model.trunk.as_mut());
        for model in [reference.as_mut(), trunk].into_iter().flatten() {
            model.halve_chunks();
        }
        policy.halve_chunks()
    }

    /// Does work that leaves the trainer as it was. If the device has no memory for it, updates are cut
    /// smaller from here on, and the work is retried, with the same result.
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

    /// Cuts updates smaller, because an update of these samples met with `error`.
    ///
    /// # Errors
    /// Gives `error` back if nothing is left to cut.
    pub(crate) fn back_off(
        &mut self,
        samples: &[Sample],
        error: TrainError,
    ) -> Result<(), TrainError> {
        // Weights that the optimizer had no memory for can't be read either, however an update is cut.
        for parameter in parameters(&self.policy) {
            read(parameter.values.sum())?;
        }
        let (micro_batching, vocab) = (self.updater.micro_batching, self.policy.head().dims()[0]);
        let mut backoff = self.state.oom_backoff;
        if !backoff.back_off(micro_batching, samples, vocab, || self.halve_chunks()) {
            return Err(error);
        }
        self.state.oom_backoff = backoff;
        self.updater.micro_batching = backoff.limit(micro_batching);
        // The memory of dropped tensors is in blocks of the old sizes, so it goes back to the device.
        self.policy.device().memory_cleanup();
        Ok(())
    }
}

impl TrainError {
    /// Tells whether the device had no memory.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        match self {
            TrainError::Device(words) => {
                matches!(Failure::new(words.as_str()).cause(), Cause::OutOfMemory { .. })
            }
            _ => false,
        }
    }
}
