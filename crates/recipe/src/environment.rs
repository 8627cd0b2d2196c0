//! Table `[environment]` of a recipe.
//!
//! As in `tables`, the doc comments are the descriptions in the JSON schema and in the book.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bounds;

/// The environment that the policy talks with between its turns, if it takes several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Environment {
    /// The kind of environment.
    pub kind: EnvironmentKind,
    /// Largest number of turns that the policy may take.
    #[schemars(range(min = 1, max = bounds::STEPS))]
    pub max_turns: usize,
    /// Largest number of tokens in one turn. By default only `rollout.max_completion_tokens` limits it, which
    /// holds for all turns together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub max_turn_tokens: Option<usize>,
    /// Largest number of the environment's tokens that the policy may read in all. A conversation ends at a reply
    /// that has more tokens than are left.
    #[schemars(range(max = bounds::SIZE))]
    pub max_observation_tokens: usize,
    /// Texts that end a turn besides the model's stop tokens, such as `"="`. A turn ends at any token that ends
    /// with one of them, and the text belongs to the turn.
    #[schemars(length(max = 64), inner(length(min = 1)))]
    pub stop: Vec<String>,
    /// The speaker that the chat template shows for the environment's text.
    pub role: Role,
    /// Addresses of the environment's servers, such as `"http://a:8000"`.
    #[schemars(length(max = 1024), inner(length(min = 1)))]
    pub servers: Vec<String>,
    /// Episodes that each server plays at the same time: as many as the server was started for (`max_concurrent_envs`),
    /// or fewer.
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub sessions: usize,
    /// Template of the JSON object that resets an episode. It is written in the language of chat templates, like
    /// `action`, `observation` and `opening`. Variables: `id` and `seed`, two numbers that follow from the prompt,
    /// `seed` below 2³¹; `reference` and `question`; with `data.task.split` also `split` and `index`.
    pub reset: String,
    /// Template of the JSON object of an action. Variables: `completion`, the policy's text in its turn; `turn`,
    /// counted from 1.
    pub action: String,
    /// Template of the text that the policy observes. Variables: `observation`, an object; `reward`, a number or none;
    /// `done`.
    pub observation: String,
    /// Template of the prompt that an episode begins with, for `data.task.kind = "environment"`. Variables: those
    /// of `observation`.
    pub opening: String,
    /// Seconds that a server may take to answer a message.
    #[schemars(extend("exclusiveMinimum" = 0.0), range(max = 1e6))]
    pub time_limit: f64,
    /// Seconds that a run waits while it wants an episode and none is played, before it ends.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub patience: f64,
    /// Name of the environment variable that holds the servers' API key. The key is sent as a bearer token, and
    /// stored nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub key_variable: Option<String>,
}

impl Default for Environment {
    fn default() -> Self {
        Environment {
            kind: EnvironmentKind::None,
            max_turns: 8,
            max_turn_tokens: None,
            max_observation_tokens: 1024,
            stop: Vec::new(),
            role: Role::User,
            servers: Vec::new(),
            sessions: 1,
            reset: concat!(
                r#"{"seed": {{ seed }}"#,
                r#"{% if split is defined %}, "split": {{ split | tojson }}, "index": {{ index }}{% endif %}}"#
            )
            .into(),
            action: r#"{"message": {{ completion | tojson }}}"#.into(),
            observation: "{{ observation | tojson }}".into(),
            opening: "{{ observation | tojson }}".into(),
            time_limit: 60.0,
            patience: 600.0,
            key_variable: None,
        }
    }
}

impl Environment {
    /// Returns true if the policy talks with an environment.
    pub fn is_there(&self) -> bool {
        self.kind != EnvironmentKind::None
    }

    /// Returns true if the environment is known to give rewards.
    pub(crate) fn pays(&self) -> bool {
        matches!(self.kind, EnvironmentKind::OpenEnv | EnvironmentKind::Guessing)
    }

    /// Returns the largest number of tokens that a completion may have besides those that the policy writes.
    pub fn observation_tokens(&self) -> usize {
        if self.is_there() { self.max_observation_tokens } else { 0 }
    }
}

/// A kind of environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EnvironmentKind {
    /// Nobody answers: a completion is one turn.
    #[default]
    None,
    /// A guessing game: the policy says a number and observes `<` or `>`, until its number is the reference.
    Guessing,
    /// A calculator: if a turn ends with `=`, the policy observes the value of the expression before it.
    Calculator,
    /// Servers that speak OpenEnv.
    #[serde(rename = "openenv")]
    OpenEnv,
    /// An environment that a program brings itself (`Session::environment`).
    Own,
}

impl EnvironmentKind {
    /// Returns the kind's name in recipes.
    pub fn name(self) -> &'static str {
        match self {
            EnvironmentKind::None => "none",
            EnvironmentKind::Guessing => "guessing",
            EnvironmentKind::Calculator => "calculator",
            EnvironmentKind::OpenEnv => "openenv",
            EnvironmentKind::Own => "own",
        }
    }
}

/// A speaker in a chat template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A user.
    #[default]
    User,
    /// A tool, in the templates of models that call tools.
    Tool,
}

impl Role {
    /// Returns the role's name in chat templates.
    pub fn name(self) -> &'static str {
        match self {
            Role::User => "user",
            Role::Tool => "tool",
        }
    }
}
