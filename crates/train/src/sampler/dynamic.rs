//! Dynamic sampling, which keeps the groups that have something to teach, and samples more until there are
//! enough; also the other ways of treating groups that have nothing to teach.

use firebrick_core::{GroupFilter, GroupStatus, RewardedGroup, Seed};
use rand::{RngExt as _, seq::index};

/// Keeps a group whose base rewards in the loss differ by more than `tolerance`. For right-or-wrong rewards this
/// is a group with 0 < correct < group size (Yu et al. 2025, Eq. 11).
///
/// The spread is the largest minus the smallest reward, and not a standard deviation: in floating point, that
/// of equal fractional rewards is not exactly 0, and so would keep groups that teach nothing. Base rewards
/// are compared, and not shaped ones: a group that is all right or all wrong does not become useful by
/// differing in length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Spread up to which rewards count as equal.
    pub tolerance: f32,
    /// True if a group is kept in which fewer than two completions count, as SkyRL does. The lone completion
    /// is then compared with those that overlong filtering took out, so that a wrong completion among punished
    /// ones gets a positive advantage.
    pub keep_lone: bool,
}

impl Spread {
    /// Makes a filter that keeps no lone completions.
    pub fn new(tolerance: f32) -> Self {
        Spread { tolerance, keep_lone: false }
    }
}

impl GroupFilter for Spread {
    /// Returns true if the spread is larger than the tolerance. A group of one has no spread to measure and
    /// is kept: a critic gives its advantages.
    fn keep(&self, group: &RewardedGroup) -> bool {
        let (count, low, high) = group
            .base_rewards_in_loss()
            .fold((0, f32::INFINITY, f32::NEG_INFINITY), |(count, low, high), reward| {
                (count + 1, low.min(reward), high.max(reward))
            });

        match count {
            0 | 1 => self.keep_lone || group.rewards.len() < 2,
            _ => high - low > self.tolerance,
        }
    }
}

/// Keeps every group: dynamic sampling is switched off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KeepAll;

impl GroupFilter for KeepAll {
    fn keep(&self, _: &RewardedGroup) -> bool {
        true
    }
}

/// Chooses which of `kept` groups are copied for `missing` groups, by their indices, in random order. No group
/// is chosen twice if enough groups were kept (as SkyRL does).
pub fn copies(kept: usize, missing: usize, seed: Seed) -> Vec<usize> {
    let mut rng = seed.rng();
    match kept {
        0 => Vec::new(),
        _ if missing <= kept => index::sample(&mut rng, kept, missing).into_vec(),
        _ => (0..missing).map(|_| rng.random_range(0..kept)).collect(),
    }
}

/// Dynamic sampling: the kept groups of a step while they are being collected, and how many more prompts have to
/// be sampled.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupBuffer {
    /// Groups that an update is made of.
    pub target: usize,
    /// How many kept groups end the sampling; see [`Dynamic::enough`](firebrick_core::config::Dynamic::enough).
    pub enough: usize,
    /// Rounds after which sampling ends, full or not; 0 means never.
    pub max_rounds: usize,
    /// Groups kept so far, oldest first.
    pub kept: Vec<RewardedGroup>,
    /// Rounds sampled so far, counting a last round that has begun. One round is `target` prompts.
    pub rounds: usize,
    /// Groups that were sampled and not kept.
    pub filtered: usize,
    /// Kept groups that are surplus groups of an earlier step.
    carried: usize,
    /// Prompts that were requested.
    requested: usize,
}

/// State of a [`GroupBuffer`], which decides whether another round is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferStatus {
    /// There are enough groups.
    Full,
    /// More rounds are allowed and needed.
    NeedMore,
    /// The cap was reached first.
    CapReached,
}

impl GroupBuffer {
    /// Begins with nothing sampled yet; `kept` are surplus groups of an earlier step.
    pub fn new(target: usize, max_rounds: usize, kept: Vec<RewardedGroup>) -> Self {
        let carried = kept.len();
        GroupBuffer {
            target,
            enough: target,
            max_rounds,
            kept,
            rounds: 0,
            filtered: 0,
            carried,
            requested: 0,
        }
    }

    /// Adds a group, if it survives the filter.
    pub fn take(&mut self, group: RewardedGroup, filter: &dyn GroupFilter) -> GroupStatus {
        // A group without a completion in the loss has nothing to train on, whatever the filter says.
        let status = if !group.rewards.iter().any(|reward| reward.in_loss) {
            GroupStatus::Masked
        } else if filter.keep(&group) {
            GroupStatus::Kept
        } else {
            GroupStatus::Filtered
        };

        match status {
            GroupStatus::Kept => self.kept.push(group),
            _ => self.filtered += 1,
        }
        status
    }

    /// Returns whether there are enough groups.
    pub fn status(&self) -> BufferStatus {
        if self.kept.len() >= self.enough {
            BufferStatus::Full
        } else if self.prompts_left() == 0 {
            BufferStatus::CapReached
        } else {
            BufferStatus::NeedMore
        }
    }

    /// Returns the number of further prompts to sample, while `in_flight` groups have not been taken. At
    /// first it is the number of missing groups, then the number that should fill the step at the rate so far.
    /// At most a step's worth is in flight, and at most `max_rounds` in all.
    pub fn want(&self, in_flight: usize) -> usize {
        if self.status() != BufferStatus::NeedMore {
            return 0;
        }
        if self.requested == 0 {
            return self.first_round();
        }

        let judged = self.kept.len() - self.carried + self.filtered;
        // The rate counts one more group as kept: one group without spread does not mean that all are.
        let rate = (judged - self.filtered + 1) as f64 / (judged + 1) as f64;

        let missing = self.enough - self.kept.len();
        let wanted = ((missing as f64 / rate).ceil() as usize).min(self.target);
        let further = wanted.saturating_sub(in_flight);
        // A few further prompts can wait, because prompts that are prefilled together cost less.
        if in_flight > 0 && further < self.target.div_ceil(4) {
            0
        } else {
            further.min(self.prompts_left())
        }
    }

    /// Counts prompts that are requested now.
    pub fn ask(&mut self, count: usize) {
        self.requested += count;
        let after_first = self.requested.saturating_sub(self.first_round());
        self.rounds = 1 + after_first.div_ceil(self.target.max(1));
    }

    /// Returns the number of prompts that may still be requested.
    fn prompts_left(&self) -> usize {
        match self.max_rounds {
            0 => usize::MAX,
            rounds => self
                .first_round()
                .saturating_add((rounds - 1).saturating_mul(self.target))
                .saturating_sub(self.requested),
        }
    }

    /// Returns the number of prompts of the first round.
    fn first_round(&self) -> usize {
        self.target.saturating_sub(self.carried).max(1)
    }

    /// Returns the groups to train on, and the surplus.
    pub fn finish(mut self) -> (Vec<RewardedGroup>, Vec<RewardedGroup>) {
        let surplus = self.kept.split_off(self.target.min(self.kept.len()));
        (self.kept, surplus)
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Group, Prompt, RewardScale, Score};

    use super::*;

    #[test]
    fn a_group_whose_completions_are_all_masked_is_never_kept() {
        let scale = RewardScale { right: 1.0, wrong: -1.0 };
        let mut rewards = vec![scale.reward(Score::right("1")), scale.reward(Score::wrong("2"))];

        let prompt = Prompt::default();
        let group = Group { prompt, completions: Vec::new(), step: 1, draw: 0 };
        let kept = RewardedGroup { group: group.clone().into(), rewards: rewards.clone() };
        rewards.iter_mut().for_each(|reward| reward.in_loss = false);
        let masked = RewardedGroup { group: group.into(), rewards };

        for filter in [&Spread::new(1e-6) as &dyn GroupFilter, &KeepAll] {
            let mut buffer = GroupBuffer::new(2, 1, Vec::new());
            buffer.ask(2);
            let statuses = [&kept, &masked].map(|group| buffer.take(group.clone(), filter));
            assert_eq!(statuses, [GroupStatus::Kept, GroupStatus::Masked]);
            assert_eq!(buffer.status(), BufferStatus::CapReached);
            assert_eq!((buffer.kept.len(), buffer.filtered), (1, 1));
        }
    }

    #[test]
    fn a_lone_completion_has_nothing_to_be_compared_with() {
        // The lone completion is wrong, and better than its two neighbours, which were cut off and punished:
        // with the group's mean of −5/3, its reward of −1 gives a positive advantage.
        let scale = RewardScale { right: 1.0, wrong: -1.0 };
        let mut rewards = vec![scale.reward(Score::wrong("2")); 3];
        for reward in &mut rewards[1..] {
            (reward.in_loss, reward.reward) = (false, -2.0);
        }

        let prompt = Prompt::default();
        let group = Group { prompt, completions: Vec::new(), step: 1, draw: 0 };
        let lone = RewardedGroup { group: group.into(), rewards };
        let shaped: Vec<f32> = lone.shaped_rewards().collect();
        assert!(crate::algorithm::advantage::GroupNorm::default().of_group(&shaped)[0] > 1.0);

        assert!(!Spread::new(1e-6).keep(&lone));
        assert!(Spread { keep_lone: true, ..Spread::new(1e-6) }.keep(&lone));
        let of_one = RewardedGroup { rewards: lone.rewards[..1].to_vec(), ..lone };
        assert!(Spread::new(1e-6).keep(&of_one));
    }
}
