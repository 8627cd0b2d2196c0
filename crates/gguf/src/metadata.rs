//! Metadata of a GGUF file: the facts that it states about its model, by key. Numbers and texts are kept here,
//! while arrays stay in the file.

use std::collections::BTreeMap;

use crate::{GgufError, cursor::Cursor, error::quoted};

/// Limit on the keys of a file. Files of models have some fifty.
const KEYS: u64 = 4096;

/// Limit of the format on a key, in bytes.
const KEY: u64 = 65_535;

/// Limit on all keys and texts together, in bytes. The longest chat templates have some 20 kB.
const TEXTS: u64 = 8 << 20;

/// Values by their keys.
#[derive(Debug, Default)]
pub(crate) struct Metadata(BTreeMap<String, Value>);

/// Value of a key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    Array(Array),
}

/// Where an array is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Array {
    /// Type of the elements, as the format numbers it.
    pub(crate) kind: u32,
    pub(crate) count: u64,
    /// Offset of the first element, in bytes.
    pub(crate) at: u64,
}

/// Number of the type of texts in the format.
pub(crate) const TEXT: u32 = 8;

/// Number of the type of arrays.
pub(crate) const ARRAY: u32 = 9;

impl Metadata {
    /// Reads `count` pairs of key and value.
    pub(crate) fn read(cursor: &mut Cursor<'_>, count: u64) -> Result<Self, GgufError> {
        if count > KEYS {
            let problem = format!("the file claims {count} keys, expected at most {KEYS}");
            return Err(cursor.damaged(16, problem));
        }

        let mut values = BTreeMap::new();
        let mut room = TEXTS;
        for _ in 0..count {
            let start = cursor.position();
            let key = cursor.text(KEY.min(room), "a key")?;
            // All keys and texts share one limit, so many small ones can't fill the memory either.
            room -= key.len() as u64;
            let value = Value::read(cursor, &quoted(&key), &mut room)?;
            if values.insert(key.clone(), value).is_some() {
                let problem = format!("the key {} occurs twice", quoted(&key));
                return Err(cursor.damaged(start, problem));
            }
        }

        Ok(Metadata(values))
    }

    /// Sets the value of a key of a new file.
    pub(crate) fn set(&mut self, key: &str, value: Value) {
        self.0.insert(key.to_owned(), value);
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// Returns a text. The error says in words what the value is instead.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(other) => Err(unlike(key, "a text", other)),
        }
    }

    /// Returns a whole number, from 0.
    pub(crate) fn count(&self, key: &str) -> Result<Option<u64>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Unsigned(number)) => Ok(Some(*number)),
            Some(Value::Signed(number)) if *number >= 0 => Ok(Some(number.unsigned_abs())),
            Some(other) => Err(unlike(key, "a whole number from 0", other)),
        }
    }

    /// Returns a finite number.
    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Float(number)) if number.is_finite() => Ok(Some(*number)),
            Some(Value::Unsigned(number)) => Ok(Some(*number as f64)),
            Some(Value::Signed(number)) => Ok(Some(*number as f64)),
            Some(other) => Err(unlike(key, "a number", other)),
        }
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(unlike(key, "true or false", other)),
        }
    }

    pub(crate) fn array(&self, key: &str) -> Result<Option<Array>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(array)) => Ok(Some(*array)),
            Some(other) => Err(unlike(key, "an array", other)),
        }
    }
}

impl Value {
    /// Reads the value of `key`, which is quoted for messages.
    fn read(cursor: &mut Cursor<'_>, key: &str, room: &mut u64) -> Result<Self, GgufError> {
        let start = cursor.position();
        let kind = cursor.u32()?;
        Ok(match kind {
            0 => Value::Unsigned(u8::from_le_bytes(cursor.bytes()?).into()),
            1 => Value::Signed(i8::from_le_bytes(cursor.bytes()?).into()),
            2 => Value::Unsigned(u16::from_le_bytes(cursor.bytes()?).into()),
            3 => Value::Signed(i16::from_le_bytes(cursor.bytes()?).into()),
            4 => Value::Unsigned(cursor.u32()?.into()),
            5 => Value::Signed(i32::from_le_bytes(cursor.bytes()?).into()),

            // The number is taken by its shortest decimal: 1e-5 and not 9.999999747378752e-06.
            6 => Value::Float(decimal(f32::from_le_bytes(cursor.bytes()?))),
            7 => match cursor.bytes()? {
                [flag @ (0 | 1)] => Value::Bool(flag == 1),
                [other] => {
                    let problem = format!("{key} should be 0 or 1, but is {other}");
                    return Err(cursor.damaged(start, problem));
                }
            },

            TEXT => {
                let text = cursor.text(*room, &format!("the text of {key}"))?;
                *room -= text.len() as u64;
                Value::Text(text)
            }
            ARRAY => Value::Array(Array::read(cursor, key)?),
            10 => Value::Unsigned(cursor.u64()?),
            11 => Value::Signed(i64::from_le_bytes(cursor.bytes()?)),
            12 => Value::Float(f64::from_le_bytes(cursor.bytes()?)),

            other => {
                let problem = format!("{key} has the type {other}, expected 0 to 12");
                return Err(cursor.damaged(start, problem));
            }
        })
    }
}

impl Array {
    /// Notes where an array's elements are, and skips them.
    fn read(cursor: &mut Cursor<'_>, key: &str) -> Result<Self, GgufError> {
        let start = cursor.position();
        let kind = cursor.u32()?;
        let count = cursor.u64()?;
        let array = Array { kind, count, at: cursor.position() };

        // Each element takes at least a byte.
        if count > cursor.remaining() {
            let problem = format!("{key} would have {count} elements, beyond the file's end");
            return Err(cursor.damaged(start, problem));
        }

        match kind {
            TEXT => {
                for _ in 0..count {
                    let length = cursor.u64()?;
                    cursor.skip(length)?;
                }
            }
            _ => {
                let Some(size) = size(kind) else {
                    let problem =
                        format!("{key} is an array of the type {kind}, which is not supported");
                    return Err(cursor.unread(start, problem));
                };
                let Some(bytes) = count.checked_mul(size) else {
                    let problem =
                        format!("{key} would have {count} elements, beyond the file's end");
                    return Err(cursor.damaged(start, problem));
                };
                cursor.skip(bytes)?;
            }
        }

        Ok(array)
    }
}

/// Returns the number of bytes of a number of that type. `None` if the type is not a number.
pub(crate) fn size(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

/// Returns the shortest decimal that distinguishes the number from its neighbours in f32.
pub(crate) fn decimal(number: f32) -> f64 {
    // The decimal of an f32 always parses.
    number.to_string().parse().unwrap_or(f64::from(number))
}

fn unlike(key: &str, expected: &str, actual: &Value) -> String {
    let actual = match actual {
        Value::Unsigned(number) => number.to_string(),
        Value::Signed(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::Text(_) => "a text".into(),
        Value::Array(array) => format!("an array of {} elements", array.count),
    };
    format!("{key:?} should be {expected}, but is {actual}")
}
