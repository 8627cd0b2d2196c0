use serde::{Deserialize, Serialize};

use crate::Prompt;

/// Something that a policy talks with: a game, a tool, a simulated user. The policy takes a turn and hears the reply,
/// until the episode is over.
///
/// All completions of a group begin an episode of the same prompt, and they are compared with each other. So an episode
/// has to follow from its prompt and from what the policy says, and from nothing else: no clock, and no luck but what the
/// prompt's id seeds.
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
///     fn step(&mut self, said: &str) -> Result<Reply, EnvironmentFailed> {
///         self.0 += 1;
///         Ok(match self.0 {
///             3 => Reply::over(said, 1.0),
///             _ => Reply::heard(said),
///         })
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is nothing that a policy can talk with",
    label = "needs `fn begin(&self, prompt: &Prompt) -> Result<Box<dyn Episode>, EnvironmentFailed>`"
)]
pub trait Environment: Send + Sync {
    /// Begins an episode. It is called from several threads at once.
    ///
    /// # Errors
    /// When there is none to be had.
    fn begin(&self, prompt: &Prompt) -> Result<Box<dyn Episode>, EnvironmentFailed>;

    /// Tells how many episodes may be open at once; at least 1. The others wait for their turn.
    fn sessions(&self) -> usize {
        usize::MAX
    }
}

/// One conversation with an [`Environment`]. Dropped, it is over.
pub trait Episode: Send {
    /// Answers what the policy said in its turn: its tokens as text, special ones left out.
    ///
    /// # Errors
    /// When the environment fails. What the policy says is never a reason: a move that is against the rules has a
    /// reply too.
    fn step(&mut self, said: &str) -> Result<Reply, EnvironmentFailed>;

    /// The words that the episode began with, for prompts that are made of an environment's own tasks. The policy has
    /// read them in its prompt.
    fn opening(&self) -> &str {
        ""
    }
}

/// An environment's answer to a turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// The words that the policy reads before its next turn.
    pub heard: String,
    /// The reward of this turn, any finite number; none where the environment gives none.
    pub reward: Option<f32>,
    /// True where the episode is over.
    pub over: bool,
}

impl Reply {
    /// Words, without a reward; the episode goes on.
    pub fn heard(words: impl Into<String>) -> Self {
        Reply { heard: words.into(), reward: None, over: false }
    }

    /// The last words, and the reward.
    pub fn over(words: impl Into<String>, reward: f32) -> Self {
        Reply { heard: words.into(), reward: Some(reward), over: true }
    }
}

/// Why an environment does not answer, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentFailed {
    /// It has no room now, or is not there: the same is asked again later, and an episode that has begun is kept.
    #[error("{0}")]
    Busy(String),
    /// This episode is lost, and nobody knows what its completion is worth. Others may go on.
    #[error("{0}")]
    Episode(String),
    /// No episode can be had any more: the run ends, finished steps saved.
    #[error("{0}")]
    Environment(String),
}

/// An environment's part in a completion.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The sum of its rewards; none where it gave none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<f32>,
    /// Turns that the policy took.
    pub turns: usize,
    /// What ended the conversation.
    pub ended: Ended,
    /// Its last words, at most [`Outcome::CLOSING`] letters of them; the policy did not read them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub closing: String,
    /// Why it failed; empty where it did not. A completion whose environment failed has no verdict.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failure: String,
}

impl Outcome {
    /// Letters of an environment's last words that are kept.
    pub const CLOSING: usize = 300;
}

/// What ended a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The environment: the episode is over.
    #[default]
    Over,
    /// The policy took as many turns as it may.
    Turns,
    /// It wrote as many tokens as it may.
    Tokens,
    /// The reply had more tokens than it may hear.
    Heard,
    /// The environment failed.
    Failed,
}
