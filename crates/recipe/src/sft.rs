//! Table `[sft]` of a recipe: supervised steps before the first rollout.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bounds;

/// Supervised steps before the first rollout, on examples of your own (`data`) or on the solutions of the training
/// problems.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sft {
    /// Number of supervised steps; 0 leaves SFT out.
    #[schemars(range(max = bounds::STEPS))]
    pub steps: u64,
    /// Examples to imitate, named as in `data.train`: rows with a prompt and a completion, or with `messages` whose last
    /// turn is the assistant's. Earlier turns of the assistant are read, and only the last is trained on. A prompt is
    /// written as the run's own questions are. Examples longer than `data.max_prompt_tokens` or
    /// `rollout.max_completion_tokens` are left out. Without `data`, the solutions of the training problems are imitated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<PathBuf>,
    /// The subset of `data`, if it has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subset: Option<String>,
    /// The split of `data`. For a data set on the Hub it is `train` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Names of the columns of `data`, for layouts that are not recognised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<SftColumns>,
    /// Examples per step.
    #[schemars(range(min = 1, max = bounds::GROUP))]
    pub batch: usize,
    /// Learning rate. By default it is 1e-3 for a new model, 2e-4 for adapters, and 1e-5 if all weights of a model that
    /// was trained before are trained.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0))]
    pub lr: Option<f64>,
    /// Held-out accuracy of sampled completions, in [0, 1], at which SFT stops early.
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

impl Default for Sft {
    fn default() -> Self {
        Sft {
            steps: 0,
            data: None,
            subset: None,
            split: None,
            columns: None,
            batch: 128,
            lr: None,
            stop_at: None,
            every: 25,
            samples: 256,
        }
    }
}

impl Sft {
    /// Returns the learning rate of a policy that began as `origin`.
    ///
    /// The weights of a new model are random, and nothing in them is to be kept. TRL's scripts take 2e-4 for adapters,
    /// ten times what they take for all weights. For these, 1e-5 is half of TRL's rate and verl's own: a cold start is
    /// short and is to show a form, while reinforcement learning needs the rest of the model as it was.
    pub fn learning_rate(&self, origin: PolicyOrigin) -> f64 {
        self.lr.unwrap_or(match origin {
            PolicyOrigin::New => 1e-3,
            PolicyOrigin::Adapters => 2e-4,
            PolicyOrigin::Trained => 1e-5,
        })
    }
}

/// What the weights that are trained were before the run, on which defaults of learning rates depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyOrigin {
    /// Random.
    New,
    /// Adapters on a model whose own weights are frozen.
    Adapters,
    /// All weights of a model that was trained before.
    Trained,
}

/// Names of the columns of supervised examples. A column that is left out is recognised by its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SftColumns {
    /// Column of the prompt: a string, or a list of chat messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Column of the completion: a string, or a list of one message; `""` if the prompt's column is a conversation that
    /// ends with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_is_given_counts_for_every_policy() {
        let given = Sft { lr: Some(0.0), ..Sft::default() };
        assert_eq!(given.learning_rate(PolicyOrigin::New), 0.0);
        assert_eq!(Sft::default().learning_rate(PolicyOrigin::Adapters), 2e-4);
    }
}
