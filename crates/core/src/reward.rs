use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{Completion, Group, Prompt};

/// Scores one completion against its prompt's reference.
///
/// A verifier is a pure function of its arguments: it must not hang, panic, read the clock or keep
/// state, because it is called from many threads on text that a model in training wrote. One that asks
/// something outside, a program or a server, is as near to that as it can be.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not judge completions",
    label = "needs `fn score(&self, prompt: &Prompt, completion: &Completion) -> Score`"
)]
pub trait Verifier: Send + Sync {
    /// The verdict, and what it rests on. A completion that can't be judged is [`Verdict::Error`].
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score;

    /// One score for each completion, in the same order: what [`Verifier::score`] says of them. A
    /// verifier that computes on a device judges them together; the others are asked on every core.
    ///
    /// # Errors
    /// When nothing can be judged any more. The run then ends, finished steps saved, because a step that
    /// learns from errors is worth nothing.
    fn score_all(&self, asked: &[(&Prompt, &Completion)]) -> Result<Vec<Score>, VerifierFailed> {
        Ok(score_each(self, asked))
    }

    /// Tells if two extracted answers are the same one, although their texts differ: maj@k counts their votes together. By
    /// default only the same texts are.
    fn same(&self, one: &str, other: &str) -> bool {
        one.trim() == other.trim()
    }

    /// Hears, on another thread, that nobody waits for what is being judged any more: the run is to end. A verifier that
    /// waits for something should give up, with whatever scores; the others need do nothing.
    fn cancel(&self) {}
}

/// What `verifier` says of each completion by itself, on every core.
pub fn score_each<V: Verifier + ?Sized>(
    verifier: &V,
    asked: &[(&Prompt, &Completion)],
) -> Vec<Score> {
    asked.par_iter().map(|(prompt, completion)| verifier.score(prompt, completion)).collect()
}

/// Why a verifier can judge no more, in a sentence: its program died for good, its server is gone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct VerifierFailed(pub String);

impl<T: Verifier + ?Sized> Verifier for Box<T> {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        (**self).score(prompt, completion)
    }

    fn score_all(&self, asked: &[(&Prompt, &Completion)]) -> Result<Vec<Score>, VerifierFailed> {
        (**self).score_all(asked)
    }

    fn same(&self, one: &str, other: &str) -> bool {
        (**self).same(one, other)
    }

    fn cancel(&self) {
        (**self).cancel();
    }
}

/// How a verifier judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Equivalent to the reference.
    Right,
    /// An answer was found, and it is another one.
    Wrong,
    /// No answer was found, or it could not be read.
    Unparsable,
    /// The verifier's budget ran out before it could tell.
    OverBudget,
    /// The verifier itself failed, or the reference is unreadable. It is no verdict: nobody knows what the completion is
    /// worth, so it is left out of accuracies, means and the loss.
    Error,
}

impl Verdict {
    /// Every verdict, in the order of the counters.
    pub const ALL: [Verdict; 5] =
        [Verdict::Right, Verdict::Wrong, Verdict::Unparsable, Verdict::OverBudget, Verdict::Error];

    /// The verdict's name in metrics and files.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Right => "right",
            Verdict::Wrong => "wrong",
            Verdict::Unparsable => "unparsable",
            Verdict::OverBudget => "over_budget",
            Verdict::Error => "error",
        }
    }
}

/// A verdict with its grounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// The judgement.
    pub verdict: Verdict,
    /// Share of the full reward, in `[0, 1]`: 1 for right, 0 for the rest, between for verifiers
    /// that give part marks.
    pub credit: f32,
    /// The answer that was found in the completion, as it stood there; empty if none was.
    pub extracted: String,
    /// Name and credit of each part, for a verifier that is put together from several, and what a
    /// reward model said before it became a credit; else empty. Finite numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<(String, f32)>,
}

impl Score {
    /// Full credit for the `extracted` answer.
    pub fn right(extracted: impl Into<String>) -> Self {
        Score::partial(Verdict::Right, 1.0, extracted)
    }

    /// No credit: the `extracted` answer is another one.
    pub fn wrong(extracted: impl Into<String>) -> Self {
        Score::partial(Verdict::Wrong, 0.0, extracted)
    }

    /// No credit, for a reason that is not a wrong answer.
    pub fn none(verdict: Verdict) -> Self {
        Score::partial(verdict, 0.0, "")
    }

    /// Part marks: `credit`, in `[0, 1]`, whatever the verdict on the `extracted` answer is.
    pub fn partial(verdict: Verdict, credit: f32, extracted: impl Into<String>) -> Self {
        Score { verdict, credit, extracted: extracted.into(), parts: vec![] }
    }
}

/// What a completion earned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reward {
    /// The verifier's judgement.
    pub score: Score,
    /// The accuracy reward: the credit on the recipe's scale. Dynamic sampling looks at this one.
    pub accuracy: f32,
    /// The accuracy reward after shaping: what the advantage is made from.
    pub shaped: f32,
    /// False when overlong filtering took the completion out of the loss, in which case it stays in its group's mean and
    /// standard deviation; and when there is no verdict on it, in which case it is left out of those too.
    pub live: bool,
}

impl Reward {
    /// Tells if there is a verdict: anything but [`Verdict::Error`].
    pub fn is_judged(&self) -> bool {
        self.score.verdict != Verdict::Error
    }
}

/// The two ends of the accuracy reward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RewardScale {
    /// Reward of a completion with full credit.
    pub right: f32,
    /// Reward of a completion without credit.
    pub wrong: f32,
}

impl RewardScale {
    /// The reward of `score`, unshaped and live.
    pub fn reward(self, score: Score) -> Reward {
        let accuracy = self.wrong + (self.right - self.wrong) * score.credit;
        Reward { score, accuracy, shaped: accuracy, live: true }
    }
}

/// Changes the shaped rewards of a group, or takes completions out of the loss.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not shape rewards",
    label = "needs `fn shape(&self, group: &Group, rewards: &mut [Reward])`"
)]
pub trait RewardShaper: Send + Sync {
    /// `rewards` has one entry per completion of `group`, in the same order. Only `shaped` and
    /// `live` may change.
    fn shape(&self, group: &Group, rewards: &mut [Reward]);
}

impl<T: RewardShaper + ?Sized> RewardShaper for Box<T> {
    fn shape(&self, group: &Group, rewards: &mut [Reward]) {
        (**self).shape(group, rewards);
    }
}
