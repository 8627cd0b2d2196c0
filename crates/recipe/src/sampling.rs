//! The table of dynamic sampling.
//!
//! As in `tables`, the doc comments are the descriptions in the JSON schema and in the book.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::{Memory, bounds, kind};

/// Which groups a step trains on (dynamic sampling).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Groups that a step trains on.
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub prompts_per_step: usize,
    /// What becomes of groups without spread in their accuracy. They have no advantage, so they would
    /// only thin the batch.
    #[serde(deserialize_with = "flag_or_kind", serialize_with = "kind::by_name")]
    pub dynamic: Dynamic,
    /// Passes over prompts whose earlier groups had nothing to teach, before their completions are
    /// paid for; by default there is no memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Rounds of sampling after which a step makes do with what it has; 0 is no cap.
    #[schemars(range(max = bounds::STEPS))]
    pub max_rounds: usize,
    /// What happens at the cap.
    pub on_cap: OnCap,
    /// What happens to good groups beyond `prompts_per_step`.
    pub surplus: Surplus,
    /// Steps that a kept surplus group may wait before it is thrown away.
    #[schemars(range(max = bounds::STEPS))]
    pub max_surplus_age: u64,
    /// Accuracies within a group count as equal when they differ by no more than this.
    #[schemars(range(min = 0.0))]
    pub tolerance: f64,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            prompts_per_step: 64,
            dynamic: Dynamic::Filter,
            memory: None,
            max_rounds: 10,
            on_cap: OnCap::TrainSmaller,
            surplus: Surplus::Keep,
            max_surplus_age: 1,
            tolerance: 1e-6,
        }
    }
}

/// What becomes of groups without spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(transform = flags_too)]
pub enum Dynamic {
    /// Further prompts are sampled in their places, until there are enough groups (DAPO). `true` is
    /// the same.
    #[default]
    Filter,
    /// Copies of other groups of the step take their places. Only when too few have spread, further
    /// prompts are sampled.
    Replace {
        /// The share of groups, in [0, 1), more than which have to have spread for the others to be
        /// replaced by copies of them.
        #[serde(default = "min_ratio")]
        #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
        min_ratio: f64,
    },
    /// They are left out, and the step trains on fewer groups.
    Drop,
    /// They are trained on like the others. `false` is the same. Only a group of which overlong
    /// filtering has left nothing is not: without a memory a further one is sampled in its place.
    Off,
}

impl Dynamic {
    /// The name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Dynamic::Filter => "filter",
            Dynamic::Replace { .. } => "replace",
            Dynamic::Drop => "drop",
            Dynamic::Off => "off",
        }
    }
}

fn flag_or_kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Dynamic, D::Error> {
    match toml::Value::deserialize(deserializer)? {
        toml::Value::Boolean(true) => Ok(Dynamic::Filter),
        toml::Value::Boolean(false) => Ok(Dynamic::Off),
        other => kind::from_value(other),
    }
}

/// Adds to the names of [`Dynamic`] the two that are not in quotes.
fn flags_too(schema: &mut Schema) {
    kind::name_or_table(schema);
    if let Some(Value::Array(choices)) = schema.get_mut("oneOf") {
        choices.push(json!({"type": "boolean", "const": true, "description": "`filter`."}));
        choices.push(json!({"type": "boolean", "const": false, "description": "`off`."}));
    }
}

/// What happens when `max_rounds` rounds did not fill a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnCap {
    /// Train on the groups there are.
    #[default]
    TrainSmaller,
    /// Save a checkpoint and end the run cleanly.
    Stop,
    /// End the run with an error.
    Error,
}

/// What happens to good groups that a step has no room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Surplus {
    /// They go first in the next step.
    #[default]
    Keep,
    /// They are thrown away, as in the paper.
    Drop,
}

fn min_ratio() -> f64 {
    0.3
}
