//! Table `[reward]` of a recipe: the reward for a judgement, and the penalties.
//!
//! As in `tables`, the doc comments are the descriptions in the JSON schema and in the book.

use firebrick_reward::{LengthPenalty, PenaltyForm};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::{Value, json};

use super::{bounds, verifier::RewardKind};

/// The verifier that judges completions, and the reward for its judgement. The options of a verifier are next to its
/// `kind`. Without a `kind`, the verifier is that of `data.task`; for data files it is `environment` if an environment
/// gives rewards, else `gsm8k`. The penalty `stop` comes first, then `length`, then `overlong`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(transform = kind_may_lack)]
pub struct Reward {
    /// The verifier, if the recipe chooses one.
    #[serde(
        flatten,
        deserialize_with = "kind_with_options",
        skip_serializing_if = "Option::is_none"
    )]
    pub kind: Option<RewardKind>,
    /// Reward of a right answer.
    pub right: f64,
    /// Reward of any other completion.
    pub wrong: f64,
    /// Punishment and filtering of completions that are too long.
    pub overlong: Overlong,
    /// Penalty on completions that did not end with a stop token; by default there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// Penalty on completions that are longer than a target; by default there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<LengthPenalty>,
    /// The largest share of a step's or an evaluation's completions that may have no verdict, because the verifier
    /// failed or a reference can't be read. Above it the run ends, and so does `firebrick eval`. Otherwise these
    /// completions are left out.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub max_errors: f64,
}

impl Default for Reward {
    fn default() -> Self {
        Reward {
            kind: None,
            right: 1.0,
            wrong: -1.0,
            overlong: Overlong::default(),
            stop: None,
            length: None,
            max_errors: 0.1,
        }
    }
}

/// Soft punishment and filtering of completions that are too long.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Overlong {
    /// Tokens before `max_completion_tokens` at which the punishment begins to grow from 0.
    #[schemars(range(max = bounds::SIZE))]
    pub buffer: usize,
    /// The punishment at `max_completion_tokens`, taken off the reward; 0.0 is none.
    #[schemars(range(min = 0.0))]
    pub penalty: f64,
    /// True if completions that were cut off are left out of the loss.
    pub filter: bool,
}

/// Penalty on a completion that did not end with a stop token. It keeps a share of its reward (`scale`) or gets
/// another reward (`replace`), one of the two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// Factor on its reward; 0.0 leaves nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub scale: Option<f64>,
    /// Reward that the completion gets instead of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replace: Option<f64>,
    /// How negative rewards are treated.
    #[serde(default)]
    pub form: PenaltyForm,
}

/// Reads the verifier from the keys of `[reward]` that belong to its kind.
///
/// Serde would take a fault in an optional flattened value for its absence, and another verifier than the
/// recipe's would then judge the run.
fn kind_with_options<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<RewardKind>, D::Error> {
    let rest = toml::Table::deserialize(deserializer)?;
    if rest.is_empty() { Ok(None) } else { rest.try_into().map(Some).map_err(D::Error::custom) }
}

/// Makes the schema of a table with an optional kind one choice: each variant, or no `kind`.
fn kind_may_lack(schema: &mut Schema) {
    let Some(Value::Array(choice)) = schema.remove("anyOf") else { return };
    // schemars writes an optional flattened enum as `anyOf` of the enum and nothing.
    let mut variants = choice.into_iter().find_map(|mut one| match one.get_mut("oneOf") {
        Some(Value::Array(variants)) => Some(std::mem::take(variants)),
        _ => None,
    });
    variants.get_or_insert_default().push(json!({ "not": { "required": ["kind"] } }));

    schema.insert("oneOf".into(), variants.into());
    schema.insert("unevaluatedProperties".into(), false.into());
}
