//! Arrays in the metadata of a GGUF file, read when they are asked for.

use crate::{
    GgufError,
    cursor::Cursor,
    file::Gguf,
    metadata::{Array, TEXT},
};

/// Limit on the elements of an array. The largest vocabularies have some 260,000 tokens, and twice as
/// many merges.
const ELEMENTS: u64 = 1 << 20;

/// Limit on an array's texts, in bytes.
const TEXTS: u64 = 24 << 20;

impl Gguf {
    /// Reads the texts of an array. The list is empty if there is no such key.
    pub(crate) fn texts(&self, key: &str) -> Result<Vec<String>, GgufError> {
        let mut texts = Vec::new();
        self.each_text(key, |text| {
            texts.push(text);
            Ok(())
        })?;
        Ok(texts)
    }

    /// Passes the texts of an array to `take` one by one, so that a million of them need not be kept.
    pub(crate) fn each_text(
        &self,
        key: &str,
        mut take: impl FnMut(String) -> Result<(), GgufError>,
    ) -> Result<(), GgufError> {
        let Some(array) = self.array(key)? else { return Ok(()) };
        let mut cursor = self.cursor(array.at)?;
        if array.kind != TEXT {
            return Err(self.model(format!("{key:?} should be an array of texts")));
        }

        let what = format!("a text of {key:?}");
        let mut room = TEXTS;
        for _ in 0..array.count {
            let text = cursor.text(room, &what)?;
            room -= text.len() as u64;
            take(text)?;
        }
        Ok(())
    }

    /// Reads the numbers of an array. `None` if there is no such key.
    pub(crate) fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>, GgufError> {
        let Some(array) = self.array(key)? else { return Ok(None) };
        let mut cursor = self.cursor(array.at)?;
        let numbers = (0..array.count).map(|_| number(&mut cursor, array.kind, key));
        numbers.collect::<Result<_, _>>().map(Some)
    }

    fn array(&self, key: &str) -> Result<Option<Array>, GgufError> {
        let array = self.metadata().array(key).map_err(|problem| self.model(problem))?;
        match array {
            Some(array) if array.count > ELEMENTS => {
                let count = array.count;
                Err(self
                    .model(format!("{key:?} has {count} elements, expected at most {ELEMENTS}")))
            }
            array => Ok(array),
        }
    }
}

fn number(cursor: &mut Cursor<'_>, kind: u32, key: &str) -> Result<f64, GgufError> {
    let start = cursor.position();
    Ok(match kind {
        0 | 7 => u8::from_le_bytes(cursor.bytes()?).into(),
        1 => i8::from_le_bytes(cursor.bytes()?).into(),
        2 => u16::from_le_bytes(cursor.bytes()?).into(),
        3 => i16::from_le_bytes(cursor.bytes()?).into(),
        4 => cursor.u32()?.into(),
        5 => i32::from_le_bytes(cursor.bytes()?).into(),
        6 => f32::from_le_bytes(cursor.bytes()?).into(),
        12 => f64::from_le_bytes(cursor.bytes()?),
        _ => return Err(cursor.damaged(start, format!("{key:?} should be an array of numbers"))),
    })
}
