//! Rule of the curriculum that skips prompts whose last group hardly varied in reward.

use firebrick_core::{Seed, Step, config::VarianceRule};
use rand::seq::index;

use super::PromptRecord;

/// Indices of a batch's prompts, by whether they are sampled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Prompts that the rule does not skip, in order.
    pub selected: Vec<usize>,
    /// Prompts that the rule skips, in order.
    pub skipped: Vec<usize>,
    /// Skipped prompts that are sampled all the same.
    pub put_back: Vec<usize>,
    /// Number of selected prompts that the rule would have skipped if their records had not expired.
    pub expired: usize,
}

impl Selection {
    /// Selects from a batch of prompts, given by their records, at `step`. `seed` chooses the prompts that
    /// are put back, if the rule would skip too many.
    pub fn new(
        rule: &VarianceRule,
        batch: &[Option<PromptRecord>],
        step: Step,
        seed: Seed,
    ) -> Self {
        let mut selection = Selection::default();
        for (index, record) in batch.iter().enumerate() {
            let low = record.filter(|record| record.variance <= rule.min_variance as f32);
            let expired = low.is_some_and(|record| {
                rule.expire != 0 && step.saturating_sub(record.step.into()) >= rule.expire
            });
            selection.expired += usize::from(expired);

            if low.is_some() && !expired {
                selection.skipped.push(index);
            } else {
                selection.selected.push(index);
            }
        }

        let size = batch.len() as f64;
        let skipped = selection.skipped.len();

        if skipped as f64 > size * rule.skip_fraction_trigger {
            // The count is rounded down: a fifth of four prompts is none.
            let count = ((size * rule.refill_fraction) as usize).min(skipped);
            let chosen = index::sample(&mut seed.rng(), skipped, count);
            selection.put_back = chosen.iter().map(|index| selection.skipped[index]).collect();
        }

        selection
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_skipped_comes_back_by_luck_or_by_age() {
        let rule = VarianceRule::default();
        let record = |step| Some(PromptRecord { step, ..PromptRecord::default() });

        let batch: Vec<_> = [record(30); 10].to_vec();
        let of_seed = |seed| Selection::new(&rule, &batch, 49, Seed::run(seed));
        assert_eq!((of_seed(1).skipped.len(), of_seed(1).put_back.len()), (10, 2));
        assert_eq!(of_seed(1), of_seed(1));
        assert!((2..9).any(|seed| of_seed(seed).put_back != of_seed(1).put_back));

        let expired = Selection::new(&rule, &batch, 50, Seed::run(1));
        assert_eq!((expired.selected.len(), expired.expired), (10, 10));
        let never = VarianceRule { expire: 0, ..rule };
        assert_eq!(Selection::new(&never, &batch, 1_000_000, Seed::run(1)).skipped.len(), 10);
    }
}
