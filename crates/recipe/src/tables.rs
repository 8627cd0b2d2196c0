//! The tables of the loop, with their defaults: device, warm-up, rollout, advantage, loss, optimizer,
//! evaluation, checkpoints.
//!
//! The doc comments are the descriptions in the JSON schema and in the book, so each one says
//! what a user has to know and nothing about the code.

pub use firebrick_core::device::Kind as DeviceKind;
use firebrick_core::device::Name;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Adaptive, Engine, bounds,
    kind::{self, first_by_default, or_default},
};

/// Where tensors live and kernels run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Device {
    /// The API.
    pub kind: DeviceKind,
    /// Which device of that kind, counted from 0 as `firebrick doctor` lists them.
    #[schemars(range(max = bounds::INDEX))]
    pub index: usize,
    /// Devices of that kind, from `index` on, over which an update is spread. Sampling, the optimizer's state and a critic stay
    /// on the first. On the CPU they are threads, which is of use to tests alone. It has been run there, and never on several
    /// cards.
    #[schemars(range(min = 1, max = 64))]
    pub count: usize,
    /// How their gradients are added up.
    pub sync: GradSync,
    /// What operations are computed by: `fast` is the device's own code where there is some; `reference` is plain tensor
    /// code everywhere, to compare with. Results differ by rounding.
    pub kernels: Kernels,
}

impl Default for Device {
    fn default() -> Self {
        let (kind, sync, kernels) = Default::default();
        Device { kind, index: 0, count: 1, sync, kernels }
    }
}

/// How gradients of several devices are added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GradSync {
    /// They are copied to the first device.
    #[default]
    MainDevice,
    /// By NCCL, on CUDA alone. It has never been run.
    Collective,
}

/// What operations are computed by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kernels {
    /// The device's own code, where there is some.
    #[default]
    Fast,
    /// Plain tensor code.
    Reference,
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
    /// Have a GPU record the launches of four steps once and repeat them, so that the host need not ask for each: CUDA and
    /// HIP take a recording as one launch. Tokens are the same; no card has shown what it saves.
    pub graphs: bool,
    /// What samples completions: this process, or inference servers.
    pub engine: Engine,
    /// How many steps the policy may be ahead of the weights that a step is sampled with. At 0 a step is sampled, and then
    /// trained on. At 1 the next step is sampled while a step is trained on, from the weights that it began with.
    #[schemars(range(max = 1))]
    pub max_staleness: u64,
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
            graphs: false,
            engine: Engine::default(),
            max_staleness: 0,
        }
    }
}

/// How the rewards of a step become advantages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(transform = first_by_default)]
pub enum Advantage {
    /// Reward minus the group's mean, over its standard deviation (DAPO, GRPO).
    GroupNorm {
        /// Added to the standard deviation.
        #[serde(default = "deviation_epsilon")]
        #[schemars(range(min = 0.0))]
        epsilon: f64,
    },
    /// Reward minus the group's mean (Dr. GRPO).
    MeanOnly,
    /// Reward minus the mean of the others (RLOO).
    LeaveOneOut,
    /// Reward minus the group's mean, over the standard deviation of the step's rewards (Lite PPO).
    BatchNorm {
        /// Added to the standard deviation.
        #[serde(default = "deviation_epsilon")]
        #[schemars(range(min = 0.0))]
        epsilon: f64,
    },
    /// Reward minus the group's mean, shifted and scaled to mean 0 and variance 1 over the step's tokens
    /// (REINFORCE++ with its baseline).
    ReinforceBaseline,
    /// Every part of the reward is normalised in its group before they are added up, and the sums over
    /// the step (GDPO). Parts are those of `reward.parts` with their weights, which count as shares of
    /// 1; without them the credit. What penalties take off is one more part, of weight 1.
    Gdpo {
        /// Added to every standard deviation.
        #[serde(default = "deviation_epsilon")]
        #[schemars(range(min = 0.0))]
        epsilon: f64,
    },
    /// One per token, from the values of a critic (PPO).
    Gae {
        /// What a reward is worth one token earlier, in [0, 1].
        #[serde(default = "one")]
        #[schemars(range(min = 0.0, max = 1.0))]
        gamma: f64,
        /// How far ahead an advantage looks at what came instead of at the critic's values, in [0, 1];
        /// at 1.0 to the end.
        #[serde(default = "default_lambda")]
        #[schemars(range(min = 0.0, max = 1.0))]
        lambda: f64,
        /// Whether the advantages of a step's tokens are shifted and scaled to mean 0 and variance 1.
        #[serde(default = "yes")]
        normalise: bool,
    },
}

impl Default for Advantage {
    fn default() -> Self {
        Advantage::GroupNorm { epsilon: deviation_epsilon() }
    }
}

/// The policy loss. Its bounds stand beside its `kind`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(transform = first_by_default)]
pub struct Loss {
    /// The surrogate, with its bounds.
    #[serde(flatten, deserialize_with = "or_default")]
    pub kind: LossKind,
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
    /// Weight of the loss of uneven loads, for a model with experts: an update goes forward through the policy once more, and
    /// shares no prompts. 0.0 is none; 0.001 is usual.
    #[schemars(range(min = 0.0))]
    pub router_aux_loss_coef: f64,
    /// Penalty on the distance to the policy the run started from; none by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kl: Option<Kl>,
    /// Weighs tokens by how much more likely the policy that the update starts from makes them than the
    /// one that sampled them did, at most so many times; above 0. For an engine whose weights or
    /// numerics are others than the trainer's, where 2.0 is usual; by default no token is weighed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub importance_cap: Option<f64>,
    /// Leaves completions out of the loss that one of the two policies would hardly have written: whose tokens the policy that the
    /// update starts from makes less likely than the first number of times, or more likely than the second, in their geometric
    /// mean. By default none is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub importance_range: Option<[f64; 2]>,
}

impl Default for Loss {
    fn default() -> Self {
        Loss {
            kind: LossKind::default(),
            aggregation: Aggregation::TokenMean,
            constant_length: None,
            entropy_coef: 0.0,
            router_aux_loss_coef: 0.0,
            kl: None,
            importance_cap: None,
            importance_range: None,
        }
    }
}

/// A surrogate loss and its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum LossKind {
    /// Ratio per token, clipped on both sides.
    Dapo {
        /// How far below 1 the probability ratio counts, in [0, 1].
        #[serde(default = "dapo_low")]
        #[schemars(range(min = 0.0, max = 1.0))]
        clip_ratio_low: f64,
        /// How far above 1 the probability ratio counts; above `clip_ratio_low` is Clip-Higher.
        #[serde(default = "dapo_high")]
        #[schemars(range(min = 0.0))]
        clip_ratio_high: f64,
        /// Bound on the ratio where the advantage is negative, above 1; none by default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(extend("exclusiveMinimum" = 1.0))]
        dual_clip: Option<f64>,
    },
    /// Ratio per sequence, the geometric mean of its tokens', clipped on both sides. It hardly leaves 1,
    /// so its bounds are a thousand times closer than those of tokens.
    Gspo {
        /// How far below 1 a sequence's ratio counts, in [0, 1].
        #[serde(default = "gspo_low")]
        #[schemars(range(min = 0.0, max = 1.0))]
        clip_ratio_low: f64,
        /// How far above 1 a sequence's ratio counts.
        #[serde(default = "gspo_high")]
        #[schemars(range(min = 0.0))]
        clip_ratio_high: f64,
    },
    /// Clipped ratio as a weight without gradient: a token beyond the bounds keeps its gradient.
    Cispo {
        /// How far below 1 a token's weight may be, in [0, 1]; 1.0 is no lower bound.
        #[serde(default = "one")]
        #[schemars(range(min = 0.0, max = 1.0))]
        clip_ratio_low: f64,
        /// How far above 1 a token's weight may be.
        #[serde(default = "cispo_high")]
        #[schemars(range(min = 0.0))]
        clip_ratio_high: f64,
    },
}

impl Default for LossKind {
    fn default() -> Self {
        LossKind::Dapo { clip_ratio_low: dapo_low(), clip_ratio_high: dapo_high(), dual_clip: None }
    }
}

impl LossKind {
    /// How far the ratio counts below 1, and above.
    pub fn clip_ratios(&self) -> (f64, f64) {
        match *self {
            LossKind::Dapo { clip_ratio_low, clip_ratio_high, .. }
            | LossKind::Gspo { clip_ratio_low, clip_ratio_high }
            | LossKind::Cispo { clip_ratio_low, clip_ratio_high } => {
                (clip_ratio_low, clip_ratio_high)
            }
        }
    }
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

/// The optimizer and its learning rate. Its moments stand beside its `kind`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(transform = first_by_default)]
pub struct Optim {
    /// The rule, with its moments.
    #[serde(flatten, deserialize_with = "or_default")]
    pub kind: OptimKind,
    /// Learning rate after its warm-up.
    #[schemars(range(min = 0.0))]
    pub lr: f64,
    /// Rollout steps over which the learning rate grows linearly.
    #[schemars(range(max = bounds::STEPS))]
    pub warmup_steps: u64,
    /// Whether the first of them has a learning rate of 0, as in verl: it samples, and moves nothing.
    pub warmup_from_zero: bool,
    /// What becomes of the learning rate after its warm-up, until `train.steps`.
    #[serde(deserialize_with = "kind::named", serialize_with = "kind::by_name")]
    pub schedule: Schedule,
    /// Decoupled weight decay, on matrices only.
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// Global norm to which larger gradients are scaled down.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub max_grad_norm: f64,
    /// The format that moments are kept in.
    pub moments: MomentType,
}

impl Default for Optim {
    fn default() -> Self {
        Optim {
            kind: OptimKind::default(),
            lr: 1e-6,
            warmup_steps: 20,
            warmup_from_zero: false,
            schedule: Schedule::Constant,
            weight_decay: 0.1,
            max_grad_norm: 1.0,
            moments: MomentType::Float32,
        }
    }
}

/// The format that an optimizer's moments are kept in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MomentType {
    /// 32 bits.
    #[default]
    Float32,
    /// 8 bits, and a scale for every 64 of them: a quarter of the memory, and rounded.
    Int8,
}

/// An optimizer and its moments.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum OptimKind {
    /// Every weight moves by the mean of its gradients over the root of the mean of their squares.
    #[serde(rename = "adamw")]
    AdamW {
        /// Decay of the mean of gradients, in [0, 1).
        #[serde(default = "default_beta1")]
        #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
        beta1: f64,
        /// Decay of the mean of squared gradients, in [0, 1).
        #[serde(default = "default_beta2")]
        #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
        beta2: f64,
        /// Added to the root of the mean of squared gradients.
        #[serde(default = "default_epsilon")]
        #[schemars(extend("exclusiveMinimum" = 0.0))]
        epsilon: f64,
    },
    /// Hidden matrices move about equally far in all directions that their gradients have (Muon), and
    /// everything else as under `adamw`, at the same learning rate.
    Muon {
        /// Decay of the sum of a matrix's gradients, in [0, 1).
        #[serde(default = "default_momentum")]
        #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
        momentum: f64,
        /// For everything else: decay of the mean of gradients, in [0, 1).
        #[serde(default = "default_beta1")]
        #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
        beta1: f64,
        /// For everything else: decay of the mean of squared gradients, in [0, 1).
        #[serde(default = "default_beta2")]
        #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
        beta2: f64,
        /// For everything else: added to the root of the mean of squared gradients.
        #[serde(default = "default_epsilon")]
        #[schemars(extend("exclusiveMinimum" = 0.0))]
        epsilon: f64,
    },
}

impl Default for OptimKind {
    fn default() -> Self {
        OptimKind::AdamW {
            beta1: default_beta1(),
            beta2: default_beta2(),
            epsilon: default_epsilon(),
        }
    }
}

/// What becomes of a learning rate after its warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(transform = kind::name_or_table)]
pub enum Schedule {
    /// It stays.
    #[default]
    Constant,
    /// It falls in a straight line.
    Linear {
        /// What is left of it after the last step, as a share, in [0, 1].
        #[serde(default)]
        #[schemars(range(min = 0.0, max = 1.0))]
        end_ratio: f64,
    },
    /// It falls by half a cosine: slowly, fast and slowly again.
    Cosine {
        /// What is left of it after the last step, as a share, in [0, 1].
        #[serde(default)]
        #[schemars(range(min = 0.0, max = 1.0))]
        end_ratio: f64,
    },
}

/// How long to train, and how a step is cut up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Train {
    /// Rollout steps.
    #[schemars(range(min = 1, max = bounds::STEPS))]
    pub steps: u64,
    /// How often the training prompts are drawn, all of them: the run ends with the step that has drawn
    /// the last one, if `steps` does not end it before. With dynamic sampling a step draws more than it
    /// trains on. `optim.schedule` goes by `steps` all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = bounds::STEPS), extend("exclusiveMinimum" = 0.0))]
    pub epochs: Option<f64>,
    /// Completions per optimizer update; at most `prompts_per_step` × `group_size`.
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub mini_batch: usize,
    /// Tokens that go through the model at once. Changes memory and speed, not the result.
    #[schemars(range(min = 1, max = bounds::AT_ONCE))]
    pub micro_batch_tokens: usize,
    /// What an update keeps of its way through the layers. Changes memory and speed, not the result.
    pub recompute: Recompute,
    /// Whether what is kept of a layer waits in the machine's memory. Changes memory and speed, not the
    /// result; on the CPU it changes nothing.
    pub offload: bool,
    /// Whether completions of one prompt share it in an update. Changes memory and speed, not the result.
    pub share_prompts: SharePrompts,
    /// Whose log-probabilities the loss takes for the old policy's. `loss.importance_cap` compares the two, and has them
    /// recomputed.
    pub old_logprobs: OldLogprobs,
    /// How many updates a mini-batch gets; one by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<Adaptive>,
    /// Updates in a row that may be skipped because their gradient is not finite; after one more the run ends. 0 bears any
    /// number.
    #[schemars(range(max = bounds::STEPS))]
    pub max_skipped: u64,
    /// Evaluations in a row without a new best held-out accuracy after which the run ends; never by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = bounds::STEPS))]
    pub patience: Option<u64>,
    /// Held-out accuracy, in [0, 1], at which the run ends early.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub stop_at: Option<f64>,
}

impl Default for Train {
    fn default() -> Self {
        Train {
            steps: 200,
            epochs: None,
            mini_batch: 256,
            micro_batch_tokens: 8192,
            recompute: Recompute::Auto,
            offload: false,
            share_prompts: SharePrompts::Auto,
            old_logprobs: OldLogprobs::Auto,
            adaptive: None,
            max_skipped: 5,
            patience: None,
            stop_at: None,
        }
    }
}

/// What an update keeps of its way through the layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Recompute {
    /// As much as the memory has room for by the plan.
    #[default]
    Auto,
    /// Of each layer its input: the layer is computed once more on the way back.
    Layers,
    /// Everything that takes a product of matrices to compute again.
    None,
}

/// Whether completions of one prompt share it in an update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SharePrompts {
    /// Where that saves a twentieth of the tokens.
    #[default]
    Auto,
    /// Wherever a mini-batch has several of one prompt.
    Always,
    /// Never.
    Never,
}

/// Whose log-probabilities the loss takes for the old policy's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OldLogprobs {
    /// The sampler's; with `rollout.max_staleness` above 0 always, and else the trainer's, which cost a pass through the model, once on the same weights the two differ by more than
    /// 0.005 on average. In 16 bits the first step uses the trainer's, to measure the difference.
    #[default]
    Auto,
    /// The sampler's.
    Sampled,
    /// The trainer's, which cost a pass through the model in each step.
    Recomputed,
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
    /// Further sets to evaluate on, each under a name of its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<EvalSet>,
}

impl Default for Eval {
    fn default() -> Self {
        Eval { every: 10, samples: 1, temperature: 1.0, top_p: 1.0, prompts: 500, sets: Vec::new() }
    }
}

/// A set of prompts to evaluate on besides the held-out ones, when those are; nothing depends on what comes of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EvalSet {
    /// Its name, of letters, digits, `-`, `_` and `.`: `eval/NAME/accuracy` is the metric of its accuracy.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// File or folder of rows, or a data set on the Hub; columns are those of `data.columns`, and `data.prompt` and
    /// `data.system` hold.
    pub data: PathBuf,
    /// Which subset of a folder or a data set on the Hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub subset: Option<String>,
    /// Which split of it; `test` if it has one and nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub split: Option<String>,
    /// Prompts that are used, at most; 0 is all of them.
    #[serde(default)]
    #[schemars(range(max = bounds::SIZE))]
    pub prompts: usize,
    /// Completions per prompt; `eval.samples` without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = bounds::GROUP))]
    pub samples: Option<usize>,
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
    /// Saves the run also after an evaluation with a new best held-out accuracy, and keeps that checkpoint besides the
    /// newest.
    pub best: bool,
    /// The number format of its weights. A run trains float32; where this is narrower, the
    /// checkpoint's `trainer/` folder holds the float32 weights too, for `--resume`.
    pub dtype: CheckpointDtype,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Checkpoint { every: 50, keep: 2, best: false, dtype: CheckpointDtype::Auto }
    }
}

/// Bounds on the run's database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Record {
    /// Steps whose tokens and log-probabilities stay there, besides the texts: those that this number divides; 0 is
    /// none of them. Those since the last checkpoint are always there, and a resumed run takes them from there.
    #[schemars(range(max = bounds::STEPS))]
    pub tokens_every: u64,
    /// Its size, about, from which on the completions of the oldest steps are removed; 0 is none. Metrics stay.
    #[schemars(range(max = bounds::SIZE))]
    pub max_megabytes: u64,
}

impl Default for Record {
    fn default() -> Self {
        Record { tokens_every: 10, max_megabytes: 256 }
    }
}

/// A number format of weights in a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointDtype {
    /// The format of the model that the run starts from; float32 for a new one.
    #[default]
    Auto,
    /// Four bytes: the weights as they were trained.
    Float32,
    /// Two bytes with the range of float32: what most models are published in.
    Bfloat16,
    /// Two bytes, more precise and with less range.
    Float16,
}

fn yes() -> bool {
    true
}

fn one() -> f64 {
    1.0
}

fn deviation_epsilon() -> f64 {
    1e-6
}

fn default_lambda() -> f64 {
    0.95
}

fn default_momentum() -> f64 {
    0.95
}

fn default_beta1() -> f64 {
    0.9
}

fn default_beta2() -> f64 {
    0.999
}

fn default_epsilon() -> f64 {
    1e-8
}

fn dapo_low() -> f64 {
    0.2
}

fn dapo_high() -> f64 {
    0.28
}

/// Zheng et al. 2025, section 5.1; likewise the upper bound.
fn gspo_low() -> f64 {
    3e-4
}

fn gspo_high() -> f64 {
    4e-4
}

/// As SkyRL; likewise that there is no lower bound.
fn cispo_high() -> f64 {
    4.0
}
