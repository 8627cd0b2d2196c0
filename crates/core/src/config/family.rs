//! Model families.

use serde::{Deserialize, Serialize};

/// A model family, whose checkpoints can be read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// Qwen2 and Qwen2.5.
    #[default]
    Qwen2,
    /// Qwen3, the dense models.
    Qwen3,
    /// Qwen3 with experts, such as Qwen3-30B-A3B.
    Qwen3Moe,
    /// Qwen3.5, the text part of the dense models.
    #[serde(rename = "qwen3_5")]
    Qwen35,
    /// Llama 2, 3, 3.1, 3.2 and 3.3, the text models.
    Llama,
    /// Mistral 7B and models of its form.
    Mistral,
    /// Gemma, the first generation.
    Gemma,
    /// Gemma 3, the text models.
    Gemma3,
    /// SmolLM3.
    #[serde(rename = "smollm3")]
    SmolLm3,
    /// OLMo 2.
    Olmo2,
    /// OLMo 3.
    Olmo3,
    /// Phi-3 and Phi-4-mini.
    Phi3,
}

impl Family {
    /// All families.
    pub const ALL: [Family; 12] = [
        Family::Qwen2,
        Family::Qwen3,
        Family::Qwen3Moe,
        Family::Qwen35,
        Family::Llama,
        Family::Mistral,
        Family::Gemma,
        Family::Gemma3,
        Family::SmolLm3,
        Family::Olmo2,
        Family::Olmo3,
        Family::Phi3,
    ];

    /// Returns the `model_type` of the family's `config.json`.
    pub fn model_type(self) -> &'static str {
        match self {
            Family::Qwen2 => "qwen2",
            Family::Qwen3 => "qwen3",
            Family::Qwen3Moe => "qwen3_moe",
            Family::Qwen35 => "qwen3_5_text",
            Family::Llama => "llama",
            Family::Mistral => "mistral",
            Family::Gemma => "gemma",
            Family::Gemma3 => "gemma3_text",
            Family::SmolLm3 => "smollm3",
            Family::Olmo2 => "olmo2",
            Family::Olmo3 => "olmo3",
            Family::Phi3 => "phi3",
        }
    }

    /// Returns the name of the family's language model in transformers.
    pub fn language_model(self) -> String {
        format!("{}ForCausalLM", self.class())
    }

    /// Returns the name in transformers of the family's model that scores a text.
    pub fn classifier(self) -> String {
        match self {
            // The plain names of these families belong to models that also see pictures.
            Family::Gemma3 => "Gemma3TextForSequenceClassification".into(),
            Family::Qwen35 => "Qwen3_5TextForSequenceClassification".into(),
            _ => format!("{}ForSequenceClassification", self.class()),
        }
    }

    fn class(self) -> &'static str {
        match self {
            Family::Qwen2 => "Qwen2",
            Family::Qwen3 => "Qwen3",
            Family::Qwen3Moe => "Qwen3Moe",
            Family::Qwen35 => "Qwen3_5",
            Family::Llama => "Llama",
            Family::Mistral => "Mistral",
            Family::Gemma => "Gemma",
            Family::Gemma3 => "Gemma3",
            Family::SmolLm3 => "SmolLM3",
            Family::Olmo2 => "Olmo2",
            Family::Olmo3 => "Olmo3",
            Family::Phi3 => "Phi3",
        }
    }
}
