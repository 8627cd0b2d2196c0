//! The learner: it turns a step's samples into new weights.

mod checkpointed_forward;
mod coefficients;
pub(crate) mod critic;
mod divergence;
pub(crate) mod local;
pub(crate) mod loss_scale;
pub(crate) mod micro_batch;
pub(crate) mod oom;
pub(crate) mod optim;
mod remote;
pub(crate) mod replicas;
pub(crate) mod sft;
pub(crate) mod teacher;
pub(crate) mod token_stats;
mod top_entropy;
pub(crate) mod update;

use firebrick_core::{Metrics, Step, Trained};

pub use firebrick_core::config::{Moments, SharePrompts};

pub use coefficients::Coefficients;
pub use critic::{Critic, CriticConfig, ValueHead, ValueModel};
pub use divergence::{TeacherDistributions, TeacherStates};
pub use local::{LearnerState, LocalGradient, LocalLearner};
pub use loss_scale::LossScale;
pub use micro_batch::{Layout, MicroBatch, MicroBatching, ValueTargets, micro_batches};
pub use oom::OomBackoff;
pub use optim::{
    AdamW, Muon, MuonConfig, NamedState, OptimConfig, Optimizer, ParameterStep, Part, StepOutcome,
    check_finite, clipped_step, fingerprint, global_norm, hidden_matrix,
};
pub use remote::{RemoteLearner, RemotePolicy, Uphill};
pub use replicas::Replicas;
pub use sft::{CrossEntropy, sft_step};
pub use teacher::{Distributions, LocalTeacher, Teacher, TeacherModel, Teachers};
pub use token_stats::TokenStats;
pub use update::{
    AuxModels, EXPERT_LOAD_MAX, ROUTER_AUX_LOSS, UpdateReport, UpdateTarget, Updater,
};

use crate::{error::TrainError, sample::Sample};

/// Updates a policy by samples.
///
/// [`LocalLearner`] computes in this process, on a policy of burn. Another learner may keep its
/// weights anywhere, and compute its loss from a sample's plain numbers. The trainer decides what is trained on and
/// when; the learner computes gradients and moves weights. The methods without a body are all that a learner has to
/// have.
///
/// # The promises of a learner
///
/// - Its loss heeds all of a sample: it leaves out samples that are not [`in_loss`](Sample::in_loss) and tokens whose
///   [`mask`](Sample::mask) is false, takes its ratios against [`old_logprobs`](Sample::old_logprobs), and multiplies by
///   the weights in [`importance`](Sample::importance), if there are any.
/// - Its log-probabilities are those at the temperature that the engine samples at.
/// - A [`gradient`](Learner::gradient) begins from zero and moves nothing. It may be asked for twice, and an [`Update`]
///   may be dropped without being [applied](Learner::apply).
///
/// # The order of calls
///
/// A step calls [`begin_step`](Learner::begin_step), publishes [`policy`](Learner::policy) to the engine, asks for
/// [`logprobs`](Learner::logprobs) if those of the old policy are computed again, then for
/// [`appraise`](Learner::appraise), and for `gradient` and `apply` in turn. Adaptive updates, and an engine whose numbers
/// are checked, ask for log-probabilities between these too. [`end_step`](Learner::end_step) is called once for each
/// `begin_step` that succeeded, unless the step panics.
///
/// # Failures
///
/// Any error ends the step, and nothing is tried again: a learner whose requests may be lost repeats them itself. An
/// error of its own is a [`TrainError::Other`].
pub trait Learner {
    /// What an engine samples with: weights, or whatever stands for them.
    type Policy;
    /// Gradient of an update that was not made yet.
    type Gradient;

    /// Returns the current policy, for an engine.
    fn policy(&self) -> &Self::Policy;

    /// Returns the number of tokens that the policy knows: those below this number.
    fn vocab(&self) -> usize;

    /// Begins a step, and returns the policy's learning rate in it, for the record.
    ///
    /// # Errors
    /// If the learner lacks something that the step needs.
    fn begin_step(&mut self, step: Step) -> Result<f64, TrainError>;

    /// Computes the log-probabilities of the samples' completion tokens under the current policy, one list per sample.
    /// The number is 0 for a token that the policy did not write. The list may be empty for a sample that does not
    /// count.
    ///
    /// # Errors
    /// When the device fails.
    fn logprobs(&mut self, samples: &[Sample]) -> Result<Vec<Vec<f32>>, TrainError>;

    /// Computes the gradient of `samples` as one update. It moves nothing.
    ///
    /// # Errors
    /// When the device fails.
    fn gradient(&mut self, samples: &[Sample]) -> Result<Update<Self::Gradient>, TrainError>;

    /// Moves the weights by the gradient of these samples. With `token_stats`, it records each token's ratio and
    /// entropy.
    ///
    /// # Errors
    /// When the device fails.
    fn apply(
        &mut self,
        update: Update<Self::Gradient>,
        samples: &[Sample],
        token_stats: bool,
    ) -> Result<Applied, TrainError>;

    /// Ends a step that was begun. `done` is false if the step has failed, or has ended before its updates.
    fn end_step(&mut self, done: bool);

    /// Returns true if the weights are between two steps: from the first update of a step to its end, and after a
    /// failure in between.
    fn is_mid_step(&self) -> bool;

    /// Does what [`Learner::logprobs`] does, for samples whose update was just computed and may have the numbers
    /// already.
    ///
    /// # Errors
    /// When the device fails.
    fn logprobs_of(
        &mut self,
        update: &Update<Self::Gradient>,
        samples: &[Sample],
    ) -> Result<Vec<Vec<f32>>, TrainError> {
        let _ = update;
        self.logprobs(samples)
    }

    /// Completes a step's samples before its first update, by the log-probabilities of a reference policy
    /// ([`ref_logprobs`](Sample::ref_logprobs)), the advantages of a critic and what teachers add to them, and returns the
    /// metrics of these.
    ///
    /// # Errors
    /// When the device fails.
    fn appraise(&mut self, samples: &mut [Sample]) -> Result<Metrics, TrainError> {
        let _ = samples;
        Ok(Metrics::default())
    }

    /// Returns true once the run is to end early. An update may then end with [`TrainError::Interrupted`]. The trainer
    /// takes any error of a step that was being sampled ahead for that same interruption, and samples the step again
    /// when the run is resumed.
    fn is_interrupted(&self) -> bool {
        false
    }

    /// Returns true if [`Learner::appraise`] estimates the advantages, token by token.
    fn estimates_advantages(&self) -> bool {
        false
    }

    /// Returns false in a step whose updates do not move the policy, because a critic is trained first.
    fn trains_policy(&self) -> bool {
        true
    }

    /// Returns true if an update must have whole groups, because its loss is a mean over each group.
    fn needs_whole_groups(&self) -> bool {
        false
    }

    /// Returns true if the learner's log-probabilities are likely to differ from those of an engine with the same
    /// weights by more than [`OldLogprobs::MAX_LOGPROB_DIFF`](crate::OldLogprobs::MAX_LOGPROB_DIFF).
    fn has_low_precision(&self) -> bool {
        false
    }

    /// Adds the learner's own metrics to a step's.
    fn record_metrics(&self, metrics: &mut Metrics) {
        let _ = metrics;
    }
}

/// Checks a learner's log-probabilities, because they may be another program's: one for each token, or no list for a
/// sample that does not count.
///
/// # Errors
/// If it is not.
pub(crate) fn checked_logprobs(
    logprobs: Vec<Vec<f32>>,
    samples: &[Sample],
) -> Result<Vec<Vec<f32>>, TrainError> {
    let fits = |(list, sample): (&Vec<f32>, &Sample)| {
        list.len() == sample.completion.len() || (list.is_empty() && sample.loss_tokens() == 0)
    };
    let expected = samples.len();
    if logprobs.len() != expected {
        return Err(TrainError::Answer {
            what: "lists of log-probabilities",
            expected,
            actual: logprobs.len(),
        });
    }

    match logprobs.iter().zip(samples).find(|pair| !fits(*pair)) {
        None => Ok(logprobs),
        Some((list, sample)) => {
            let expected = sample.completion.len();
            Err(TrainError::Answer {
                what: "log-probabilities of a completion",
                expected,
                actual: list.len(),
            })
        }
    }
}

/// Loss and gradient of an update that was not made yet.
#[derive(Clone, Debug, Default)]
pub struct Update<G> {
    /// Means over the update's tokens, by name, such as `loss/total`.
    pub metrics: Metrics,
    /// Tokens that counted.
    pub tokens: usize,
    /// How far the policy is from the old policy. If it is not known, nothing is recorded, [`OldLogprobs::Auto`] has
    /// nothing to go by, and adaptive updates fail ([`TrainError::NoSignals`]).
    ///
    /// [`OldLogprobs::Auto`]: crate::OldLogprobs::Auto
    pub logprob_change: Option<LogprobChange>,
    /// Mean entropy of the policy over the tokens that count, in nats, if it is known. Adaptive updates need it.
    pub entropy: Option<f64>,
    /// Fraction of the tokens of prompts and completions that were not computed, because a prompt was shared.
    pub prompt_sharing: f64,
    /// The gradient.
    pub gradient: G,
}

impl<G> Update<G> {
    /// Takes the gradient out.
    pub fn take_gradient(self) -> (Update<()>, G) {
        let Update { metrics, tokens, logprob_change, entropy, prompt_sharing, gradient } = self;
        let update =
            Update { metrics, tokens, logprob_change, entropy, prompt_sharing, gradient: () };
        (update, gradient)
    }
}

/// Absolute change of the log-probabilities of the tokens that count, in nats.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LogprobChange {
    /// Mean over the tokens.
    pub mean: f64,
    /// Largest change.
    pub max: f64,
}

/// An update that was made, or skipped because its gradient was not finite.
#[derive(Clone, Debug, Default)]
pub struct Applied {
    /// The update, without its gradient.
    pub update: Update<()>,
    /// Outcome of the optimizer's step.
    pub outcome: StepOutcome,
    /// Outcome of the critic's step, and the critic's learning rate, if there is a critic.
    pub critic: Option<(StepOutcome, f64)>,
    /// What the update records of each sample, in their order: [`Sample::trained`], with ratios and entropies if they
    /// were asked for. If an update was made and there is not one for each sample, the step fails, although the weights
    /// have moved.
    pub trained: Vec<Trained>,
}
