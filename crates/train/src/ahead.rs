//! The next step's groups, sampled while a step is trained on.

use std::{mem, panic::resume_unwind, thread};

use firebrick_core::{
    Completion, Group, GroupFilter, Prompt, PromptSource, RewardScale, RewardedGroup, Score, Step,
    Verdict, Verifier,
};
use firebrick_models::PolicyModel;
use firebrick_rollout::{GroupRequest, RequestId, RolloutEngine, RolloutError, Wait};
use serde::{Deserialize, Serialize};

use crate::{
    Observer, PromptMemory, Sample, Task, TrainError, Trainer,
    collect::Collection,
    report::{Sampled, Updated},
    trust::Trust,
};

/// The groups of a step that were sampled before its turn, by older weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ahead {
    pub(crate) step: Step,
    pub(crate) sampled: Sampled,
    /// The number of prompts that were drawn by then.
    pub(crate) cursor: u64,
}

/// Everything besides weights that the sampling of a step depends on.
pub(crate) struct Start {
    pub(crate) surplus: Vec<RewardedGroup>,
    pub(crate) memory: PromptMemory,
    pub(crate) cursor: u64,
}

impl<M: PolicyModel> Trainer<M> {
    /// Trains on `samples`, and samples the next step meanwhile.
    ///
    /// If sampling fails, nothing is lost: the step samples when its turn comes, and fails then if it must. A
    /// step that would end the run is treated alike, because the cause could be mended before. If sampling is
    /// interrupted, this step ends too: otherwise the next step would be sampled by other weights when the run
    /// goes on. The outcome depends on no clock: sampling before the update would give the same groups.
    pub(crate) fn update_and_sample(
        &mut self,
        step: Step,
        samples: Vec<Sample>,
        trust: Option<Trust>,
        start: Start,
        observer: &mut dyn Observer,
    ) -> (Result<Updated, TrainError>, Option<Ahead>) {
        // The sampling thread owns the parts that sample meanwhile; an update has no use for them.
        let mut engine = mem::replace(&mut self.engine, Box::new(Away));
        let mut source = mem::replace(&mut self.source, Box::new(Away));
        let task = mem::replace(&mut self.task, Away::task());
        let (config, seed) = (self.config.clone(), self.seed);
        let vocab = self.policy.head().dims()[0];
        let sample = || {
            source.seek(start.cursor);
            let Start { surplus, memory, .. } = &start;
            let mut collection = Collection::begin(&config, surplus, memory, step + 1, seed);
            collection.run(engine.as_mut(), source.as_mut(), &task, vocab, &mut ())?;
            let sampled = collection.finish()?;
            Ok::<_, TrainError>(Ahead { step: step + 1, sampled, cursor: source.cursor() })
        };
        let (updated, ahead) = thread::scope(|scope| {
            let sampling = scope.spawn(sample);
            let updated = self.update(step, samples, trust, observer);
            (updated, sampling.join())
        });
        (self.engine, self.source, self.task) = (engine, source, task);
        match ahead {
            Ok(Ok(ahead)) => (updated, Some(ahead).filter(|ahead| self.is_usable(ahead))),
            // Engine and verifier each have words of their own for it.
            Ok(Err(_)) if self.updater.interrupted.is_set() => {
                (updated.and(Err(TrainError::Interrupted)), None)
            }
            Ok(Err(_)) => (updated, None),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Tells whether a step that was sampled ahead may be trained on.
    fn is_usable(&self, ahead: &Ahead) -> bool {
        let sampled = &ahead.sampled;
        sampled.stop.is_none() && self.bear(sampled.errors(), sampled.completions()).is_ok()
    }
}

/// Stands in for engine, source and task while they work for the next step.
struct Away;

impl Away {
    fn task() -> Task {
        let scale = RewardScale { right: 0.0, wrong: 0.0 };
        let (verifier, filter) = (Box::new(Away), Box::new(Away));
        Task { verifier, scale, shapers: Vec::new(), filter, advantage: None, spare_cores: 0 }
    }
}

impl Verifier for Away {
    fn score(&self, _: &Prompt, _: &Completion) -> Score {
        Score::none(Verdict::Error)
    }
}

impl GroupFilter for Away {
    fn keep(&self, _: &RewardedGroup) -> bool {
        false
    }
}

impl<M> RolloutEngine<M> for Away {
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

impl PromptSource for Away {
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
