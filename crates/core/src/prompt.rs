//! Prompts, and the types of token ids, steps and versions of the weights.

use serde::{Deserialize, Serialize};

/// Index of a token in the model's vocabulary.
pub type TokenId = u32;

/// A training step, counted from 1; 0 is the state before the first step.
pub type Step = u64;

/// Version of the weights that an engine was given: the number of steps that the policy had done by then.
pub type Version = u64;

/// One question, rendered and tokenized, with the reference that its verifier compares against.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// A number that is stable within the prompt's source: the row that the prompt came from.
    pub id: u64,
    /// What the model reads, after the chat template.
    pub text: String,
    /// `text`, tokenized; never empty.
    pub tokens: Vec<TokenId>,
    /// What a teacher reads in place of `tokens`: the question with a hint. Empty if it reads `tokens`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub teacher_prompt: Vec<TokenId>,
    /// Reference answer, in the format that the task's verifier reads.
    pub reference: String,
    /// True if `reference` is the JSON of an object or a list, for a verifier that takes such references
    /// ([`Verifier::takes_json`](crate::Verifier::takes_json)). A text that looks like JSON is a text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub json_reference: bool,
    /// Question as the data has it, before pattern and template; of a conversation, the last message. Empty if
    /// `text` is the question itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub question: String,
    /// Messages that `text` was made from, as a JSON list, for a verifier that reads a conversation with another
    /// template. Empty if no verifier does so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub messages: String,
    /// Difficulty of the question, as the data states it; empty if it does not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub difficulty: String,
    /// Name of the data set that the prompt is from, if there are several; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub data_source: String,
}

impl Prompt {
    /// Returns the question for the user, or for a verifier that does not use templates.
    pub fn question_text(&self) -> &str {
        if self.question.is_empty() { &self.text } else { &self.question }
    }
}
