//! Facts about a tokenizer for `firebrick inspect`.

use firebrick_core::TokenId;

use super::Tokenizer;

/// Facts about a tokenizer that a person may want to know. Tokens are spelt as in the vocabulary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenizerFacts {
    /// Number of tokens, added tokens included.
    pub tokens: usize,
    /// Number of rows that an embedding needs. It is more than `tokens` if ids have holes.
    pub rows: usize,
    /// Token before every text, if the tokenizer names one.
    pub bos: Option<(TokenId, String)>,
    /// Token that ends a completion.
    pub eos: (TokenId, String),
    /// Token that fills up a batch.
    pub pad: (TokenId, String),
    /// Every token that ends generation, `eos` first.
    pub stop: Vec<(TokenId, String)>,
    /// Tokens that are put around plain text, in order, if there are any.
    pub around_text: Vec<(TokenId, String)>,
    /// See [`Tokenizer::switched_off`].
    pub switched_off: Vec<String>,
}

impl Tokenizer {
    /// Returns the facts that a person may want to know.
    pub fn facts(&self) -> TokenizerFacts {
        let spell = |id: TokenId| (id, self.inner.id_to_token(id).unwrap_or_default());
        TokenizerFacts {
            tokens: self.len(),
            rows: self.rows(),
            bos: self.bos.map(spell),
            eos: spell(self.eos),
            pad: spell(self.pad),
            stop: self.stop.iter().copied().map(spell).collect(),
            // An empty text has only the tokens that are put around every text.
            around_text: self.encode("", true).unwrap_or_default().into_iter().map(spell).collect(),
            switched_off: self.switched_off.clone(),
        }
    }
}
