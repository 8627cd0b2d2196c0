//! Estimators, which turn the rewards of a step into advantages. They differ in what they normalise over:
//!
//! | estimator | subtracts the mean of | divides by the deviation of |
//! |---|---|---|
//! | [`GroupNorm`] | the group | the group |
//! | [`MeanOnly`] | the group | nothing |
//! | [`LeaveOneOut`] | the others of the group | nothing |
//! | [`BatchNorm`] | the group | the step's rewards |
//! | [`ReinforceBaseline`] | the group, then the step's tokens | the step's tokens |
//! | [`Gdpo`] | for each part of the reward the group, then the step | for each part the group, then the step |

use std::collections::{BTreeMap, BTreeSet};

use firebrick_core::{AdvantageEstimator, Advantages, Reward, RewardedGroup};

use crate::algorithm::gae::whiten;

/// Largest spread of rewards that counts as none: every advantage is then exactly 0.
///
/// Without this rule, floating-point noise in a group of equal fractional rewards becomes signal: in a peer,
/// an epsilon of 1e-9 turned it into advantages of up to 0.9.
pub const SPREAD_TOLERANCE: f32 = 1e-6;

/// (r − mean) / (std + epsilon): DAPO and GRPO.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupNorm {
    /// Added to the standard deviation; 1e-6 in verl and SkyRL.
    pub epsilon: f64,
    /// True if the squares are divided by n − 1, as every peer does; false if by n.
    pub unbiased: bool,
}

impl Default for GroupNorm {
    fn default() -> Self {
        GroupNorm { epsilon: 1e-6, unbiased: true }
    }
}

impl GroupNorm {
    /// Computes the advantages of one group with these rewards.
    pub fn of_group(&self, rewards: &[f32]) -> Vec<f32> {
        centred(rewards, |deviations| {
            let squares: f64 = deviations.iter().map(|deviation| deviation * deviation).sum();
            let count = deviations.len() as f64 - f64::from(u8::from(self.unbiased));
            1.0 / ((squares / count).sqrt() + self.epsilon)
        })
    }
}

impl AdvantageEstimator for GroupNorm {
    fn advantages(&self, groups: &[RewardedGroup]) -> Vec<Advantages> {
        by_group(groups, |rewards| self.of_group(rewards))
    }
}

/// r − mean: Dr. GRPO (Liu et al. 2025).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeanOnly;

impl MeanOnly {
    /// Computes the advantages of one group with these rewards.
    pub fn of_group(&self, rewards: &[f32]) -> Vec<f32> {
        centred(rewards, |_| 1.0)
    }
}

impl AdvantageEstimator for MeanOnly {
    fn advantages(&self, groups: &[RewardedGroup]) -> Vec<Advantages> {
        by_group(groups, |rewards| self.of_group(rewards))
    }
}

/// r − mean of the others: RLOO (Ahmadian et al. 2024).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LeaveOneOut;

impl LeaveOneOut {
    /// Computes the advantages of one group with these rewards.
    pub fn of_group(&self, rewards: &[f32]) -> Vec<f32> {
        // r − (sum − r) / (n − 1) = (r − mean) · n / (n − 1).
        centred(rewards, |deviations| {
            let count = deviations.len() as f64;
            count / (count - 1.0)
        })
    }
}

impl AdvantageEstimator for LeaveOneOut {
    fn advantages(&self, groups: &[RewardedGroup]) -> Vec<Advantages> {
        by_group(groups, |rewards| self.of_group(rewards))
    }
}

/// (r − mean of the group) / (std of all rewards of the step + epsilon): Lite PPO (Liu et al. 2025, arXiv
/// 2508.08221). So a group of nearly equal rewards is not blown up to the size of the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNorm {
    /// Added to the standard deviation, which divides by n − 1.
    pub epsilon: f64,
}

impl AdvantageEstimator for BatchNorm {
    fn advantages(&self, groups: &[RewardedGroup]) -> Vec<Advantages> {
        let all: Vec<f64> =
            groups.iter().flat_map(RewardedGroup::shaped_rewards).map(f64::from).collect();
        let scale = inverse(deviation(&all), self.epsilon);
        by_group(groups, |rewards| centred(rewards, |_| scale))
    }
}

/// r − mean of the group, then shifted and scaled to mean 0 and variance 1 over the step's tokens:
/// REINFORCE++ with its baseline (Hu et al. 2025, arXiv 2501.03262), as verl computes it.
///
/// The mean over tokens is not 0 where right and wrong completions differ in length, so the shift also
/// reaches groups without spread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReinforceBaseline;

impl AdvantageEstimator for ReinforceBaseline {
    fn advantages(&self, groups: &[RewardedGroup]) -> Vec<Advantages> {
        let of_group = |group: &RewardedGroup| -> Vec<Vec<f32>> {
            let rewards: Vec<f32> = group.shaped_rewards().collect();
            let deviations = MeanOnly.of_group(&rewards).into_iter();
            let completions = deviations.zip(&group.group.completions);
            completions
                .map(|(advantage, completion)| vec![advantage; completion.tokens.len()])
                .collect()
        };

        let mut advantages: Vec<Vec<Vec<f32>>> = groups.iter().map(of_group).collect();

        // Only the policy's own tokens of completions in the loss are shifted and scaled.
        let counted = advantages.iter_mut().zip(groups).flat_map(|(advantages, group)| {
            let rewarded = group.group.completions.iter().zip(&group.rewards);
            let in_loss =
                advantages.iter_mut().zip(rewarded).filter(|(_, (_, reward))| reward.in_loss);
            in_loss.flat_map(|(advantages, (completion, _))| {
                let tokens = advantages.iter_mut().zip(&completion.mask);
                tokens.filter(|(_, by_policy)| **by_policy).map(|(advantage, _)| advantage)
            })
        });

        whiten(counted);
        advantages.into_iter().map(Advantages::PerToken).collect()
    }
}

/// Normalises every part of the reward within its group, sums the parts, and normalises the sums over the
/// step: GDPO (Liu et al. 2026, arXiv 2601.05242). So a part with large numbers or much spread does not
/// dominate the others, as it does if only the sum is normalised.
///
/// The parts are those of the verifier ([`Score::parts`](firebrick_core::Score)), without the parts of parts,
/// if every completion of the group has the same ones. Otherwise the credit itself is the one part, for
/// example if a reward model could not read a completion. Whatever shaping added is one more part, called
/// `shaping`.
#[derive(Clone, Debug, PartialEq)]
pub struct Gdpo {
    /// Factors of the parts by name; 1 for a part that is not named.
    pub weights: BTreeMap<String, f32>,
    /// Added to every standard deviation, which divides by n − 1.
    pub epsilon: f64,
}

impl AdvantageEstimator for Gdpo {
    fn advantages(&self, groups: &[RewardedGroup]) -> Vec<Advantages> {
        let norm = GroupNorm { epsilon: self.epsilon, unbiased: true };
        let mut sums: Vec<Vec<f64>> =
            groups.iter().map(|group| vec![0.0; group.rewards.len()]).collect();

        for (group, sums) in groups.iter().zip(&mut sums) {
            for (name, of_part) in parts(group) {
                let weight = f64::from(self.weights.get(name).copied().unwrap_or(1.0));
                for (sum, advantage) in sums.iter_mut().zip(norm.of_group(&of_part)) {
                    *sum += weight * f64::from(advantage);
                }
            }
        }

        let all: Vec<f64> = sums.iter().flatten().copied().collect();
        let mean = mean(&all);
        let scale = inverse(deviation(&all), self.epsilon);
        let of_group =
            |sums: Vec<f64>| sums.iter().map(|sum| ((sum - mean) * scale) as f32).collect();
        sums.into_iter().map(|sums| Advantages::PerCompletion(of_group(sums))).collect()
    }
}

/// Returns the parts of a group's rewards in the order of their names: one number per completion.
///
/// If one completion lacks a part, no number for it would be fair. And a lone part that says more than the
/// credit, such as a reward model's raw score, is not the reward that the recipe made of it.
fn parts(group: &RewardedGroup) -> Vec<(&str, Vec<f32>)> {
    let outer = |reward: &Reward| -> BTreeSet<String> {
        let names = reward.score.parts.iter().map(|(name, _)| name.clone());
        names.filter(|name| !name.contains('/')).collect()
    };
    let names: BTreeSet<String> = group.rewards.first().map(outer).unwrap_or_default();

    let mut parts: BTreeMap<&str, Vec<f32>> = BTreeMap::new();
    if names.len() > 1 && group.rewards.iter().all(|reward| outer(reward) == names) {
        for (name, credit) in group.rewards.iter().flat_map(|reward| &reward.score.parts) {
            if names.contains(name) {
                parts.entry(name).or_default().push(*credit);
            }
        }
    } else {
        parts.insert("credit", group.rewards.iter().map(|reward| reward.score.credit).collect());
    }

    let shaping = group.rewards.iter().map(|reward| reward.reward - reward.base_reward);
    // A custom verifier may have a part of this name, which is a part all the same.
    let mut parts: Vec<(&str, Vec<f32>)> = parts.into_iter().collect();
    parts.push(("shaping", shaping.collect()));
    parts.sort_by_key(|(name, _)| *name);
    parts
}

/// Computes the advantages of each group from its own shaped rewards.
fn by_group(groups: &[RewardedGroup], advantages: impl Fn(&[f32]) -> Vec<f32>) -> Vec<Advantages> {
    let of_group =
        |group: &RewardedGroup| advantages(&group.shaped_rewards().collect::<Vec<f32>>());
    groups.iter().map(|group| Advantages::PerCompletion(of_group(group))).collect()
}

/// Returns the deviations from the mean, times `scale`. All are 0 for a group of one, or for a group without
/// spread. Sums are f64, so that the order of a group's rewards does not show.
// ANCHOR: tour
fn centred(rewards: &[f32], scale: impl FnOnce(&[f64]) -> f64) -> Vec<f32> {
    let (low, high) =
        rewards.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), &reward| {
            (low.min(reward), high.max(reward))
        });
    if rewards.len() < 2 || high - low <= SPREAD_TOLERANCE {
        return vec![0.0; rewards.len()];
    }

    let mean = rewards.iter().map(|&reward| f64::from(reward)).sum::<f64>() / rewards.len() as f64;
    let deviations: Vec<f64> = rewards.iter().map(|&reward| f64::from(reward) - mean).collect();
    let scale = scale(&deviations);
    deviations.iter().map(|deviation| (deviation * scale) as f32).collect()
}
// ANCHOR_END: tour

/// Returns 1 / (deviation + epsilon); 0 if there is nothing to divide.
fn inverse(deviation: f64, epsilon: f64) -> f64 {
    if deviation > f64::from(SPREAD_TOLERANCE) { 1.0 / (deviation + epsilon) } else { 0.0 }
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len().max(1) as f64
}

/// Computes the unbiased standard deviation; 0 for fewer than two numbers.
fn deviation(numbers: &[f64]) -> f64 {
    let mean = mean(numbers);
    let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
    (squares / (numbers.len() as f64 - 1.0).max(1.0)).sqrt()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use firebrick_core::{Completion, FinishReason, Group, Prompt, RewardScale, Score, Verdict};

    use super::*;

    const SCALE: RewardScale = RewardScale { right: 1.0, wrong: 0.0 };

    /// Makes a group of completions from pairs of token count and credit.
    fn group(completions: &[(usize, f32)]) -> RewardedGroup {
        let completion = |&(tokens, _): &(usize, f32)| {
            Completion::written(vec![0; tokens], vec![0.0; tokens], FinishReason::Stop)
        };
        let reward =
            |&(_, credit): &(usize, f32)| SCALE.reward(Score::partial(Verdict::Wrong, credit, ""));

        RewardedGroup {
            group: Arc::new(Group {
                prompt: Prompt::default(),
                completions: completions.iter().map(completion).collect(),
                step: 1,
                draw: 0,
            }),
            rewards: completions.iter().map(reward).collect(),
        }
    }

    fn assert_close(got: &[f32], expected: &[f64]) {
        assert_eq!(got.len(), expected.len());
        for (got, expected) in got.iter().zip(expected) {
            assert!((f64::from(*got) - expected).abs() < 1e-5, "{got} is not {expected}");
        }
    }

    fn per_completion(advantages: &[Advantages]) -> Vec<f32> {
        let of_group = |advantages: &Advantages| match advantages {
            Advantages::PerCompletion(numbers) => numbers.clone(),
            Advantages::PerToken(_) => panic!("one number for each completion was expected"),
        };
        advantages.iter().flat_map(of_group).collect()
    }

    #[test]
    fn lite_ppo_divides_by_the_deviation_of_the_step() {
        // Rewards 1, 0 | 1, 1: the mean is 3/4, and the squares add up to (1 + 9 + 1 + 1)/16 = 3/4. Divided by
        // n − 1 = 3 that is 1/4, and the deviation is 1/2. Deviations from the groups' means are ±1/2 and 0.
        let groups = [group(&[(1, 1.0), (1, 0.0)]), group(&[(1, 1.0), (1, 1.0)])];
        let advantages = BatchNorm { epsilon: 0.0 }.advantages(&groups);
        assert_close(&per_completion(&advantages), &[1.0, -1.0, 0.0, 0.0]);
    }

    #[test]
    fn reinforce_with_a_baseline_is_whitened_over_tokens() {
        // The deviation is 1/2 on one token and −1/2 on three. The mean over the four tokens is −1/4, the
        // squares add up to 9/16 + 3/16 = 3/4, and the unbiased variance is 1/4. So the results are
        // (1/2 + 1/4) · 2 = 3/2 and (−1/2 + 1/4) · 2 = −1/2.
        let mut groups = [group(&[(1, 1.0), (3, 0.0)])];
        let expected = |advantages: &[Advantages]| match advantages {
            [Advantages::PerToken(rows)] => rows.concat(),
            _ => panic!("one group with a number for each token was expected"),
        };

        let advantages = ReinforceBaseline.advantages(&groups);
        assert_close(&expected(&advantages), &[1.5, -0.5, -0.5, -0.5]);

        // Tokens that the policy did not write, and completions that are out of the loss, are left out.
        let completions = &mut Arc::make_mut(&mut groups[0].group).completions;
        completions[1].observe(&[7, 7, 7, 7]);
        completions.push(completions[0].clone());
        let mut masked = SCALE.reward(Score::partial(Verdict::Wrong, 0.5, ""));
        masked.in_loss = false;
        groups[0].rewards.push(masked);

        let advantages = expected(&ReinforceBaseline.advantages(&groups));
        assert_close(&advantages[..4], &[1.5, -0.5, -0.5, -0.5]);
    }

    #[test]
    fn gdpo_normalises_each_part_before_the_sum() {
        // With two completions, the norm of a part that differs is ±1/√2. The parts disagree: with weights 3
        // and 1 the sums are ±2/√2, and their deviation over the step is √(2 · 2 / 1) = 2, which gives ±1/√2.
        // A second group that differs in only one part would shift nothing: its sums are ±3/√2 and so on.
        let mut one = group(&[(1, 0.0), (1, 0.0)]);
        let part = |right: f32, form: f32| vec![("right".into(), right), ("form".into(), form)];
        one.rewards[0].score.parts = part(1.0, 0.0);
        one.rewards[1].score.parts = part(0.0, 100.0);

        let weights = BTreeMap::from([("right".to_owned(), 3.0)]);
        let gdpo = Gdpo { weights, epsilon: 0.0 };
        let root = std::f64::consts::FRAC_1_SQRT_2;
        assert_close(&per_completion(&gdpo.advantages(&[one.clone()])), &[root, -root]);

        // Next to ±2/√2 = ±√2 there are now ±3/√2: the squares add up to 2 · 2 + 2 · 9/2 = 13, divided by 3
        // they give √(13/3) = 2.0817.
        let mut other = group(&[(1, 0.0), (1, 0.0)]);
        other.rewards[0].score.parts = part(1.0, 5.0);
        other.rewards[1].score.parts = part(0.0, 5.0);

        let deviation = (13.0_f64 / 3.0).sqrt();
        let small = 2.0_f64.sqrt() / deviation;
        let large = 3.0 * root / deviation;
        assert_close(
            &per_completion(&gdpo.advantages(&[one, other])),
            &[small, -small, large, -large],
        );
    }

    #[test]
    fn gdpo_falls_back_to_the_credit_where_a_part_is_missing() {
        // Two completions have raw scores of a reward model, which could not read the last one. By the scores
        // the last would be the best; by the credits it is the worst.
        let mut group = group(&[(1, 0.5), (1, 0.25), (1, 0.0)]);
        group.rewards[0].score.parts = vec![("score".into(), -3.0)];
        group.rewards[1].score.parts = vec![("score".into(), -5.0)];

        let gdpo = Gdpo { weights: BTreeMap::new(), epsilon: 0.0 };
        assert_close(&per_completion(&gdpo.advantages(&[group])), &[1.0, 0.0, -1.0]);
    }

    #[test]
    fn gdpo_takes_shaping_for_a_part() {
        // Credits are equal, and the second completion was punished for its length: ±1/√2. The deviation over
        // the step is then 1.
        let mut group = group(&[(1, 1.0), (1, 1.0)]);
        group.rewards[1].reward -= 0.25;

        let gdpo = Gdpo { weights: BTreeMap::new(), epsilon: 0.0 };
        let root = std::f64::consts::FRAC_1_SQRT_2;
        assert_close(&per_completion(&gdpo.advantages(&[group.clone()])), &[root, -root]);

        // A part of the same name is not lost: it differs, and shaping and the other part do not.
        group.rewards[1].reward = group.rewards[0].reward;
        for (reward, own) in group.rewards.iter_mut().zip([0.0, 1.0]) {
            reward.score.parts = vec![("shaping".into(), own), ("form".into(), 1.0)];
        }
        assert_close(&per_completion(&gdpo.advantages(&[group])), &[-root, root]);
    }
}
