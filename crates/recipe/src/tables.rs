//! Tables of the loop, with their defaults: device, rollout, advantage, loss, optimizer, evaluation,
//! checkpoints.
//!
//! Doc comments are the descriptions in the JSON schema and in the book, so each one says what a user has to
//! know and nothing about the code.

use std::path::PathBuf;

use firebrick_core::{
    config::{
        AdaptiveUpdates, Aggregation, KlEstimator, Moments, OldLogprobs, SharePrompts, TisGate,
    },
    device::{Kind as DeviceKind, Name},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Engine, PolicyOrigin, bounds,
    kind::{self, first_by_default, or_default},
};

/// The device that holds the tensors and runs the kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Device {
    /// The API that the device is used through.
    pub kind: DeviceKind,
    /// Index of the device among those of its kind, counted from 0 as `firebrick doctor` lists them.
    #[schemars(range(max = bounds::INDEX))]
    pub index: usize,
    /// Number of devices of that kind, starting at `index`, that share the work of an update. Sampling, the optimizer's
    /// state and a critic stay on the first device. On the CPU the devices are threads, which is useful only for tests.
    /// This has been run on the CPU, and never on several cards.
    #[schemars(range(min = 1, max = 64))]
    pub count: usize,
    /// The code that computes operations. `fast` is the device's own code where there is some; `reference` is
    /// plain tensor code everywhere, to compare with. Their results differ by rounding.
    pub kernels: Kernels,
}

impl Default for Device {
    fn default() -> Self {
        let (kind, kernels) = Default::default();
        Device { kind, index: 0, count: 1, kernels }
    }
}

/// The code that computes operations.
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
    /// Returns the device's name on the command line.
    pub fn name(&self) -> Name {
        Name { kind: self.kind, index: self.index }
    }
}

/// The sampling of completions for training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Rollout {
    /// Completions per prompt. Without a critic there have to be at least 2, because a group of one then has no
    /// advantage.
    #[schemars(range(min = 1, max = bounds::GROUP))]
    pub group_size: usize,
    /// Tokens after which a completion is cut off.
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub max_completion_tokens: usize,
    /// Divisor of the logits, above 0. At 1.0 the policy samples from the distribution that it is trained on.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub temperature: f64,
    /// Sample among the most likely `top_k` tokens only; 0 turns it off.
    #[schemars(range(max = bounds::SIZE))]
    pub top_k: usize,
    /// Sample among the most likely tokens that together have this probability, in (0, 1].
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
    pub top_p: f64,
    /// Sequences that are decoded at the same time. More of them are faster and need more memory for the KV cache.
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub max_sequences: usize,
    /// True if a GPU records the launches of four decoding steps once and repeats them, so that the host need not
    /// ask for each launch. The tokens are the same. Without the key it is true with CUDA and HIP, which take a
    /// recording as one launch, unless another thread may launch meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graphs: Option<bool>,
    /// The sampler of completions: this process, or inference servers.
    pub engine: Engine,
    /// Number of steps that the policy may be ahead of the weights that a step is sampled with. At 0 a step is
    /// sampled, and then trained on. At 1 the next step is sampled while a step is trained on, with the weights
    /// that this step began with.
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
            graphs: None,
            engine: Engine::default(),
            max_staleness: 0,
        }
    }
}

/// The rule that turns the rewards of a step into advantages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(transform = first_by_default)]
pub enum Advantage {
    /// Reward minus the group's mean, divided by the group's standard deviation (DAPO, GRPO).
    GroupNorm {
        /// Number that is added to the standard deviation.
        #[serde(default = "deviation_epsilon")]
        #[schemars(range(min = 0.0))]
        epsilon: f64,
    },
    /// Reward minus the group's mean (Dr. GRPO).
    MeanOnly,
    /// Reward minus the mean of the group's other rewards (RLOO).
    LeaveOneOut,
    /// Reward minus the group's mean, divided by the standard deviation of the step's rewards (Lite PPO).
    BatchNorm {
        /// Number that is added to the standard deviation.
        #[serde(default = "deviation_epsilon")]
        #[schemars(range(min = 0.0))]
        epsilon: f64,
    },
    /// Reward minus the group's mean, shifted and scaled to mean 0 and variance 1 over the step's tokens
    /// (REINFORCE++ with its baseline).
    ReinforceBaseline,
    /// Every part of the reward is normalised in its group. Then the parts are added up, and the sums are
    /// normalised over the step (GDPO). The parts are those of `reward.parts`, with their weights as shares of 1;
    /// without `reward.parts` the credit is the only part. The amount that penalties take off is one more part, of
    /// weight 1.
    Gdpo {
        /// Number that is added to every standard deviation.
        #[serde(default = "deviation_epsilon")]
        #[schemars(range(min = 0.0))]
        epsilon: f64,
    },
    /// One advantage per token, from the values of a critic (PPO).
    Gae {
        /// Discount of a reward for each token before it, as a factor in [0, 1].
        #[serde(default = "one")]
        #[schemars(range(min = 0.0, max = 1.0))]
        gamma: f64,
        /// Reach of an advantage, in [0, 1]. The larger it is, the more an advantage relies on the actual rewards, and
        /// the less on the critic's values. At 1.0 it relies on all rewards to the end.
        #[serde(default = "default_lambda")]
        #[schemars(range(min = 0.0, max = 1.0))]
        lambda: f64,
        /// True if the advantages of a step's tokens are shifted and scaled to mean 0 and variance 1.
        #[serde(default = "yes")]
        normalise: bool,
    },
}

impl Default for Advantage {
    fn default() -> Self {
        Advantage::GroupNorm { epsilon: deviation_epsilon() }
    }
}

/// The policy loss. Its bounds are next to its `kind`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(transform = first_by_default)]
pub struct Loss {
    /// The surrogate, with its bounds.
    #[serde(flatten, deserialize_with = "or_default")]
    pub kind: LossKind,
    /// How the losses of tokens become one number.
    pub aggregation: Aggregation,
    /// Number of tokens that a completion counts as, for `aggregation = "constant"`. By default it is
    /// `rollout.max_completion_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub constant_length: Option<usize>,
    /// Weight of the entropy bonus; 0.0 is none.
    #[schemars(range(min = 0.0))]
    pub entropy_coef: f64,
    /// Weight of the loss for uneven loads, for a model with experts. With it, an update takes one more
    /// forward pass through the policy, and shares no prompts. 0.0 is none; 0.001 is usual.
    #[schemars(range(min = 0.0))]
    pub router_aux_loss_coef: f64,
    /// Share of an update's tokens, in (0, 1], that have a policy loss: those where the policy is least certain, by the
    /// entropy of its distribution. Divisors, entropy bonus and KL penalty count all tokens as before. With less than
    /// 1.0, every update takes one more forward pass through the policy; 0.2 is usual (Wang et al. 2025).
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
    pub top_entropy_quantile: f64,
    /// Penalty on the distance to the policy the run started from; none by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kl: Option<Kl>,
    /// Largest importance weight of a token, above 0. The weight is the token's probability under the policy that
    /// the update starts from, divided by its probability under the policy that sampled it. A cap is meant for an
    /// engine whose weights or numerics differ from the trainer's, where 2.0 is usual. By default no token is
    /// weighed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub tis_cap: Option<f64>,
    /// Smallest and largest ratio of the two probabilities in `tis_cap`, as the geometric mean over a
    /// completion's tokens. A completion outside this range is left out of the loss, because one of the two
    /// policies would hardly have written it. By default none is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tis_mask: Option<[f64; 2]>,
    /// Largest divergence of the two probabilities in `tis_cap`. What is further apart counts as nothing in the loss, and
    /// in its divisor as before. By default all counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tis_gate: Option<TisGate>,
}

impl Default for Loss {
    fn default() -> Self {
        Loss {
            kind: LossKind::default(),
            aggregation: Aggregation::TokenMean,
            constant_length: None,
            entropy_coef: 0.0,
            router_aux_loss_coef: 0.0,
            top_entropy_quantile: 1.0,
            kl: None,
            tis_cap: None,
            tis_mask: None,
            tis_gate: None,
        }
    }
}

/// A surrogate loss and its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum LossKind {
    /// The probability ratio of each token, clipped on both sides.
    Dapo {
        /// Distance below 1 to which the probability ratio counts, in [0, 1].
        #[serde(default = "dapo_low")]
        #[schemars(range(min = 0.0, max = 1.0))]
        clip_ratio_low: f64,
        /// Distance above 1 to which the probability ratio counts. If it is larger than `clip_ratio_low`, this is
        /// Clip-Higher.
        #[serde(default = "dapo_high")]
        #[schemars(range(min = 0.0))]
        clip_ratio_high: f64,
        /// Bound on the ratio where the advantage is negative, above 1. By default there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(extend("exclusiveMinimum" = 1.0))]
        dual_clip: Option<f64>,
    },
    /// The ratio of each sequence, which is the geometric mean of its tokens' ratios, clipped on both sides. It
    /// hardly leaves 1, so its bounds are a thousand times closer than those of tokens.
    Gspo {
        /// Distance below 1 to which a sequence's ratio counts, in [0, 1].
        #[serde(default = "gspo_low")]
        #[schemars(range(min = 0.0, max = 1.0))]
        clip_ratio_low: f64,
        /// Distance above 1 to which a sequence's ratio counts.
        #[serde(default = "gspo_high")]
        #[schemars(range(min = 0.0))]
        clip_ratio_high: f64,
    },
    /// The clipped ratio is a weight without gradient, so a token beyond the bounds keeps its gradient.
    Cispo {
        /// Distance below 1 that a token's weight may have, in [0, 1]; 1.0 is no lower bound.
        #[serde(default = "one")]
        #[schemars(range(min = 0.0, max = 1.0))]
        clip_ratio_low: f64,
        /// Distance above 1 that a token's weight may have.
        #[serde(default = "cispo_high")]
        #[schemars(range(min = 0.0))]
        clip_ratio_high: f64,
    },
    /// A token that has moved too far from the old policy, and would be pushed further, has no gradient (DPPO). How far is
    /// the difference of its two probabilities, which is the total variation of both policies if all other tokens are
    /// counted as one.
    DppoTv {
        /// Largest distance at which a token may still become less likely, in (0, 1].
        #[serde(default = "dppo_tv_delta")]
        #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
        delta_low: f64,
        /// Largest distance at which a token may still become more likely, in (0, 1].
        #[serde(default = "dppo_tv_delta")]
        #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
        delta_high: f64,
        /// Largest ratio of a token that its gradient is multiplied by, above 1.
        #[serde(default = "dppo_cap")]
        #[schemars(extend("exclusiveMinimum" = 1.0))]
        ratio_cap: f64,
    },
    /// Like `dppo_tv`, with the KL divergence as the distance, in nats.
    DppoKl {
        /// Largest distance at which a token may still become less likely, above 0.
        #[serde(default = "dppo_kl_delta")]
        #[schemars(extend("exclusiveMinimum" = 0.0))]
        delta_low: f64,
        /// Largest distance at which a token may still become more likely, above 0.
        #[serde(default = "dppo_kl_delta")]
        #[schemars(extend("exclusiveMinimum" = 0.0))]
        delta_high: f64,
        /// Largest ratio of a token that its gradient is multiplied by, above 1.
        #[serde(default = "dppo_cap")]
        #[schemars(extend("exclusiveMinimum" = 1.0))]
        ratio_cap: f64,
    },
    /// A soft gate in place of a clip: the further a token's ratio is from 1, the smaller its gradient (SAPO). Its paper
    /// aggregates with `sequence_mean`.
    Sapo {
        /// How fast the gradient fades where the advantage is positive, above 0.
        #[serde(default = "one")]
        #[schemars(extend("exclusiveMinimum" = 0.0))]
        tau_pos: f64,
        /// How fast it fades elsewhere, above 0.
        #[serde(default = "sapo_tau_neg")]
        #[schemars(extend("exclusiveMinimum" = 0.0))]
        tau_neg: f64,
    },
}

impl Default for LossKind {
    fn default() -> Self {
        LossKind::Dapo { clip_ratio_low: dapo_low(), clip_ratio_high: dapo_high(), dual_clip: None }
    }
}

impl LossKind {
    /// Returns the distances below and above 1 to which the ratio counts. `None` if the loss bounds something else.
    pub fn clip_ratios(&self) -> Option<(f64, f64)> {
        match *self {
            LossKind::Dapo { clip_ratio_low, clip_ratio_high, .. }
            | LossKind::Gspo { clip_ratio_low, clip_ratio_high }
            | LossKind::Cispo { clip_ratio_low, clip_ratio_high } => {
                Some((clip_ratio_low, clip_ratio_high))
            }
            LossKind::DppoTv { .. } | LossKind::DppoKl { .. } | LossKind::Sapo { .. } => None,
        }
    }
}

/// A penalty on the distance to the policy the run started from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kl {
    /// The estimator.
    pub kind: KlEstimator,
    /// Weight of the penalty; at least 0.
    #[schemars(range(min = 0.0))]
    pub coef: f64,
}

/// The optimizer and its learning rate. Its moments are next to its `kind`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(transform = first_by_default)]
pub struct Optim {
    /// The rule, with its moments.
    #[serde(flatten, deserialize_with = "or_default")]
    pub kind: OptimKind,
    /// Learning rate after its warm-up. By default it is 1e-6 for all weights of a model of `model.path`, 1e-4 for
    /// adapters, and 3e-4 for a new model.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0))]
    pub lr: Option<f64>,
    /// Rollout steps over which the learning rate grows linearly.
    #[schemars(range(max = bounds::STEPS))]
    pub warmup_steps: u64,
    /// True if the first of these steps has a learning rate of 0, as in verl. That step samples, and moves
    /// nothing.
    pub warmup_from_zero: bool,
    /// The course of the learning rate after its warm-up, until `train.steps`.
    #[serde(deserialize_with = "kind::named", serialize_with = "kind::by_name")]
    pub schedule: Schedule,
    /// Decoupled weight decay, on matrices only.
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// Global norm to which larger gradients are scaled down.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub max_grad_norm: f64,
    /// The number format of the moments.
    pub moments: Moments,
}

impl Default for Optim {
    fn default() -> Self {
        Optim {
            kind: OptimKind::default(),
            lr: None,
            warmup_steps: 20,
            warmup_from_zero: false,
            schedule: Schedule::Constant,
            weight_decay: 0.1,
            max_grad_norm: 1.0,
            moments: Moments::F32,
        }
    }
}

impl Optim {
    /// Returns the learning rate of a policy that began as `origin`.
    pub fn learning_rate(&self, origin: PolicyOrigin) -> f64 {
        self.lr.unwrap_or(match origin {
            PolicyOrigin::New => 3e-4,
            PolicyOrigin::Adapters => 1e-4,
            PolicyOrigin::Trained => 1e-6,
        })
    }
}

/// An optimizer and its moments.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum OptimKind {
    /// Every weight moves by the mean of its gradients, divided by the root of the mean of their squares.
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
        /// Number that is added to the root of the mean of squared gradients.
        #[serde(default = "default_epsilon")]
        #[schemars(extend("exclusiveMinimum" = 0.0))]
        epsilon: f64,
    },
    /// Hidden matrices move about equally far in all directions that their gradients have (Muon). Everything else
    /// moves as under `adamw`, at the same learning rate.
    Muon {
        /// Decay of the sum of a matrix's gradients, in [0, 1).
        #[serde(default = "default_momentum")]
        #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
        momentum: f64,
        /// Decay of the mean of gradients, in [0, 1), for everything else.
        #[serde(default = "default_beta1")]
        #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
        beta1: f64,
        /// Decay of the mean of squared gradients, in [0, 1), for everything else.
        #[serde(default = "default_beta2")]
        #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
        beta2: f64,
        /// Number that is added to the root of the mean of squared gradients, for everything else.
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

/// The course of a learning rate after its warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(transform = kind::name_or_table)]
pub enum Schedule {
    /// It stays the same.
    #[default]
    Constant,
    /// It falls in a straight line.
    Linear {
        /// Share of the learning rate that is left after the last step, in [0, 1].
        #[serde(default)]
        #[schemars(range(min = 0.0, max = 1.0))]
        end_ratio: f64,
    },
    /// It falls by half a cosine: slowly, fast and slowly again.
    Cosine {
        /// Share of the learning rate that is left after the last step, in [0, 1].
        #[serde(default)]
        #[schemars(range(min = 0.0, max = 1.0))]
        end_ratio: f64,
    },
}

/// The length of the run, and how a step is split.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Train {
    /// Rollout steps.
    #[schemars(range(min = 1, max = bounds::STEPS))]
    pub steps: u64,
    /// Number of passes over the training prompts. The run ends with the step that has drawn the last prompt, if
    /// `steps` does not end it before. With dynamic sampling a step draws more prompts than it trains on.
    /// `optim.schedule` goes by `steps` all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = bounds::STEPS), extend("exclusiveMinimum" = 0.0))]
    pub epochs: Option<f64>,
    /// Completions per optimizer update; at most `prompts_per_step` × `group_size`.
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub mini_batch: usize,
    /// Tokens that go through the model together. This number changes memory and speed, not the result.
    #[schemars(range(min = 1, max = bounds::AT_ONCE))]
    pub micro_batch_tokens: usize,
    /// Intermediate values of the layers that an update keeps for its backward pass. They change memory and speed,
    /// not the result.
    pub recompute: Recompute,
    /// True if the kept values of a layer wait in host memory, not in the device's. This changes memory and speed, not
    /// the result; on the CPU it changes nothing.
    pub offload: bool,
    /// When completions of one prompt share it in an update. This changes memory and speed, not the result.
    pub share_prompts: SharePrompts,
    /// The source of the old policy's log-probabilities in the loss. `loss.tis_cap` compares the two
    /// sources, so it has them recomputed.
    pub old_logprobs: OldLogprobs,
    /// The number of updates that a mini-batch gets; by default one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<AdaptiveUpdates>,
    /// Updates in a row that may be skipped because their gradient is not finite. After one more the run ends. 0
    /// allows any number.
    #[schemars(range(max = bounds::STEPS))]
    pub max_skipped: u64,
    /// Evaluations in a row without a new best held-out accuracy after which the run ends. By default they never
    /// end it.
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

/// Intermediate values of the layers that an update keeps for its backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Recompute {
    /// As many as the memory has room for by the plan.
    #[default]
    Auto,
    /// The input of each layer. The layer is recomputed in the backward pass.
    Layers,
    /// All values whose computation takes a matmul.
    None,
}

/// The measurement of held-out accuracy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Eval {
    /// Steps between two evaluations. There is always one before the first step and one at the end.
    #[schemars(range(min = 1, max = bounds::STEPS))]
    pub every: u64,
    /// Completions per held-out prompt. Their accuracies are averaged.
    #[schemars(range(min = 1, max = bounds::GROUP))]
    pub samples: usize,
    /// Divisor of the logits; 0.0 always takes the most likely token.
    #[schemars(range(min = 0.0))]
    pub temperature: f64,
    /// Sample among the most likely tokens that together have this probability, in (0, 1].
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
    pub top_p: f64,
    /// Largest number of held-out prompts that are used; 0 is all of them.
    #[schemars(range(max = bounds::SIZE))]
    pub prompts: usize,
    /// Further sets of prompts to evaluate on, each under its own name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<EvalSet>,
}

impl Default for Eval {
    fn default() -> Self {
        Eval { every: 10, samples: 1, temperature: 1.0, top_p: 1.0, prompts: 500, sets: Vec::new() }
    }
}

/// A set of prompts that is evaluated together with the held-out prompts. Nothing depends on its results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EvalSet {
    /// Name of the set, of letters, digits, `-`, `_` and `.`. The metric `eval/NAME/accuracy` is its accuracy.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// File or folder of rows, or a data set on the Hub. Its columns are those of `data.columns`, and
    /// `data.prompt` and `data.system` hold for it too.
    pub data: PathBuf,
    /// The subset of a folder or a data set on the Hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub subset: Option<String>,
    /// The split of a folder or a data set on the Hub. By default it is `test`, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub split: Option<String>,
    /// Largest number of prompts that are used; 0 is all of them.
    #[serde(default)]
    #[schemars(range(max = bounds::SIZE))]
    pub prompts: usize,
    /// Completions per prompt; by default `eval.samples`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = bounds::GROUP))]
    pub samples: Option<usize>,
}

/// The checkpoints that the run saves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Checkpoint {
    /// Steps between two checkpoints. There is always one at the end.
    #[schemars(range(min = 1, max = bounds::STEPS))]
    pub every: u64,
    /// Number of checkpoints that stay on disk, the newest ones; 0 is all of them.
    #[schemars(range(max = bounds::STEPS))]
    pub keep: usize,
    /// True if the run is also saved after an evaluation with a new best held-out accuracy. That checkpoint is
    /// kept besides the newest.
    pub best: bool,
    /// The number format of a checkpoint's weights. A run trains float32. If this format is narrower, the
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
    /// Interval, in steps, at which tokens and log-probabilities stay in the database, besides the texts: they
    /// stay for every step that this number divides. 0 keeps none of them. The steps since the last checkpoint
    /// always keep theirs, and a resumed run takes them from there.
    #[schemars(range(max = bounds::STEPS))]
    pub tokens_every: u64,
    /// Approximate size of the database above which the completions of the oldest steps are removed; 0 is no
    /// limit. Metrics stay.
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
    /// Four bytes, which hold the weights as they were trained.
    Float32,
    /// Two bytes with the range of float32. Most models are published in this format.
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

/// Lower bound of Zheng et al. 2025, section 5.1. The upper bound is from there too.
fn gspo_low() -> f64 {
    3e-4
}

fn gspo_high() -> f64 {
    4e-4
}

/// Upper bound of SkyRL, which has no lower bound by default either.
fn cispo_high() -> f64 {
    4.0
}

/// Threshold of verl's example. Those of SkyRL are 0.2 for the total variation and 0.05 for the KL divergence.
fn dppo_tv_delta() -> f64 {
    0.15
}

fn dppo_kl_delta() -> f64 {
    0.05
}

fn dppo_cap() -> f64 {
    20.0
}

fn sapo_tau_neg() -> f64 {
    1.05
}
