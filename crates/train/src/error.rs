//! Errors of training.

use std::path::{Path, PathBuf};

use firebrick_core::{Step, VerifierFailed};
use firebrick_models::CheckpointError;
use firebrick_rollout::RolloutError;

/// Reasons why training could not continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// Completions could not be sampled.
    #[error(transparent)]
    Rollout(#[from] RolloutError),
    /// The sampling cap was reached, and the recipe asks for an error.
    #[error(
        "step {step}: sampling yielded {kept} of {wanted} groups to train on (rounds: {rounds}), and \
         sampling.on_cap is \"error\"; raise sampling.max_rounds, choose easier or harder prompts, \
         or set on_cap to \"train_smaller\" or \"stop\""
    )]
    CapReached {
        /// The step.
        step: u64,
        /// Rounds sampled.
        rounds: usize,
        /// Groups kept.
        kept: usize,
        /// Groups that the step wants, from `sampling.prompts_per_step`.
        wanted: usize,
    },
    /// A teacher did not give its log-probabilities.
    #[error(transparent)]
    Teacher(Box<dyn std::error::Error + Send + Sync>),
    /// The loss has a KL penalty, and there is no reference policy.
    #[error(
        "loss.kl needs the policy that the run started from, and there is none: begin a new run \
         with loss.kl, or leave loss.kl out"
    )]
    NoReference,
    /// A teacher says only how likely given tokens are, and the loss needs its whole distribution.
    #[error(
        "teacher.loss needs what the teacher thinks of every token, and this teacher says only how likely the policy's tokens \
         are: set teacher.loss = \"policy_gradient\", or take a teacher of kind \"local\""
    )]
    NoDistribution,
    /// A verifier did not judge every completion that it was given.
    #[error(
        "the verifier returned the wrong number of scores ({actual}, expected {expected}): one for each completion, in their order \
         (Verifier::score_all)"
    )]
    Scores {
        /// The number of completions.
        expected: usize,
        /// The number of scores.
        actual: usize,
    },
    /// The verifier failed too often to train on or evaluate the completions.
    #[error(
        "{errors} of {completions} completions could not be judged, but reward.max_errors allows a share of {max_share}: the \
         verifier or the environment failed, or the references can't be read"
    )]
    Unjudged {
        /// Completions without a verdict.
        errors: u64,
        /// Completions of the step or the evaluation.
        completions: u64,
        /// Largest share of such completions that is allowed.
        max_share: f64,
    },
    /// The verifier can no longer judge anything.
    #[error(transparent)]
    Verifier(#[from] VerifierFailed),
    /// An estimator did not return as many advantages as it was asked for.
    #[error(
        "the advantage estimator gave advantages for {actual} {what}, expected {expected} \
         (AdvantageEstimator::advantages)"
    )]
    Advantages {
        /// What was counted, such as `lists of tokens of a group`.
        what: &'static str,
        /// How many were asked for.
        expected: usize,
        /// How many were returned.
        actual: usize,
    },
    /// An engine returned a token that the policy does not have.
    #[error(
        "the rollout engine gave token {token}, expected a token below {vocab}, the size of the policy's \
         vocabulary: does the engine serve another model?"
    )]
    Token {
        /// The token.
        token: u32,
        /// Rows of the policy's head.
        vocab: usize,
    },
    /// A custom component failed, with its own error.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
    /// Adaptive updates have nothing to go by.
    #[error(
        "adaptive updates need the change of log-probabilities and the entropy, and the learner returned none"
    )]
    NoSignals,
    /// A learner did not answer for each token, or for each sample.
    #[error("the learner returned {actual} {what}, expected {expected}")]
    Answer {
        /// What was counted.
        what: &'static str,
        /// Number that there should have been.
        expected: usize,
        /// Number that there was.
        actual: usize,
    },
    /// There is neither a critic nor an estimator to compute advantages.
    #[error(
        "neither Task::advantage nor LocalLearner::critic is set: set Task::advantage, or \
         LocalLearner::critic for token-level advantages (GAE)"
    )]
    NoAdvantage,
    /// A critic and an estimator would both compute advantages.
    #[error(
        "both Task::advantage and LocalLearner::critic are set, expected one of them: with a critic, set \
         Task::advantage to None"
    )]
    TwoAdvantages,
    /// Advantages come from a critic, and the checkpoint has none.
    #[error(
        "advantage.kind = \"gae\" needs the critic that the run has trained so far, and there is none in \
         {}: begin a new run with \"gae\", or leave advantage.kind as it was",
        folder.display()
    )]
    NoCritic {
        /// Where the critic should be.
        folder: PathBuf,
    },
    /// The schedule of the learning rate returned a number that is not a learning rate.
    #[error(
        "step {step}: the schedule of the learning rate gave a rate of {lr}, expected a finite number of at \
         least 0: correct `LrSchedule::lr({schedule_step})`"
    )]
    Rate {
        /// The run's step, counted from 1.
        step: Step,
        /// Step that the schedule was asked for, counted from 0. The policy's schedule begins after the steps
        /// in which only the critic is trained.
        schedule_step: Step,
        /// What the schedule returned.
        lr: f64,
    },
    /// A critic's weights could not be written or read.
    #[error(transparent)]
    Weights(#[from] CheckpointError),
    /// A file of the trainer's state is damaged or belongs to another run.
    #[error("{path} {problem}")]
    Checkpoint {
        /// The path of the file.
        path: PathBuf,
        /// Fault of the file, as a verb phrase.
        problem: String,
    },
    /// The run was interrupted; weights may be between one step and the next.
    #[error("the step was interrupted")]
    Interrupted,
    /// Some weights are infinite or not numbers.
    #[error(
        "{parameter} has values that are not finite: the policy is broken, and is not saved; lower optim.lr \
         first"
    )]
    NotFinite {
        /// Path of the parameter in the policy.
        parameter: String,
    },
    /// The device failed, or has no memory left.
    #[error("the device failed: {0}")]
    Device(String),
}

impl TrainError {
    pub(crate) fn checkpoint(path: &Path, problem: String) -> Self {
        TrainError::Checkpoint { path: path.to_owned(), problem }
    }
}
