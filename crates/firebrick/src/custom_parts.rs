//! Parts of a run that a program supplies instead of those of the recipe.

use std::{fmt, path::PathBuf, sync::Arc};

use firebrick_core::{
    AdvantageEstimator, Environment, GroupFilter, Prompt, PromptSource, RewardShaper, SftExample,
    Verifier,
};
use firebrick_data::Tokenizer;
use firebrick_models::PolicyModel;
use firebrick_rollout::RolloutEngine;
use firebrick_train::{
    algorithm::{LrSchedule, PolicyLoss},
    learner::Optimizer,
};

use crate::{
    Error,
    files::{Parameters, PolicyFiles},
};

/// What a program brings for a run. A part that is here is not built from the recipe.
pub(crate) struct CustomParts<M> {
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
    pub(crate) sft_examples: Option<Vec<SftExample>>,
    /// Folder that the run will have, where a part may write its own files.
    pub(crate) run_folder: Option<PathBuf>,
}

/// A policy that a program brings, and what belongs to it.
pub struct OwnPolicy<M> {
    pub(crate) policy: M,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) files: Box<dyn PolicyFiles<M>>,
    /// Limit of the tokens of prompt and completion together.
    pub(crate) context: usize,
}

impl<M: PolicyModel> OwnPolicy<M> {
    /// Takes a policy, on a device with autodiff such as `Device::flex().autodiff()`, where the run then computes. Its
    /// files are its [`Parameters`] by name, and it takes texts of any length.
    pub fn new(policy: M, tokenizer: Tokenizer) -> Self {
        OwnPolicy {
            policy,
            tokenizer: Arc::new(tokenizer),
            files: Box::new(Parameters),
            context: usize::MAX / 2,
        }
    }

    /// Sets the format of the policy's files.
    #[must_use]
    pub fn files(self, files: impl PolicyFiles<M> + 'static) -> Self {
        OwnPolicy { files: Box::new(files), ..self }
    }

    /// Limits the tokens that the policy takes, prompt and completion together.
    #[must_use]
    pub fn context(self, tokens: usize) -> Self {
        OwnPolicy { context: tokens, ..self }
    }
}

/// A part of a run that the program brings. Its [`Display`](fmt::Display) is a short note for a reader of the run's
/// recipe, who would otherwise believe the recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each is the part of its name.
#[non_exhaustive]
pub enum CustomPart {
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
    SftExamples,
}

impl fmt::Display for CustomPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CustomPart::Policy => "the policy",
            CustomPart::Verifier => "the verifier",
            CustomPart::Shaping => "the reward's shaping",
            CustomPart::Filter => "the filter of groups",
            CustomPart::Advantages => "the advantages",
            CustomPart::Loss => "the loss",
            CustomPart::Optimizer => "the optimizer",
            CustomPart::Schedule => "the learning rate's schedule",
            CustomPart::Engine => "the engine",
            CustomPart::Environment => "the environment",
            CustomPart::Source => "the training prompts",
            CustomPart::Heldout => "the held-out prompts",
            CustomPart::SftExamples => "the SFT examples",
        })
    }
}

impl<M> Default for CustomParts<M> {
    fn default() -> Self {
        CustomParts {
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
            sft_examples: None,
            run_folder: None,
        }
    }
}

impl<M> CustomParts<M> {
    /// Takes the parts over to a policy of another kind.
    ///
    /// # Errors
    /// When a part is made for the policy.
    pub(crate) fn of_another_policy<N>(self) -> Result<CustomParts<N>, Error> {
        let needs = "with engine.kind = \"local\"";
        if self.engine.is_some() {
            return Err(Error::NoEffect { part: "Session::engine", needs });
        }
        if self.optimizer.is_some() {
            return Err(Error::NoEffect { part: "Session::optimizer", needs });
        }
        let CustomParts { verifier, shapers, filter, advantage, loss, schedule, .. } = self;
        let CustomParts { environment, source, heldout, sft_examples, run_folder, .. } = self;
        Ok(CustomParts {
            verifier,
            shapers,
            filter,
            advantage,
            loss,
            optimizer: None,
            schedule,
            engine: None,
            environment,
            source,
            heldout,
            sft_examples,
            run_folder,
        })
    }

    /// Lists the parts that the program brings.
    pub(crate) fn replaced(&self) -> Vec<CustomPart> {
        [
            (CustomPart::Verifier, self.verifier.is_some()),
            (CustomPart::Shaping, self.shapers.is_some()),
            (CustomPart::Filter, self.filter.is_some()),
            (CustomPart::Advantages, self.advantage.is_some()),
            (CustomPart::Loss, self.loss.is_some()),
            (CustomPart::Optimizer, self.optimizer.is_some()),
            (CustomPart::Schedule, self.schedule.is_some()),
            (CustomPart::Engine, self.engine.is_some()),
            (CustomPart::Environment, self.environment.is_some()),
            (CustomPart::Source, self.source.is_some()),
            (CustomPart::Heldout, self.heldout.is_some()),
            (CustomPart::SftExamples, self.sft_examples.is_some()),
        ]
        .into_iter()
        .filter_map(|(part, there)| there.then_some(part))
        .collect()
    }
}
