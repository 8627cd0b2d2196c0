//! Rule of the curriculum that skips prompts whose last group hardly varied in reward.

use firebrick_core::{Seed, Step};
use rand::seq::index;

use super::PromptRecord;

/// Passes over prompts whose last group had hardly any variance of rewards, a batch at a time. If that would
/// be too many prompts, some of them are put back at random.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VarianceRule {
    /// Largest last variance for which a prompt is skipped.
    pub min_variance: f64,
    /// Share of a batch above which some of the skipped prompts are put back.
    pub skip_fraction_trigger: f64,
    /// Largest share of the batch that is put back.
    pub refill_fraction: f64,
    /// Age, in steps, at which a record no longer skips its prompt; 0 means never. Without it a prompt that was
    /// once all wrong would be sampled again only if it happened to be put back.
    pub expire: u64,
}

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

impl VarianceRule {
    /// Selects from a batch of prompts, given by their records, at `step`. `seed` chooses the prompts that
    /// are put back.
    pub fn select(&self, batch: &[Option<PromptRecord>], step: Step, seed: Seed) -> Selection {
        let mut selection = Selection::default();
        for (index, record) in batch.iter().enumerate() {
            let low = record.filter(|record| record.variance <= self.min_variance as f32);
            let expired = low.is_some_and(|record| {
                self.expire != 0 && step.saturating_sub(record.step.into()) >= self.expire
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

        if skipped as f64 > size * self.skip_fraction_trigger {
            // The count is rounded down: a fifth of four prompts is none.
            let count = ((size * self.refill_fraction) as usize).min(skipped);
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
        let rule = VarianceRule {
            min_variance: 0.01,
            skip_fraction_trigger: 0.5,
            refill_fraction: 0.2,
            expire: 20,
        };
        let record = |step| Some(PromptRecord { step, ..PromptRecord::default() });

        let batch: Vec<_> = [record(30); 10].to_vec();
        let of_seed = |seed| rule.select(&batch, 49, Seed::run(seed));
        assert_eq!((of_seed(1).skipped.len(), of_seed(1).put_back.len()), (10, 2));
        assert_eq!(of_seed(1), of_seed(1));
        assert!((2..9).any(|seed| of_seed(seed).put_back != of_seed(1).put_back));

        let expired = rule.select(&batch, 50, Seed::run(1));
        assert_eq!((expired.selected.len(), expired.expired), (10, 10));
        let never = VarianceRule { expire: 0, ..rule };
        assert_eq!(never.select(&batch, 1_000_000, Seed::run(1)).skipped.len(), 10);
    }
}
