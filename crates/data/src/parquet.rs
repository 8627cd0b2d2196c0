//! Reads Parquet, a row at a time, and survives damaged files.

mod footer;
mod pages;

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
};

use parquet::{
    errors::ParquetError,
    file::metadata::{ParquetMetaData, ParquetMetaDataReader},
    record::{Field, reader::RowIter},
};
use serde_json::{Map, Value};

use crate::{DataError, Position, Row, folder, number};

/// Reads a Parquet file row by row, as the lines of a JSON Lines file would give the rows:
/// lists and structs nested, dates as texts.
pub(crate) struct ParquetRows {
    path: PathBuf,
    file: Arc<Path>,
    rows: RowIter<'static>,
    row: u64,
    failed: bool,
}

impl ParquetRows {
    /// Opens the file and reads its footer.
    pub(crate) fn open(path: &Path) -> Result<Self, DataError> {
        let read = |source| DataError::Read { path: path.to_owned(), source };
        let damaged = |problem| DataError::Parquet { path: path.to_owned(), row: None, problem };

        let mut file = folder::open(path).map_err(read)?;
        let size = file.metadata().map_err(read)?.len();
        let metadata = footer::read(&mut file, size)
            .and_then(|footer| guarded(|| ParquetMetaDataReader::decode_metadata(&footer)));
        let metadata = metadata.map_err(|problem| {
            damaged(format!(
                "it is not a Parquet file, or it is damaged: {problem}; download it again"
            ))
        })?;

        check(&metadata, size).map_err(damaged)?;
        let rows =
            guarded(|| Ok(RowIter::from_file_into(Box::new(pages::Pages::new(file, metadata)))));
        let rows = rows.map_err(damaged)?;

        Ok(ParquetRows { path: path.to_owned(), file: path.into(), rows, row: 0, failed: false })
    }
}

impl Iterator for ParquetRows {
    type Item = Result<Row, DataError>;

    /// Returns the next row. Nothing comes after an error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }

        match guarded(|| self.rows.next().transpose()) {
            Ok(None) => None,
            Ok(Some(row)) => {
                self.row += 1;
                let fields = row.get_column_iter().map(|(name, field)| (name.clone(), json(field)));
                let file = self.file.clone();
                let position = Position::Row(self.row);
                Some(Ok(Row { file, position, fields: fields.collect() }))
            }
            Err(problem) => {
                self.failed = true;
                // `row` counts the rows that were read, so the broken one comes next.
                let row = Some(self.row + 1);
                Some(Err(DataError::Parquet { path: self.path.clone(), row, problem }))
            }
        }
    }
}

/// Runs the reader and turns its panics into errors. The reader often takes the claims of a file's footer and page
/// headers at their word, and a damaged file may claim anything. An overflow of the stack, or memory that is not
/// available, does not panic. The limits in `footer` and `pages` prevent those.
fn guarded<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, String> {
    let words = |panic: Box<dyn Any + Send>| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&str>().copied().unwrap_or_default().to_owned(),
    };

    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(ParquetError::General(problem) | ParquetError::NYI(problem))) => Err(problem),
        Ok(Err(error)) => Err(error.to_string()),
        Err(panic) => Err(format!("the file contradicts itself ({})", words(panic))),
    }
}

/// Checks that every column's pages lie inside the file, because the reader makes room for them as the footer says
/// before it reads.
fn check(metadata: &ParquetMetaData, size: u64) -> Result<(), String> {
    for column in metadata.row_groups().iter().flat_map(|group| group.columns()) {
        let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        // A negative offset, or a sum beyond 64 bits, lies outside the file too.
        let end = u64::try_from(start).ok().zip(u64::try_from(column.compressed_size()).ok());
        let end = end.and_then(|(start, length)| start.checked_add(length));

        if end.is_none_or(|end| end > size) {
            let name = column.column_path();
            return Err(format!("its column {name} would end beyond the file: download it again"));
        }

        pages::check_codec(column.compression())?;
    }
    Ok(())
}

/// Turns a value into JSON. Bytes that are text become text, because some programs write strings without saying
/// that they are. A float of 32 bits gets only the digits that distinguish it from its neighbours: 0.1 instead of
/// 0.10000000149011612.
fn json(field: &Field) -> Value {
    match field {
        Field::Bytes(bytes) => {
            std::str::from_utf8(bytes.data()).map_or(Value::Null, |text| text.into())
        }
        Field::Group(row) => {
            let fields = row.get_column_iter().map(|(name, field)| (name.clone(), json(field)));
            Value::Object(fields.collect::<Map<String, Value>>())
        }

        Field::ListInternal(list) => list.elements().iter().map(json).collect(),
        Field::Float(float) if float.is_finite() => number::of(&format!("{float:?}")),
        // A column of decimals gives all its numbers the same digits after the point: 8.00 for 8.
        decimal @ Field::Decimal(_) => match decimal.to_json_value() {
            Value::String(text) => number::of(&number::plain(&text)),
            other => other,
        },

        Field::MapInternal(map) => {
            // JSON has texts as keys, so any other key is written out.
            let entries = map.entries().iter().map(|(key, value)| {
                let key = match json(key) {
                    Value::String(text) => text,
                    other => number::to_json(&other),
                };
                (key, json(value))
            });
            Value::Object(entries.collect())
        }
        other => other.to_json_value(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Returns the path of six rows in verl's layout, written by pyarrow with each of the codecs.
    fn fixture(codec: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/parquet/{codec}.parquet"))
    }

    fn rows(path: &Path) -> Result<Vec<Row>, DataError> {
        ParquetRows::open(path)?.collect()
    }

    #[test]
    fn every_codec_gives_the_rows_that_were_written() {
        let expected = crate::jsonl::JsonlRows::open(&fixture("plain").with_extension("jsonl"));
        let expected: Vec<Row> = expected.unwrap().map(Result::unwrap).collect();
        assert_eq!(expected.len(), 6);

        for codec in ["none", "snappy", "gzip", "brotli", "lz4", "zstd", "zstd-v2"] {
            let rows = rows(&fixture(codec)).unwrap();
            let fields =
                |rows: &[Row]| rows.iter().map(|row| row.fields.clone()).collect::<Vec<_>>();
            assert_eq!(fields(&rows), fields(&expected), "{codec}");
            assert_eq!(rows[5].position.to_string(), "row 6");
        }
    }

    #[test]
    fn a_number_is_written_as_its_column_means_it() {
        use parquet::data_type::Decimal;

        let decimal = |digits: i32, scale| Field::Decimal(Decimal::from_i32(digits, 9, scale));
        for (field, expected) in [
            (Field::Double(8.0), "8"),
            (Field::Double(0.1), "0.1"),
            (Field::Double(1e16), "10000000000000000"),
            (Field::Float(0.1), "0.1"),
            (Field::Float(8.0), "8"),
            (Field::Long(i64::MIN), "-9223372036854775808"),
            (Field::ULong(u64::MAX), "18446744073709551615"),
            (decimal(31, 0), "31"),
            (decimal(800, 2), "8"),
            (decimal(-250, 2), "-2.5"),
            (decimal(5, 2), "0.05"),
            (decimal(0, 2), "0"),
        ] {
            let value = json(&field);
            let spelt = number::spelt(&value).unwrap_or_else(|| panic!("{value}"));
            assert_eq!(number::plain(&spelt), expected, "{field:?}");
        }

        assert_eq!(json(&Field::Double(f64::NAN)), Value::Null);

        let digits = 10_i128.pow(31) + 31;
        let bytes = digits.to_be_bytes().to_vec();
        let long = Field::Decimal(Decimal::from_bytes(bytes.into(), 38, 0));
        assert_eq!(number::spelt(&json(&long)).unwrap(), digits.to_string());
    }

    /// Changes every byte of small files in turn, which gives rows or an error, but never a panic. Files that are
    /// made to do harm are tested next to the limits, in `footer` and `pages`.
    #[test]
    fn damaged_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("damaged.parquet");
        let mut refused = 0;

        for codec in ["none", "snappy", "zstd"] {
            let whole = fs::read(fixture(codec)).unwrap();
            for at in 0..whole.len() {
                let mut bytes = whole.clone();
                bytes[at] ^= 0xff;
                fs::write(&path, &bytes).unwrap();
                refused += usize::from(rows(&path).is_err());
            }

            fs::write(&path, &whole[..whole.len() / 2]).unwrap();
            let error = rows(&path).unwrap_err().to_string();
            assert!(error.contains("it is not a Parquet file, or it is damaged"), "{error}");
        }

        assert!(refused > 100, "{refused}");
    }
}
