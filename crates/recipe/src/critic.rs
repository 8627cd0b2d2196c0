//! The table of the critic.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    bounds,
    kind::{first_by_default, or_default},
};

/// What gives advantages token by token, for `advantage.kind = "gae"`: PPO's value function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(transform = first_by_default)]
pub struct Critic {
    /// What the values are read from.
    #[serde(flatten, deserialize_with = "or_default")]
    pub kind: CriticKind,
    /// Weight of the value loss, which is half of the squared error; above 0.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub coef: f64,
    /// How far a value may move within a step before its gradient is cut, above 0; without end if
    /// there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub clip: Option<f64>,
    /// Learning rate of the head, and of a separate critic; `optim.lr` if there is none. It rises over
    /// `optim.warmup_steps`, too, from the first step on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0))]
    pub lr: Option<f64>,
    /// Rollout steps at the beginning in which the critic alone learns, in one pass over each
    /// mini-batch. They are none of the policy's: its learning rate rises over `optim.warmup_steps` after
    /// them.
    #[schemars(range(max = bounds::STEPS))]
    pub warmup_steps: u64,
}

impl Default for Critic {
    fn default() -> Self {
        Critic { kind: CriticKind::default(), coef: 0.5, clip: None, lr: None, warmup_steps: 0 }
    }
}

/// What a critic's values are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum CriticKind {
    /// The policy's hidden states, by a head of one row.
    Head {
        /// Whether the value loss trains the head only, and not the policy below it.
        #[serde(default)]
        detach: bool,
    },
    /// A model of its own, which begins with the policy's weights; with adapters of its own where the
    /// policy has some.
    Separate,
}

impl Default for CriticKind {
    fn default() -> Self {
        CriticKind::Head { detach: false }
    }
}
