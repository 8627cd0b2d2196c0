use firebrick_kernels::Activation;
use serde_json::{Map, Value, json};

use crate::{gemma, llama, mistral, names, qwen2, qwen3};

/// The sizes of a decoder and what its family computes differently, whatever the family calls them.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderConfig {
    /// Whose layout `config.json` has.
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
    /// Width of one head; even. `heads · head_dim` need not be `hidden_size`.
    pub head_dim: usize,
    /// Width of the MLP's inner layer.
    pub intermediate_size: usize,
    /// Longest sequence the model was made for, in tokens.
    pub max_position_embeddings: usize,
    /// The frequencies of the rotary position embedding.
    pub rope: Rope,
    /// Added to the mean square in RMSNorm.
    pub norm_epsilon: f64,
    /// Added to a norm's weight before it multiplies: 1 in Gemma, whose weights are kept around 0.
    pub norm_offset: f64,
    /// Multiplies the embedding: √hidden_size in Gemma, else 1.
    pub embedding_scale: f64,
    /// The activation of the MLP's gate.
    pub activation: Activation,
    /// Which projections have biases.
    pub biases: Biases,
    /// Whether each query and key head is normalised before it is turned.
    pub qk_norm: bool,
    /// For each layer, how many positions a query sees, its own included; `None` is all before it.
    pub windows: Vec<Option<usize>>,
    /// Whether the head is the embedding.
    pub tied: bool,
}

/// The frequencies of a rotary position embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Their base: pair `i` of a head turns by `theta^(−2i / head_dim)` per position.
    pub theta: f64,
    /// How they were changed for a longer context.
    pub scaling: Option<RopeScaling>,
}

impl Rope {
    /// How far each pair of a head's numbers turns per position: `theta^(−2i / head_dim)`, scaled.
    pub(crate) fn frequencies(&self, head_dim: usize) -> Vec<f32> {
        let exponent = |pair: usize| -2.0 * pair as f64 / head_dim as f64;
        (0..head_dim / 2).map(|pair| self.frequency(exponent(pair)) as f32).collect()
    }

    fn frequency(&self, exponent: f64) -> f64 {
        let frequency = self.theta.powf(exponent);
        let Some(scaling) = &self.scaling else { return frequency };
        let context = scaling.original_max_position_embeddings as f64;
        let turns = context * frequency / std::f64::consts::TAU;
        let (low, high) = (scaling.low_freq_factor, scaling.high_freq_factor);
        let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
        frequency * (kept + (1.0 - kept) / scaling.factor)
    }
}

/// Llama 3.1's scaling of the frequencies: those that turn at most `low_freq_factor` times within the
/// original context are divided by `factor`, those that turn more than `high_freq_factor` times stay,
/// and between the two one passes into the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeScaling {
    /// Divides the low frequencies.
    pub factor: f64,
    /// Turns within the original context, up to which a frequency is low.
    pub low_freq_factor: f64,
    /// Turns within the original context, from which a frequency is high; above `low_freq_factor`.
    pub high_freq_factor: f64,
    /// The context before scaling, in tokens.
    pub original_max_position_embeddings: usize,
}

/// Which projections add a bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Biases {
    /// Queries, keys and values.
    pub qkv: bool,
    /// The attention's output.
    pub output: bool,
    /// Gate, up and down.
    pub mlp: bool,
}

/// The sizes that a new model is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// See [`DecoderConfig::vocab_size`].
    pub vocab_size: usize,
    /// See [`DecoderConfig::hidden_size`].
    pub hidden_size: usize,
    /// See [`DecoderConfig::layers`].
    pub layers: usize,
    /// See [`DecoderConfig::heads`].
    pub heads: usize,
    /// See [`DecoderConfig::kv_heads`].
    pub kv_heads: usize,
    /// See [`DecoderConfig::head_dim`].
    pub head_dim: usize,
    /// See [`DecoderConfig::intermediate_size`].
    pub intermediate_size: usize,
    /// See [`DecoderConfig::max_position_embeddings`].
    pub max_position_embeddings: usize,
    /// See [`Rope::theta`].
    pub rope_theta: f64,
    /// See [`DecoderConfig::tied`].
    pub tied: bool,
}

impl DecoderConfig {
    /// A new model of `family`, with what the family computes differently.
    pub fn new(family: Family, sizes: Sizes) -> Self {
        let mut config = DecoderConfig {
            family,
            vocab_size: sizes.vocab_size,
            hidden_size: sizes.hidden_size,
            layers: sizes.layers,
            heads: sizes.heads,
            kv_heads: sizes.kv_heads,
            head_dim: sizes.head_dim,
            intermediate_size: sizes.intermediate_size,
            max_position_embeddings: sizes.max_position_embeddings,
            rope: Rope { theta: sizes.rope_theta, scaling: None },
            norm_epsilon: 1e-6,
            norm_offset: 0.0,
            embedding_scale: 1.0,
            activation: Activation::Silu,
            biases: Biases::default(),
            qk_norm: false,
            windows: vec![None; sizes.layers],
            tied: sizes.tied,
        };
        match family {
            Family::Qwen2 => qwen2::shape(&mut config),
            Family::Qwen3 => qwen3::shape(&mut config),
            Family::Llama | Family::Mistral => {}
            Family::Gemma => gemma::shape(&mut config),
        }
        config
    }

    /// Reads a parsed `config.json` of a model that predicts tokens.
    ///
    /// # Errors
    /// When the family is unknown, a size is missing or of the wrong type, the sizes do not fit
    /// together, or the model computes what is not implemented.
    pub fn from_json(config: &Map<String, Value>) -> Result<Self, ConfigError> {
        Self::with_head(config, Family::language_model)
    }

    /// The same of a model that gives a whole text one score.
    pub(crate) fn of_classifier(config: &Map<String, Value>) -> Result<Self, ConfigError> {
        Self::with_head(config, Family::classifier)
    }

    fn with_head(
        config: &Map<String, Value>,
        architecture: fn(Family) -> String,
    ) -> Result<Self, ConfigError> {
        let fields = Fields(config);
        let config = match Family::of(&fields, architecture)? {
            Family::Qwen2 => qwen2::read(&fields)?,
            Family::Qwen3 => qwen3::read(&fields)?,
            Family::Llama => llama::read(&fields)?,
            Family::Mistral => mistral::read(&fields)?,
            Family::Gemma => gemma::read(&fields)?,
        };
        config.check()?;
        Ok(config)
    }

    /// The `config.json` of a new model, in the layout that transformers 4 and 5 both read. A model
    /// that was loaded keeps its own file.
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
        let own = match self.family {
            Family::Qwen2 => qwen2::write(self),
            Family::Qwen3 => qwen3::write(self),
            Family::Llama => llama::write(self),
            Family::Mistral => mistral::write(self),
            Family::Gemma => gemma::write(self),
        };
        if let (Value::Object(fields), Value::Object(own)) = (&mut fields, own) {
            fields.extend(own);
            fields.sort_keys();
        }
        fields
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
        let query = self.heads as u128 * self.head_dim as u128;
        let widest = [self.vocab_size, 2 * self.intermediate_size].map(|width| width as u128);
        let largest =
            query.max(self.hidden_size as u128) * widest.into_iter().fold(query, u128::max);
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
        if !sane(self.rope.theta) || !sane(self.norm_epsilon) {
            return Err(ConfigError::Size(format!(
                "rope_theta is {} and rms_norm_eps is {}; both must be positive numbers",
                self.rope.theta, self.norm_epsilon
            )));
        }
        if let Some(scaling) = self.rope.scaling
            && !(sane(scaling.factor)
                && sane(scaling.low_freq_factor)
                && scaling.high_freq_factor.is_finite()
                && scaling.high_freq_factor > scaling.low_freq_factor
                && scaling.original_max_position_embeddings > 0)
        {
            return Err(ConfigError::Size(format!(
                "the rope scaling {scaling:?} makes no frequencies: all four must be positive and \
                 high_freq_factor above low_freq_factor"
            )));
        }
        let different = |window: &usize| self.window().is_some_and(|first| first != *window);
        if self.windows.len() != self.layers || self.windows.iter().flatten().any(different) {
            return Err(ConfigError::Size("layers have windows of different sizes".into()));
        }
        if self.windows.contains(&Some(0)) {
            return Err(ConfigError::Size(
                "sliding_window is 0; a query sees at least its own position".into(),
            ));
        }
        Ok(())
    }

    /// The window of those layers that have one.
    pub(crate) fn window(&self) -> Option<usize> {
        self.windows.iter().copied().flatten().next()
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
/// To add one: a file beside `llama.rs` with `read` and `write`, a variant here, and what it computes
/// differently as a field of [`DecoderConfig`]. The book's page on it goes through it step by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Qwen2 and Qwen2.5.
    Qwen2,
    /// Qwen3, the dense models.
    Qwen3,
    /// Llama 2, 3, 3.1, 3.2 and 3.3, the text models.
    Llama,
    /// Mistral 7B and what has its form.
    Mistral,
    /// Gemma, the first generation.
    Gemma,
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 5] =
        [Family::Qwen2, Family::Qwen3, Family::Llama, Family::Mistral, Family::Gemma];

    /// The `model_type` of its `config.json`.
    pub fn model_type(self) -> &'static str {
        match self {
            Family::Qwen2 => "qwen2",
            Family::Qwen3 => "qwen3",
            Family::Llama => "llama",
            Family::Mistral => "mistral",
            Family::Gemma => "gemma",
        }
    }

    /// What transformers calls its language model.
    pub fn language_model(self) -> String {
        format!("{}ForCausalLM", self.class())
    }

    /// What transformers calls the model that scores a text.
    pub fn classifier(self) -> String {
        format!("{}ForSequenceClassification", self.class())
    }

    fn class(self) -> &'static str {
        match self {
            Family::Qwen2 => "Qwen2",
            Family::Qwen3 => "Qwen3",
            Family::Llama => "Llama",
            Family::Mistral => "Mistral",
            Family::Gemma => "Gemma",
        }
    }

    fn of(fields: &Fields, architecture: fn(Family) -> String) -> Result<Self, ConfigError> {
        let model_type = fields.text("model_type")?;
        let named = fields.0.get("architectures").and_then(|list| list.get(0));
        let family = Family::ALL.into_iter().find(|family| family.model_type() == model_type);
        // Old files do not name one; then the model is what it is opened as.
        match (family, named.map(Value::as_str)) {
            (Some(family), None) => Ok(family),
            (Some(family), Some(Some(named))) if named == architecture(family) => Ok(family),
            (_, named) => Err(ConfigError::Family {
                model_type: model_type.to_owned(),
                architecture: named.flatten().unwrap_or("unknown").to_owned(),
                known: Family::ALL.map(architecture).join(", "),
            }),
        }
    }

    /// The checkpoint's names for the parameter at `path`, with the rows of each: several for a
    /// fused projection, in the order in which they are joined. All families so far agree on them.
    pub(crate) fn pieces(self, path: &str, config: &DecoderConfig) -> Vec<Piece> {
        names::pieces(path, config)
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
        "model_type \"{model_type}\" with architecture \"{architecture}\" cannot be used here, \
         where one of these is expected: {known}"
    )]
    Family {
        /// As the file says.
        model_type: String,
        /// As the file says.
        architecture: String,
        /// What can be read.
        known: String,
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

    pub(crate) fn size_or(&self, field: &str, default: usize) -> Result<usize, ConfigError> {
        Ok(self.optional(field, Self::size)?.unwrap_or(default))
    }

    pub(crate) fn number_or(&self, field: &str, default: f64) -> Result<f64, ConfigError> {
        Ok(self.optional(field, Self::number)?.unwrap_or(default))
    }

    pub(crate) fn flag_or(&self, field: &str, default: bool) -> Result<bool, ConfigError> {
        Ok(self.optional(field, Self::flag)?.unwrap_or(default))
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
