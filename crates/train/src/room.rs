//! Cuts an update smaller, and makes it again, if the device has no memory for it.

use firebrick_core::{Cause, Failure, guard_memory};
use firebrick_models::{PolicyModel, parameters};
use serde::{Deserialize, Serialize};

use crate::{Cut, Sample, TrainError, Trainer, optim::read};

/// The limits within which an update fits into a device's memory, as far as a run has found them. They change
/// memory and speed, and the result by rounding at most ([`Cut`]). A run begins without limits, and keeps
/// those that it has found until it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// The most tokens of a micro-batch, if it is not one sequence.
    pub micro_batch_tokens: usize,
    /// The most layers that are kept whole.
    pub whole_layers: usize,
    /// The most logits at once, roughly.
    pub logits: usize,
    /// The number of times that the policy's own pieces were halved ([`PolicyModel::halve_pieces`]).
    pub halvings: usize,
}

impl Default for Room {
    /// Sets no limits.
    fn default() -> Self {
        let most = usize::MAX;
        Room { micro_batch_tokens: most, whole_layers: most, logits: most, halvings: 0 }
    }
}

/// The number of logits up to which a block of them is too small to fill the memory.
const FEW_LOGITS: usize = 1 << 16;

impl Room {
    /// Gives `cut` with its numbers within the limits.
    fn limit(&self, cut: Cut) -> Cut {
        Cut {
            micro_batch_tokens: cut.micro_batch_tokens.min(self.micro_batch_tokens),
            whole_layers: cut.whole_layers.min(self.whole_layers),
            logits: cut.logits.min(self.logits),
            waiting_logits: cut.waiting_logits.min(self.logits),
            ..cut
        }
    }

    /// Sets the next limit on an update of `samples` under `cut`, the cheapest limit first: half of a
    /// micro-batch costs little time, and layers gone through once more cost a quarter to a third. Gives
    /// false if nothing is left to cut. `vocab` is the width of the logits, and `halve` halves the policy's
    /// pieces.
    fn shrink(
        &mut self,
        cut: Cut,
        samples: &[Sample],
        vocab: usize,
        halve: impl FnOnce() -> bool,
    ) -> bool {
        let lengths = || samples.iter().filter(|sample| sample.counted() > 0).map(Sample::length);
        let (all, longest) = (lengths().sum::<usize>(), lengths().max().unwrap_or(0));
        let tokens = cut.micro_batch_tokens.min(all);
        if tokens > longest {
            self.micro_batch_tokens = (tokens / 2).max(longest);
        } else if cut.whole_layers > 0 {
            self.whole_layers = 0;
        } else {
            let fewer = cut.logits > FEW_LOGITS;
            if fewer {
                self.logits = cut.logits.min(all * vocab) / 2;
            }
            let halved = halve();
            self.halvings += usize::from(halved);
            return fewer || halved;
        }
        true
    }
}

impl<M: PolicyModel> Trainer<M> {
    /// Goes on with the limits that an earlier process of the run has found.
    pub fn restore_room(&mut self) {
        self.updater.cut = self.state.room.limit(self.updater.cut);
        (0..self.state.room.halvings).for_each(|_| _ = self.halve_pieces());
    }

    /// Halves the pieces of every model that goes through samples. Gives false if the policy has no pieces to
    /// halve.
    fn halve_pieces(&mut self) -> bool {
        let Trainer { policy, reference, critic, .. } = self;
        let trunk = critic.as_mut().and_then(|critic| critic.model.trunk.as_mut());
        for model in [reference.as_mut(), trunk].into_iter().flatten() {
            model.halve_pieces();
        }
        policy.halve_pieces()
    }

    /// Does work that leaves the trainer as it was. If the device has no memory for it, updates are cut
    /// smaller from here on, and the work is done again, with the same result.
    pub(crate) fn within_room<T>(
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
            self.shrink(samples, error)?;
        }
    }

    /// Cuts updates smaller, because an update of these samples met with `error`.
    ///
    /// # Errors
    /// Gives `error` back if nothing is left to cut.
    pub(crate) fn shrink(
        &mut self,
        samples: &[Sample],
        error: TrainError,
    ) -> Result<(), TrainError> {
        // Weights that the optimizer had no memory for can't be read either, however an update is cut.
        for parameter in parameters(&self.policy) {
            read(parameter.values.sum())?;
        }
        let (cut, vocab) = (self.updater.cut, self.policy.head().dims()[0]);
        let mut room = self.state.room;
        if !room.shrink(cut, samples, vocab, || self.halve_pieces()) {
            return Err(error);
        }
        self.state.room = room;
        self.updater.cut = room.limit(cut);
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
