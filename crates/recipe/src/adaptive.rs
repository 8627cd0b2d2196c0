//! Adaptive updates: the table for the number of updates that a mini-batch gets.
//!
//! As in `tables`, the doc comments are the descriptions in the JSON schema and in the book.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The number of updates that a mini-batch gets, by its importance. The importance is a weighted sum of the mean
/// absolute advantage, the mean absolute change of log-probabilities since sampling, and 1 / entropy. The number
/// is the importance times `n_base`, kept within `n_min` and `n_max` and rounded down. Without this table it is
/// one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Adaptive {
    /// Weight of the mean absolute advantage.
    #[schemars(range(min = 0.0))]
    pub weight_advantage: f64,
    /// Weight of the mean absolute change of log-probabilities since sampling.
    #[schemars(range(min = 0.0))]
    pub weight_change: f64,
    /// Weight of 1 / entropy.
    #[schemars(range(min = 0.0))]
    pub weight_entropy: f64,
    /// The largest 1 / entropy that counts, so that a policy which collapses does not get the maximum number of
    /// updates. 0.0 is no bound, as in the published rule.
    #[schemars(range(min = 0.0))]
    pub max_entropy_term: f64,
    /// Updates at an importance of 1.
    #[schemars(range(min = 1, max = 1000))]
    pub n_base: usize,
    /// Minimum number of updates.
    #[schemars(range(min = 1, max = 1000))]
    pub n_min: usize,
    /// Maximum number of updates.
    #[schemars(range(min = 1, max = 1000))]
    pub n_max: usize,
    /// Mean absolute change of log-probabilities since sampling beyond which a mini-batch gets no further update.
    /// The update that went beyond it stays, and every mini-batch gets its first update.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub kl_stop: f64,
}

impl Default for Adaptive {
    fn default() -> Self {
        Adaptive {
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
