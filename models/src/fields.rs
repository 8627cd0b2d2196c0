//! Typed access to the fields of a `config.json`, and the error of a file that cannot be read.

use serde_json::{Map, Value};

/// Typed access to the fields of a `config.json`.
pub(crate) struct Fields<'a>(pub(crate) &'a Map<String, Value>);

impl Fields<'_> {
    pub(crate) fn size(&self, field: &str) -> Result<usize, ConfigError> {
        self.typed(field, "a whole number", |value| value.as_u64().map(|size| size as usize))
    }

    /// Reads a number that is one in float32 as well, in which models compute: 1e300 would be infinite there.
    pub(crate) fn number(&self, field: &str) -> Result<f64, ConfigError> {
        let expected = "a number that float32 can hold, 0 or from 1.2e-38 to 3.4e38 in size";
        self.typed(field, "a number", Value::as_f64)?;
        self.typed(field, expected, |value| value.as_f64().filter(|number| is_in_float32(*number)))
    }

    pub(crate) fn text(&self, field: &str) -> Result<&str, ConfigError> {
        self.typed(field, "a text", Value::as_str)
    }

    pub(crate) fn flag(&self, field: &str) -> Result<bool, ConfigError> {
        self.typed(field, "true or false", Value::as_bool)
    }

    pub(crate) fn size_or(&self, field: &str, default: usize) -> Result<usize, ConfigError> {
        self.or(field, default, Self::size)
    }

    pub(crate) fn number_or(&self, field: &str, default: f64) -> Result<f64, ConfigError> {
        self.or(field, default, Self::number)
    }

    pub(crate) fn flag_or(&self, field: &str, default: bool) -> Result<bool, ConfigError> {
        self.or(field, default, Self::flag)
    }

    /// Reads a field that counts steps, such as every fourth layer: 1 or more.
    pub(crate) fn interval_or(&self, field: &str, default: usize) -> Result<usize, ConfigError> {
        match self.size_or(field, default)? {
            0 => Err(ConfigError::Field {
                field: field.to_owned(),
                expected: "a number of layers from 1",
                actual: "0".into(),
            }),
            every => Ok(every),
        }
    }

    /// Reads a field, or takes `default` if there is none. As in transformers, a null is an error, because it says that
    /// there is no value, while the default would be one.
    fn or<T>(
        &self,
        field: &str,
        default: T,
        read: impl Fn(&Self, &str) -> Result<T, ConfigError>,
    ) -> Result<T, ConfigError> {
        if self.0.contains_key(field) { read(self, field) } else { Ok(default) }
    }

    /// Reads a field. Returns `None` if it is absent or null, and an error if it has another type.
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
            actual: value.map_or("missing".to_owned(), Value::to_string),
        })
    }
}

/// An error in a `config.json`.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No implementation reads this family.
    #[error(
        "model_type \"{model_type}\" with architecture \"{architecture}\" cannot be used here, \
         where one of these is expected:\n{known}"
    )]
    Family {
        /// Model type in the file.
        model_type: String,
        /// Architecture in the file.
        architecture: String,
        /// Model types that can be read, or the architecture of that model type.
        known: String,
    },
    /// A field is missing or has another type.
    #[error("\"{field}\" should be {expected}, but is {actual}")]
    Field {
        /// Name of the field.
        field: String,
        /// What it should be.
        expected: &'static str,
        /// What is in the file.
        actual: String,
    },
    /// Sizes that cannot work, or a feature that is not implemented.
    #[error("{0}")]
    Size(String),
}

/// Makes the error that refuses a feature by name. Otherwise a checkpoint that needs more than is computed here would
/// load, and its logits would be wrong.
pub(crate) fn not_implemented(what: &str) -> ConfigError {
    ConfigError::Size(format!("{what} is not implemented; use a checkpoint without it"))
}

/// Tells whether a number is neither infinite in float32 nor becomes 0 there.
pub(crate) fn is_in_float32(number: f64) -> bool {
    number == 0.0 || (number as f32).is_normal()
}
