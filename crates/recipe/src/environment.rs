//! The table of the environment.
//!
//! As in `tables`, the doc comments are the descriptions in the JSON schema and in the book.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bounds;

/// What the policy talks with between its turns, if it takes several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Environment {
    /// The kind.
    pub kind: EnvironmentKind,
    /// Turns that the policy may take.
    #[schemars(range(min = 1, max = bounds::STEPS))]
    pub max_turns: usize,
    /// Tokens of one turn; `rollout.max_completion_tokens`, which holds for all turns together, if there is no such limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub max_turn_tokens: Option<usize>,
    /// Tokens of the environment that the policy may hear in all. A conversation ends at a reply that has more than are left.
    #[schemars(range(max = bounds::SIZE))]
    pub max_heard_tokens: usize,
    /// Texts that end a turn besides the model's stop tokens, such as `"="`: every token that ends with one of them does. They are
    /// part of what is said.
    #[schemars(length(max = 64), inner(length(min = 1)))]
    pub stop: Vec<String>,
    /// Whom the chat template shows as the speaker of the environment's words.
    pub role: Role,
    /// Addresses of the environment's servers, such as `"http://a:8000"`.
    #[schemars(length(max = 1024), inner(length(min = 1)))]
    pub servers: Vec<String>,
    /// Episodes that each server plays at once: as many as it was started for (`max_concurrent_envs`), or fewer.
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub sessions: usize,
    /// Template of the JSON object that an episode is reset with. It is in the language of chat templates, as the next three are.
    /// Variables: `id` and `seed`, two numbers that follow from the prompt, the second below 2³¹; `reference` and `question`.
    pub reset: String,
    /// Template of the JSON object of an action. Variables: `completion`, the policy's words in its turn; `turn`, from 1.
    pub action: String,
    /// Template of the words that the policy hears. Variables: `observation`, an object; `reward`, a number or none; `done`.
    pub heard: String,
    /// Template of the prompt that an episode begins with, for `data.task.kind = "environment"`. Variables: those of `heard`.
    pub opening: String,
    /// Seconds that a server may take for a message.
    #[schemars(extend("exclusiveMinimum" = 0.0), range(max = 1e6))]
    pub time_limit: f64,
    /// Seconds that may pass while no episode is played although one is wanted, before the run ends.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub patience: f64,
    /// Name of the environment variable that has the servers' API key. The key is sent as a bearer token, and kept nowhere.
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
            max_heard_tokens: 1024,
            stop: Vec::new(),
            role: Role::User,
            servers: Vec::new(),
            sessions: 1,
            reset: r#"{"seed": {{ seed }}}"#.into(),
            action: r#"{"message": {{ completion | tojson }}}"#.into(),
            heard: "{{ observation | tojson }}".into(),
            opening: "{{ observation | tojson }}".into(),
            time_limit: 60.0,
            patience: 600.0,
            key_variable: None,
        }
    }
}

impl Environment {
    /// Tells if the policy talks with somebody.
    pub fn is_there(&self) -> bool {
        self.kind != EnvironmentKind::None
    }

    /// Tells if it is known to give rewards.
    pub(crate) fn pays(&self) -> bool {
        matches!(self.kind, EnvironmentKind::OpenEnv | EnvironmentKind::Guessing)
    }

    /// Tokens that a completion may have besides those that the policy writes.
    pub fn most_heard(&self) -> usize {
        if self.is_there() { self.max_heard_tokens } else { 0 }
    }
}

/// A kind of environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EnvironmentKind {
    /// Nobody answers: a completion is one turn.
    #[default]
    None,
    /// A guessing game: the policy says a number, and hears `<` or `>` until it is the reference.
    Guessing,
    /// A calculator: where a turn ends with `=`, the policy hears the value of the expression before it.
    Calculator,
    /// Servers that speak OpenEnv.
    #[serde(rename = "openenv")]
    OpenEnv,
    /// What a program brings itself (`Session::environment`).
    Own,
}

impl EnvironmentKind {
    /// As recipes write it.
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
    /// A tool, as templates of models have it that call tools.
    Tool,
}

impl Role {
    /// As chat templates have it.
    pub fn name(self) -> &'static str {
        match self {
            Role::User => "user",
            Role::Tool => "tool",
        }
    }
}
