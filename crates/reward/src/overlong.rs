//! `Overlong`, a shaper: DAPO's soft punishment of long completions, and the filter of truncated ones.

use firebrick_core::{FinishReason, Group, Reward, RewardShaper};
use serde::{Deserialize, Serialize};

/// Punishes completions near the token limit, or takes truncated completions out of the loss (Yu et al. 2025,
/// section 3.4).
///
/// Either can be used alone: a `penalty` of 0 switches the punishment off.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overlong {
    /// Limit in tokens: L_max of the paper.
    pub max_completion_tokens: usize,
    /// How many tokens below the limit the punishment grows over: L_cache of the paper.
    pub buffer: usize,
    /// Reward that a completion at the limit loses; 0 means no punishment.
    pub penalty: f64,
    /// True if a completion that was cut off at the limit is left out of the loss.
    pub filter: bool,
}

impl RewardShaper for Overlong {
    fn shape(&self, group: &Group, rewards: &mut [Reward]) {
        for (completion, reward) in group.completions.iter().zip(rewards) {
            let length = completion.count();
            reward.reward += soft_overlong_penalty(
                length,
                self.max_completion_tokens,
                self.buffer,
                self.penalty,
            ) as f32;

            if self.filter && completion.finish == FinishReason::Length {
                reward.in_loss = false;
            }
        }
    }
}

/// Computes the soft overlong punishment (Yu et al. 2025, Eq. 13), times `factor`.
///
/// It is 0 up to `l_max - l_cache` tokens. Above that it falls linearly to `-factor` at `l_max`, and stays `-factor`
/// beyond. Without a cache it falls in one step, above `l_max`.
pub fn soft_overlong_penalty(length: usize, l_max: usize, l_cache: usize, factor: f64) -> f64 {
    let free = l_max as f64 - l_cache as f64;
    let excess = length as f64 - free;

    // The order of the tests avoids a division by 0 without a cache.
    if excess <= 0.0 {
        0.0
    } else if excess >= l_cache as f64 {
        -factor
    } else {
        -factor * excess / l_cache as f64
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Completion, Prompt, RewardScale, Score};

    use super::*;

    #[test]
    fn the_line_meets_its_ends() {
        for (length, expected) in
            [(0, 0.0), (80, 0.0), (81, -0.1), (90, -1.0), (100, -2.0), (101, -2.0), (9999, -2.0)]
        {
            let penalty = soft_overlong_penalty(length, 100, 20, 2.0);
            assert!((penalty - expected).abs() < 1e-12, "{length}: {penalty}");
        }
        assert_eq!(soft_overlong_penalty(100, 100, 0, 1.0), 0.0);
        assert_eq!(soft_overlong_penalty(101, 100, 0, 1.0), -1.0);
    }

    #[test]
    fn punishment_and_filter_work_alone() {
        let completion =
            |length, finish| Completion::written(vec![0; length], vec![0.0; length], finish);
        let group = Group {
            prompt: Prompt::default(),
            completions: vec![
                completion(15, FinishReason::Stop),
                completion(20, FinishReason::Length),
            ],
            step: 1,
            draw: 0,
        };

        let scale = RewardScale { right: 1.0, wrong: -1.0 };
        let shaped = |penalty, filter| {
            let mut rewards = vec![scale.reward(Score::right("")); 2];
            Overlong { max_completion_tokens: 20, buffer: 10, penalty, filter }
                .shape(&group, &mut rewards);
            assert!(rewards.iter().all(|reward| reward.base_reward == 1.0));
            rewards.iter().map(|reward| (reward.reward, reward.in_loss)).collect::<Vec<_>>()
        };

        assert_eq!(shaped(1.0, false), [(0.5, true), (0.0, true)]);
        assert_eq!(shaped(0.0, true), [(1.0, true), (1.0, false)]);
    }
}
