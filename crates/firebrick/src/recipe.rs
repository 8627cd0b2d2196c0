//! The recipe: one TOML file that says what to train, on what, and how.

mod tables;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use tables::{
    Advantage, AdvantageKind, Aggregation, Checkpoint, Columns, Data, Device, DeviceKind, Eval, Kl,
    KlKind, Loss, LossKind, Model, ModelFamily, NewModel, OnCap, Optim, Overlong, Reward,
    RewardKind, Rollout, Sampling, Surplus, Task, Template, Train, Warmup,
};

/// A Firebrick recipe: what to train, on what, and how. Only `model` and `data` are required.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Name of the run and of its folder; the recipe's file name without `.toml` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Seed of everything random: data order, new weights, sampling.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Where to compute.
    #[serde(default)]
    pub device: Device,
    /// The policy to start from.
    pub model: Model,
    /// The prompts to train and to evaluate on.
    pub data: Data,
    /// Supervised steps before the first rollout.
    #[serde(default)]
    pub warmup: Warmup,
    /// How completions are sampled for training.
    #[serde(default)]
    pub rollout: Rollout,
    /// Which groups a step trains on (dynamic sampling).
    #[serde(default)]
    pub sampling: Sampling,
    /// How a completion is judged, and what the judgement is worth.
    #[serde(default)]
    pub reward: Reward,
    /// How the rewards of a group become advantages.
    #[serde(default)]
    pub advantage: Advantage,
    /// The policy loss.
    #[serde(default)]
    pub loss: Loss,
    /// AdamW and its learning rate.
    #[serde(default)]
    pub optim: Optim,
    /// How long to train, and how a step is cut up.
    #[serde(default)]
    pub train: Train,
    /// How held-out accuracy is measured.
    #[serde(default)]
    pub eval: Eval,
    /// When the run is saved.
    #[serde(default)]
    pub checkpoint: Checkpoint,
}

impl Recipe {
    /// The JSON schema of a recipe: what an editor completes from, and what unknown keys are
    /// measured against.
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Recipe).to_value()
    }
}

fn default_seed() -> u64 {
    17
}
