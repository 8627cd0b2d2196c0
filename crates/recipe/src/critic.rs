//! Table `[critic]` of a recipe.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    bounds,
    kind::{first_by_default, or_default},
};

/// The critic of `advantage.kind = "gae"`, which gives advantages token by token: PPO's value function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(transform = first_by_default)]
pub struct Critic {
    /// The model that the values are read from.
    #[serde(flatten, deserialize_with = "or_default")]
    pub kind: CriticKind,
    /// Weight of the value loss, above 0. The value loss is half the squared error.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub coef: f64,
    /// Distance, above 0, that a value may move within a step before its gradient is cut. By default there is no
    /// limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub clip: Option<f64>,
    /// Learning rate of the head, or of a separate critic; by default `optim.lr`. It also rises over
    /// `optim.warmup_steps`, starting at the first step of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0))]
    pub lr: Option<f64>,
    /// Rollout steps at the beginning in which only the critic learns, in one pass over each mini-batch. The
    /// policy's steps begin after them: its learning rate then rises over `optim.warmup_steps`.
    #[schemars(range(max = bounds::STEPS))]
    pub warmup_steps: u64,
}

impl Default for Critic {
    fn default() -> Self {
        Critic { kind: CriticKind::default(), coef: 0.5, clip: None, lr: None, warmup_steps: 0 }
    }
}

/// The model that a critic's values are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum CriticKind {
    /// The policy: a head of one row reads its hidden states.
    Head {
        /// True if the value loss trains only the head, and not the policy below it.
        #[serde(default)]
        detach: bool,
    },
    /// A separate model, which begins with the policy's weights. It has its own adapters if the policy has adapters.
    Separate,
}

impl Default for CriticKind {
    fn default() -> Self {
        CriticKind::Head { detach: false }
    }
}
