//! Numbers in JSON, which has only finite ones, so that others become strings.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Number(f32),
    Text(String),
}

impl Written {
    fn of(number: f32) -> Self {
        match number {
            number if number.is_finite() => Written::Number(number),
            number if number.is_nan() => Written::Text("NaN".into()),
            number if number > 0.0 => Written::Text("Infinity".into()),
            _ => Written::Text("-Infinity".into()),
        }
    }

    fn read<E: serde::de::Error>(self) -> Result<f32, E> {
        match self {
            Written::Number(number) => Ok(number),
            Written::Text(text) => match text.as_str() {
                "NaN" => Ok(f32::NAN),
                "Infinity" => Ok(f32::INFINITY),
                "-Infinity" => Ok(f32::NEG_INFINITY),
                _ => Err(E::custom(format!("{text:?} is not a number"))),
            },
        }
    }
}

pub(crate) fn serialize<S: Serializer>(numbers: &[f32], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(numbers.iter().map(|&number| Written::of(number)))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f32>, D::Error> {
    Vec::<Written>::deserialize(from)?.into_iter().map(Written::read).collect()
}

/// A single number.
pub(crate) mod one {
    use super::{Deserialize, Deserializer, Serialize, Serializer, Written};

    pub(crate) fn serialize<S: Serializer>(number: &f32, to: S) -> Result<S::Ok, S::Error> {
        Written::of(*number).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f32, D::Error> {
        Written::deserialize(from)?.read()
    }
}
