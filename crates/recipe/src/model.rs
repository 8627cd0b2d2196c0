//! Table `[model]` of a recipe.

use std::path::PathBuf;

use firebrick_core::config::Family;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bounds;

/// The policy to start from: a checkpoint (`path`) or random weights (`new`), one of the two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Model {
    /// Hugging Face model folder with `config.json`, `*.safetensors` and `tokenizer.json`, or a name
    /// on the Hub such as `Qwen/Qwen2.5-0.5B-Instruct`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Branch, tag or commit of a model on the Hub; by default `main`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The shape of a new model with random weights, for tasks learnt from scratch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<NewModel>,
    /// The number format that matrices are multiplied in. Trained weights and the sums of their gradients have 32
    /// bits in any case.
    pub dtype: ComputeType,
    /// The number format of the base weights under adapters. With fewer bits the model takes less memory, but it is no
    /// longer the same model: `firebrick eval` shows what it lost.
    pub base: BaseType,
    /// Low-rank adapters that are trained on top of the weights. The weights stay as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora: Option<Lora>,
}

/// The format that matrices are multiplied in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ComputeType {
    /// `bfloat16` on a GPU that has it, else `float32`.
    #[default]
    Auto,
    /// 32 bits.
    Float32,
    /// 16 bits, with the range of a 32-bit number.
    Bfloat16,
    /// 16 bits, for numbers up to 65,504. It is for GPUs that have no other 16-bit format. Losses are scaled, so
    /// that small gradients are not lost.
    Float16,
}

/// The format of weights that are not trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BaseType {
    /// The format that matrices are multiplied in.
    #[default]
    Auto,
    /// 32 bits.
    Float32,
    /// 16 bits, with the range of a 32-bit number.
    Bfloat16,
    /// 8 bits for each weight, and a scale for every 32 weights.
    Int8,
    /// 4 bits for each weight, and a scale for every 32 weights.
    Int4,
}

/// Low-rank adapters (LoRA).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lora {
    /// Rank of the adapters: the width between their two matrices.
    #[schemars(range(min = 1, max = bounds::GROUP))]
    pub rank: usize,
    /// Strength of the adapters: their output is multiplied by `alpha / rank`. By default `alpha` is twice the
    /// rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub alpha: Option<f64>,
    /// The projections that get an adapter; by default all seven.
    #[serde(default = "every_projection")]
    #[schemars(length(min = 1))]
    pub targets: Vec<LoraTarget>,
    /// True if the output is multiplied by `alpha / √rank` instead, so that a larger rank does not learn more
    /// slowly.
    #[serde(default)]
    pub rslora: bool,
    /// Matrices that are themselves trained in addition to the adapters, and saved with them. They are meant for a model
    /// whose head is not its embedding.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules_to_save: Vec<WholeModule>,
}

impl Lora {
    /// Returns adapters of this rank, with the defaults.
    pub fn of_rank(rank: usize) -> Self {
        Lora {
            rank,
            alpha: None,
            targets: every_projection(),
            rslora: false,
            modules_to_save: Vec::new(),
        }
    }
}

/// A matrix outside the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WholeModule {
    /// The embedding.
    EmbedTokens,
    /// The head.
    LmHead,
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
    /// The feed-forward layer's projection up.
    UpProj,
    /// The feed-forward layer's projection down.
    DownProj,
}

/// The shape of a model that starts from random weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewModel {
    /// The architecture.
    #[serde(default)]
    pub family: Family,
    /// Width of the residual stream. It has to be a multiple of `heads`.
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub hidden_size: usize,
    /// Number of decoder layers.
    #[schemars(range(min = 1, max = bounds::LAYERS))]
    pub layers: usize,
    /// Number of attention heads. Each head is `hidden_size / heads` wide, which has to be an even number.
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub heads: usize,
    /// Number of key and value heads. It has to divide `heads`.
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub kv_heads: usize,
    /// Width of the feed-forward layer.
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub intermediate_size: usize,
    /// The longest sequence in tokens, prompt and completion together.
    #[serde(default = "default_max_position_embeddings")]
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub max_position_embeddings: usize,
    /// Base of the rotary position embedding.
    #[serde(default = "default_rope_theta")]
    #[schemars(range(max = bounds::ROPE_THETA), extend("exclusiveMinimum" = 0.0))]
    pub rope_theta: f64,
    /// True if the output head shares the input embedding's weights.
    #[serde(default = "yes")]
    pub tied: bool,
    /// Folder of a tokenizer. Without one, every character of `alphabet` is a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<PathBuf>,
    /// The characters that prompts and completions are made of, each once. By default they are those of
    /// `data.task`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub alphabet: Option<String>,
    /// Rows of the embedding. They have to be at least as many as the tokenizer's tokens; by default they are as
    /// many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub vocab_size: Option<usize>,
}

fn yes() -> bool {
    true
}

fn every_projection() -> Vec<LoraTarget> {
    use LoraTarget::{DownProj, GateProj, KProj, OProj, QProj, UpProj, VProj};
    vec![QProj, KProj, VProj, OProj, GateProj, UpProj, DownProj]
}

fn default_max_position_embeddings() -> usize {
    1024
}

fn default_rope_theta() -> f64 {
    10_000.0
}
