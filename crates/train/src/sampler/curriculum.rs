//! Curriculum: the outcome of a prompt's earlier groups decides whether the prompt is sampled again.
//!
//! Dynamic sampling throws groups without spread away after their completions were sampled. The curriculum
//! acts earlier: a prompt that is not likely to give spread is drawn and passed over, which costs nothing.
//! Two rules pick such prompts ([`CurriculumRule`]). Neither passes over a prompt that was
//! never sampled, and by default both come back to prompts that they passed over. If records never expire, or
//! no share is left for exploration, a prompt may be lost for ever.

mod file;
mod posterior;
mod selector;
mod variance;

use std::collections::BTreeMap;

use firebrick_core::{GroupFilter as _, RewardedGroup, Step, config::CurriculumRule};
use serde::{Deserialize, Serialize};

pub(crate) use file::{load_history, save_history};
pub use posterior::Beta;
pub(crate) use selector::{CurriculumSelector, CurriculumStats};
pub use variance::Selection;

use crate::sampler::dynamic::Spread;

/// How a run uses its prompts' history.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Curriculum {
    /// Picks the prompts to pass over.
    pub rule: CurriculumRule,
    /// Test for a group with spread. It applies even if the run keeps groups without spread.
    pub spread: Spread,
}

/// Records of a run's prompts, by [`Prompt::id`](firebrick_core::Prompt).
///
/// Only prompts that were sampled have a record. A record takes 24 bytes in a checkpoint and 38 to 48 in
/// memory, so ten million of them take 240 MB and at most 480 MB.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PromptHistory {
    records: BTreeMap<u64, PromptRecord>,
}

impl PromptHistory {
    /// Returns the record of a prompt, if it was sampled.
    pub fn get(&self, id: u64) -> Option<PromptRecord> {
        self.records.get(&id).copied()
    }

    /// Counts the prompts that have a record.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns true if no prompt has a record.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Takes over newer records.
    pub fn extend(&mut self, newer: BTreeMap<u64, PromptRecord>) {
        self.records.extend(newer);
    }
}

/// What a run remembers of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PromptRecord {
    /// Step in which the prompt was last sampled.
    pub step: u32,
    /// Variance of the base rewards of the last group, with the squares divided by the number of rewards.
    pub variance: f32,
    /// Right completions so far; earlier steps count less, by the rule.
    pub right: f32,
    /// Wrong completions so far; earlier steps count less, by the rule.
    pub wrong: f32,
}

impl PromptRecord {
    /// Makes the record after `group`, which was sampled at `step`.
    ///
    /// Only completions that count in the loss are considered, as for dynamic sampling, and partial credit is
    /// added up. The counts are there to predict spread, so a group with spread counts at least one right and
    /// one wrong completion. A group without spread counts as all right or all wrong, whichever its credits
    /// are nearer to. For right-or-wrong credits this changes nothing. A group without any completion that
    /// counts could not be used: it is all wrong.
    fn after(
        before: Option<PromptRecord>,
        group: &RewardedGroup,
        step: Step,
        curriculum: &Curriculum,
    ) -> Self {
        let step = u32::try_from(step).unwrap_or(u32::MAX);
        let in_loss = || group.rewards.iter().filter(|reward| reward.in_loss);
        let count = in_loss().count() as f64;
        let credit = in_loss().map(|reward| f64::from(reward.score.credit)).sum::<f64>();

        let (all, right) = if count == 0.0 {
            (group.rewards.len() as f64, 0.0)
        } else if has_spread(group, curriculum) {
            (count, credit.max(1.0).min(count - 1.0))
        } else {
            (count, if credit < count / 2.0 { 0.0 } else { count })
        };

        let before = before.unwrap_or_default();
        let discount = curriculum.rule.discount(f64::from(step.saturating_sub(before.step)));

        PromptRecord {
            step,
            variance: variance(group) as f32,
            right: (f64::from(before.right) * discount + right) as f32,
            wrong: (f64::from(before.wrong) * discount + all - right) as f32,
        }
    }
}

/// Returns true if dynamic sampling could use the group: at least two completions count, and they differ.
fn has_spread(group: &RewardedGroup, curriculum: &Curriculum) -> bool {
    group.base_rewards_in_loss().count() > 1 && curriculum.spread.keep(group)
}

/// Computes Σ (r − mean)² / n over the base rewards that count; 0 without any.
fn variance(group: &RewardedGroup) -> f64 {
    let rewards = || group.base_rewards_in_loss().map(f64::from);
    let count = rewards().count().max(1) as f64;
    let mean = rewards().sum::<f64>() / count;
    rewards().map(|reward| (reward - mean).powi(2)).sum::<f64>() / count
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Group, Prompt, RewardScale, Score, Verdict, config::PosteriorRule};

    use super::*;

    fn group(credits: &[f32]) -> RewardedGroup {
        let scale = RewardScale { right: 1.0, wrong: -1.0 };
        let reward =
            |&credit: &f32| scale.reward(Score::partial(Verdict::Wrong, credit, String::new()));
        let prompt = Prompt::default();
        RewardedGroup {
            group: Group { prompt, completions: Vec::new(), step: 1, draw: 0 }.into(),
            rewards: credits.iter().map(reward).collect(),
        }
    }

    fn curriculum(half_life: f64) -> Curriculum {
        let rule = PosteriorRule { min_spread_probability: 0.5, half_life, explore: 0.0 };
        Curriculum { rule: CurriculumRule::Posterior(rule), spread: Spread::new(1e-6) }
    }

    #[test]
    fn a_record_counts_right_and_wrong_and_forgets() {
        let curriculum = curriculum(10.0);
        let first = PromptRecord::after(None, &group(&[1.0, 0.0, 0.0, 1.0]), 5, &curriculum);
        assert_eq!(first, PromptRecord { step: 5, variance: 1.0, right: 2.0, wrong: 2.0 });
        let second = PromptRecord::after(Some(first), &group(&[1.0; 4]), 15, &curriculum);
        assert_eq!(second, PromptRecord { step: 15, variance: 0.0, right: 5.0, wrong: 1.0 });

        let again = PromptRecord::after(Some(second), &group(&[0.0; 4]), 15, &curriculum);
        assert_eq!((again.right, again.wrong), (5.0, 5.0));
    }

    #[test]
    fn partial_credit_counts_by_whether_it_gives_spread() {
        let curriculum = curriculum(10.0);
        let counts = |credits: &[f32]| {
            let record = PromptRecord::after(None, &group(credits), 1, &curriculum);
            (record.right, record.wrong)
        };

        assert_eq!(counts(&[0.25, 0.5, 0.75, 1.0]), (2.5, 1.5));
        assert_eq!(counts(&[0.97, 0.98, 0.99, 1.0]), (3.0, 1.0));
        assert_eq!(counts(&[0.1, 0.1, 0.1, 0.2]), (1.0, 3.0));
        assert_eq!(counts(&[0.1; 4]), (0.0, 4.0));
        assert_eq!(counts(&[0.9; 4]), (4.0, 0.0));

        let mut masked = group(&[1.0, 0.0]);
        masked.rewards[1].in_loss = false;
        let record = PromptRecord::after(None, &masked, 1, &curriculum);
        assert_eq!((record.right, record.wrong, record.variance), (1.0, 0.0, 0.0));

        masked.rewards[0].in_loss = false;
        let record = PromptRecord::after(None, &masked, 1, &curriculum);
        assert_eq!((record.right, record.wrong, record.variance), (0.0, 2.0, 0.0));
    }
}
