//! Completions: the tokens that a policy wrote, their log-probabilities, their text, and why they ended.

use serde::{Deserialize, Serialize};

use crate::{Outcome, TokenId, Version};

/// Everything after a prompt: the policy's own tokens and, in a conversation, those of the environment's observations.
///
/// `tokens`, `mask` and `logprobs` have one entry per token. The constructors ensure this, and other crates cannot
/// write the struct out by hand.
///
/// ```
/// use firebrick_core::{Completion, FinishReason};
///
/// // The policy asks a calculator, observes the answer, and ends.
/// let mut turns = Completion::written(vec![7, 8], vec![-0.1, -0.2], FinishReason::Stop);
/// turns.observe(&[40, 41, 42]);
/// turns.write(&[9], &[-0.3]);
/// assert_eq!(turns.tokens, [7, 8, 40, 41, 42, 9]);
/// assert_eq!(turns.mask, [true, true, false, false, false, true]);
/// assert_eq!(turns.count(), 3);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "StoredCompletion", into = "StoredCompletion")]
#[non_exhaustive]
pub struct Completion {
    /// All tokens in their order. A stop token, if one was sampled, is the last.
    pub tokens: Vec<TokenId>,
    /// True if the policy wrote the token, false if an environment did, such as a tool that answers. Only the
    /// policy's tokens are trained on, counted and measured.
    pub mask: Vec<bool>,
    /// Natural log-probability of each token under the policy that sampled it, at the sampling temperature and
    /// over the whole vocabulary (before top-k and top-p): ≤ 0. It is 0 where the mask is false.
    pub logprobs: Vec<f32>,
    /// Version of the weights that wrote the completion, as they were published to the engine. A completion that spans
    /// two versions has the older one.
    pub policy_version: Version,
    /// `tokens` as text, without those that begin, end or pad a text. In a conversation it has the text of both sides,
    /// turn after turn, as far as the policy read it.
    pub text: String,
    /// Why the completion ended.
    pub finish: FinishReason,
    /// The environment's outcome; `None` if the policy did not talk with an environment.
    pub outcome: Option<Outcome>,
}

impl Completion {
    /// Makes a completion from tokens that were all written by the policy, with their log-probabilities.
    ///
    /// # Panics
    /// Panics if there are not as many log-probabilities as tokens.
    pub fn written(tokens: Vec<TokenId>, logprobs: Vec<f32>, finish: FinishReason) -> Self {
        assert_eq!(tokens.len(), logprobs.len(), "every token has a log-probability");
        let mask = vec![true; tokens.len()];
        Completion { tokens, mask, logprobs, finish, ..Completion::default() }
    }

    /// Makes a completion from a text, without tokens, that ended with a stop token. A verifier needs no more.
    pub fn of_text(text: impl Into<String>) -> Self {
        Completion { text: text.into(), ..Completion::default() }
    }

    /// Returns the completion with another text.
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        self.text = text.into();
        self
    }

    /// Returns the completion as written by the weights of version `version`.
    pub fn with_version(mut self, version: Version) -> Self {
        self.policy_version = version;
        self
    }

    /// Appends tokens that the policy wrote.
    ///
    /// # Panics
    /// Panics if there are not as many log-probabilities as tokens.
    pub fn write(&mut self, tokens: &[TokenId], logprobs: &[f32]) {
        assert_eq!(tokens.len(), logprobs.len(), "every token has a log-probability");
        self.tokens.extend(tokens);
        self.logprobs.extend(logprobs);
        self.mask.resize(self.tokens.len(), true);
    }

    /// Appends tokens of an observation, which the policy reads.
    pub fn observe(&mut self, tokens: &[TokenId]) {
        self.tokens.extend(tokens);
        self.logprobs.resize(self.tokens.len(), 0.0);
        self.mask.resize(self.tokens.len(), false);
    }

    /// Counts the tokens that the policy wrote. Shaping and metrics use this number as the length.
    pub fn count(&self) -> usize {
        self.mask.iter().filter(|&&own| own).count()
    }
}

/// A completion as files store it, without the mask if it is true everywhere.
#[derive(Serialize, Deserialize)]
struct StoredCompletion {
    tokens: Vec<TokenId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mask: Option<Vec<bool>>,
    logprobs: Vec<f32>,
    #[serde(default)]
    policy_version: Version,
    text: String,
    finish: FinishReason,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
}

impl TryFrom<StoredCompletion> for Completion {
    type Error = String;

    /// Refuses a missing log-probability: read as 0, it would say that the token was certain.
    fn try_from(stored: StoredCompletion) -> Result<Self, String> {
        let StoredCompletion { tokens, mask, logprobs, policy_version, text, finish, outcome } =
            stored;
        let mask = mask.unwrap_or_else(|| vec![true; tokens.len()]);
        if mask.len() != tokens.len() || logprobs.len() != tokens.len() {
            return Err(format!(
                "a completion of {} tokens has {} mask entries and {} log-probabilities, expected one of \
                 each for every token",
                tokens.len(),
                mask.len(),
                logprobs.len()
            ));
        }

        Ok(Completion { tokens, mask, logprobs, policy_version, text, finish, outcome })
    }
}

impl From<Completion> for StoredCompletion {
    fn from(completion: Completion) -> Self {
        let Completion { tokens, mask, logprobs, policy_version, text, finish, outcome } =
            completion;
        let mask = mask.contains(&false).then_some(mask);
        StoredCompletion { tokens, mask, logprobs, policy_version, text, finish, outcome }
    }
}

/// Why a completion ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FinishReason {
    /// A stop token was sampled.
    #[default]
    Stop,
    /// Truncated: the completion reached the token limit.
    Length,
}

impl FinishReason {
    /// Returns the name that files use: `stop` or `length`.
    pub fn name(self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
        }
    }
}

/// Turns tokens back into text. A rollout engine needs nothing else from a tokenizer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot turn tokens into text",
    label = "needs `fn detokenize(&self, tokens: &[TokenId]) -> String`"
)]
pub trait Detokenizer: Send + Sync {
    /// Returns the text of `tokens` without those that begin, end or pad a text. Other special tokens, such as the
    /// tags around thoughts and tool calls, belong to the text. Unknown ids are skipped: this never fails.
    fn detokenize(&self, tokens: &[TokenId]) -> String;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_without_holes_is_stored_without_a_mask() {
        let mut completion = Completion::written(vec![1, 2], vec![-1.0, -2.0], FinishReason::Stop);
        let stored = StoredCompletion::from(completion.clone());
        assert!(stored.mask.is_none());
        assert_eq!(Completion::try_from(stored).unwrap(), completion);

        completion.observe(&[3]);

        let stored = StoredCompletion::from(completion.clone());
        assert_eq!(stored.mask.as_deref(), Some(&[true, true, false][..]));
        assert_eq!(Completion::try_from(stored).unwrap(), completion);

        // A log-probability too few, one too many, a mask too short.
        for (mask, logprobs) in [(None, 2), (None, 4), (Some(vec![true]), 3)] {
            let damaged = StoredCompletion {
                mask,
                logprobs: vec![-1.0; logprobs],
                ..completion.clone().into()
            };
            let error = Completion::try_from(damaged).unwrap_err();
            assert!(error.starts_with("a completion of 3 tokens has"), "{error}");
        }
    }
}
