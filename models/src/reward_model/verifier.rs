//! The verifier `ModelVerifier`, which turns the scores of a reward model into verdicts.

use std::sync::atomic::{AtomicBool, Ordering};

use firebrick_core::{Completion, Prompt, Score, TokenId, Verdict, Verifier, VerifierFailed};

use super::RewardModel;

/// Turns a prompt and its completion into the reward model's tokens, or says why it can't.
pub type Conversation = dyn Fn(&Prompt, &Completion) -> Result<Vec<TokenId>, String> + Send + Sync;

/// Turns a score, which is any number, into a credit in `[0, 1]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transform {
    /// Multiplies the score.
    pub scale: f64,
    /// Number that is added after that.
    pub offset: f64,
    /// True if the logistic function 1 / (1 + e⁻ˣ) follows. Otherwise the number is clipped to 0 and 1.
    pub sigmoid: bool,
}

impl Transform {
    /// Turns `score` into a credit. `None` if the score or the credit is not finite.
    pub fn credit(self, score: f32) -> Option<f32> {
        let moved = f64::from(score) * self.scale + self.offset;
        let credit =
            if self.sigmoid { 1.0 / (1.0 + (-moved).exp()) } else { moved.clamp(0.0, 1.0) };
        (score.is_finite() && credit.is_finite()).then_some(credit as f32)
    }
}

/// A verifier that judges by a [`RewardModel`].
///
/// The part `score` of a [`Score`] is the reward model's score. A completion can't be scored if its conversation has no
/// form or is longer than the model's context, or if the score is not finite. Its verdict is then [`Verdict::Error`],
/// with credit 0.
pub struct ModelVerifier {
    model: RewardModel,
    conversation: Box<Conversation>,
    transform: Transform,
    threshold: f32,
    warned: AtomicBool,
    on_failure: Box<dyn Fn(&str) + Send + Sync>,
}

impl ModelVerifier {
    /// Makes a verifier. A completion is right if its credit is at least `threshold`. `on_failure` is called for the
    /// first completion that can't be scored; further ones are counted by their verdict.
    pub fn new(
        model: RewardModel,
        conversation: Box<Conversation>,
        transform: Transform,
        threshold: f32,
        on_failure: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        ModelVerifier {
            model,
            conversation,
            transform,
            threshold,
            warned: AtomicBool::new(false),
            on_failure: Box::new(on_failure),
        }
    }

    /// Returns the tokens to be scored.
    fn read(&self, prompt: &Prompt, completion: &Completion) -> Result<Vec<TokenId>, String> {
        let tokens = (self.conversation)(prompt, completion)?;
        let config = self.model.config();

        let limit = config.max_position_embeddings;
        if !(1..=limit).contains(&tokens.len()) {
            return Err(format!(
                "it has {} tokens, and the reward model reads 1 to {limit}",
                tokens.len()
            ));
        }

        match tokens.iter().find(|&&token| token as usize >= config.vocab_size) {
            None => Ok(tokens),
            Some(token) => Err(format!("the reward model does not know the token {token}")),
        }
    }

    fn judge(&self, score: f32) -> Result<Score, String> {
        let credit = self.transform.credit(score);
        let credit = credit.ok_or_else(|| format!("the reward model's score is {score}"))?;
        let verdict = if credit >= self.threshold { Verdict::Right } else { Verdict::Wrong };
        Ok(Score { parts: vec![("score".into(), score)], ..Score::partial(verdict, credit, "") })
    }

    fn failed(&self, reason: &str) -> Score {
        if !self.warned.swap(true, Ordering::Relaxed) {
            (self.on_failure)(&format!(
                "a completion cannot be scored: {reason}; its verdict is an error, like that of any \
                 further one (reward/error counts them)"
            ));
        }
        Score::none(Verdict::Error)
    }

    fn judge_all(&self, asked: &[(&Prompt, &Completion)]) -> Vec<Score> {
        let texts: Vec<Result<Vec<TokenId>, String>> =
            asked.iter().map(|(prompt, completion)| self.read(prompt, completion)).collect();

        let readable: Vec<&[TokenId]> = texts.iter().flatten().map(Vec::as_slice).collect();
        let mut scores = self.model.scores(&readable).into_iter();
        // A text that could not be read used no score, so the others keep their order.
        let score = |text: Result<Vec<TokenId>, String>| {
            let next = |_| self.judge(scores.next().expect("every text has a score"));
            text.and_then(next).unwrap_or_else(|reason| self.failed(&reason))
        };
        texts.into_iter().map(score).collect()
    }
}

impl Verifier for ModelVerifier {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        let score = self.judge_all(&[(prompt, completion)]).pop();
        score.expect("one completion has one score")
    }

    fn score_all(&self, asked: &[(&Prompt, &Completion)]) -> Result<Vec<Score>, VerifierFailed> {
        Ok(self.judge_all(asked))
    }

    /// The reference is not read, so any will do.
    fn takes_json(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credit_is_a_share_or_nothing() {
        let sigmoid = Transform { scale: 2.0, offset: -1.0, sigmoid: true };
        assert_eq!(sigmoid.credit(0.5), Some(0.5));
        assert_eq!((sigmoid.credit(f32::MAX), sigmoid.credit(f32::MIN)), (Some(1.0), Some(0.0)));

        let linear = Transform { sigmoid: false, ..sigmoid };
        let credits = [0.75, 7.0, -7.0].map(|score| linear.credit(score));
        assert_eq!(credits, [Some(0.5), Some(1.0), Some(0.0)]);

        for score in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!((sigmoid.credit(score), linear.credit(score)), (None, None));
        }
    }
}
