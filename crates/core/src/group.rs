use serde::{Deserialize, Serialize};

use crate::{Completion, Prompt, Reward, Step};

/// One prompt and the completions that were sampled for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The question.
    pub prompt: Prompt,
    /// Its `group_size` answers.
    pub completions: Vec<Completion>,
    /// The step whose policy wrote them; older than the current step for a surplus group.
    pub step: Step,
    /// Which draw from the prompt source this was, counted over the whole run. A prompt drawn
    /// twice is two draws, and gets other completions.
    pub draw: u64,
}

/// A group with one reward per completion, in the same order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RewardedGroup {
    /// The prompt and its completions.
    pub group: Group,
    /// One reward per completion.
    pub rewards: Vec<Reward>,
}

impl RewardedGroup {
    /// The accuracy rewards of the completions that count, before shaping.
    pub fn live_accuracies(&self) -> impl Iterator<Item = f32> {
        self.rewards.iter().filter(|reward| reward.live).map(|reward| reward.accuracy)
    }

    /// Its completions and rewards without those that have no verdict.
    pub fn judged(&self) -> RewardedGroup {
        let mut judged = self.clone();
        let mut keep = self.rewards.iter().map(Reward::is_judged);
        judged.group.completions.retain(|_| keep.next().unwrap_or(true));
        judged.rewards.retain(Reward::is_judged);
        judged
    }

    /// The rewards after shaping, one per completion.
    pub fn shaped(&self) -> impl Iterator<Item = f32> {
        self.rewards.iter().map(|reward| reward.shaped)
    }
}

/// The use that a step made of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It is trained on.
    Kept,
    /// It was put aside for the next step, or dropped, because there were enough.
    Surplus,
    /// The filter left it out.
    Filtered,
    /// None of its completions counts.
    Masked,
}

impl Fate {
    /// As files have it.
    pub fn name(self) -> &'static str {
        match self {
            Fate::Kept => "kept",
            Fate::Surplus => "surplus",
            Fate::Filtered => "filtered",
            Fate::Masked => "masked",
        }
    }
}

/// Decides which groups are worth an update: dynamic sampling's rule.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not decide which groups are kept",
    label = "needs `fn keep(&self, group: &RewardedGroup) -> bool`"
)]
pub trait GroupFilter: Send + Sync {
    /// Whether the group has something to teach.
    fn keep(&self, group: &RewardedGroup) -> bool;
}

impl<T: GroupFilter + ?Sized> GroupFilter for Box<T> {
    fn keep(&self, group: &RewardedGroup) -> bool {
        (**self).keep(group)
    }
}
