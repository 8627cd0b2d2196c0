//! Aggregation of per-token losses to one number, by a weight for each token.
//!
//! Every rule is a weight per token, fixed by the whole optimizer update before it is split into
//! micro-batches, so that the loss of an update is the plain sum of its parts, however it is split. Five of
//! seven other systems divided by something that belonged to the micro-batch at least once.

use std::collections::BTreeMap;

use firebrick_core::config::Aggregation;

/// What the losses of one optimizer update are divided by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Divisors {
    /// The number of tokens that count.
    pub tokens: f64,
    /// Completions with at least one such token.
    pub rows: f64,
    /// Tokens that count, by prompt. A prompt without such tokens still counts as a prompt.
    pub prompts: BTreeMap<u64, f64>,
    /// Divisor of [`Aggregation::Constant`] alone.
    pub constant: f64,
}

impl Divisors {
    /// Counts the completions of an update, given as (prompt, tokens that count).
    pub fn count(completions: impl IntoIterator<Item = (u64, usize)>) -> Self {
        let mut divisors = Divisors::default();
        for (prompt, tokens) in completions {
            divisors.tokens += tokens as f64;
            divisors.rows += f64::from(u8::from(tokens > 0));
            *divisors.prompts.entry(prompt).or_default() += tokens as f64;
        }

        divisors
    }

    /// Returns the weight of each counted token of a completion that has `tokens` counted tokens. A divisor
    /// of 0 counts as 1, so an empty update has loss 0.
    pub fn token_weight(&self, aggregation: Aggregation, prompt: u64, tokens: usize) -> f64 {
        let or_one = |divisor: f64| if divisor == 0.0 { 1.0 } else { divisor };
        // ANCHOR: tour
        let divisor = match aggregation {
            Aggregation::TokenMean => or_one(self.tokens),
            Aggregation::PromptMean => {
                let prompt_tokens = self.prompts.get(&prompt).copied().unwrap_or(0.0);
                or_one(self.prompts.len() as f64) * or_one(prompt_tokens)
            }
            Aggregation::SequenceMean => or_one(self.rows) * or_one(tokens as f64),
            Aggregation::SequenceSum => or_one(self.rows),
            Aggregation::Constant => or_one(self.constant),
        };
        1.0 / divisor
        // ANCHOR_END: tour
    }
}
