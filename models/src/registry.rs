//! The registry of families: which file shapes, reads and writes the configuration of each.

use serde_json::{Map, Value, json};

use crate::{
    config::{DecoderConfig, Sizes},
    family::{self, Family},
    fields::{ConfigError, Fields},
    gemma, gemma3, llama, mistral, olmo, phi3, qwen2, qwen3, qwen3_5, qwen3_moe, smollm3,
};

impl DecoderConfig {
    /// Describes a new model of `family`, with everything that the family computes differently.
    pub fn new(family: Family, sizes: Sizes) -> Self {
        let mut config = DecoderConfig::llama_like(family, sizes);
        match family {
            Family::Qwen2 => qwen2::shape(&mut config),
            Family::Qwen3 => qwen3::shape(&mut config),
            Family::Qwen3Moe => qwen3_moe::shape(&mut config),
            Family::Qwen35 => qwen3_5::shape(&mut config),
            Family::Llama | Family::Mistral => {}
            Family::Gemma => gemma::shape(&mut config),
            Family::Gemma3 => gemma3::shape(&mut config),
            Family::SmolLm3 => smollm3::shape(&mut config),
            Family::Olmo2 | Family::Olmo3 => olmo::shape(&mut config),
            Family::Phi3 => phi3::shape(&mut config),
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
        let config = match family::of(&fields, architecture)? {
            Family::Qwen2 => qwen2::read(&fields)?,
            Family::Qwen3 => qwen3::read(&fields)?,
            Family::Qwen3Moe => qwen3_moe::read(&fields)?,
            Family::Qwen35 => qwen3_5::read(&fields)?,
            Family::Llama => llama::read(&fields)?,
            Family::Mistral => mistral::read(&fields)?,
            Family::Gemma => gemma::read(&fields)?,
            Family::Gemma3 => gemma3::read(&fields)?,
            Family::SmolLm3 => smollm3::read(&fields)?,
            family @ (Family::Olmo2 | Family::Olmo3) => olmo::read(&fields, family)?,
            Family::Phi3 => phi3::read(&fields)?,
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
            Family::Qwen35 => qwen3_5::write(self),
            Family::Llama => llama::write(self),
            Family::Mistral => mistral::write(self),
            Family::Gemma => gemma::write(self),
            Family::Gemma3 => gemma3::write(self),
            Family::SmolLm3 => smollm3::write(self),
            Family::Olmo2 | Family::Olmo3 => olmo::write(self),
            Family::Phi3 => phi3::write(self),
        };

        if let Some(scaling) = self.rope.scaling_to_json() {
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
