use serde_json::{Map, Value};

use crate::qwen2;

/// The sizes of a decoder, whatever its family calls them.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderConfig {
    /// Which family's names the checkpoint uses.
    pub family: Family,
    /// Rows of the embedding; may exceed the tokenizer's vocabulary.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of one head; even.
    pub head_dim: usize,
    /// Width of the MLP's inner layer.
    pub intermediate_size: usize,
    /// Longest sequence the model was made for, in tokens.
    pub max_position_embeddings: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Added to the mean square in RMSNorm.
    pub norm_epsilon: f64,
    /// Whether the head is the embedding.
    pub tied: bool,
    /// Whether the q, k and v projections have biases.
    pub qkv_bias: bool,
}

impl DecoderConfig {
    /// Reads a parsed `config.json`.
    ///
    /// # Errors
    /// When the family is unknown, a size is missing or of the wrong type, or the sizes do not fit
    /// together.
    pub fn from_json(config: &Map<String, Value>) -> Result<Self, ConfigError> {
        let config = match Family::of(config)? {
            Family::Qwen2 => qwen2::read(&Fields(config))?,
        };
        config.check()?;
        Ok(config)
    }

    /// The `config.json` of a new model. A model that was loaded keeps its own file.
    pub fn to_json(&self, pad: Option<u32>, eos: u32) -> Value {
        match self.family {
            Family::Qwen2 => qwen2::write(self, pad, eos),
        }
    }

    /// Sizes that cannot work together are found here and not as a panic in the first matmul.
    ///
    /// # Errors
    /// Names the two sizes and what they would have to be.
    pub fn check(&self) -> Result<(), ConfigError> {
        let positive = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("num_hidden_layers", self.layers),
            ("num_attention_heads", self.heads),
            ("num_key_value_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("intermediate_size", self.intermediate_size),
            ("max_position_embeddings", self.max_position_embeddings),
        ];
        if let Some((name, size)) =
            positive.into_iter().find(|(_, size)| !(1..=1 << 24).contains(size))
        {
            return Err(ConfigError::Size(format!("{name} is {size}; expected 1 to 16777216")));
        }
        // The widest matrices; a file that asks for more is damaged, and would end the process.
        let largest = self.hidden_size.max(self.query_width())
            * self.vocab_size.max(2 * self.intermediate_size).max(self.query_width());
        if largest > 1 << 31 {
            return Err(ConfigError::Size(format!(
                "the sizes make a matrix of {largest} values; expected at most 2147483648"
            )));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(ConfigError::Size(format!(
                "{} attention heads cannot share {} key-value heads: the second must divide the first",
                self.heads, self.kv_heads
            )));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(ConfigError::Size(format!(
                "head_dim is {}; rotary position embedding needs an even number",
                self.head_dim
            )));
        }
        let sane = |x: f64| x.is_finite() && x > 0.0;
        if !sane(self.rope_theta) || !sane(self.norm_epsilon) {
            return Err(ConfigError::Size(format!(
                "rope_theta is {} and rms_norm_eps is {}; both must be positive numbers",
                self.rope_theta, self.norm_epsilon
            )));
        }
        Ok(())
    }

    pub(crate) fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    pub(crate) fn key_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}

/// The model families whose checkpoints can be read and written.
///
/// To add one: a file beside `qwen2.rs` with `read`, `write` and `pieces`, a variant here, and what
/// it computes differently as a field of [`DecoderConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Qwen2 and Qwen2.5: biases on q, k and v; grouped-query attention.
    Qwen2,
}

impl Family {
    fn of(config: &Map<String, Value>) -> Result<Self, ConfigError> {
        let fields = Fields(config);
        let model_type = fields.text("model_type")?;
        let architecture = config
            .get("architectures")
            .and_then(|list| list.get(0))
            .and_then(Value::as_str)
            .unwrap_or("Qwen2ForCausalLM");
        match (model_type, architecture) {
            ("qwen2", "Qwen2ForCausalLM") => Ok(Family::Qwen2),
            _ => Err(ConfigError::Family {
                model_type: model_type.to_owned(),
                architecture: architecture.to_owned(),
            }),
        }
    }

    /// The checkpoint's names for the parameter at `path`, with the rows of each: several for a
    /// fused projection, in the order in which they are joined.
    pub(crate) fn pieces(self, path: &str, config: &DecoderConfig) -> Vec<Piece> {
        match self {
            Family::Qwen2 => qwen2::pieces(path, config),
        }
    }
}

/// A checkpoint tensor that is all or part of one parameter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Piece {
    pub(crate) name: String,
    /// Size of its first dimension in the checkpoint.
    pub(crate) rows: usize,
}

/// What is wrong with a `config.json`.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No implementation reads this family.
    #[error(
        "model_type \"{model_type}\" with architecture \"{architecture}\" is not implemented; \
         this version reads Qwen2ForCausalLM (Qwen2, Qwen2.5)"
    )]
    Family {
        /// As the file says.
        model_type: String,
        /// As the file says.
        architecture: String,
    },
    /// A field is missing or has another type.
    #[error("\"{field}\" should be {expected}, but is {came}")]
    Field {
        /// Its name.
        field: String,
        /// The type it should have.
        expected: &'static str,
        /// What stands there.
        came: String,
    },
    /// Sizes that cannot work, or a feature that is not implemented.
    #[error("{0}")]
    Size(String),
}

/// Typed access to the fields of a `config.json`.
pub(crate) struct Fields<'a>(pub(crate) &'a Map<String, Value>);

impl Fields<'_> {
    pub(crate) fn size(&self, field: &str) -> Result<usize, ConfigError> {
        self.typed(field, "a whole number", |value| value.as_u64().map(|size| size as usize))
    }

    pub(crate) fn number(&self, field: &str) -> Result<f64, ConfigError> {
        self.typed(field, "a number", Value::as_f64)
    }

    pub(crate) fn text(&self, field: &str) -> Result<&str, ConfigError> {
        self.typed(field, "a text", Value::as_str)
    }

    pub(crate) fn flag(&self, field: &str) -> Result<bool, ConfigError> {
        self.typed(field, "true or false", Value::as_bool)
    }

    /// `None` when the field is absent or null, an error when it has another type.
    pub(crate) fn optional<T>(
        &self,
        field: &str,
        read: impl Fn(&Self, &str) -> Result<T, ConfigError>,
    ) -> Result<Option<T>, ConfigError> {
        match self.0.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(_) => read(self, field).map(Some),
        }
    }

    fn typed<'b, T>(
        &'b self,
        field: &str,
        expected: &'static str,
        read: impl Fn(&'b Value) -> Option<T>,
    ) -> Result<T, ConfigError> {
        let value = self.0.get(field);
        value.and_then(read).ok_or_else(|| ConfigError::Field {
            field: field.to_owned(),
            expected,
            came: value.map_or("missing".to_owned(), Value::to_string),
        })
    }
}
