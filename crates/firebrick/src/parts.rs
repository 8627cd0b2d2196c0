use firebrick_core::{
    AdvantageEstimator, GroupFilter, Prompt, PromptSource, RewardShaper, Verifier, WorkedExample,
};
use firebrick_rollout::RolloutEngine;
use firebrick_train::{LrSchedule, Optimizer, PolicyLoss};

/// The parts of a run that a program brings itself. What is here is not built from the recipe.
pub(crate) struct Parts<M> {
    pub(crate) verifier: Option<Box<dyn Verifier>>,
    pub(crate) shapers: Option<Vec<Box<dyn RewardShaper>>>,
    pub(crate) filter: Option<Box<dyn GroupFilter>>,
    pub(crate) advantage: Option<Box<dyn AdvantageEstimator>>,
    pub(crate) loss: Option<Box<dyn PolicyLoss>>,
    pub(crate) optimizer: Option<Box<dyn Optimizer<M>>>,
    pub(crate) schedule: Option<Box<dyn LrSchedule>>,
    pub(crate) engine: Option<Box<dyn RolloutEngine<M>>>,
    pub(crate) source: Option<Box<dyn PromptSource>>,
    pub(crate) heldout: Option<Vec<Prompt>>,
    pub(crate) worked: Option<Vec<WorkedExample>>,
}

impl<M> Default for Parts<M> {
    fn default() -> Self {
        Parts {
            verifier: None,
            shapers: None,
            filter: None,
            advantage: None,
            loss: None,
            optimizer: None,
            schedule: None,
            engine: None,
            source: None,
            heldout: None,
            worked: None,
        }
    }
}

impl<M> Parts<M> {
    /// What is there, in words, for whoever reads the run's recipe and would believe it.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        [
            ("the verifier", self.verifier.is_some()),
            ("the reward's shaping", self.shapers.is_some()),
            ("the filter of groups", self.filter.is_some()),
            ("the advantages", self.advantage.is_some()),
            ("the loss", self.loss.is_some()),
            ("the optimizer", self.optimizer.is_some()),
            ("the learning rate's schedule", self.schedule.is_some()),
            ("the engine", self.engine.is_some()),
            ("the training prompts", self.source.is_some()),
            ("the held-out prompts", self.heldout.is_some()),
            ("the warm-up's examples", self.worked.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, there)| there.then_some(name))
        .collect()
    }
}
