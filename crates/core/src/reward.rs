//! Verdicts, scores and rewards, with the traits of verifiers and of reward shapers.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{Completion, Group, Metrics, Prompt, Reason, guard};

/// Scores one completion against its prompt's reference.
///
/// A verifier is a pure function of its arguments. It must not hang, panic, read the clock or keep state, because many
/// threads call it on text that a model in training wrote. One that asks a program or a server approximates that.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not judge completions",
    label = "needs `fn score(&self, prompt: &Prompt, completion: &Completion) -> Score`"
)]
pub trait Verifier: Send + Sync {
    /// Returns the verdict and its grounds, which is [`Verdict::Error`] for a completion that can't be judged.
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score;

    /// Returns one score for each completion, in the same order, as [`Verifier::score`] would give it. A verifier
    /// that computes on a device judges the completions together, while others are asked on every core.
    ///
    /// # Errors
    /// Fails if the verifier can judge no more. The run then ends with its finished steps saved, because a step that
    /// learns from errors is useless.
    fn score_all(&self, pairs: &[(&Prompt, &Completion)]) -> Result<Vec<Score>, VerifierFailed> {
        Ok(score_each(self, pairs))
    }

    /// Tells whether two answers that were extracted from completions of `prompt` are the same although their texts
    /// differ. maj@k counts the votes of such answers together. By default only equal texts are the same answer.
    fn same(&self, prompt: &Prompt, one: &str, other: &str) -> bool {
        let _ = prompt;
        one.trim() == other.trim()
    }

    /// Tells whether a reference may be a JSON object or list, which [`Prompt::json_reference`] then marks. By default it
    /// may not: a reference is a text, and a data set with any other is refused before the run begins.
    fn takes_json(&self) -> bool {
        false
    }

    /// Tries the verifier on a row's own reference before a run, so that a mistake in a judge shows then, and not after
    /// the model has answered for minutes. The score itself does not matter. By default nothing is tried.
    ///
    /// # Errors
    /// Fails with what is wrong, if there is no verdict.
    fn probe(&self, prompt: &Prompt, completion: &Completion) -> Result<(), VerifierFailed> {
        let _ = (prompt, completion);
        Ok(())
    }

    /// Returns what judging has cost since the last call, as metrics such as `judge/requests`. Costs of several verifiers
    /// are added up. By default there are none.
    fn take_costs(&self) -> Metrics {
        Metrics::default()
    }

    /// Called from another thread when nobody waits for the judgements any more, because the run is to end. A verifier
    /// that waits for something should give up and return any scores; others need do nothing.
    fn cancel(&self) {}
}

/// Asks `verifier` about each completion separately, on every core. If it panics, the score is [`Verdict::Error`] with
/// the panic's message: that completion's value is unknown, while the others have their verdicts.
pub fn score_each<V: Verifier + ?Sized>(
    verifier: &V,
    pairs: &[(&Prompt, &Completion)],
) -> Vec<Score> {
    let score = |(prompt, completion): &(&Prompt, &Completion)| {
        guard(|| verifier.score(prompt, completion)).unwrap_or_else(|panic| {
            Score::partial(Verdict::Error, 0.0, format!("the verifier panicked: {panic}"))
        })
    };

    pairs.par_iter().map(score).collect()
}

/// Error of a verifier that can judge no more.
#[derive(Clone, Debug, thiserror::Error)]
pub enum VerifierFailed {
    /// The run is to end, so judging was given up.
    #[error("judging was interrupted")]
    Interrupted,
    /// Its program failed permanently, or its server is gone.
    #[error(transparent)]
    Failed(Reason),
}

impl<T: Verifier + ?Sized> Verifier for Box<T> {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        (**self).score(prompt, completion)
    }

    fn score_all(&self, pairs: &[(&Prompt, &Completion)]) -> Result<Vec<Score>, VerifierFailed> {
        (**self).score_all(pairs)
    }

    fn same(&self, prompt: &Prompt, one: &str, other: &str) -> bool {
        (**self).same(prompt, one, other)
    }

    fn takes_json(&self) -> bool {
        (**self).takes_json()
    }

    fn probe(&self, prompt: &Prompt, completion: &Completion) -> Result<(), VerifierFailed> {
        (**self).probe(prompt, completion)
    }

    fn take_costs(&self) -> Metrics {
        (**self).take_costs()
    }

    fn cancel(&self) {
        (**self).cancel();
    }
}

/// What a verifier decides about a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Equivalent to the reference.
    Right,
    /// An answer was found, but it differs from the reference.
    Wrong,
    /// No answer was found, or it could not be read.
    Unparsable,
    /// Not decided before the verifier's budget ran out.
    OverBudget,
    /// A failure of the verifier itself, or an unreadable reference. This is not a verdict: the completion's value is
    /// unknown, so accuracies, means and the loss leave it out.
    Error,
}

impl Verdict {
    /// Every verdict, in the order of the counters.
    pub const ALL: [Verdict; 5] =
        [Verdict::Right, Verdict::Wrong, Verdict::Unparsable, Verdict::OverBudget, Verdict::Error];

    /// Returns the verdict's name in metrics and files.
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
    /// What was decided.
    pub verdict: Verdict,
    /// Share of the full reward, in `[0, 1]`: 1 for right, 0 for the rest, a number in between for verifiers that give
    /// partial credit.
    pub credit: f32,
    /// Answer that was found in the completion, as it is written there; empty if none was found.
    pub extracted: String,
    /// Name and credit of each part of a verifier that is put together from several, and a reward model's number
    /// before it became a credit. Otherwise empty. The numbers are finite.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<(String, f32)>,
}

impl Score {
    /// Scores the `extracted` answer with full credit.
    pub fn right(extracted: impl Into<String>) -> Self {
        Score::partial(Verdict::Right, 1.0, extracted)
    }

    /// Scores the `extracted` answer, which differs from the reference, without credit.
    pub fn wrong(extracted: impl Into<String>) -> Self {
        Score::partial(Verdict::Wrong, 0.0, extracted)
    }

    /// Scores a completion without credit, for another reason than a wrong answer.
    pub fn none(verdict: Verdict) -> Self {
        Score::partial(verdict, 0.0, "")
    }

    /// Scores the `extracted` answer with `credit`, in `[0, 1]`, whatever the verdict is.
    pub fn partial(verdict: Verdict, credit: f32, extracted: impl Into<String>) -> Self {
        Score { verdict, credit, extracted: extracted.into(), parts: vec![] }
    }
}

/// What one completion earns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reward {
    /// Score that the verifier gave.
    pub score: Score,
    /// Credit on the recipe's scale. Dynamic sampling uses this number.
    pub base_reward: f32,
    /// Base reward after shaping. The advantage is made from it.
    pub reward: f32,
    /// False if overlong filtering took the completion out of the loss, or if it has no verdict. In the first case
    /// it stays in its group's mean and standard deviation, while in the second it is left out of those too.
    pub in_loss: bool,
}

impl Reward {
    /// Tells whether there is a verdict: anything but [`Verdict::Error`].
    pub fn is_judged(&self) -> bool {
        self.score.verdict != Verdict::Error
    }
}

/// Both ends of the base reward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RewardScale {
    /// Reward of a completion with full credit.
    pub right: f32,
    /// Reward of a completion without credit.
    pub wrong: f32,
}

impl RewardScale {
    /// Computes the reward of `score`, unshaped and in the loss.
    pub fn reward(self, score: Score) -> Reward {
        let base_reward = self.wrong + (self.right - self.wrong) * score.credit;

        Reward { score, base_reward, reward: base_reward, in_loss: true }
    }
}

/// Changes the shaped rewards of a group, or takes completions out of the loss.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not shape rewards",
    label = "needs `fn shape(&self, group: &Group, rewards: &mut [Reward])`"
)]
pub trait RewardShaper: Send + Sync {
    /// Shapes `rewards`, which has one entry per completion of `group`, in the same order. Only `reward` and
    /// `in_loss` may change.
    fn shape(&self, group: &Group, rewards: &mut [Reward]);
}

impl<T: RewardShaper + ?Sized> RewardShaper for Box<T> {
    fn shape(&self, group: &Group, rewards: &mut [Reward]) {
        (**self).shape(group, rewards);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a completion's first letter, which an empty one does not have.
    struct Hasty;

    impl Verifier for Hasty {
        fn score(&self, _: &Prompt, completion: &Completion) -> Score {
            Score::right(&completion.text[..1])
        }
    }

    #[test]
    fn a_verifier_that_panics_has_no_verdict_and_the_others_have_theirs() {
        let prompt = Prompt::default();
        let completions = ["a", "", "\u{b2}", "b"].map(Completion::of_text);

        let pairs: Vec<_> = completions.iter().map(|completion| (&prompt, completion)).collect();

        let scores = score_each(&Hasty, &pairs);
        let verdicts: Vec<Verdict> = scores.iter().map(|score| score.verdict).collect();

        assert_eq!(verdicts, [Verdict::Right, Verdict::Error, Verdict::Error, Verdict::Right]);
        assert!(scores[1].extracted.contains("the verifier panicked"), "{:?}", scores[1]);
    }
}
