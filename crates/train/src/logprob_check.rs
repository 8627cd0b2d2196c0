//! Completions whose log-probabilities can't be those of the policy that is said to have written them.

use std::collections::BTreeSet;

use firebrick_core::{RewardedGroup, Step};

use crate::sample::Sample;

/// Check of completions of an engine in another process, which may compute other log-probabilities than it
/// did when it got its weights.
///
/// The trainer's own log-probabilities come with the gradient, before the weights move. As long as they are
/// those of the weights that the engine has, the two differ by rounding alone, and the engine's tolerance
/// holds for their mean distance. For completions of older weights, and after the step's first update, the
/// distance also includes how far the policy has moved. Then only log-probabilities that no movement explains
/// are refused: a policy that has moved further than [`MAX_POLICY_CHANGE`] in the mean is not one to learn
/// from either.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LogprobCheck {
    /// Largest mean distance, in nats.
    logprob_tolerance: f64,
    /// Completions of older weights than the step began with, by group and index in it.
    older: BTreeSet<(u64, usize)>,
}

/// Furthest that a policy moves within the age of a completion, as a mean distance of log-probabilities in
/// nats.
const MAX_POLICY_CHANGE: f64 = 1.0;

/// Smallest number of tokens whose mean distance is meaningful. The distances of fewer tokens may add up to
/// the sum that is allowed for this many.
const MIN_TOKENS: usize = 64;

impl LogprobCheck {
    pub(crate) fn new(logprob_tolerance: f64, groups: &[RewardedGroup], step: Step) -> Self {
        let versions = groups.iter().zip(0..).flat_map(|(group, index)| {
            let completions = group.group.completions.iter().enumerate();
            completions.map(move |(position, it)| ((index, position), it.policy_version))
        });
        let older = versions.filter(|(_, version)| version + 1 < step).map(|(key, _)| key);
        LogprobCheck { logprob_tolerance, older: older.collect() }
    }

    /// Returns the indices of the samples that are not to be trained on: the farthest ones, and no more than
    /// must be removed for the others to be within the bounds. `logprobs` has the current log-probabilities of
    /// each sample, and `moved` is true if these weights have moved since the engine got them.
    pub(crate) fn refused(
        &self,
        samples: &[Sample],
        logprobs: &[Vec<f32>],
        moved: bool,
    ) -> Vec<usize> {
        let is_near =
            |sample: &Sample| !moved && !self.older.contains(&(sample.group, sample.place));
        let all = samples.iter().zip(logprobs).enumerate();
        let (near, far): (Vec<_>, Vec<_>) = all
            .filter(|(_, (sample, _))| sample.loss_tokens() > 0)
            .map(|(index, (sample, logprobs))| {
                (is_near(sample), Distance::new(index, sample, logprobs))
            })
            .partition(|(is_near, _)| *is_near);

        let max_change = self.logprob_tolerance + MAX_POLICY_CHANGE;
        let bounds = [(near, self.logprob_tolerance), (far, max_change)];
        let refused = bounds.into_iter().flat_map(|(distances, max_mean)| {
            farthest(distances.into_iter().map(|(_, distance)| distance).collect(), max_mean)
        });
        refused.collect()
    }
}

/// Distance between an engine's log-probabilities of a completion and the trainer's.
struct Distance {
    index: usize,
    /// Sum over the tokens that the policy wrote, in nats; infinite if one of them is not a number.
    sum: f64,
    tokens: usize,
}

impl Distance {
    fn new(index: usize, sample: &Sample, logprobs: &[f32]) -> Self {
        let distance = |token: usize| {
            let difference = f64::from(logprobs[token]) - f64::from(sample.rollout_logprobs[token]);
            if difference.is_nan() { f64::INFINITY } else { difference.abs() }
        };
        let sum = sample.policy_tokens().map(distance).sum();
        Distance { index, sum, tokens: sample.loss_tokens() }
    }

    fn mean(&self) -> f64 {
        self.sum / self.tokens.max(1) as f64
    }
}

/// Returns the indices of the farthest, which have to be removed so that the mean of the others is `max_mean`
/// or less. None has to be removed if all of them together are no further away than [`MIN_TOKENS`] tokens may
/// be.
fn farthest(mut distances: Vec<Distance>, max_mean: f64) -> Vec<usize> {
    let all: f64 = distances.iter().map(|distance| distance.sum).sum();
    if all <= max_mean * MIN_TOKENS as f64 {
        return Vec::new();
    }

    // The mean over the nearest ones grows with each that is added.
    distances.sort_by(|a, b| a.mean().total_cmp(&b.mean()));
    let mut sum = 0.0;
    let mut tokens = 0;
    let is_within = |distance: &&Distance| {
        (sum, tokens) = (sum + distance.sum, tokens + distance.tokens);
        sum <= max_mean * tokens as f64
    };
    let kept = distances.iter().take_while(is_within).count();
    distances[kept..].iter().map(|distance| distance.index).collect()
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Completion, FinishReason};

    use super::*;

    /// Makes a completion of `tokens` tokens, whose engine claims the log-probability `claimed` for each.
    fn sample(group: u64, tokens: usize, claimed: f32) -> Sample {
        let completion =
            Completion::written(vec![1; tokens], vec![claimed; tokens], FinishReason::Stop);
        Sample::new(&[0], &completion, group)
    }

    #[test]
    fn numbers_that_no_rounding_explains_are_refused() {
        let check = LogprobCheck { logprob_tolerance: 0.02, older: BTreeSet::new() };
        let refused = |claimed: &[f32], moved: bool| {
            let samples: Vec<Sample> = claimed
                .iter()
                .zip(0..)
                .map(|(claimed, group)| sample(group, 40, *claimed))
                .collect();
            // The trainer's log-probability is -0.12 for each token.
            let current = vec![vec![-0.12; 40]; claimed.len()];

            let mut refused = check.refused(&samples, &current, moved);
            refused.sort_unstable();
            refused
        };

        // Rounding, also where one completion is a little beyond the tolerance.
        assert!(refused(&[-0.121, -0.119, -0.12, -0.15], false).is_empty());
        // Impossible log-probabilities, and those of 0, as if every token had been certain.
        assert_eq!(refused(&[-9998.0, -0.121, -9998.0, -0.119], false), [0, 2]);
        assert_eq!(refused(&[-0.121, 0.0, -0.119, -0.12], false), [1]);
        assert_eq!(refused(&[0.0, 0.0], false), [0, 1]);
        assert_eq!(refused(&[f32::NAN, -0.12, f32::NEG_INFINITY], false), [0, 2]);

        // After an update the distance also includes the policy's movement.
        assert_eq!(refused(&[-0.5, -0.3, 0.0, -9998.0], true), [3]);
    }

    #[test]
    fn completions_of_older_weights_may_be_further_away() {
        let older = BTreeSet::from([(0, 0)]);
        let check = LogprobCheck { logprob_tolerance: 0.02, older };
        let current = vec![vec![-1.0; 100]; 3];
        let samples = [sample(0, 100, -1.5), sample(1, 100, -1.5), sample(2, 100, -1.01)];
        assert_eq!(check.refused(&samples, &current, false), [1]);

        let samples = [sample(0, 100, -40.0), sample(1, 100, -1.0), sample(2, 100, -1.0)];
        assert_eq!(check.refused(&samples, &current, false), [0]);
    }

    #[test]
    fn a_few_tokens_may_be_rounded_more() {
        let check = LogprobCheck { logprob_tolerance: 0.02, older: BTreeSet::new() };
        let current = [vec![-1.0; 3]];
        assert!(check.refused(&[sample(0, 3, -1.2)], &current, false).is_empty());
        assert_eq!(check.refused(&[sample(0, 3, -3.0)], &current, false), [0]);

        // A sample that does not count can't be refused.
        let dead = Sample { in_loss: false, ..sample(0, 3, -9998.0) };
        assert!(check.refused(&[dead], &[Vec::new()], false).is_empty());
    }
}
