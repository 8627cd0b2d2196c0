//! Every table and key of a recipe, with its default.
//!
//! The doc comments are the descriptions in the JSON schema and in the book, so each one says
//! what a user has to know and nothing about the code.

use std::path::PathBuf;

pub use firebrick_device::Kind as DeviceKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where tensors live and kernels run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Device {
    /// The API.
    pub kind: DeviceKind,
    /// Which device of that kind, counted from 0 as `firebrick doctor` lists them.
    pub index: usize,
}

impl Device {
    /// As on the command line.
    pub fn name(&self) -> firebrick_device::Name {
        firebrick_device::Name { kind: self.kind, index: self.index }
    }
}

/// The policy to start from: a checkpoint (`path`) or random weights (`new`), one of the two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Model {
    /// Hugging Face model folder with `config.json`, `*.safetensors` and `tokenizer.json`, or a name
    /// on the Hub such as `Qwen/Qwen2.5-0.5B-Instruct`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Branch, tag or commit of a model on the Hub; `main` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The shape of a new model with random weights, for tasks learnt from nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<NewModel>,
    /// The format that matrices are multiplied in. Weights, moments and sums are 32 bits wide anyhow.
    pub dtype: ComputeType,
    /// Trains low-rank adapters beside the weights, which stay as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora: Option<Lora>,
}

/// The format that matrices are multiplied in.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum ComputeType {
    /// `bfloat16` on a GPU that has it, else `float32`.
    #[default]
    Auto,
    /// 32 bits.
    Float32,
    /// 16 bits with the range of 32.
    Bfloat16,
}

/// Low-rank adapters (LoRA).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lora {
    /// Width of the adapters.
    #[schemars(range(min = 1))]
    pub rank: usize,
    /// The adapters' output is multiplied by `alpha / rank`; twice the rank if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub alpha: Option<f64>,
    /// The projections that get one; all seven if there are none.
    #[serde(default = "every_projection")]
    #[schemars(length(min = 1))]
    pub targets: Vec<LoraTarget>,
    /// Multiplies by `alpha / √rank` instead, so that a larger rank does not learn more slowly.
    #[serde(default)]
    pub rslora: bool,
}

impl Lora {
    /// Adapters of that width, with the defaults.
    pub fn of_rank(rank: usize) -> Self {
        Lora { rank, alpha: None, targets: every_projection(), rslora: false }
    }
}

/// A projection of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoraTarget {
    /// Queries.
    QProj,
    /// Keys.
    KProj,
    /// Values.
    VProj,
    /// The attention's output.
    OProj,
    /// The feed-forward layer's gate.
    GateProj,
    /// The feed-forward layer's way up.
    UpProj,
    /// The feed-forward layer's way down.
    DownProj,
}

/// The shape of a model that starts from random weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewModel {
    /// The architecture.
    #[serde(default)]
    pub family: ModelFamily,
    /// Width of the residual stream; a multiple of `heads`.
    #[schemars(range(min = 1))]
    pub hidden_size: usize,
    /// Number of decoder layers.
    #[schemars(range(min = 1))]
    pub layers: usize,
    /// Number of attention heads; each is `hidden_size / heads` wide, an even number.
    #[schemars(range(min = 1))]
    pub heads: usize,
    /// Number of key and value heads, which divides `heads`.
    #[schemars(range(min = 1))]
    pub kv_heads: usize,
    /// Width of the feed-forward layer.
    #[schemars(range(min = 1))]
    pub intermediate_size: usize,
    /// The longest sequence in tokens, prompt and completion together.
    #[serde(default = "default_max_position_embeddings")]
    #[schemars(range(min = 1))]
    pub max_position_embeddings: usize,
    /// Base of the rotary position embedding.
    #[serde(default = "default_rope_theta")]
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub rope_theta: f64,
    /// Whether the output head shares the input embedding's weights.
    #[serde(default = "yes")]
    pub tied: bool,
    /// Folder of a tokenizer; without one, every character of the task is a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<PathBuf>,
    /// Rows of the embedding, at least as many as the tokenizer has tokens; as many if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub vocab_size: Option<usize>,
}

/// A model architecture that can be made new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModelFamily {
    /// Qwen2 and Qwen2.5.
    #[default]
    Qwen2,
    /// Qwen3.
    Qwen3,
    /// Llama 2 and 3.
    Llama,
    /// Mistral.
    Mistral,
    /// Gemma.
    Gemma,
}

/// The prompts: a data set (`train`) or generated problems (`task`), one of the two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Data {
    /// Training prompts: a JSONL or Parquet file, a folder of them, or a data set on the Hugging Face
    /// Hub, as `owner/name` or `owner/name@revision`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train: Option<PathBuf>,
    /// The subset of `train`, where it has several: what the Hub calls a configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subset: Option<String>,
    /// The split of `train`; for a data set on the Hub `train` when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Generator of training and held-out problems.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    /// Held-out prompts, named as in `train`; without them or `heldout_split` they are split off the
    /// end of `train`, or come from the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heldout: Option<PathBuf>,
    /// The subset of `heldout`; that of `train` when `heldout` is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heldout_subset: Option<String>,
    /// The split of `heldout`, or of `train` when `heldout` is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heldout_split: Option<String>,
    /// Whether rows with the same question become one, and questions with different references
    /// none, before anything is split off.
    pub deduplicate: bool,
    /// Number of training problems to generate; a task that has fewer gives what it has.
    pub train_size: usize,
    /// Number of held-out prompts to generate or split off; ignored with `heldout` or
    /// `heldout_split`.
    #[schemars(range(min = 1))]
    pub heldout_size: usize,
    /// Names of the data's columns, for layouts that are not recognised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<Columns>,
    /// How a question becomes what the model reads.
    pub template: Template,
    /// Variables of the chat template, such as `enable_thinking = false` or `tools = [...]`; which
    /// ones there are is the template's affair.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    pub template_options: serde_json::Map<String, serde_json::Value>,
    /// System message of the chat template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Text around the question, which stands where the pattern says `{prompt}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Prompts with more tokens than this are left out.
    #[schemars(range(min = 1))]
    pub max_prompt_tokens: usize,
}

impl Default for Data {
    fn default() -> Self {
        Data {
            train: None,
            subset: None,
            split: None,
            task: None,
            heldout: None,
            heldout_subset: None,
            heldout_split: None,
            deduplicate: true,
            train_size: 20_000,
            heldout_size: 500,
            columns: None,
            template: Template::Auto,
            template_options: serde_json::Map::new(),
            system: None,
            prompt: None,
            max_prompt_tokens: 512,
        }
    }
}

/// A generator of problems with known answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Task {
    /// Sums of two numbers.
    Addition {
        /// The most digits of a summand, 1 to 18.
        #[schemars(range(min = 1, max = 18))]
        digits: u32,
        /// Whether the worked examples of the warm-up write the intermediate steps.
        #[serde(default = "yes")]
        worked: bool,
    },
    /// Products of two numbers.
    Multiplication {
        /// The most digits of a factor, 1 to 9.
        #[schemars(range(min = 1, max = 9))]
        digits: u32,
        /// Whether the worked examples of the warm-up write the intermediate steps.
        #[serde(default = "yes")]
        worked: bool,
    },
    /// Reach a target from given numbers with + - * /.
    Countdown {
        /// How many numbers are given, 2 to 16.
        #[schemars(range(min = 2, max = 16))]
        numbers: u32,
        /// The largest number that may be given.
        #[serde(default = "default_max_number")]
        #[schemars(range(min = 1))]
        max_number: u64,
        /// The largest target, from `max_number` to 10⁹.
        #[serde(default = "default_max_target")]
        #[schemars(range(min = 1, max = 1_000_000_000))]
        max_target: u64,
    },
}

/// Which columns of a data set hold what; one that is left out is recognised by its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Columns {
    /// Column of the question: a string, or a list of chat messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Column of the reference answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// How a question becomes what the model reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Template {
    /// `chat` when the model has a chat template, else `plain`.
    #[default]
    Auto,
    /// The model's chat template, with the question as the user's message.
    Chat,
    /// The question as it stands.
    Plain,
}

/// Supervised steps on the task's own solutions, before the first rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Warmup {
    /// Number of supervised steps; 0 leaves the warm-up out.
    pub steps: u64,
    /// Examples per step.
    #[schemars(range(min = 1))]
    pub batch: usize,
    /// Learning rate.
    #[schemars(range(min = 0.0))]
    pub lr: f64,
    /// Held-out accuracy of sampled completions, in [0, 1], at which the warm-up stops early.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub stop_at: Option<f64>,
    /// Steps between two measurements of that accuracy.
    #[schemars(range(min = 1))]
    pub every: u64,
    /// Held-out prompts per measurement.
    #[schemars(range(min = 1))]
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
    /// Completions per prompt; at least 2, because a group of one has no advantage.
    #[schemars(range(min = 2))]
    pub group_size: usize,
    /// Tokens after which a completion is cut off.
    #[schemars(range(min = 1))]
    pub max_completion_tokens: usize,
    /// Divides the logits; above 0. At 1.0 the policy samples from what it learns.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub temperature: f64,
    /// Sample among the most likely `top_k` tokens only; 0 turns it off.
    pub top_k: usize,
    /// Sample among the most likely tokens that together have this probability, in (0, 1].
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
    pub top_p: f64,
    /// Sequences decoded at once: more is faster and needs more memory for the KV cache.
    #[schemars(range(min = 1))]
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

/// Which groups a step trains on (dynamic sampling).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Groups that a step trains on.
    #[schemars(range(min = 1))]
    pub prompts_per_step: usize,
    /// Whether groups without spread in their accuracy are replaced by further prompts. They have
    /// no advantage, so they would only thin the batch.
    pub dynamic: bool,
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
            dynamic: true,
            max_rounds: 10,
            on_cap: OnCap::TrainSmaller,
            surplus: Surplus::Keep,
            max_staleness: 1,
            tolerance: 1e-6,
        }
    }
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

/// How the rewards of a group become advantages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Advantage {
    /// The estimator.
    pub kind: AdvantageKind,
    /// For `group_norm`: added to the standard deviation.
    #[schemars(range(min = 0.0))]
    pub epsilon: f64,
}

impl Default for Advantage {
    fn default() -> Self {
        Advantage { kind: AdvantageKind::GroupNorm, epsilon: 1e-6 }
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
    #[schemars(range(min = 1))]
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
    #[schemars(range(min = 1))]
    pub steps: u64,
    /// Completions per optimizer update; at most `prompts_per_step` × `group_size`.
    #[schemars(range(min = 1))]
    pub mini_batch: usize,
    /// Tokens that go through the model at once. Changes memory and speed, not the result.
    #[schemars(range(min = 1))]
    pub micro_batch_tokens: usize,
    /// Held-out accuracy, in [0, 1], at which the run ends early.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub stop_at: Option<f64>,
}

impl Default for Train {
    fn default() -> Self {
        Train { steps: 200, mini_batch: 256, micro_batch_tokens: 8192, stop_at: None }
    }
}

/// How held-out accuracy is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Eval {
    /// Steps between two evaluations; there is always one before the first step and one at the end.
    #[schemars(range(min = 1))]
    pub every: u64,
    /// Completions per held-out prompt, whose accuracies are averaged.
    #[schemars(range(min = 1))]
    pub samples: usize,
    /// Divides the logits; 0.0 always takes the most likely token.
    #[schemars(range(min = 0.0))]
    pub temperature: f64,
    /// Sample among the most likely tokens that together have this probability, in (0, 1].
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
    pub top_p: f64,
    /// Held-out prompts that are used, at most; 0 is all of them.
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
    #[schemars(range(min = 1))]
    pub every: u64,
    /// Newest checkpoints that stay on disk; 0 is all of them.
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

fn yes() -> bool {
    true
}

fn every_projection() -> Vec<LoraTarget> {
    use LoraTarget::{DownProj, GateProj, KProj, OProj, QProj, UpProj, VProj};
    vec![QProj, KProj, VProj, OProj, GateProj, UpProj, DownProj]
}

fn default_max_number() -> u64 {
    99
}

fn default_max_target() -> u64 {
    100
}

fn default_max_position_embeddings() -> usize {
    1024
}

fn default_rope_theta() -> f64 {
    10_000.0
}
