//! The traits of environments and their episodes, with replies and the outcome of a conversation.

use serde::{Deserialize, Serialize};

use crate::Prompt;

/// A partner that a policy talks with: a game, a tool, a simulated user. The policy takes a turn and observes
/// the reply, until the episode is over.
///
/// All completions of a group begin an episode of the same prompt, and they are compared with each other. So an
/// episode may depend only on its prompt and on the policy's words. It must not depend on a clock, nor on any
/// chance but the one that the prompt's id seeds.
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
    /// Begins an episode. Several threads call this at once.
    ///
    /// # Errors
    /// Fails if the environment has no episode to give.
    fn begin(&self, prompt: &Prompt) -> Result<Box<dyn Episode>, EnvironmentFailed>;

    /// Returns the number of episodes that may be open at once; at least 1. Other episodes wait for their turn.
    fn sessions(&self) -> usize {
        usize::MAX
    }
}

/// One conversation with an [`Environment`]. Dropping it ends it.
pub trait Episode: Send {
    /// Answers the words that the policy wrote in its turn: the turn's tokens as text, without their end.
    ///
    /// # Errors
    /// Fails if the environment fails. The policy's words are never a reason: a move against the rules gets a
    /// reply too.
    fn step(&mut self, action: &str) -> Result<Reply, EnvironmentFailed>;

    /// Returns the words that the episode began with, if the prompt was made from one of the environment's own
    /// tasks. The policy has read them in its prompt.
    fn opening(&self) -> &str {
        ""
    }
}

/// An environment's answer to a turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// The words that the policy reads before its next turn.
    pub observation: String,
    /// The reward of this turn, any finite number; `None` if the environment gives no reward.
    pub reward: Option<f32>,
    /// True if the episode is over.
    pub over: bool,
}

impl Reply {
    /// Makes a reply of words without a reward; the episode continues.
    pub fn observation(words: impl Into<String>) -> Self {
        Reply { observation: words.into(), reward: None, over: false }
    }

    /// Makes the last reply: its words and the reward.
    pub fn over(words: impl Into<String>, reward: f32) -> Self {
        Reply { observation: words.into(), reward: Some(reward), over: true }
    }
}

/// The reason why an environment does not answer, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentFailed {
    /// The environment has no room now, or cannot be reached. The request is repeated later, and an episode that
    /// has begun is kept.
    #[error("{0}")]
    Busy(String),
    /// This episode is lost, and nobody knows what its completion is worth. Other episodes may continue.
    #[error("{0}")]
    Episode(String),
    /// The environment can give no more episodes. The run ends; its finished steps are saved.
    #[error("{0}")]
    Environment(String),
}

/// An environment's part in a completion.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The sum of the environment's rewards; `None` if it gave no reward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<f32>,
    /// The number of turns that the policy took.
    pub turns: usize,
    /// The reason why the conversation ended.
    pub ended: Ended,
    /// The environment's last words, at most [`Outcome::CLOSING`] letters of them. The policy did not read them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub closing: String,
    /// The reason why the environment failed; empty if it did not fail. A completion whose environment failed has
    /// no verdict.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failure: String,
}

impl Outcome {
    /// The number of letters that are kept of an environment's last words.
    pub const CLOSING: usize = 300;
}

/// The reason why a conversation ended.
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
