use crate::TokenId;

/// A prompt with a completion to imitate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkedExample {
    /// The prompt's tokens; never empty.
    pub prompt: Vec<TokenId>,
    /// The completion's tokens; the last is the end token.
    pub completion: Vec<TokenId>,
    /// One entry per token of the completion: false where an environment wrote it, which is read and not imitated.
    pub mask: Vec<bool>,
}

impl WorkedExample {
    /// An example of which the policy writes the whole completion.
    pub fn new(prompt: Vec<TokenId>, completion: Vec<TokenId>) -> Self {
        let mask = vec![true; completion.len()];
        WorkedExample { prompt, completion, mask }
    }
}
