//! Prompts, and the types of token ids, steps and versions of the weights.

use serde::{Deserialize, Serialize};

/// The index of a token in the model's vocabulary.
pub type TokenId = u32;

/// The number of a training step, counted from 1; 0 is the state before the first step.
pub type Step = u64;

/// The number of the weights that an engine was given: the steps that the policy had done by then.
pub type Version = u64;

/// One question, rendered and tokenized, with the reference that its verifier compares against.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// A number that is stable within the prompt's source: the row that the prompt came from.
    pub id: u64,
    /// The text that the model reads, after the chat template.
    pub text: String,
    /// `text`, tokenized; never empty.
    pub tokens: Vec<TokenId>,
    /// The reference answer, in the form that the task's verifier reads.
    pub reference: String,
    /// The question as the data has it, before pattern and template. The question of a conversation is its last
    /// message. Empty if `text` is the question itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub question: String,
    /// The messages that `text` was made from, as a JSON list, for a verifier that reads a conversation with
    /// another template. Empty if no verifier does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub messages: String,
    /// The difficulty of the question, in the data's words; empty if the data gives none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub difficulty: String,
}

impl Prompt {
    /// Returns the question for a person, or for a verifier that knows no template.
    pub fn asked(&self) -> &str {
        if self.question.is_empty() { &self.text } else { &self.question }
    }
}
