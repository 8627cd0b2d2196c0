use std::collections::BTreeMap;

use firebrick_core::AdvantageEstimator;

/// Rewards whose spread is not larger than this teach nothing: every advantage is exactly 0.
///
/// Without the rule, floating-point noise in a group of equal fractional rewards becomes signal:
/// an epsilon of 1e-9 turned it into advantages of up to 0.9 in a peer.
pub const SPREAD_TOLERANCE: f32 = 1e-6;

/// (r − mean) / (std + epsilon): DAPO and GRPO.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupNorm {
    /// Added to the standard deviation; 1e-6 in verl and SkyRL.
    pub epsilon: f64,
    /// Divide the squares by n − 1 (every peer) or by n.
    pub unbiased: bool,
}

impl Default for GroupNorm {
    fn default() -> Self {
        GroupNorm { epsilon: 1e-6, unbiased: true }
    }
}

impl AdvantageEstimator for GroupNorm {
    fn advantages(&self, rewards: &[f32]) -> Vec<f32> {
        centred(rewards, |deviations| {
            let squares: f64 = deviations.iter().map(|deviation| deviation * deviation).sum();
            let count = deviations.len() as f64 - f64::from(u8::from(self.unbiased));
            1.0 / ((squares / count).sqrt() + self.epsilon)
        })
    }
}

/// r − mean: Dr. GRPO (Liu et al. 2025).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeanOnly;

impl AdvantageEstimator for MeanOnly {
    fn advantages(&self, rewards: &[f32]) -> Vec<f32> {
        centred(rewards, |_| 1.0)
    }
}

/// r − mean of the others: RLOO (Ahmadian et al. 2024).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LeaveOneOut;

impl AdvantageEstimator for LeaveOneOut {
    fn advantages(&self, rewards: &[f32]) -> Vec<f32> {
        // r − (sum − r) / (n − 1) = (r − mean) · n / (n − 1).
        centred(rewards, |deviations| {
            let count = deviations.len() as f64;
            count / (count - 1.0)
        })
    }
}

/// r: what is left to a critic, which says what was to be expected.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RewardItself;

impl AdvantageEstimator for RewardItself {
    fn advantages(&self, rewards: &[f32]) -> Vec<f32> {
        rewards.to_vec()
    }
}

/// Applies `estimator` to each group of a flat list: `groups[i]` names the group of `rewards[i]`,
/// whose members need not be neighbours.
pub fn grouped(estimator: &dyn AdvantageEstimator, rewards: &[f32], groups: &[u64]) -> Vec<f32> {
    let mut members: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (index, &group) in groups.iter().enumerate() {
        members.entry(group).or_default().push(index);
    }
    let mut advantages = vec![0.0; rewards.len()];
    for indices in members.values() {
        let own: Vec<f32> = indices.iter().map(|&index| rewards[index]).collect();
        for (&index, advantage) in indices.iter().zip(estimator.advantages(&own)) {
            advantages[index] = advantage;
        }
    }
    advantages
}

/// Deviations from the mean times `scale`; all 0 for a group of one or without spread. Sums are
/// f64, so that the order of a group's rewards does not show.
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
