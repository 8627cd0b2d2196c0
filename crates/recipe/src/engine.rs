//! Table `[rollout.engine]` of a recipe: the engine that samples.
//!
//! As in `tables`, the doc comments are the descriptions in the JSON schema and in the book.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
            deadline: 1200.0,
            patience: 1800.0,
            tolerance: 0.02,
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
