//! Examples of supervised fine-tuning (SFT).

use crate::TokenId;

/// A prompt with a completion to imitate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SftExample {
    /// The prompt's tokens; never empty.
    pub prompt: Vec<TokenId>,
    /// The completion's tokens; the last is the end token.
    pub completion: Vec<TokenId>,
    /// One entry per token of the completion: false if an environment wrote the token. The policy reads such a
    /// token and does not imitate it.
    pub mask: Vec<bool>,
}

impl SftExample {
    /// Makes an example whose whole completion the policy writes.
    pub fn new(prompt: Vec<TokenId>, completion: Vec<TokenId>) -> Self {
        let mask = vec![true; completion.len()];
        SftExample { prompt, completion, mask }
    }
}
