//! Two versions of a penalty's factor: as written, or so that it never raises a reward.

use serde::{Deserialize, Serialize};

/// How a penalty treats negative rewards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PenaltyForm {
    /// The reward never rises: half of −1 is −1.5.
    #[default]
    SignSafe,
    /// The reward is multiplied or replaced, as published: half of −1 is −0.5, which is a bonus.
    AsWritten,
}

impl PenaltyForm {
    /// Applies a `factor` in `[0, 1]` to `reward`: reward · factor as written, reward − |reward| · (1 −
    /// factor) sign-safe. The two are the same for a reward that is not negative.
    pub fn scale(self, reward: f64, factor: f64) -> f64 {
        match self {
            PenaltyForm::AsWritten => reward * factor,
            PenaltyForm::SignSafe => reward - reward.abs() * (1.0 - factor),
        }
    }

    /// Replaces `reward` by `value`. The sign-safe form does so only if `value` is less.
    pub fn replace(self, reward: f64, value: f64) -> f64 {
        match self {
            PenaltyForm::AsWritten => value,
            PenaltyForm::SignSafe => reward.min(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_differ_below_zero() {
        use PenaltyForm::*;
        for (reward, written, safe) in
            [(1.0, 0.75, 0.75), (0.0, 0.0, 0.0), (-1.0, -0.75, -1.25), (-2.0, -1.5, -2.5)]
        {
            assert_eq!(AsWritten.scale(reward, 0.75), written);
            assert_eq!(SignSafe.scale(reward, 0.75), safe);
        }

        assert_eq!(AsWritten.replace(-1.0, -0.5), -0.5);
        assert_eq!(SignSafe.replace(-1.0, -0.5), -1.0);
        assert_eq!(SignSafe.replace(1.0, -0.5), -0.5);
    }
}
