//! `StopProperly`, a shaper that penalises completions that did not end with a stop token.

use firebrick_core::{FinishReason, Group, Reward, RewardShaper};
use serde::{Deserialize, Serialize};

use crate::PenaltyForm;

/// Penalises completions that did not end with a stop token (ProRL): each keeps only a part of its reward, or
/// gets another reward.
///
/// The penalty depends on why a completion ended, not on its length: only completions that reach the token limit are
/// penalised. It changes the shaped reward that earlier shapers left.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopProperly {
    /// Cost of not stopping.
    pub penalty: StopPenalty,
    /// How negative rewards are treated.
    #[serde(default)]
    pub form: PenaltyForm,
}

/// Cost of not ending with a stop token.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopPenalty {
    /// The reward is multiplied by this factor, in `[0, 1]`: 0 leaves nothing, 1 is without a penalty.
    Scale(f64),
    /// This reward replaces the earned reward.
    Replace(f64),
}

impl StopProperly {
    /// Returns `reward` after the penalty, for a completion that ended as `finish` says.
    pub fn penalised(&self, reward: f64, finish: FinishReason) -> f64 {
        match (finish, self.penalty) {
            (FinishReason::Stop, _) => reward,
            (_, StopPenalty::Scale(factor)) => self.form.scale(reward, factor),
            (_, StopPenalty::Replace(value)) => self.form.replace(reward, value),
        }
    }
}

impl RewardShaper for StopProperly {
    fn shape(&self, group: &Group, rewards: &mut [Reward]) {
        for (completion, reward) in group.completions.iter().zip(rewards) {
            reward.reward = self.penalised(f64::from(reward.reward), completion.finish) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::shaped;

    #[test]
    fn only_truncated_completions_pay() {
        for (penalty, form, expected) in [
            (StopPenalty::Scale(0.25), PenaltyForm::AsWritten, [1.0, 0.25, -1.0, -0.25]),
            (StopPenalty::Scale(0.25), PenaltyForm::SignSafe, [1.0, 0.25, -1.0, -1.75]),
            (StopPenalty::Scale(1.0), PenaltyForm::SignSafe, [1.0, 1.0, -1.0, -1.0]),
            (StopPenalty::Replace(-0.5), PenaltyForm::AsWritten, [1.0, -0.5, -1.0, -0.5]),
            (StopPenalty::Replace(-0.5), PenaltyForm::SignSafe, [1.0, -0.5, -1.0, -1.0]),
        ] {
            assert_eq!(shaped(&StopProperly { penalty, form }, 10), expected);
        }
    }

    #[test]
    fn a_recipe_can_name_it() {
        let read: StopProperly = serde_json::from_str(r#"{"penalty": {"scale": 0.0}}"#).unwrap();
        let penalty = StopPenalty::Scale(0.0);
        assert_eq!(read, StopProperly { penalty, form: PenaltyForm::SignSafe });
    }
}
