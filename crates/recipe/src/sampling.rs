//! Table `[sampling]` of a recipe: dynamic sampling.
//!
//! As in `tables`, the doc comments are the descriptions in the JSON schema and in the book.

use firebrick_core::config::{CurriculumRule, Dynamic, OnCap};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::{bounds, kind};

/// The choice of the groups that a step trains on (dynamic sampling).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Groups that a step trains on.
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub prompts_per_step: usize,
    /// What a step does with groups without spread in their base rewards. Such groups have no advantage, so they
    /// would only thin the batch. `true` is `filter`, and `false` is `off`.
    #[serde(deserialize_with = "flag_or_kind", serialize_with = "kind::by_name")]
    #[schemars(schema_with = "flag_or_kind_schema")]
    pub dynamic: Dynamic,
    /// A curriculum by the prompts' history. It passes over prompts whose groups had nothing to teach, before their
    /// completions are paid for. By default there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curriculum: Option<CurriculumRule>,
    /// Largest number of sampling rounds in a step; 0 is no cap. After the last round `on_cap` decides.
    #[schemars(range(max = bounds::STEPS))]
    pub max_rounds: usize,
    /// What happens at the cap. A run that ends there by `stop` saves a checkpoint.
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

fn flag_or_kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Dynamic, D::Error> {
    match toml::Value::deserialize(deserializer)? {
        toml::Value::Boolean(true) => Ok(Dynamic::Filter),
        toml::Value::Boolean(false) => Ok(Dynamic::Off),
        other => kind::from_value(other),
    }
}

/// Makes the schema of [`Dynamic`], with the two names that have no quotes, `true` and `false`.
fn flag_or_kind_schema(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = Dynamic::json_schema(generator);
    kind::name_or_table(&mut schema);
    if let Some(Value::Array(choices)) = schema.get_mut("oneOf") {
        choices.push(json!({"type": "boolean", "const": true, "description": "`filter`."}));
        choices.push(json!({"type": "boolean", "const": false, "description": "`off`."}));
    }
    schema
}
