use firebrick_core::TokenId;

use super::Tokenizer;

/// What a person may want to know of a tokenizer; tokens are given as the vocabulary spells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenizerFacts {
    /// How many tokens there are, added ones included.
    pub tokens: usize,
    /// The rows that an embedding needs; more than `tokens` where ids have holes.
    pub rows: usize,
    /// The token before every text, if the tokenizer names one.
    pub bos: Option<(TokenId, String)>,
    /// The token that ends a completion.
    pub eos: (TokenId, String),
    /// The token that fills up a batch.
    pub pad: (TokenId, String),
    /// Every token that ends generation, `eos` first.
    pub stop: Vec<(TokenId, String)>,
    /// What is put around plain text, in order; empty when nothing is.
    pub around_text: Vec<(TokenId, String)>,
}

impl Tokenizer {
    /// What a person may want to know.
    pub fn facts(&self) -> TokenizerFacts {
        let spell = |id: TokenId| (id, self.inner.id_to_token(id).unwrap_or_default());
        TokenizerFacts {
            tokens: self.len(),
            rows: self.rows(),
            bos: self.bos.map(spell),
            eos: spell(self.eos),
            pad: spell(self.pad),
            stop: self.stop.iter().copied().map(spell).collect(),
            // What is put around no text is all that comes of it.
            around_text: self.encode("", true).unwrap_or_default().into_iter().map(spell).collect(),
        }
    }
}
