//! `LengthPenalty`, a shaper that lowers the reward of completions beyond a target length. Its penalties are factors on
//! the reward that earlier shapers left.

use firebrick_core::{FinishReason, Group, Reward, RewardShaper};
use serde::{Deserialize, Serialize};

use crate::PenaltyForm;

/// Penalty on a completion that is longer than a target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LengthPenalty {
    /// Tokens to aim at.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = firebrick_core::config::MAX_SIZE)))]
    pub target: usize,
    /// Multiple of the target up to which nothing is lost.
    #[serde(default = "default_free_factor")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0)))]
    pub free_factor: f64,
    /// Multiple of the target over which the loss then grows in a straight line.
    #[serde(default = "half")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0)))]
    pub ramp_factor: f64,
    /// Share of the reward, in [0, 1], that is lost at the end of that line and beyond.
    #[serde(default = "half")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0, max = 1.0)))]
    pub max_cut: f64,
    /// Share of the remaining reward, in [0, 1], that a completion also loses if it was cut off.
    #[serde(default = "default_truncation_cut")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0, max = 1.0)))]
    pub truncation_cut: f64,
    /// How negative rewards are treated.
    #[serde(default)]
    pub form: PenaltyForm,
}

impl LengthPenalty {
    /// Makes the usual penalty around `target` tokens, sign-safe: free up to 1.5 times the target, half of the reward
    /// lost at twice the target and beyond, and a factor of 0.8 for truncated completions.
    pub fn new(target: usize) -> Self {
        LengthPenalty {
            target,
            free_factor: default_free_factor(),
            ramp_factor: half(),
            max_cut: half(),
            truncation_cut: default_truncation_cut(),
            form: PenaltyForm::SignSafe,
        }
    }

    /// Returns the factor on the reward of a completion of `length` tokens.
    pub fn factor(&self, length: usize, truncated: bool) -> f64 {
        let target = self.target as f64;
        let excess = length as f64 - self.free_factor * target;
        let ramp = self.ramp_factor * target;

        // Both ends are tested first, so that a ramp of length 0 does not divide by 0.
        let share = if excess <= 0.0 {
            0.0
        } else if excess >= ramp {
            1.0
        } else {
            excess / ramp
        };

        let kept = if truncated { 1.0 - self.truncation_cut } else { 1.0 };
        (1.0 - self.max_cut * share) * kept
    }

    /// Returns `reward` after the penalty.
    pub fn penalised(&self, reward: f64, length: usize, truncated: bool) -> f64 {
        self.form.scale(reward, self.factor(length, truncated))
    }
}

impl RewardShaper for LengthPenalty {
    fn shape(&self, group: &Group, rewards: &mut [Reward]) {
        for (completion, reward) in group.completions.iter().zip(rewards) {
            let truncated = completion.finish == FinishReason::Length;
            let shaped = f64::from(reward.reward);
            reward.reward = self.penalised(shaped, completion.count(), truncated) as f32;
        }
    }
}

fn default_free_factor() -> f64 {
    1.5
}

fn half() -> f64 {
    0.5
}

fn default_truncation_cut() -> f64 {
    0.2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::shaped;

    #[test]
    fn the_line_meets_its_ends() {
        let penalty = LengthPenalty::new(100);
        for (length, factor) in
            [(0, 1.0), (150, 1.0), (151, 0.99), (175, 0.75), (200, 0.5), (201, 0.5), (9999, 0.5)]
        {
            assert!((penalty.factor(length, false) - factor).abs() < 1e-12, "{length}");
            assert!((penalty.factor(length, true) - factor * 0.8).abs() < 1e-12, "{length}");
        }

        let step = LengthPenalty { ramp_factor: 0.0, ..penalty };
        assert_eq!((step.factor(150, false), step.factor(151, false)), (1.0, 0.5));
        let nothing = LengthPenalty::new(0);
        assert_eq!((nothing.factor(0, false), nothing.factor(1, false)), (1.0, 0.5));
    }

    #[test]
    fn the_forms_differ_below_zero() {
        let safe = LengthPenalty::new(4);
        let written = LengthPenalty { form: PenaltyForm::AsWritten, ..safe };

        assert_eq!(shaped(&written, 7), [0.75, 0.6, -0.75, -0.6]);
        assert_eq!(shaped(&safe, 7), [0.75, 0.6, -1.25, -1.4]);
        assert_eq!(shaped(&safe, 6), [1.0, 0.8, -1.0, -1.2]);
    }
}
