//! The settings of sampling: how tokens are sampled, and where completions end.

use firebrick_core::{FinishReason, TokenId};
use firebrick_kernels::Choice;
use serde::{Deserialize, Serialize};

/// How tokens are sampled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// Divides the logits; 0 takes the likeliest token.
    pub temperature: f64,
    /// How many of the likeliest tokens can be sampled; 0 means all tokens.
    pub top_k: usize,
    /// Probability, in `(0, 1]`, that the likeliest tokens have to reach together: only the smallest set of them
    /// that has at least this probability can be sampled.
    pub top_p: f64,
    /// At this many tokens a completion ends with `FinishReason::Length`.
    pub max_completion_tokens: usize,
    /// Tokens that end a completion.
    pub stop: Vec<TokenId>,
}

impl Sampling {
    /// Always takes the likeliest token.
    pub fn greedy(max_completion_tokens: usize, stop: Vec<TokenId>) -> Self {
        Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, max_completion_tokens, stop }
    }

    /// Returns the reason why a completion of `tokens` has ended, if it has.
    pub fn finish(&self, tokens: &[TokenId]) -> Option<FinishReason> {
        if tokens.last().is_some_and(|last| self.stop.contains(last)) {
            Some(FinishReason::Stop)
        } else {
            (tokens.len() >= self.max_completion_tokens).then_some(FinishReason::Length)
        }
    }

    /// Returns the settings by which each single token is sampled, without the end of completions.
    pub fn token_sampling(&self) -> Choice {
        Choice { temperature: self.temperature, top_k: self.top_k, top_p: self.top_p }
    }
}
