//! Table `[sampling]` of a recipe: dynamic sampling.
//!
//! As in `tables`, the doc comments are the descriptions in the JSON schema and in the book.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::{Curriculum, bounds, kind};

/// The choice of the groups that a step trains on (dynamic sampling).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Groups that a step trains on.
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub prompts_per_step: usize,
    /// What a step does with groups without spread in their base rewards. Such groups have no advantage, so they
    /// would only thin the batch.
    #[serde(deserialize_with = "flag_or_kind", serialize_with = "kind::by_name")]
    pub dynamic: Dynamic,
    /// A curriculum by the prompts' history. It passes over prompts whose groups had nothing to teach, before their
    /// completions are paid for. By default there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curriculum: Option<Curriculum>,
    /// Largest number of sampling rounds in a step; 0 is no cap. After the last round `on_cap` decides.
    #[schemars(range(max = bounds::STEPS))]
    pub max_rounds: usize,
    /// What happens at the cap.
    pub on_cap: OnCap,
    /// True if good groups beyond `prompts_per_step` are carried over: they go first in the next step. The paper
    /// throws them away.
    pub carry_over: bool,
    /// Steps that a group may be carried over before it is thrown away.
    #[schemars(range(max = bounds::STEPS))]
    pub max_carry_over_age: u64,
    /// Difference up to which base rewards within a group count as equal.
    #[schemars(range(min = 0.0))]
    pub tolerance: f64,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            prompts_per_step: 64,
            dynamic: Dynamic::Filter,
            curriculum: None,
            max_rounds: 10,
            on_cap: OnCap::TrainSmaller,
            carry_over: true,
            max_carry_over_age: 1,
            tolerance: 1e-6,
        }
    }
}

/// What a step does with groups without spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(transform = flags_too)]
pub enum Dynamic {
    /// Further prompts are sampled instead, until there are enough groups (DAPO). `true` means the same.
    #[default]
    Filter,
    /// Copies of other groups of the step replace them. Further prompts are sampled only if too few groups have
    /// spread.
    Replace {
        /// Share of groups, in [0, 1). If more than this share of the groups has spread, copies of them replace
        /// the others.
        #[serde(default = "min_ratio")]
        #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
        min_ratio: f64,
    },
    /// They are left out, and the step trains on fewer groups.
    Drop,
    /// They are trained on like the others. `false` means the same. The exception is a group of which overlong
    /// filtering has left nothing: without a curriculum, a further group is sampled instead.
    Off,
}

impl Dynamic {
    /// Returns the name of the kind.
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

/// Adds to the names of [`Dynamic`] the two that have no quotes, `true` and `false`.
fn flags_too(schema: &mut Schema) {
    kind::name_or_table(schema);
    if let Some(Value::Array(choices)) = schema.get_mut("oneOf") {
        choices.push(json!({"type": "boolean", "const": true, "description": "`filter`."}));
        choices.push(json!({"type": "boolean", "const": false, "description": "`off`."}));
    }
}

/// What happens if `max_rounds` rounds did not fill a step.
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

fn min_ratio() -> f64 {
    0.3
}
