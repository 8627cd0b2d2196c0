//! Facts about a tokenizer for `firebrick inspect`.

use firebrick_core::TokenId;

use super::Tokenizer;

/// The facts about a tokenizer that a person may want to know. Tokens are given as the vocabulary spells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenizerFacts {
    /// The number of tokens, added tokens included.
    pub tokens: usize,
    /// The number of rows that an embedding needs. It is more than `tokens` if ids have holes.
    pub rows: usize,
    /// The token before every text, if the tokenizer names one.
    pub bos: Option<(TokenId, String)>,
    /// The token that ends a completion.
    pub eos: (TokenId, String),
    /// The token that fills up a batch.
    pub pad: (TokenId, String),
    /// Every token that ends generation, `eos` first.
    pub stop: Vec<(TokenId, String)>,
    /// The tokens that are put around plain text, in order. The list is empty if there are none.
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
            // An empty text gives only the tokens that are put around a text.
            around_text: self.encode("", true).unwrap_or_default().into_iter().map(spell).collect(),
            switched_off: self.switched_off.clone(),
        }
    }
}
