//! Drafts of a text's next tokens, looked up in what was written before.

use firebrick_core::TokenId;

/// How many of a text's last tokens are looked up: three, which are followed by the same token oftener, or else two,
/// which are found oftener.
const NGRAMS: [usize; 2] = [3, 2];

/// How many tokens of ended completions are searched at least.
const HISTORY: usize = 8192;

/// How many tokens a pass has at most, those that are no drafts included. The CPU multiplies about as many rows without
/// packing the weights.
pub(super) const PASS: usize = 12;

/// How many tokens take as long to compute as the weights take to be read.
const WEIGHTS: f64 = 5.0;

/// Proposes that a text continues as an earlier one did after the same n-gram (prompt lookup): the text itself, its
/// prompt, or a completion that ended lately.
///
/// The model verifies a proposal in one pass, which takes little longer than that of one token, because most of its
/// time goes to reading the weights. Every token is sampled as it is without drafts, so no proposal changes any.
pub(super) struct NgramProposer {
    /// The last completions that ended, the newest at the end.
    history: Vec<TokenId>,
    /// Share of proposals whose first token was sampled, over the last few dozen, for each of [`NGRAMS`].
    hits: [f64; 2],
}

impl Default for NgramProposer {
    fn default() -> Self {
        NgramProposer { history: Vec::new(), hits: [0.5; 2] }
    }
}

/// Tokens that may come next in a text.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    proposed: Vec<TokenId>,
    /// Which of [`NGRAMS`] they followed.
    ngram: usize,
    /// How many of them are verified in the next pass.
    length: usize,
}

impl Draft {
    /// Returns the tokens that are verified in the next pass.
    pub(super) fn tokens(&self) -> &[TokenId] {
        &self.proposed[..self.length]
    }
}

impl NgramProposer {
    /// Proposes how `text` continues, in at most `limit` tokens, the first of `stop` being the last.
    /// [`NgramProposer::choose_lengths`] says how many of them are verified.
    pub(super) fn propose(&self, text: &[TokenId], limit: usize, stop: &[TokenId]) -> Draft {
        for (ngram, &size) in NGRAMS.iter().enumerate() {
            let Some(newest) = text.len().checked_sub(size).map(|at| &text[at..]) else { continue };
            let following = |text: &[TokenId]| {
                // An n-gram at the end is followed by nothing.
                let followed = &text[..text.len().saturating_sub(1)];
                let same =
                    |tokens: &[TokenId]| tokens[size - 1] == newest[size - 1] && tokens == newest;
                let at = followed.windows(size).rposition(same)?;

                let mut proposed = text[at + size..].to_vec();
                proposed.truncate(limit.min(PASS));
                if let Some(end) = proposed.iter().position(|token| stop.contains(token)) {
                    proposed.truncate(end + 1);
                }
                Some(proposed)
            };

            if let Some(proposed) = following(text).or_else(|| following(&self.history)) {
                return Draft { proposed, ngram, length: 0 };
            }
        }
        Draft::default()
    }

    /// Chooses how much of each row's draft is worth its time.
    pub(super) fn choose_lengths(&self, drafts: &mut [Draft]) {
        let mut tokens = drafts.len();
        // The number of tokens that the pass yields on average.
        let mut yielded = tokens as f64;

        for length in 1..=PASS {
            for draft in drafts.iter_mut().filter(|draft| draft.proposed.len() >= length) {
                let chance = self.hits[draft.ngram].powi(length as i32);
                // A token is worth its time if more tokens come in the same time with it than without.
                if tokens < PASS && chance * (WEIGHTS + tokens as f64) > yielded {
                    draft.length = length;
                    tokens += 1;
                    yielded += chance;
                }
            }
        }
    }

    /// Returns how many of a draft's first tokens were sampled, and notes it.
    pub(super) fn verify(&mut self, draft: &Draft, sampled: &[(TokenId, f32)]) -> usize {
        if let (Some(proposed), Some((token, _))) = (draft.proposed.first(), sampled.first()) {
            let hit = f64::from(u8::from(proposed == token));
            let hits = &mut self.hits[draft.ngram];
            *hits += (hit - *hits) / 32.0;
        }
        let pairs = draft.tokens().iter().zip(sampled);
        pairs.take_while(|(proposed, (token, _))| *proposed == token).count()
    }

    /// Remembers a completion that has ended.
    pub(super) fn remember(&mut self, completion: &[TokenId]) {
        self.history.extend_from_slice(completion);
        // Twice as many are kept, so that the history seldom moves.
        if self.history.len() > 2 * HISTORY {
            self.history.drain(..self.history.len() - HISTORY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_continues_as_after_the_same_tokens() {
        let mut proposer = NgramProposer::default();
        let proposed = |proposer: &NgramProposer, text: &[TokenId], limit, stop: &[TokenId]| {
            proposer.propose(text, limit, stop).proposed
        };

        // As in the text itself: after three tokens, or else after two, the last time that they occurred.
        assert_eq!(proposed(&proposer, &[1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3], 3, &[]), [4, 9, 2]);
        assert_eq!(proposed(&proposer, &[1, 2, 3, 4, 9, 2, 3, 5, 7, 2, 3], 3, &[]), [5, 7, 2]);
        assert_eq!(proposed(&proposer, &[6, 6, 6, 6], 3, &[]), [6]);
        assert!(proposed(&proposer, &[1, 2, 3], 3, &[]).is_empty());
        assert!(proposed(&proposer, &[1], 3, &[]).is_empty());

        // Or as in a completion that has ended, up to a stop token.
        proposer.remember(&[1, 2, 3, 8, 0]);
        proposer.remember(&[5, 6, 7]);
        assert_eq!(proposed(&proposer, &[1, 2, 3], 3, &[]), [8, 0, 5]);
        assert_eq!(proposed(&proposer, &[1, 2, 3], 3, &[0]), [8, 0]);
        assert!(proposed(&proposer, &[1, 2, 3], 0, &[0]).is_empty());

        // The end of the history is followed by nothing.
        assert!(proposed(&proposer, &[4, 6, 7], 3, &[]).is_empty());
    }

    #[test]
    fn drafts_are_as_long_as_they_are_right() {
        let mut proposer = NgramProposer::default();
        let draft = Draft { proposed: vec![3; PASS], ngram: 0, length: 0 };
        let lengths = |proposer: &NgramProposer, rows: usize| {
            let mut drafts = vec![draft.clone(); rows];
            proposer.choose_lengths(&mut drafts);
            drafts.iter().map(|draft| draft.tokens().len()).collect::<Vec<_>>()
        };

        for _ in 0..200 {
            proposer.verify(&draft, &[(3, -0.1)]);
        }
        // Nearly always right: as many as a pass takes, shared by the rows.
        assert_eq!(lengths(&proposer, 1), [PASS - 1]);
        assert_eq!(lengths(&proposer, 5), [2, 2, 1, 1, 1]);

        for _ in 0..200 {
            proposer.verify(&draft, &[(4, -0.1)]);
        }
        assert_eq!(lengths(&proposer, 1), [0]);
    }
}
