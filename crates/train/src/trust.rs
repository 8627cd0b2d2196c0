//! Completions whose log-probabilities can't be those of the policy that is said to have written them.

use std::collections::BTreeSet;

use firebrick_core::{RewardedGroup, Step};

use crate::Sample;

/// The rule for completions of an engine that computes elsewhere, and may compute with other numbers than it showed
/// when it got its weights.
///
/// The trainer's own log-probabilities come with the gradient, before the weights move. As long as they are those of
/// the weights that the engine has, the two differ by rounding alone, and the engine's tolerance holds for their mean
/// distance. For completions of older weights, and after the step's first update, the distance is also the way that
/// the policy has gone. Then only a lie that no way explains is found: a policy that has gone further than
/// [`WAY`] in the mean is not one to learn from either.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Trust {
    /// The largest mean distance, in nats.
    tolerance: f64,
    /// The completions of older weights than the step began with, by group and place.
    older: BTreeSet<(u64, usize)>,
}

/// The longest way that a policy goes within the age of a completion, as a mean distance of log-probabilities in nats.
const WAY: f64 = 1.0;

/// The number of tokens from which on a mean says something. Fewer tokens may be as far away as these in all.
const FEWEST: usize = 64;

impl Trust {
    pub(crate) fn new(tolerance: f64, groups: &[RewardedGroup], step: Step) -> Self {
        let versions = groups.iter().zip(0..).flat_map(|(group, index)| {
            let completions = group.group.completions.iter().enumerate();
            completions.map(move |(place, it)| ((index, place), it.policy_version))
        });
        let older = versions.filter(|(_, version)| version + 1 < step).map(|(place, _)| place);
        Trust { tolerance, older: older.collect() }
    }

    /// Returns the samples that are not to be learnt from, by their indices: the farthest ones, and no more than must
    /// go for the others to be within the bounds. `logprobs` has the present log-probabilities of each sample, and
    /// `moved` tells whether these weights have moved since the engine got them.
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
            .filter(|(_, (sample, _))| sample.counted() > 0)
            .map(|(index, (sample, now))| (is_near(sample), Distance::new(index, sample, now)))
            .partition(|(is_near, _)| *is_near);

        let bounds = [(near, self.tolerance), (far, self.tolerance + WAY)];
        let refused = bounds.into_iter().flat_map(|(distances, most)| {
            beyond(distances.into_iter().map(|(_, distance)| distance).collect(), most)
        });
        refused.collect()
    }
}

/// The distance between an engine's log-probabilities of a completion and the trainer's.
struct Distance {
    index: usize,
    /// The sum over the completion's own tokens, in nats. It is infinite if there is no number.
    sum: f64,
    tokens: usize,
}

impl Distance {
    fn new(index: usize, sample: &Sample, now: &[f32]) -> Self {
        let distance = |place: usize| {
            let difference = f64::from(now[place]) - f64::from(sample.rollout_logprobs[place]);
            if difference.is_nan() { f64::INFINITY } else { difference.abs() }
        };
        Distance { index, sum: sample.own().map(distance).sum(), tokens: sample.counted() }
    }

    fn mean(&self) -> f64 {
        self.sum / self.tokens.max(1) as f64
    }
}

/// Returns the indices of the farthest, which have to go so that the mean of the others is `most` or less. None has to
/// go if all of them together are no further away than [`FEWEST`] tokens may be.
fn beyond(mut distances: Vec<Distance>, most: f64) -> Vec<usize> {
    let all: f64 = distances.iter().map(|distance| distance.sum).sum();
    if all <= most * FEWEST as f64 {
        return Vec::new();
    }

    // The mean over the nearest ones grows with each that is added.
    distances.sort_by(|a, b| a.mean().total_cmp(&b.mean()));
    let (mut sum, mut tokens) = (0.0, 0);
    let is_within = |distance: &&Distance| {
        (sum, tokens) = (sum + distance.sum, tokens + distance.tokens);
        sum <= most * tokens as f64
    };
    let kept = distances.iter().take_while(is_within).count();
    distances[kept..].iter().map(|distance| distance.index).collect()
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Completion, FinishReason};

    use super::*;

    /// Makes a completion of `tokens` tokens, which its engine says to have the log-probability `said`.
    fn sample(group: u64, tokens: usize, said: f32) -> Sample {
        let completion =
            Completion::written(vec![1; tokens], vec![said; tokens], FinishReason::Stop);
        Sample::new(&[0], &completion, group)
    }

    #[test]
    fn numbers_that_no_rounding_explains_are_refused() {
        let trust = Trust { tolerance: 0.02, older: BTreeSet::new() };
        let refused = |said: &[f32], moved: bool| {
            let samples: Vec<Sample> =
                said.iter().zip(0..).map(|(said, group)| sample(group, 40, *said)).collect();
            // The trainer's number is -0.12 for each token.
            let now = vec![vec![-0.12; 40]; said.len()];
            let mut refused = trust.refused(&samples, &now, moved);
            refused.sort_unstable();
            refused
        };
        // Rounding, also where one completion is a little beyond the tolerance.
        assert!(refused(&[-0.121, -0.119, -0.12, -0.15], false).is_empty());
        // Impossible numbers, and numbers that say that every token was certain.
        assert_eq!(refused(&[-9998.0, -0.121, -9998.0, -0.119], false), [0, 2]);
        assert_eq!(refused(&[-0.121, 0.0, -0.119, -0.12], false), [1]);
        assert_eq!(refused(&[0.0, 0.0], false), [0, 1]);
        assert_eq!(refused(&[f32::NAN, -0.12, f32::NEG_INFINITY], false), [0, 2]);
        // After an update the distance is also the policy's way.
        assert_eq!(refused(&[-0.5, -0.3, 0.0, -9998.0], true), [3]);
    }

    #[test]
    fn completions_of_older_weights_may_be_further_away() {
        let older = BTreeSet::from([(0, 0)]);
        let trust = Trust { tolerance: 0.02, older };
        let now = vec![vec![-1.0; 100]; 3];
        let samples = [sample(0, 100, -1.5), sample(1, 100, -1.5), sample(2, 100, -1.01)];
        assert_eq!(trust.refused(&samples, &now, false), [1]);
        let samples = [sample(0, 100, -40.0), sample(1, 100, -1.0), sample(2, 100, -1.0)];
        assert_eq!(trust.refused(&samples, &now, false), [0]);
    }

    #[test]
    fn a_few_tokens_may_be_rounded_more() {
        let trust = Trust { tolerance: 0.02, older: BTreeSet::new() };
        let now = [vec![-1.0; 3]];
        assert!(trust.refused(&[sample(0, 3, -1.2)], &now, false).is_empty());
        assert_eq!(trust.refused(&[sample(0, 3, -3.0)], &now, false), [0]);
        // A sample that does not count can't be refused.
        let dead = Sample { in_loss: false, ..sample(0, 3, -9998.0) };
        assert!(trust.refused(&[dead], &[Vec::new()], false).is_empty());
    }
}
