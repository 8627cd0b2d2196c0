//! The traits of environments and their episodes, with replies and the outcome of a conversation.

use serde::{Deserialize, Serialize};

use crate::{Prompt, Reason};

/// A counterpart that a policy talks with: a game, a tool, a simulated user. The policy takes a turn and observes the
/// reply, until the episode is over.
///
/// All completions of a group begin an episode of the same prompt and are compared with each other, so an episode may
/// depend only on its prompt and on the policy's text. It must not depend on a clock, or on randomness that is not
/// seeded by the prompt's id.
///
/// ```
/// use firebrick_core::{Environment, EnvironmentFailed, Episode, Prompt, Reply};
///
/// /// Gives back what it is told; three turns are an episode.
/// struct Echo;
///
/// struct Told(usize);
///
/// impl Environment for Echo {
///     fn begin(&self, _: &Prompt) -> Result<Box<dyn Episode>, EnvironmentFailed> {
///         Ok(Box::new(Told(0)))
///     }
/// }
///
/// impl Episode for Told {
///     fn step(&mut self, action: &str) -> Result<Reply, EnvironmentFailed> {
///         self.0 += 1;
///         Ok(match self.0 {
///             3 => Reply::over(action, 1.0),
///             _ => Reply::observation(action),
///         })
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "a policy cannot talk with `{Self}`",
    label = "needs `fn begin(&self, prompt: &Prompt) -> Result<Box<dyn Episode>, EnvironmentFailed>`"
)]
pub trait Environment: Send + Sync {
    /// Begins an episode. Several threads call this concurrently.
    ///
    /// # Errors
    /// Fails if the environment has no episode to offer.
    fn begin(&self, prompt: &Prompt) -> Result<Box<dyn Episode>, EnvironmentFailed>;

    /// Returns how many of its own tasks the environment offers, as far as they are wanted; `None` if it has an episode
    /// for any prompt.
    ///
    /// # Errors
    /// Fails if the tasks can't be counted.
    fn tasks(&self) -> Result<Option<TaskCounts>, EnvironmentFailed> {
        Ok(None)
    }

    /// Returns the number of episodes that may be open at the same time; at least 1. Other episodes wait for their
    /// turn.
    fn sessions(&self) -> usize {
        usize::MAX
    }
}

/// How many tasks an environment offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskCounts {
    /// Number of tasks to train on.
    pub train: usize,
    /// Number of held-out tasks.
    pub heldout: usize,
}

/// One conversation with an [`Environment`]. Dropping it ends it.
pub trait Episode: Send {
    /// Answers the text that the policy wrote in its turn: the turn's tokens as text, without the end token.
    ///
    /// # Errors
    /// Fails if the environment itself fails. The policy's text is never a reason, because even an illegal move gets a
    /// reply.
    fn step(&mut self, action: &str) -> Result<Reply, EnvironmentFailed>;

    /// Returns the text that the episode began with, if the prompt was made from one of the environment's own tasks.
    /// The policy has read it in its prompt.
    fn opening(&self) -> &str {
        ""
    }
}

/// An environment's answer to a turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// What the policy reads before its next turn.
    pub observation: String,
    /// Reward of this turn, any finite number; `None` if the environment gives none.
    pub reward: Option<f32>,
    /// True if the episode is over.
    pub over: bool,
}

impl Reply {
    /// Makes a reply with a text and no reward; the episode continues.
    pub fn observation(words: impl Into<String>) -> Self {
        Reply { observation: words.into(), reward: None, over: false }
    }

    /// Makes the last reply: its text and the reward.
    pub fn over(words: impl Into<String>, reward: f32) -> Self {
        Reply { observation: words.into(), reward: Some(reward), over: true }
    }
}

/// Error of an environment that does not answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EnvironmentFailed {
    /// No room now, or no connection. The request is repeated later, and an episode that has begun is kept.
    #[error(transparent)]
    Busy(Reason),
    /// This episode is lost, and the reward of its completion is unknown. Other episodes may continue.
    #[error(transparent)]
    Episode(Reason),
    /// No more episodes can come from the environment. The run ends with its finished steps saved.
    #[error(transparent)]
    Environment(Reason),
}

/// How a completion's conversation went, from the environment's side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Sum of the environment's rewards; `None` if it gave none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<f32>,
    /// How many turns the policy took.
    pub turns: usize,
    /// Why the conversation ended.
    pub ended: Ended,
    /// Last text of the environment, at most [`Outcome::CLOSING`] characters of it. The policy did not read it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub closing: String,
    /// Why the environment failed; empty if it did not fail. A completion whose environment failed has no verdict.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failure: String,
}

impl Outcome {
    /// How many characters of an environment's last text are kept.
    pub const CLOSING: usize = 300;
}

/// Why a conversation ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The environment ended the episode.
    #[default]
    Over,
    /// The policy took as many turns as it may.
    Turns,
    /// The policy wrote as many tokens as it may.
    Tokens,
    /// The reply had more tokens than the policy may read.
    Observation,
    /// The environment failed.
    Failed,
}
