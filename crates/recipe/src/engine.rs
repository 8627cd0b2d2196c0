//! Tables `[engine]` and `[rollout.engine]` of a recipe: where the policy is updated, and where it is sampled.
//!
//! As in `tables`, the doc comments are the descriptions in the JSON schema and in the book.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kind::first_by_default;

/// Where the policy is, which is updated and sampled there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(transform = first_by_default)]
pub enum UpdateEngine {
    /// In this process. Other programs may still sample: `rollout.engine` names them.
    #[default]
    Local,
    /// On a server that speaks Tinker's API, such as SkyRL's: an adapter of a model that the server has. The loss is
    /// computed in this process, and `model.path` gives the tokenizer, the chat template and the sizes.
    Tinker(TinkerServer),
}

impl UpdateEngine {
    /// Returns true if this process updates the policy.
    pub fn is_local(&self) -> bool {
        *self == UpdateEngine::Local
    }
}

/// A server that speaks Tinker's API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TinkerServer {
    /// Address of the server, such as `"http://cluster:8000"`.
    #[schemars(length(min = 1))]
    pub url: String,
    /// The server's name of its model, such as `"Qwen/Qwen3-8B"`.
    #[schemars(length(min = 1))]
    pub model: String,
    /// Name of the environment variable that holds the server's API key. The key is stored nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub key_variable: Option<String>,
    /// Seconds that the server may take for one request, from its acceptance to its result.
    #[serde(default = "deadline")]
    #[schemars(extend("exclusiveMinimum" = 0.0), range(max = 1e6))]
    pub deadline: f64,
    /// Seconds that a run waits while the server is away, before it ends.
    #[serde(default = "patience")]
    #[schemars(range(min = 0.0, max = 1e6))]
    pub patience: f64,
    /// Largest mean distance, in nats, between the log-probabilities of the server's samples and of its passes for the
    /// same tokens and weights. If a mini-batch is further away, its furthest completions are not trained on.
    #[serde(default = "tolerance")]
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub tolerance: f64,
}

fn deadline() -> f64 {
    1200.0
}

fn patience() -> f64 {
    1800.0
}

fn tolerance() -> f64 {
    0.02
}

/// The sampler of completions: this process, or inference servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Engine {
    /// The kind of sampler.
    pub kind: EngineKind,
    /// Addresses of servers, such as `"http://a:8000"`. Each server works on up to `rollout.max_sequences` completions
    /// at the same time.
    #[schemars(length(max = 1024), inner(length(min = 1)))]
    pub servers: Vec<String>,
    /// Folder where runs publish the weights that servers load, each run in a subfolder with its name. By default
    /// it is the folder `weights` in the run's folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<PathBuf>,
    /// Path of that folder on the servers' machines, if it is another path there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights_there: Option<PathBuf>,
    /// Name of the environment variable that holds the servers' API key. The key is sent as a bearer token, and
    /// stored nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub key_variable: Option<String>,
    /// Seconds that a server has for a group. After that, the group is asked for elsewhere.
    #[schemars(extend("exclusiveMinimum" = 0.0), range(max = 1e6))]
    pub deadline: f64,
    /// Seconds that a run waits while no server can be used, before it ends.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub patience: f64,
    /// Largest mean distance, in nats, between the log-probabilities of a server and of the trainer for the same
    /// tokens and weights. A server that is further away is not used. If both compute in float32, 0.001 is already
    /// far.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub tolerance: f64,
}

impl Default for Engine {
    fn default() -> Self {
        Engine {
            kind: EngineKind::Local,
            servers: Vec::new(),
            weights: None,
            weights_there: None,
            key_variable: None,
            deadline: deadline(),
            patience: patience(),
            tolerance: tolerance(),
        }
    }
}

impl Engine {
    /// Returns true if other programs sample.
    pub fn is_remote(&self) -> bool {
        self.kind != EngineKind::Local
    }
}

/// A kind of engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EngineKind {
    /// This process, with the very weights that are trained.
    #[default]
    Local,
    /// Servers of vLLM.
    Vllm,
    /// Servers of SGLang. Their source was read, but no server was ever run.
    Sglang,
}
