use serde::{Deserialize, Serialize};

use crate::TokenId;

/// What the policy wrote after a prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    /// Sampled tokens; a stop token, when one was sampled, is the last of them.
    pub tokens: Vec<TokenId>,
    /// Natural log-probability of each token under the policy that sampled it, at the sampling
    /// temperature and over the whole vocabulary (before top-k and top-p). One per token, ≤ 0.
    pub logprobs: Vec<f32>,
    /// `tokens` as text, without special tokens.
    pub text: String,
    /// Why it ended.
    pub finish: FinishReason,
}

/// Why a completion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// A stop token was sampled.
    Stop,
    /// The token limit was reached: the completion is truncated.
    Length,
}

/// Turns tokens back into text: the one thing a rollout engine needs from a tokenizer.
pub trait Detokenizer: Send + Sync {
    /// The text of `tokens`, special tokens left out. Unknown ids are skipped, never an error.
    fn detokenize(&self, tokens: &[TokenId]) -> String;
}
