use crate::TokenId;

/// A prompt with a completion to imitate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkedExample {
    /// The prompt's tokens; never empty.
    pub prompt: Vec<TokenId>,
    /// The completion's tokens; the last is the end token.
    pub completion: Vec<TokenId>,
}
