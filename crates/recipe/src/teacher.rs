//! Table `[teacher]` of a recipe.

use std::path::PathBuf;

use firebrick_core::config::DistillationLoss;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    BaseType,
    kind::{first_by_default, or_default},
};

/// A model whose probability of each token that the policy wrote, or of every token of the vocabulary in its place, the
/// policy learns from (on-policy distillation). It uses the policy's tokenizer, and is not trained unless it is the policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(transform = first_by_default)]
pub struct Teacher {
    /// Where the teacher computes.
    #[serde(flatten, deserialize_with = "or_default")]
    pub kind: TeacherKind,
    /// How the policy learns from it.
    pub loss: DistillationLoss,
    /// What the teacher reads in place of the question: `{prompt}` stands for the question, and `{reference}` for its
    /// reference. All teachers read it. By default they read what the policy reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Weight of the teacher's part of a token's advantage or loss, above 0. In an advantage that part is the difference
    /// of the token's log-probabilities: the teacher's minus the policy's.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub weight: f64,
    /// Weight of the reward's part of the advantage. 0.0 leaves it out: then the reward only measures, and you have to set
    /// `sampling.dynamic = "off"`, because the teacher also teaches on groups of equal rewards.
    #[schemars(range(min = 0.0))]
    pub task_weight: f64,
    /// Limit of |log p_teacher − log p_policy| in an advantage, above 0, in nats. By default there is none. Only for
    /// `loss = "policy_gradient"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub max_log_ratio: Option<f64>,
}

impl Default for Teacher {
    fn default() -> Self {
        Teacher {
            kind: TeacherKind::default(),
            loss: DistillationLoss::PolicyGradient,
            hint: None,
            weight: 1.0,
            task_weight: 0.0,
            max_log_ratio: None,
        }
    }
}

/// Where a teacher computes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum TeacherKind {
    /// In this process, on the policy's device.
    Local {
        /// Hugging Face model folder, a checkpoint of a run, or a name on the Hub such as
        /// `Qwen/Qwen2.5-7B-Instruct@main`.
        #[serde(default)]
        path: PathBuf,
        /// The number format of its weights.
        #[serde(default)]
        base: BaseType,
    },
    /// The policy itself: as it is before the step, or for a divergence before each update. It learns to write without the
    /// hint what it would write with it (`teacher.hint`).
    Policy,
    /// On servers of vLLM, each with the whole model.
    Vllm(TeacherServers),
    /// On servers of SGLang. Their source was read, but no server was ever run.
    Sglang(TeacherServers),
}

/// Servers of a teacher.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TeacherServers {
    /// Addresses of the servers, such as `"http://a:8000"`.
    #[schemars(length(max = 1024), inner(length(min = 1)))]
    pub servers: Vec<String>,
    /// Name of the environment variable that holds the servers' API key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub key_variable: Option<String>,
    /// Seconds that a server has to score a completion. After that, it is asked for again.
    #[schemars(extend("exclusiveMinimum" = 0.0), range(max = 1e6))]
    pub deadline: f64,
    /// Seconds that a run waits while no server answers, before it ends.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub patience: f64,
}

impl Default for TeacherServers {
    fn default() -> Self {
        TeacherServers {
            servers: Vec::new(),
            key_variable: None,
            deadline: 120.0,
            patience: 1800.0,
        }
    }
}

impl TeacherKind {
    /// Returns the teacher's servers, if it has some.
    pub fn servers(&self) -> Option<&TeacherServers> {
        match self {
            TeacherKind::Local { .. } | TeacherKind::Policy => None,
            TeacherKind::Vllm(servers) | TeacherKind::Sglang(servers) => Some(servers),
        }
    }
}

impl Default for TeacherKind {
    fn default() -> Self {
        TeacherKind::Local { path: PathBuf::new(), base: BaseType::Auto }
    }
}
