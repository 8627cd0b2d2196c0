//! The parts of a run that a program supplies in place of those of the recipe.

use std::{fmt, path::PathBuf, sync::Arc};

use firebrick_core::{
    AdvantageEstimator, Environment, GroupFilter, Prompt, PromptSource, RewardShaper, Verifier,
    WorkedExample,
};
use firebrick_rollout::RolloutEngine;
use firebrick_train::{LrSchedule, Optimizer, PolicyLoss};

/// The parts of a run that a program brings itself. A part that is here is not built from the recipe.
pub(crate) struct Parts<M> {
    pub(crate) verifier: Option<Box<dyn Verifier>>,
    pub(crate) shapers: Option<Vec<Box<dyn RewardShaper>>>,
    pub(crate) filter: Option<Box<dyn GroupFilter>>,
    pub(crate) advantage: Option<Box<dyn AdvantageEstimator>>,
    pub(crate) loss: Option<Box<dyn PolicyLoss>>,
    pub(crate) optimizer: Option<Box<dyn Optimizer<M>>>,
    pub(crate) schedule: Option<Box<dyn LrSchedule>>,
    pub(crate) engine: Option<Box<dyn RolloutEngine<M>>>,
    pub(crate) environment: Option<Arc<dyn Environment>>,
    pub(crate) source: Option<Box<dyn PromptSource>>,
    pub(crate) heldout: Option<Vec<Prompt>>,
    pub(crate) worked: Option<Vec<WorkedExample>>,
    /// The folder that the run will have, where a part may write its own files.
    pub(crate) run_folder: Option<PathBuf>,
}

/// A part of a run that is the program's own. Its [`Display`](fmt::Display) is a few words for a person who
/// reads the run's recipe and would otherwise believe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each is the part of its name.
#[non_exhaustive]
pub enum Part {
    Policy,
    Verifier,
    Shaping,
    Filter,
    Advantages,
    Loss,
    Optimizer,
    Schedule,
    Engine,
    Environment,
    Source,
    Heldout,
    Worked,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Policy => "the policy",
            Part::Verifier => "the verifier",
            Part::Shaping => "the reward's shaping",
            Part::Filter => "the filter of groups",
            Part::Advantages => "the advantages",
            Part::Loss => "the loss",
            Part::Optimizer => "the optimizer",
            Part::Schedule => "the learning rate's schedule",
            Part::Engine => "the engine",
            Part::Environment => "the environment",
            Part::Source => "the training prompts",
            Part::Heldout => "the held-out prompts",
            Part::Worked => "the warm-up's examples",
        })
    }
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
            environment: None,
            source: None,
            heldout: None,
            worked: None,
            run_folder: None,
        }
    }
}

impl<M> Parts<M> {
    /// Lists the parts that the program brings.
    pub(crate) fn given(&self) -> Vec<Part> {
        [
            (Part::Verifier, self.verifier.is_some()),
            (Part::Shaping, self.shapers.is_some()),
            (Part::Filter, self.filter.is_some()),
            (Part::Advantages, self.advantage.is_some()),
            (Part::Loss, self.loss.is_some()),
            (Part::Optimizer, self.optimizer.is_some()),
            (Part::Schedule, self.schedule.is_some()),
            (Part::Engine, self.engine.is_some()),
            (Part::Environment, self.environment.is_some()),
            (Part::Source, self.source.is_some()),
            (Part::Heldout, self.heldout.is_some()),
            (Part::Worked, self.worked.is_some()),
        ]
        .into_iter()
        .filter_map(|(part, there)| there.then_some(part))
        .collect()
    }
}
