//! Architectures of files that are read, by the names that the format has for them, and what llama.cpp's converter
//! does to the tensors of each.

use crate::metadata::Metadata;

/// Switch for the rotary embedding, which only files of Granite 4 have.
pub(crate) const ROTATES: &str = "rope.scaling.finetuned";

/// A family of models as the format tells them apart, which are not those of `config.json`. The format has one
/// architecture for each, and for two families that share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Llama,
    /// A Llama whose file has experts.
    Mixtral,
    Qwen2,
    Qwen2Moe,
    Qwen3,
    Qwen3Moe,
    Qwen3Next,
    Qwen35,
    Qwen35Moe,
    Gemma,
    Gemma3,
    Gemma4,
    SmolLm3,
    /// OLMo 2, and OLMo 3 if the file has a window.
    Olmo2,
    Phi3,
    Ministral3,
    Olmoe,
    Granite,
    /// Granite 4 without recurrence: a Granite whose file has [`ROTATES`].
    GraniteHybrid,
    Glm4,
    Glm4Moe,
    MiniMaxM2,
    Ernie45,
    Exaone4,
    HunYuan,
    SeedOss,
    Arcee,
    Lfm2,
    GptOss,
}

/// Families in which some layers have a recurrence instead of attention.
pub(crate) const RECURRENT: &[Family] = &[Family::Qwen3Next, Family::Qwen35, Family::Qwen35Moe];

/// Families whose routers score by sigmoids, which a correction changes for the choice.
pub(crate) const SIGMOIDS: &[Family] = &[Family::Glm4Moe, Family::MiniMaxM2];

/// Families with one more expert, which all tokens go through, with a gate.
pub(crate) const SHARED: &[Family] = &[Family::Qwen2Moe, Family::Qwen3Next, Family::Qwen35Moe];

impl Family {
    /// Families by the names of their architectures in the format. Of two with the same name, the first one has a mark.
    pub(crate) const ALL: [(&str, Family); 29] = [
        ("llama", Family::Mixtral),
        ("llama", Family::Llama),
        ("qwen2", Family::Qwen2),
        ("qwen2moe", Family::Qwen2Moe),
        ("qwen3", Family::Qwen3),
        ("qwen3moe", Family::Qwen3Moe),
        ("qwen3next", Family::Qwen3Next),
        ("qwen35", Family::Qwen35),
        ("qwen35moe", Family::Qwen35Moe),
        ("gemma", Family::Gemma),
        ("gemma3", Family::Gemma3),
        ("gemma4", Family::Gemma4),
        ("smollm3", Family::SmolLm3),
        ("olmo2", Family::Olmo2),
        ("phi3", Family::Phi3),
        ("mistral3", Family::Ministral3),
        ("olmoe", Family::Olmoe),
        ("granite", Family::GraniteHybrid),
        ("granite", Family::Granite),
        ("glm4", Family::Glm4),
        ("glm4moe", Family::Glm4Moe),
        ("minimax-m2", Family::MiniMaxM2),
        ("ernie4_5", Family::Ernie45),
        ("exaone4", Family::Exaone4),
        ("hunyuan-dense", Family::HunYuan),
        ("seed_oss", Family::SeedOss),
        ("arcee", Family::Arcee),
        ("lfm2", Family::Lfm2),
        ("gpt-oss", Family::GptOss),
    ];

    /// Finds the family that a file is of. `None` if the file does not say, or names another architecture.
    pub(crate) fn of(metadata: &Metadata) -> Option<Self> {
        let name = metadata.text("general.architecture").ok()??;
        let fits = |(known, family): &(&str, Family)| *known == name && family.is_marked(metadata);
        Family::ALL.into_iter().find(fits).map(|(_, family)| family)
    }

    /// Tells whether a file has what distinguishes the family from another one of the same architecture.
    fn is_marked(self, metadata: &Metadata) -> bool {
        match self {
            Family::Mixtral => {
                metadata.count("llama.expert_count").is_ok_and(|count| count > Some(0))
            }
            Family::GraniteHybrid => metadata.get(&format!("granite.{ROTATES}")).is_some(),
            _ => true,
        }
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
        let mut names = Family::ALL.map(|(name, _)| name).to_vec();
        names.dedup();
        names.join(", ")
    }

    /// Returns the family's name in the format, with which its keys begin.
    pub(crate) fn name(self) -> &'static str {
        let known = Family::ALL.into_iter().find(|(_, family)| *family == self);
        known.map(|(name, _)| name).expect("the list has every family")
    }

    /// Tells whether queries and keys are stored in pairs of rows that are rotated together.
    pub(crate) fn pairs(self) -> bool {
        matches!(
            self,
            Family::Llama
                | Family::Mixtral
                | Family::SmolLm3
                | Family::Ministral3
                | Family::Granite
                | Family::GraniteHybrid
                | Family::Arcee
        )
    }

    /// Tells whether 1 was added to the weights of norms.
    pub(crate) fn adds_one(self) -> bool {
        matches!(self, Family::Gemma | Family::Gemma3) || RECURRENT.contains(&self)
    }

    /// Tells whether models rotate a part of a head only.
    pub(crate) fn rotates_a_part(self) -> bool {
        matches!(self, Family::Phi3 | Family::Glm4 | Family::Glm4Moe | Family::MiniMaxM2)
            || RECURRENT.contains(&self)
    }

    /// Returns the field of `config.json` with the number of experts. `None` if models have no experts.
    pub(crate) fn experts(self) -> Option<&'static str> {
        match self {
            Family::Mixtral | Family::GptOss | Family::MiniMaxM2 => Some("num_local_experts"),
            Family::Glm4Moe => Some("n_routed_experts"),
            Family::Qwen2Moe
            | Family::Qwen3Moe
            | Family::Qwen3Next
            | Family::Qwen35Moe
            | Family::Olmoe => Some("num_experts"),
            _ => None,
        }
    }

    /// Returns the model type and the class that `config.json` has. A Llama with a window is a Mistral, and an OLMo 2
    /// with a window is an OLMo 3.
    pub(crate) fn class(self, window: bool) -> (&'static str, &'static str) {
        match self {
            Family::Llama if window => ("mistral", "MistralForCausalLM"),
            Family::Llama => ("llama", "LlamaForCausalLM"),
            Family::Mixtral => ("mixtral", "MixtralForCausalLM"),
            Family::Qwen2 => ("qwen2", "Qwen2ForCausalLM"),
            Family::Qwen2Moe => ("qwen2_moe", "Qwen2MoeForCausalLM"),
            Family::Qwen3 => ("qwen3", "Qwen3ForCausalLM"),
            Family::Qwen3Moe => ("qwen3_moe", "Qwen3MoeForCausalLM"),
            Family::Qwen3Next => ("qwen3_next", "Qwen3NextForCausalLM"),
            Family::Qwen35 => ("qwen3_5_text", "Qwen3_5ForCausalLM"),
            Family::Qwen35Moe => ("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"),
            Family::Gemma => ("gemma", "GemmaForCausalLM"),
            Family::Gemma3 => ("gemma3_text", "Gemma3ForCausalLM"),
            Family::Gemma4 => ("gemma4_text", "Gemma4ForCausalLM"),
            Family::SmolLm3 => ("smollm3", "SmolLM3ForCausalLM"),
            Family::Olmo2 if window => ("olmo3", "Olmo3ForCausalLM"),
            Family::Olmo2 => ("olmo2", "Olmo2ForCausalLM"),
            Family::Phi3 => ("phi3", "Phi3ForCausalLM"),
            Family::Ministral3 => ("ministral3", "Ministral3ForCausalLM"),
            Family::Olmoe => ("olmoe", "OlmoeForCausalLM"),
            Family::Granite => ("granite", "GraniteForCausalLM"),
            Family::GraniteHybrid => ("granitemoehybrid", "GraniteMoeHybridForCausalLM"),
            Family::Glm4 => ("glm4", "Glm4ForCausalLM"),
            Family::Glm4Moe => ("glm4_moe", "Glm4MoeForCausalLM"),
            Family::MiniMaxM2 => ("minimax_m2", "MiniMaxM2ForCausalLM"),
            Family::Ernie45 => ("ernie4_5", "Ernie4_5ForCausalLM"),
            Family::Exaone4 => ("exaone4", "Exaone4ForCausalLM"),
            Family::HunYuan => ("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM"),
            Family::SeedOss => ("seed_oss", "SeedOssForCausalLM"),
            Family::Arcee => ("arcee", "ArceeForCausalLM"),
            Family::Lfm2 => ("lfm2", "Lfm2ForCausalLM"),
            Family::GptOss => ("gpt_oss", "GptOssForCausalLM"),
        }
    }
}
