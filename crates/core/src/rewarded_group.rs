//! Groups with their rewards, and the trait of filters that choose among them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Group, Reward};

/// A group with one reward per completion, in the same order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RewardedGroup {
    /// Prompt and completions. They never change once they are judged, so a copy of this shares them.
    pub group: Arc<Group>,
    /// One reward per completion.
    pub rewards: Vec<Reward>,
}

impl RewardedGroup {
    /// Returns the base rewards of the completions in the loss, before shaping.
    pub fn base_rewards_in_loss(&self) -> impl Iterator<Item = f32> {
        self.rewards.iter().filter(|reward| reward.in_loss).map(|reward| reward.base_reward)
    }

    /// Returns the group without the completions that have no verdict.
    pub fn judged(&self) -> RewardedGroup {
        let mut judged = self.clone();
        if !self.rewards.iter().all(Reward::is_judged) {
            let mut keep = self.rewards.iter().map(Reward::is_judged);
            Arc::make_mut(&mut judged.group).completions.retain(|_| keep.next().unwrap_or(true));
            judged.rewards.retain(Reward::is_judged);
        }
        judged
    }

    /// Returns the rewards after shaping, one per completion.
    pub fn shaped_rewards(&self) -> impl Iterator<Item = f32> {
        self.rewards.iter().map(|reward| reward.reward)
    }
}

/// Outcome of a group in its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupStatus {
    /// Trained on in this step.
    Kept,
    /// Carried over to the next step, or dropped, because there were enough groups.
    Surplus,
    /// Left out by the filter.
    Filtered,
    /// None of the group's completions is in the loss.
    Masked,
}

impl GroupStatus {
    /// Returns the name that files use.
    pub fn name(self) -> &'static str {
        match self {
            GroupStatus::Kept => "kept",
            GroupStatus::Surplus => "surplus",
            GroupStatus::Filtered => "filtered",
            GroupStatus::Masked => "masked",
        }
    }
}

/// Decides which groups are worth an update: the rule of dynamic sampling.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not decide which groups are kept",
    label = "needs `fn keep(&self, group: &RewardedGroup) -> bool`"
)]
pub trait GroupFilter: Send + Sync {
    /// Tells whether the group is worth training on.
    fn keep(&self, group: &RewardedGroup) -> bool;
}

impl<T: GroupFilter + ?Sized> GroupFilter for Box<T> {
    fn keep(&self, group: &RewardedGroup) -> bool {
        (**self).keep(group)
    }
}
