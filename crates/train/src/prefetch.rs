//! Prefetching: the next step's groups are sampled while a step is trained on.

use std::{mem, panic::resume_unwind, thread};

use firebrick_core::{
    Completion, Group, GroupFilter, Prompt, PromptSource, RewardScale, RewardedGroup, Score, Step,
    Verdict, Verifier,
};
use firebrick_models::PolicyModel;
use firebrick_rollout::{GroupRequest, RequestId, RolloutEngine, RolloutError, Wait};
use serde::{Deserialize, Serialize};

use crate::{
    Observer, PromptHistory, Sample, Task, TrainError, Trainer,
    collect::Collection,
    logprob_check::LogprobCheck,
    report::{Sampled, Updated},
};

/// Groups of a step that were prefetched: sampled with older weights, while the step before was trained on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prefetched {
    pub(crate) step: Step,
    pub(crate) sampled: Sampled,
    /// Prompts drawn by then.
    pub(crate) cursor: u64,
}

/// What the sampling of a step depends on, besides weights.
pub(crate) struct PrefetchInputs {
    pub(crate) carried_over: Vec<RewardedGroup>,
    pub(crate) history: PromptHistory,
    pub(crate) cursor: u64,
}

impl<M: PolicyModel> Trainer<M> {
    /// Trains on `samples`, and samples the next step meanwhile.
    ///
    /// If sampling fails, nothing is lost: the next step samples then, and fails only if sampling fails again.
    /// A step that would end the run is treated alike, because the cause could be fixed before. If sampling is
    /// interrupted, this step ends too: otherwise the next step would be sampled by other weights when the
    /// run continues. The outcome depends on no clock: sampling before the update would yield the same
    /// groups.
    pub(crate) fn update_and_prefetch(
        &mut self,
        step: Step,
        samples: Vec<Sample>,
        logprob_check: Option<LogprobCheck>,
        inputs: PrefetchInputs,
        observer: &mut dyn Observer,
    ) -> (Result<Updated, TrainError>, Option<Prefetched>) {
        // The sampling thread owns the parts that sample meanwhile; an update has no use for them.
        let mut engine = mem::replace(&mut self.engine, Box::new(Placeholder));
        let mut source = mem::replace(&mut self.source, Box::new(Placeholder));
        let task = mem::replace(&mut self.task, Placeholder::task());

        let config = self.config.clone();
        let seed = self.seed;
        let vocab = self.policy.head().dims()[0];
        let sample = || {
            source.seek(inputs.cursor);
            let PrefetchInputs { carried_over, history, .. } = &inputs;
            let mut collection = Collection::begin(&config, carried_over, history, step + 1, seed);
            collection.run(engine.as_mut(), source.as_mut(), &task, vocab, &mut ())?;
            let sampled = collection.finish()?;

            Ok::<_, TrainError>(Prefetched { step: step + 1, sampled, cursor: source.cursor() })
        };

        let (updated, prefetched) = thread::scope(|scope| {
            let sampling = scope.spawn(sample);
            let updated = self.update(step, samples, logprob_check, observer);
            (updated, sampling.join())
        });

        (self.engine, self.source, self.task) = (engine, source, task);

        match prefetched {
            Ok(Ok(prefetched)) => {
                (updated, Some(prefetched).filter(|prefetched| self.is_usable(prefetched)))
            }
            // Engine and verifier each have their own error for an interruption.
            Ok(Err(_)) if self.updater.interrupted.is_set() => {
                (updated.and(Err(TrainError::Interrupted)), None)
            }
            Ok(Err(_)) => (updated, None),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Returns true if a step that was prefetched may be trained on.
    fn is_usable(&self, prefetched: &Prefetched) -> bool {
        let sampled = &prefetched.sampled;
        sampled.stop.is_none()
            && self.check_error_rate(sampled.errors(), sampled.completions()).is_ok()
    }
}

/// Stands in for engine, source and task while they work for the next step.
struct Placeholder;

impl Placeholder {
    fn task() -> Task {
        let scale = RewardScale { right: 0.0, wrong: 0.0 };
        let verifier = Box::new(Placeholder);
        let filter = Box::new(Placeholder);
        Task { verifier, scale, shapers: Vec::new(), filter, advantage: None, spare_cores: 0 }
    }
}

impl Verifier for Placeholder {
    fn score(&self, _: &Prompt, _: &Completion) -> Score {
        Score::none(Verdict::Error)
    }
}

impl GroupFilter for Placeholder {
    fn keep(&self, _: &RewardedGroup) -> bool {
        false
    }
}

impl<M> RolloutEngine<M> for Placeholder {
    fn publish(&mut self, _: &M, _: u64) -> Result<(), RolloutError> {
        Err(RolloutError::NoWeights)
    }

    fn submit(&mut self, _: Vec<GroupRequest>) -> Result<(), RolloutError> {
        Err(RolloutError::NoWeights)
    }

    fn poll(
        &mut self,
        _: Wait,
        _: &mut dyn FnMut(usize),
    ) -> Result<Vec<(RequestId, Group)>, RolloutError> {
        Err(RolloutError::NoWeights)
    }
}

impl PromptSource for Placeholder {
    fn draw(&mut self) -> Prompt {
        Prompt::default()
    }

    fn cursor(&self) -> u64 {
        0
    }

    fn seek(&mut self, _: u64) {}

    fn size(&self) -> u64 {
        1
    }
}
