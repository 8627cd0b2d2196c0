use serde::{Deserialize, Serialize};

/// Index of a token in the model's vocabulary.
pub type TokenId = u32;

/// Number of the training step, counted from 1; 0 is the state before the first one.
pub type Step = u64;

/// Number of the weights that an engine was given: how many steps the policy had done by then.
pub type Version = u64;

/// One question, rendered and tokenized, with what its verifier compares against.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// Stable within its source: the row it came from.
    pub id: u64,
    /// What the model reads, after the chat template.
    pub text: String,
    /// `text`, tokenized; never empty.
    pub tokens: Vec<TokenId>,
    /// The reference answer, in the form that the task's verifier reads.
    pub reference: String,
    /// The question as the data has it, before pattern and template; of a conversation its last message.
    /// Empty where nothing stands between it and `text`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub question: String,
    /// The messages that `text` was made from, as a JSON list, for a verifier that reads a
    /// conversation with another template; empty when no verifier does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub messages: String,
    /// How hard the question is, in the data's words; empty where the data does not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub difficulty: String,
}

impl Prompt {
    /// The question for a person, or for a verifier that knows no template.
    pub fn asked(&self) -> &str {
        if self.question.is_empty() { &self.text } else { &self.question }
    }
}
