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
    /// Qwen1.5-MoE and Qwen2 with experts, one of which all tokens share.
    Qwen2Moe,
    /// Qwen3, the dense models.
    Qwen3,
    /// Qwen3 with experts, such as Qwen3-30B-A3B.
    Qwen3Moe,
    /// Qwen3-Next.
    Qwen3Next,
    /// Qwen3.5, the text part of the dense models.
    #[serde(rename = "qwen3_5")]
    Qwen35,
    /// Qwen3.5 with experts, the text part.
    #[serde(rename = "qwen3_5_moe")]
    Qwen35Moe,
    /// Llama 2, 3, 3.1, 3.2 and 3.3, the text models.
    Llama,
    /// Mistral 7B and models of its form.
    Mistral,
    /// Ministral 3.
    Ministral3,
    /// Mixtral: Mistral with experts.
    Mixtral,
    /// gpt-oss.
    GptOss,
    /// Gemma, the first generation.
    Gemma,
    /// Gemma 3, the text models.
    Gemma3,
    /// Gemma 4, the dense text models.
    Gemma4,
    /// SmolLM3.
    #[serde(rename = "smollm3")]
    SmolLm3,
    /// OLMo 2.
    Olmo2,
    /// OLMo 3.
    Olmo3,
    /// OLMoE, of the first generation of OLMo, with experts.
    Olmoe,
    /// Phi-3 and Phi-4-mini.
    Phi3,
    /// Granite 3, the dense models.
    Granite,
    /// Granite 4, the dense models without recurrence.
    #[serde(rename = "granitemoehybrid")]
    GraniteHybrid,
    /// GLM-4 of April 2025 (GLM-4-0414, GLM-Z1).
    Glm4,
    /// GLM-4.5, GLM-4.6 and GLM-4.7, with experts.
    Glm4Moe,
    /// MiniMax-M2, with experts.
    #[serde(rename = "minimax_m2")]
    MiniMaxM2,
    /// ERNIE 4.5, the dense text models.
    #[serde(rename = "ernie4_5")]
    Ernie45,
    /// EXAONE 4.
    Exaone4,
    /// Hunyuan, the dense models.
    #[serde(rename = "hunyuan_v1_dense")]
    HunYuan,
    /// Seed-OSS.
    SeedOss,
    /// AFM (Arcee).
    Arcee,
    /// LFM2, the dense text models.
    Lfm2,
}

impl Family {
    /// All families.
    pub const ALL: [Family; 31] = [
        Family::Qwen2,
        Family::Qwen2Moe,
        Family::Qwen3,
        Family::Qwen3Moe,
        Family::Qwen3Next,
        Family::Qwen35,
        Family::Qwen35Moe,
        Family::Llama,
        Family::Mistral,
        Family::Ministral3,
        Family::Mixtral,
        Family::GptOss,
        Family::Gemma,
        Family::Gemma3,
        Family::Gemma4,
        Family::SmolLm3,
        Family::Olmo2,
        Family::Olmo3,
        Family::Olmoe,
        Family::Phi3,
        Family::Granite,
        Family::GraniteHybrid,
        Family::Glm4,
        Family::Glm4Moe,
        Family::MiniMaxM2,
        Family::Ernie45,
        Family::Exaone4,
        Family::HunYuan,
        Family::SeedOss,
        Family::Arcee,
        Family::Lfm2,
    ];

    /// Returns the `model_type` of the family's `config.json`.
    pub fn model_type(self) -> &'static str {
        match self {
            Family::Qwen2 => "qwen2",
            Family::Qwen2Moe => "qwen2_moe",
            Family::Qwen3 => "qwen3",
            Family::Qwen3Moe => "qwen3_moe",
            Family::Qwen3Next => "qwen3_next",
            Family::Qwen35 => "qwen3_5_text",
            Family::Qwen35Moe => "qwen3_5_moe_text",
            Family::Llama => "llama",
            Family::Mistral => "mistral",
            Family::Ministral3 => "ministral3",
            Family::Mixtral => "mixtral",
            Family::GptOss => "gpt_oss",
            Family::Gemma => "gemma",
            Family::Gemma3 => "gemma3_text",
            Family::Gemma4 => "gemma4_text",
            Family::SmolLm3 => "smollm3",
            Family::Olmo2 => "olmo2",
            Family::Olmo3 => "olmo3",
            Family::Olmoe => "olmoe",
            Family::Phi3 => "phi3",
            Family::Granite => "granite",
            Family::GraniteHybrid => "granitemoehybrid",
            Family::Glm4 => "glm4",
            Family::Glm4Moe => "glm4_moe",
            Family::MiniMaxM2 => "minimax_m2",
            Family::Ernie45 => "ernie4_5",
            Family::Exaone4 => "exaone4",
            Family::HunYuan => "hunyuan_v1_dense",
            Family::SeedOss => "seed_oss",
            Family::Arcee => "arcee",
            Family::Lfm2 => "lfm2",
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
            Family::Qwen2Moe => "Qwen2Moe",
            Family::Qwen3 => "Qwen3",
            Family::Qwen3Moe => "Qwen3Moe",
            Family::Qwen3Next => "Qwen3Next",
            Family::Qwen35 => "Qwen3_5",
            Family::Qwen35Moe => "Qwen3_5Moe",
            Family::Llama => "Llama",
            Family::Mistral => "Mistral",
            Family::Ministral3 => "Ministral3",
            Family::Mixtral => "Mixtral",
            Family::GptOss => "GptOss",
            Family::Gemma => "Gemma",
            Family::Gemma3 => "Gemma3",
            Family::Gemma4 => "Gemma4",
            Family::SmolLm3 => "SmolLM3",
            Family::Olmo2 => "Olmo2",
            Family::Olmo3 => "Olmo3",
            Family::Olmoe => "Olmoe",
            Family::Phi3 => "Phi3",
            Family::Granite => "Granite",
            Family::GraniteHybrid => "GraniteMoeHybrid",
            Family::Glm4 => "Glm4",
            Family::Glm4Moe => "Glm4Moe",
            Family::MiniMaxM2 => "MiniMaxM2",
            Family::Ernie45 => "Ernie4_5",
            Family::Exaone4 => "Exaone4",
            Family::HunYuan => "HunYuanDenseV1",
            Family::SeedOss => "SeedOss",
            Family::Arcee => "Arcee",
            Family::Lfm2 => "Lfm2",
        }
    }
}
