//! The tables of the loop, with their defaults: device, warm-up, rollout, advantage, loss, optimizer,
//! evaluation, checkpoints.
//!
//! The doc comments are the descriptions in the JSON schema and in the book, so each one says
//! what a user has to know and nothing about the code.

pub use firebrick_core::device::Kind as DeviceKind;
use firebrick_core::device::Name;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Adaptive, bounds};

/// Where tensors live and kernels run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Device {
    /// The API.
    pub kind: DeviceKind,
    /// Which device of that kind, counted from 0 as `firebrick doctor` lists them.
    #[schemars(range(max = bounds::INDEX))]
    pub index: usize,
}

impl Device {
    /// As on the command line.
    pub fn name(&self) -> Name {
        Name { kind: self.kind, index: self.index }
    }
}

/// Supervised steps on the task's own solutions, before the first rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Warmup {
    /// Number of supervised steps; 0 leaves the warm-up out.
    #[schemars(range(max = bounds::STEPS))]
    pub steps: u64,
    /// Examples per step.
    #[schemars(range(min = 1, max = bounds::GROUP))]
    pub batch: usize,
    /// Learning rate.
    #[schemars(range(min = 0.0))]
    pub lr: f64,
    /// Held-out accuracy of sampled completions, in [0, 1], at which the warm-up stops early.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub stop_at: Option<f64>,
    /// Steps between two measurements of that accuracy.
    #[schemars(range(min = 1, max = bounds::STEPS))]
    pub every: u64,
    /// Held-out prompts per measurement.
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub samples: usize,
}

impl Default for Warmup {
    fn default() -> Self {
        Warmup { steps: 0, batch: 128, lr: 1e-3, stop_at: None, every: 25, samples: 256 }
    }
}

/// How completions are sampled for training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Rollout {
    /// Completions per prompt; at least 2 without a critic, because a group of one has no other
    /// advantage.
    #[schemars(range(min = 1, max = bounds::GROUP))]
    pub group_size: usize,
    /// Tokens after which a completion is cut off.
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub max_completion_tokens: usize,
    /// Divides the logits; above 0. At 1.0 the policy samples from what it learns.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub temperature: f64,
    /// Sample among the most likely `top_k` tokens only; 0 turns it off.
    #[schemars(range(max = bounds::SIZE))]
    pub top_k: usize,
    /// Sample among the most likely tokens that together have this probability, in (0, 1].
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
    pub top_p: f64,
    /// Sequences decoded at once: more is faster and needs more memory for the KV cache.
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub max_sequences: usize,
}

impl Default for Rollout {
    fn default() -> Self {
        Rollout {
            group_size: 16,
            max_completion_tokens: 1024,
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            max_sequences: 256,
        }
    }
}

/// How the rewards of a group become advantages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Advantage {
    /// The estimator.
    pub kind: AdvantageKind,
    /// For `group_norm`: added to the standard deviation.
    #[schemars(range(min = 0.0))]
    pub epsilon: f64,
    /// For `gae`: what a reward is worth one token earlier, in [0, 1].
    #[schemars(range(min = 0.0, max = 1.0))]
    pub gamma: f64,
    /// For `gae`: how far ahead an advantage looks at what came instead of at the critic's values, in
    /// [0, 1]; at 1.0 to the end.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub lambda: f64,
    /// For `gae`: whether the advantages of a step's tokens are shifted and scaled to mean 0 and
    /// variance 1.
    pub normalise: bool,
}

impl Default for Advantage {
    fn default() -> Self {
        Advantage {
            kind: AdvantageKind::GroupNorm,
            epsilon: 1e-6,
            gamma: 1.0,
            lambda: 0.95,
            normalise: true,
        }
    }
}

/// An advantage estimator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdvantageKind {
    /// Reward minus the group's mean, over its standard deviation (DAPO, GRPO).
    #[default]
    GroupNorm,
    /// Reward minus the group's mean (Dr. GRPO).
    MeanOnly,
    /// Reward minus the mean of the others (RLOO).
    LeaveOneOut,
    /// One per token, from the values of a critic (PPO).
    Gae,
}

/// The policy loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Loss {
    /// The surrogate.
    pub kind: LossKind,
    /// How far below 1 the probability ratio counts, in [0, 1].
    #[schemars(range(min = 0.0, max = 1.0))]
    pub clip_ratio_low: f64,
    /// How far above 1 the probability ratio counts; above `clip_ratio_low` is Clip-Higher.
    #[schemars(range(min = 0.0))]
    pub clip_ratio_high: f64,
    /// Bound on the ratio where the advantage is negative, above 1; none by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 1.0))]
    pub dual_clip: Option<f64>,
    /// How the losses of tokens become one number.
    pub aggregation: Aggregation,
    /// For `aggregation = "constant"`: the tokens that a completion counts as;
    /// `rollout.max_completion_tokens` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub constant_length: Option<usize>,
    /// Weight of the entropy bonus; 0.0 is none.
    #[schemars(range(min = 0.0))]
    pub entropy_coef: f64,
    /// Penalty on the distance to the policy the run started from; none by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kl: Option<Kl>,
}

impl Default for Loss {
    fn default() -> Self {
        Loss {
            kind: LossKind::Dapo,
            clip_ratio_low: 0.2,
            clip_ratio_high: 0.28,
            dual_clip: None,
            aggregation: Aggregation::TokenMean,
            constant_length: None,
            entropy_coef: 0.0,
            kl: None,
        }
    }
}

/// A surrogate loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LossKind {
    /// Ratio per token, clipped on both sides.
    #[default]
    Dapo,
    /// Ratio per sequence, clipped on both sides.
    Gspo,
    /// Clipped ratio as a weight without gradient.
    Cispo,
}

/// How the losses of tokens become one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// Mean over all tokens of the update (DAPO).
    #[default]
    TokenMean,
    /// Mean over the tokens of a prompt's group, then over prompts.
    PromptMean,
    /// Mean over the tokens of a completion, then over completions (GRPO).
    SequenceMean,
    /// Sum over the tokens of a completion, then mean over completions.
    SequenceSum,
    /// Sum over tokens by a constant length, then mean over completions (Dr. GRPO).
    Constant,
}

/// A penalty on the distance to the policy the run started from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kl {
    /// The estimator.
    pub kind: KlKind,
    /// Weight of the penalty; at least 0.
    #[schemars(range(min = 0.0))]
    pub coef: f64,
}

/// An estimator of the KL divergence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KlKind {
    /// The log-ratio: unbiased, noisy, may be negative.
    K1,
    /// Half the squared log-ratio: biased, low variance.
    K2,
    /// Ratio minus 1 minus log-ratio: unbiased, never negative.
    K3,
}

/// AdamW and its learning rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Optim {
    /// Learning rate after its warm-up.
    #[schemars(range(min = 0.0))]
    pub lr: f64,
    /// Rollout steps over which the learning rate grows linearly from 0.
    #[schemars(range(max = bounds::STEPS))]
    pub warmup_steps: u64,
    /// Decay of the mean of gradients, in [0, 1).
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub beta1: f64,
    /// Decay of the mean of squared gradients, in [0, 1).
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub beta2: f64,
    /// Added to the root of the mean of squared gradients.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub epsilon: f64,
    /// Decoupled weight decay, on matrices only.
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// Global norm to which larger gradients are scaled down.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub max_grad_norm: f64,
}

impl Default for Optim {
    fn default() -> Self {
        Optim {
            lr: 1e-6,
            warmup_steps: 20,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.1,
            max_grad_norm: 1.0,
        }
    }
}

/// How long to train, and how a step is cut up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Train {
    /// Rollout steps.
    #[schemars(range(min = 1, max = bounds::STEPS))]
    pub steps: u64,
    /// Completions per optimizer update; at most `prompts_per_step` × `group_size`.
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub mini_batch: usize,
    /// Tokens that go through the model at once. Changes memory and speed, not the result.
    #[schemars(range(min = 1, max = bounds::AT_ONCE))]
    pub micro_batch_tokens: usize,
    /// How many updates a mini-batch gets; one by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<Adaptive>,
    /// Held-out accuracy, in [0, 1], at which the run ends early.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub stop_at: Option<f64>,
}

impl Default for Train {
    fn default() -> Self {
        Train {
            steps: 200,
            mini_batch: 256,
            micro_batch_tokens: 8192,
            adaptive: None,
            stop_at: None,
        }
    }
}

/// How held-out accuracy is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Eval {
    /// Steps between two evaluations; there is always one before the first step and one at the end.
    #[schemars(range(min = 1, max = bounds::STEPS))]
    pub every: u64,
    /// Completions per held-out prompt, whose accuracies are averaged.
    #[schemars(range(min = 1, max = bounds::GROUP))]
    pub samples: usize,
    /// Divides the logits; 0.0 always takes the most likely token.
    #[schemars(range(min = 0.0))]
    pub temperature: f64,
    /// Sample among the most likely tokens that together have this probability, in (0, 1].
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
    pub top_p: f64,
    /// Held-out prompts that are used, at most; 0 is all of them.
    #[schemars(range(max = bounds::SIZE))]
    pub prompts: usize,
}

impl Default for Eval {
    fn default() -> Self {
        Eval { every: 10, samples: 1, temperature: 1.0, top_p: 1.0, prompts: 500 }
    }
}

/// When the run is saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Checkpoint {
    /// Steps between two checkpoints; there is always one at the end.
    #[schemars(range(min = 1, max = bounds::STEPS))]
    pub every: u64,
    /// Newest checkpoints that stay on disk; 0 is all of them.
    #[schemars(range(max = bounds::STEPS))]
    pub keep: usize,
    /// The number format of its weights. A run trains float32; where this is narrower, the
    /// checkpoint's `trainer/` folder holds the float32 weights too, for `--resume`.
    pub dtype: CheckpointDtype,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Checkpoint { every: 50, keep: 2, dtype: CheckpointDtype::Auto }
    }
}

/// A number format of weights in a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointDtype {
    /// That of the model that the run starts from; float32 for a new one.
    #[default]
    Auto,
    /// Four bytes: the weights as they were trained.
    Float32,
    /// Two bytes with the range of float32: what most models are published in.
    Bfloat16,
    /// Two bytes, more precise and with less range.
    Float16,
}
