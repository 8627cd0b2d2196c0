//! The table of dynamic sampling.
//!
//! As in `tables`, the doc comments are the descriptions in the JSON schema and in the book.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::Memory;

/// Which groups a step trains on (dynamic sampling).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Groups that a step trains on.
    #[schemars(range(min = 1))]
    pub prompts_per_step: usize,
    /// What becomes of groups without spread in their accuracy. They have no advantage, so they would
    /// only thin the batch.
    pub dynamic: Dynamic,
    /// Passes over prompts whose earlier groups had nothing to teach, before their completions are
    /// paid for; by default there is no memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Rounds of sampling after which a step makes do with what it has; 0 is no cap.
    pub max_rounds: usize,
    /// What happens at the cap.
    pub on_cap: OnCap,
    /// What happens to good groups beyond `prompts_per_step`.
    pub surplus: Surplus,
    /// Steps that a kept surplus group may wait before it is thrown away.
    pub max_staleness: u64,
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
            max_staleness: 1,
            tolerance: 1e-6,
        }
    }
}

/// What becomes of groups without spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema)]
#[schemars(rename_all = "snake_case", transform = as_written)]
pub enum Dynamic {
    /// Further prompts are sampled in their places, until there are enough groups (DAPO). `true` is
    /// the same.
    #[default]
    Filter,
    /// Copies of other groups of the step take their places. Only when too few have spread, further
    /// prompts are sampled. As a name it has the defaults of `{ kind = "replace" }`.
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
    /// As it is written in a recipe.
    pub fn name(self) -> &'static str {
        match self {
            Dynamic::Filter => "filter",
            Dynamic::Replace { .. } => "replace",
            Dynamic::Drop => "drop",
            Dynamic::Off => "off",
        }
    }
}

/// What may stand in a recipe for a [`Dynamic`].
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Flag(bool),
    Name(Name),
    Table(Table),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Name {
    Filter,
    Replace,
    Drop,
    Off,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum Table {
    Replace {
        #[serde(default = "min_ratio")]
        min_ratio: f64,
    },
}

impl Serialize for Dynamic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = match *self {
            Dynamic::Filter => Written::Name(Name::Filter),
            Dynamic::Replace { min_ratio } => Written::Table(Table::Replace { min_ratio }),
            Dynamic::Drop => Written::Name(Name::Drop),
            Dynamic::Off => Written::Name(Name::Off),
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Dynamic {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Written::deserialize(deserializer)? {
            Written::Flag(true) | Written::Name(Name::Filter) => Dynamic::Filter,
            Written::Flag(false) | Written::Name(Name::Off) => Dynamic::Off,
            Written::Name(Name::Drop) => Dynamic::Drop,
            Written::Name(Name::Replace) => Dynamic::Replace { min_ratio: min_ratio() },
            Written::Table(Table::Replace { min_ratio }) => Dynamic::Replace { min_ratio },
        })
    }
}

/// Makes the schema that of what may stand in a recipe: a name, a flag without quotes, or a table with
/// the options of the one kind that has some.
fn as_written(schema: &mut Schema) {
    let Some(Value::Array(variants)) = schema.get_mut("oneOf") else { return };
    let mut tables = Vec::new();
    for variant in variants.iter_mut() {
        let properties = variant.get_mut("properties").and_then(Value::as_object_mut);
        let Some((name, mut options)) = properties.and_then(first) else { continue };
        let name = json!({"type": "string", "const": name, "description": variant["description"]});
        options["description"] = name["description"].clone();
        options["properties"]["kind"] = json!({"type": "string", "const": name["const"]});
        options["required"] = json!(["kind"]);
        options["additionalProperties"] = false.into();
        tables.push(options);
        *variant = name;
    }
    variants.extend(tables);
    variants.push(json!({"type": "boolean", "const": true, "description": "`filter`."}));
    variants.push(json!({"type": "boolean", "const": false, "description": "`off`."}));
}

fn first(properties: &mut Map<String, Value>) -> Option<(String, Value)> {
    let name = properties.keys().next()?.clone();
    properties.remove_entry(&name)
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
