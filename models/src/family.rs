//! The families: which one a `config.json` is of, and which file shapes, reads and writes the configuration of each.

mod arcee;
mod ernie4_5;
mod exaone4;
mod experts;
mod gemma;
mod gemma3;
mod gemma4;
mod glm4;
mod glm4_moe;
mod gpt_oss;
mod granite;
mod hunyuan;
mod lfm2;
mod llama;
mod minimax_m2;
mod ministral3;
mod mistral;
mod mixtral;
mod olmo;
mod olmoe;
mod phi3;
mod qwen2;
mod qwen2_moe;
mod qwen3;
mod qwen3_5;
mod qwen3_moe;
mod seed_oss;
mod smollm3;

use firebrick_core::config::Family;
use serde_json::{Map, Value, json};

use crate::{
    config::{DecoderConfig, Sizes},
    fields::{ConfigError, Fields},
};

impl DecoderConfig {
    /// Describes a new model of `family`, with everything that the family computes differently.
    pub fn new(family: Family, sizes: Sizes) -> Self {
        let mut config = DecoderConfig::llama_like(family, sizes);
        match family {
            Family::Qwen2 => qwen2::shape(&mut config),
            Family::Qwen3 => qwen3::shape(&mut config),
            Family::Qwen3Moe => qwen3_moe::shape(&mut config),
            Family::Qwen35 | Family::Qwen35Moe | Family::Qwen3Next => {
                qwen3_5::shape(&mut config);
            }
            Family::Llama | Family::Mistral => {}
            Family::Gemma => gemma::shape(&mut config),
            Family::Gemma3 => gemma3::shape(&mut config),
            Family::Gemma4 => gemma4::shape(&mut config),
            Family::SmolLm3 => smollm3::shape(&mut config),
            Family::Olmo2 | Family::Olmo3 => olmo::shape(&mut config),
            Family::Phi3 => phi3::shape(&mut config),
            Family::Qwen2Moe => qwen2_moe::shape(&mut config),
            Family::Ministral3 => ministral3::shape(&mut config),
            Family::Mixtral => mixtral::shape(&mut config),
            Family::GptOss => gpt_oss::shape(&mut config),
            Family::Olmoe => olmoe::shape(&mut config),
            Family::Glm4 => glm4::shape(&mut config),
            Family::Glm4Moe => glm4_moe::shape(&mut config),
            Family::MiniMaxM2 => minimax_m2::shape(&mut config),
            Family::Ernie45 => ernie4_5::shape(&mut config),
            Family::Exaone4 => exaone4::shape(&mut config),
            Family::HunYuan => hunyuan::shape(&mut config),
            Family::SeedOss => seed_oss::shape(&mut config),
            Family::Arcee => arcee::shape(&mut config),
            Family::Lfm2 => lfm2::shape(&mut config),
            Family::Granite | Family::GraniteHybrid => granite::shape(&mut config),
        }
        config
    }

    /// Reads a parsed `config.json` of a model that predicts tokens.
    ///
    /// # Errors
    /// Fails if the family is unknown, a size is missing or of the wrong type, the sizes do not fit together, or the
    /// model needs a computation that is not implemented.
    pub fn from_json(config: &Map<String, Value>) -> Result<Self, ConfigError> {
        Self::with_head(config, Family::language_model)
    }

    /// Reads a parsed `config.json` of a model that scores a text by a single number.
    pub(crate) fn of_classifier(config: &Map<String, Value>) -> Result<Self, ConfigError> {
        Self::with_head(config, Family::classifier)
    }

    fn with_head(
        config: &Map<String, Value>,
        architecture: fn(Family) -> String,
    ) -> Result<Self, ConfigError> {
        let fields = Fields(config);
        let config = match family_of(&fields, architecture)? {
            Family::Qwen2 => qwen2::read(&fields)?,
            Family::Qwen3 => qwen3::read(&fields)?,
            Family::Qwen3Moe => qwen3_moe::read(&fields)?,
            family @ (Family::Qwen35 | Family::Qwen35Moe | Family::Qwen3Next) => {
                qwen3_5::read(&fields, family)?
            }
            Family::Llama => llama::read(&fields)?,
            Family::Mistral => mistral::read(&fields)?,
            Family::Gemma => gemma::read(&fields)?,
            Family::Gemma3 => gemma3::read(&fields)?,
            Family::Gemma4 => gemma4::read(&fields)?,
            Family::SmolLm3 => smollm3::read(&fields)?,
            family @ (Family::Olmo2 | Family::Olmo3) => olmo::read(&fields, family)?,
            Family::Phi3 => phi3::read(&fields)?,
            Family::Qwen2Moe => qwen2_moe::read(&fields)?,
            Family::Ministral3 => ministral3::read(&fields)?,
            Family::Mixtral => mixtral::read(&fields)?,
            Family::GptOss => gpt_oss::read(&fields)?,
            Family::Olmoe => olmoe::read(&fields)?,
            Family::Glm4 => glm4::read(&fields)?,
            Family::Glm4Moe => glm4_moe::read(&fields)?,
            Family::MiniMaxM2 => minimax_m2::read(&fields)?,
            Family::Ernie45 => ernie4_5::read(&fields)?,
            Family::Exaone4 => exaone4::read(&fields)?,
            Family::HunYuan => hunyuan::read(&fields)?,
            Family::SeedOss => seed_oss::read(&fields)?,
            Family::Arcee => arcee::read(&fields)?,
            Family::Lfm2 => lfm2::read(&fields)?,
            family @ (Family::Granite | Family::GraniteHybrid) => granite::read(&fields, family)?,
        };

        config.check()?;
        Ok(config)
    }

    /// Makes the `config.json` of a new model, in a layout that transformers 4 and 5 both read. A loaded model keeps
    /// its own file.
    pub fn to_json(&self, pad: Option<u32>, eos: u32) -> Value {
        let mut fields = json!({
            "architectures": [self.family.language_model()],
            "attention_dropout": 0.0,
            "bos_token_id": null,
            "eos_token_id": eos,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.hidden_size,
            "initializer_range": 0.02,
            "intermediate_size": self.intermediate_size,
            "max_position_embeddings": self.max_position_embeddings,
            "model_type": self.family.model_type(),
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.kv_heads,
            "pad_token_id": pad,
            "rms_norm_eps": self.norm_epsilon,
            "rope_theta": self.rope.theta,
            "tie_word_embeddings": self.tied,
            "torch_dtype": "float32",
            "use_cache": true,
            "vocab_size": self.vocab_size,
        });

        let family_fields = match self.family {
            Family::Qwen2 => qwen2::write(self),
            Family::Qwen3 => qwen3::write(self),
            Family::Qwen3Moe => qwen3_moe::write(self),
            Family::Qwen35 | Family::Qwen35Moe | Family::Qwen3Next => qwen3_5::write(self),
            Family::Llama => llama::write(self),
            Family::Mistral => mistral::write(self),
            Family::Gemma => gemma::write(self),
            Family::Gemma3 => gemma3::write(self),
            Family::Gemma4 => gemma4::write(self),
            Family::SmolLm3 => smollm3::write(self),
            Family::Olmo2 | Family::Olmo3 => olmo::write(self),
            Family::Phi3 => phi3::write(self),
            Family::Qwen2Moe => qwen2_moe::write(self),
            Family::Ministral3 => ministral3::write(self),
            Family::Mixtral => mixtral::write(self),
            Family::GptOss => gpt_oss::write(self),
            Family::Olmoe => olmoe::write(self),
            Family::Glm4 => glm4::write(self),
            Family::Glm4Moe => glm4_moe::write(self),
            Family::MiniMaxM2 => minimax_m2::write(self),
            Family::Ernie45 => ernie4_5::write(self),
            Family::Exaone4 => exaone4::write(self),
            Family::HunYuan => hunyuan::write(self),
            Family::SeedOss => seed_oss::write(self),
            Family::Arcee => arcee::write(self),
            Family::Lfm2 => lfm2::write(self),
            Family::Granite | Family::GraniteHybrid => granite::write(self),
        };

        // Where the family writes the newer field, an older one would replace it.
        let has_newer = family_fields.get("rope_parameters").is_some();
        if let Some(scaling) = self.rope.scaling_to_json().filter(|_| !has_newer) {
            fields["rope_scaling"] = scaling;
        }

        // The family's own fields replace the common ones of the same name, such as the activation.
        if let (Value::Object(fields), Value::Object(family_fields)) = (&mut fields, family_fields)
        {
            fields.extend(family_fields);
            fields.sort_keys();
        }
        fields
    }
}

/// Finds the family of a model with the head that `architecture` names.
fn family_of(fields: &Fields, architecture: fn(Family) -> String) -> Result<Family, ConfigError> {
    let model_type = fields.text("model_type")?;
    let named = fields.0.get("architectures").and_then(|list| list.get(0));
    let family = Family::ALL.into_iter().find(|family| family.model_type() == model_type);

    // Old files name no architecture, and such a model may be opened as any.
    match (family, named.map(Value::as_str)) {
        (Some(family), None) => Ok(family),
        (Some(family), Some(Some(named))) if named == architecture(family) => Ok(family),
        (family, named) => Err(ConfigError::Family {
            model_type: model_type.to_owned(),
            architecture: named.flatten().unwrap_or("unknown").to_owned(),
            known: match family {
                Some(family) => architecture(family),
                None => Family::ALL.map(Family::model_type).join(", "),
            },
        }),
    }
}

/// Returns the fields that a `config.json` of `family` needs besides the sizes.
#[cfg(test)]
pub(crate) fn needed(family: Family, layers: usize) -> Value {
    match family {
        Family::Ministral3 => json!({ "rope_parameters": {
            "rope_type": "default",
            "llama_4_scaling_beta": 0.1,
            "original_max_position_embeddings": 64,
        }}),
        Family::GraniteHybrid => {
            json!({ "layer_types": vec!["attention"; layers], "num_local_experts": 0 })
        }
        Family::HunYuan => json!({ "head_dim": 2 }),
        Family::Gemma4 => json!({ "hidden_size_per_layer_input": 0 }),
        _ => json!({}),
    }
}
