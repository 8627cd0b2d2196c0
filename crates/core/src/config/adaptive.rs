//! Options of adaptive updates: the number of updates that a mini-batch gets.

use serde::{Deserialize, Serialize};

/// The number of updates that a mini-batch gets, by its importance. The importance is a weighted sum of the mean
/// absolute advantage, the mean absolute change of log-probabilities since sampling, and 1 / entropy. The number
/// is the importance times `n_base`, kept within `n_min` and `n_max` and rounded down.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct AdaptiveUpdates {
    /// Weight of the mean absolute advantage.
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0)))]
    pub weight_advantage: f64,
    /// Weight of the mean absolute change of log-probabilities since sampling.
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0)))]
    pub weight_change: f64,
    /// Weight of 1 / entropy.
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0)))]
    pub weight_entropy: f64,
    /// The largest 1 / entropy that counts, so that a policy which collapses does not get the maximum number of
    /// updates. 0.0 is no bound, as in the published rule.
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0)))]
    pub max_entropy_term: f64,
    /// Updates at an importance of 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub n_base: usize,
    /// Minimum number of updates, at least 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub n_min: usize,
    /// Maximum number of updates, at least `n_min`.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub n_max: usize,
    /// Mean absolute change of log-probabilities since sampling beyond which a mini-batch gets no further update.
    /// The update that went beyond it stays, and every mini-batch gets its first update.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0.0)))]
    pub kl_stop: f64,
}

impl Default for AdaptiveUpdates {
    fn default() -> Self {
        AdaptiveUpdates {
            weight_advantage: 0.5,
            weight_change: 0.3,
            weight_entropy: 0.2,
            max_entropy_term: 2.0,
            n_base: 10,
            n_min: 5,
            n_max: 20,
            kl_stop: 0.02,
        }
    }
}

impl AdaptiveUpdates {
    /// Returns the number of updates that an importance is worth; the minimum if it is not a number.
    pub fn updates(&self, importance: f64) -> usize {
        let updates = self.n_base as f64 * importance;

        // `clamp` would return NaN, and NaN casts to 0.
        updates.max(self.n_min as f64).min(self.n_max as f64) as usize
    }

    /// Returns true if a policy that has changed by `change` gets no further update.
    pub fn stops(&self, change: f64) -> bool {
        change > self.kl_stop
    }
}
