//! Checks of the curriculum's settings.

use super::Checks;
use crate::{CurriculumRule, Reward, VarianceRule};

impl Checks<'_> {
    /// Checks the settings that need groups of several completions.
    pub(super) fn sampling(&mut self) {
        let sampling = &self.recipe.sampling;
        let group_size = self.recipe.rollout.group_size;

        if sampling.curriculum.is_some() && group_size == 1 {
            self.fail(
                &["sampling.curriculum", "rollout.group_size"],
                "sampling.curriculum is set, expected only with rollout.group_size above 1".into(),
                "would skip every prompt",
                "the curriculum predicts which groups have no spread, and a group of one never has \
                 any: remove it, or sample more completions per prompt",
            );
        }
    }

    pub(super) fn curriculum(&mut self) {
        let Reward { right, wrong, .. } = self.recipe.reward;
        // The variance of numbers between two ends is largest if half of them are at each end. It is shown
        // without the rounding of binary numbers.
        let largest = (right - wrong).powi(2) / 4.0;
        let short = |number: f64| number as f32;

        if let Some(CurriculumRule::Variance(VarianceRule { min_variance, .. })) =
            self.recipe.sampling.curriculum
            && right > wrong
            && min_variance >= largest
        {
            self.fail(
                &["sampling.curriculum.min_variance", "sampling.curriculum", "reward.right"],
                format!(
                    "sampling.curriculum.min_variance is {min_variance:?}, expected less than {:?}, \
                     the largest variance of rewards from {wrong:?} to {right:?}",
                    short(largest)
                ),
                "every prompt would be skipped",
                &format!(
                    "the usual 0.01 is a hundredth of the largest variance of 1.0 and -1.0; here a \
                     hundredth is {:?}",
                    short(0.01 * largest)
                ),
            );
        }
    }
}
