//! Errors of training.

use std::path::{Path, PathBuf};

use firebrick_core::{Step, VerifierFailed};
use firebrick_models::CheckpointError;
use firebrick_rollout::RolloutError;

/// The reasons why training could not continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// Completions could not be sampled.
    #[error(transparent)]
    Rollout(#[from] RolloutError),
    /// The sampling cap was reached and the recipe asks for an error.
    #[error(
        "step {step}: {rounds} rounds of sampling gave {kept} of {wanted} groups to train on, and \
         sampling.on_cap is \"error\"; raise sampling.max_rounds, choose easier or harder prompts, \
         or set on_cap to \"train_smaller\" or \"stop\""
    )]
    CapReached {
        /// The step.
        step: u64,
        /// The number of rounds sampled.
        rounds: usize,
        /// The number of groups kept.
        kept: usize,
        /// The number of groups that the step wants, from `sampling.prompts_per_step`.
        wanted: usize,
    },
    /// The loss has a KL penalty, and there is no reference policy to measure it from.
    #[error(
        "loss.kl needs the policy that the run started from, and there is none: begin a new run \
         with loss.kl, or leave loss.kl out"
    )]
    NoReference,
    /// A verifier did not judge every completion that it was given.
    #[error(
        "the verifier gave {came} scores for {expected} completions, expected one for each, in their order \
         (Verifier::score_all)"
    )]
    Scores {
        /// The number of completions.
        expected: usize,
        /// The number of scores.
        came: usize,
    },
    /// The verifier failed too often to learn or measure anything.
    #[error(
        "{errors} of {completions} completions could not be judged, but reward.max_errors allows a share of {most}: the \
         verifier or the environment failed, or the references can't be read"
    )]
    Unjudged {
        /// The number of completions without a verdict.
        errors: u64,
        /// The number of completions of the step or the evaluation.
        completions: u64,
        /// The largest share of such completions that is borne.
        most: f64,
    },
    /// The verifier can judge nothing any more.
    #[error(transparent)]
    Verifier(#[from] VerifierFailed),
    /// An estimator did not give as many advantages as it was asked for.
    #[error(
        "the advantage estimator gave advantages for {came} {what}, expected {expected} \
         (AdvantageEstimator::advantages)"
    )]
    Advantages {
        /// The things that were counted, such as `lists of tokens of a group`.
        what: &'static str,
        /// The number of things that were asked for.
        expected: usize,
        /// The number of things that were given.
        came: usize,
    },
    /// An engine gave a token that the policy does not have.
    #[error(
        "the rollout engine gave token {token}, expected a token below {vocab}, the size of the policy's \
         vocabulary: does the engine serve another model?"
    )]
    Token {
        /// The token.
        token: u32,
        /// The number of rows of the policy's head.
        vocab: usize,
    },
    /// A part that the program itself supplied failed, with an error of its own.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
    /// Nothing gives advantages.
    #[error(
        "neither Task::advantage nor Trainer::critic is set: set Task::advantage, or Trainer::critic for \
         token-level advantages (GAE)"
    )]
    NoAdvantage,
    /// Two things would give advantages.
    #[error(
        "both Task::advantage and Trainer::critic are set, expected one of them: with a critic, set \
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
        /// The folder in which the critic should be.
        folder: PathBuf,
    },
    /// The schedule of the learning rate gave a number that is no learning rate.
    #[error(
        "step {step}: the schedule of the learning rate gave a rate of {lr}, expected a finite number of at \
         least 0: correct `LrSchedule::lr({asked})`"
    )]
    Rate {
        /// The run's step, counted from 1.
        step: Step,
        /// The step that the schedule was asked for, counted from 0. The policy's schedule begins behind the
        /// steps in which the critic alone learns.
        asked: Step,
        /// The number that the schedule gave.
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
        /// The fault of the file, as a verb phrase.
        problem: String,
    },
    /// The run is to end; weights may be on the way from one step to the next.
    #[error("the step was interrupted")]
    Interrupted,
    /// Some weights are infinite or not numbers.
    #[error(
        "{parameter} has values that are not finite: the policy is broken, and is not saved; lower optim.lr \
         first"
    )]
    NotFinite {
        /// The parameter's place in the policy.
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
