//! Architectures of files that are read, by the names that the format has for them, and what llama.cpp's converter
//! does to the tensors of each.

use crate::metadata::Metadata;

/// An architecture, as the format calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Llama,
    Qwen2,
    Qwen3,
    Qwen3Moe,
    Qwen35,
    Gemma,
    Gemma3,
    SmolLm3,
    /// OLMo 2, and OLMo 3 if the file has a window.
    Olmo2,
    Phi3,
}

impl Family {
    pub(crate) const ALL: [(&str, Family); 10] = [
        ("llama", Family::Llama),
        ("qwen2", Family::Qwen2),
        ("qwen3", Family::Qwen3),
        ("qwen3moe", Family::Qwen3Moe),
        ("qwen35", Family::Qwen35),
        ("gemma", Family::Gemma),
        ("gemma3", Family::Gemma3),
        ("smollm3", Family::SmolLm3),
        ("olmo2", Family::Olmo2),
        ("phi3", Family::Phi3),
    ];

    /// Finds the family that a file is of. `None` if the file does not say, or names another architecture.
    pub(crate) fn of(metadata: &Metadata) -> Option<Self> {
        let name = metadata.text("general.architecture").ok()??;
        Family::ALL.iter().find(|(known, _)| *known == name).map(|(_, family)| *family)
    }

    /// Finds the family whose files hold models of this `model_type`.
    pub(crate) fn of_model_type(model_type: &str) -> Option<Self> {
        let holds = |family: &Family| {
            [false, true].into_iter().any(|window| family.class(window).0 == model_type)
        };
        Family::ALL.into_iter().map(|(_, family)| family).find(holds)
    }

    /// Lists the architectures by their names in the format.
    pub(crate) fn names() -> String {
        Family::ALL.map(|(name, _)| name).join(", ")
    }

    /// Returns the family's name in the format, with which its keys begin.
    pub(crate) fn name(self) -> &'static str {
        let known = Family::ALL.into_iter().find(|(_, family)| *family == self);
        known.map(|(name, _)| name).expect("the list has every family")
    }

    /// Tells whether queries and keys are stored in pairs of rows that are rotated together.
    pub(crate) fn pairs(self) -> bool {
        matches!(self, Family::Llama | Family::SmolLm3)
    }

    /// Tells whether 1 was added to the weights of norms.
    pub(crate) fn adds_one(self) -> bool {
        matches!(self, Family::Gemma | Family::Gemma3 | Family::Qwen35)
    }

    /// Tells whether models rotate a part of a head only.
    pub(crate) fn rotates_a_part(self) -> bool {
        matches!(self, Family::Qwen35 | Family::Phi3)
    }

    /// Returns the model type and the class that `config.json` has. A Llama with a window is a Mistral, and an OLMo 2
    /// with a window is an OLMo 3.
    pub(crate) fn class(self, window: bool) -> (&'static str, &'static str) {
        match self {
            Family::Llama if window => ("mistral", "MistralForCausalLM"),
            Family::Llama => ("llama", "LlamaForCausalLM"),
            Family::Qwen2 => ("qwen2", "Qwen2ForCausalLM"),
            Family::Qwen3 => ("qwen3", "Qwen3ForCausalLM"),
            Family::Qwen3Moe => ("qwen3_moe", "Qwen3MoeForCausalLM"),
            Family::Qwen35 => ("qwen3_5_text", "Qwen3_5ForCausalLM"),
            Family::Gemma => ("gemma", "GemmaForCausalLM"),
            Family::Gemma3 => ("gemma3_text", "Gemma3ForCausalLM"),
            Family::SmolLm3 => ("smollm3", "SmolLM3ForCausalLM"),
            Family::Olmo2 if window => ("olmo3", "Olmo3ForCausalLM"),
            Family::Olmo2 => ("olmo2", "Olmo2ForCausalLM"),
            Family::Phi3 => ("phi3", "Phi3ForCausalLM"),
        }
    }
}
