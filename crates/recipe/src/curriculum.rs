//! Table `[sampling.curriculum]` of a recipe: a choice of prompts by their history.
//!
//! As in `tables`, the doc comments are the descriptions in the JSON schema and in the book.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bounds;

/// A curriculum by the prompts' history. It passes over prompts whose groups had nothing to teach, before their
/// completions are paid for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Curriculum {
    /// A prompt is skipped if the base rewards of its last group hardly varied. If too much of a round would be
    /// skipped, some of the skipped prompts are put back at random.
    Variance {
        /// Variance of a group's rewards, with the group's size as the divisor, up to which a prompt is skipped.
        /// It has to be less than the largest possible one, (`reward.right` − `reward.wrong`)² / 4.
        #[serde(default = "min_variance")]
        #[schemars(range(min = 0.0))]
        min_variance: f64,
        /// Share of a round, in [0, 1], beyond which some of the skipped prompts are put back.
        #[serde(default = "skip_fraction_trigger")]
        #[schemars(range(min = 0.0, max = 1.0))]
        skip_fraction_trigger: f64,
        /// Number of prompts that are put back, as a share of the round, in [0, 1].
        #[serde(default = "refill_fraction")]
        #[schemars(range(min = 0.0, max = 1.0))]
        refill_fraction: f64,
        /// Steps after which a prompt is tried again. 0 is never: a prompt may then be lost for ever.
        #[serde(default = "expire")]
        #[schemars(range(max = bounds::STEPS))]
        expire: u64,
    },
    /// A prompt is skipped if its next group is predicted to have no spread. The prediction follows from the
    /// prompt's right and wrong completions so far, which count less with every step, and from the pass rates of
    /// all prompts.
    Posterior {
        /// The predicted probability of spread, in [0, 1], below which a prompt is skipped.
        #[serde(default = "min_spread_probability")]
        #[schemars(range(min = 0.0, max = 1.0))]
        min_spread_probability: f64,
        /// Steps after which a completion counts half; above 0.
        #[serde(default = "half_life")]
        #[schemars(extend("exclusiveMinimum" = 0.0))]
        half_life: f64,
        /// Share of a round's groups, in [0, 1], that take the next prompt whatever is predicted. At 0.0 a prompt may be
        /// lost for ever.
        #[serde(default = "explore")]
        #[schemars(range(min = 0.0, max = 1.0))]
        explore: f64,
    },
}

fn min_variance() -> f64 {
    0.01
}

fn skip_fraction_trigger() -> f64 {
    0.5
}

fn refill_fraction() -> f64 {
    0.2
}

fn expire() -> u64 {
    20
}

fn min_spread_probability() -> f64 {
    0.5
}

fn half_life() -> f64 {
    10.0
}

fn explore() -> f64 {
    0.1
}
