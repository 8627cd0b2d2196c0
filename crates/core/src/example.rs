//! Examples of supervised fine-tuning (SFT).

use crate::TokenId;

/// A prompt with a completion to imitate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SftExample {
    /// Tokens of the prompt; never empty.
    pub prompt: Vec<TokenId>,
    /// Tokens of the completion; the last is the end token.
    pub completion: Vec<TokenId>,
    /// One entry per token of the completion: false if an environment wrote the token, which the policy then reads
    /// and does not imitate.
    pub mask: Vec<bool>,
}

impl SftExample {
    /// Makes an example whose completion the policy is to write in full.
    pub fn new(prompt: Vec<TokenId>, completion: Vec<TokenId>) -> Self {
        let mask = vec![true; completion.len()];
        SftExample { prompt, completion, mask }
    }
}
