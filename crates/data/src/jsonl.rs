//! Reads JSON Lines, a row at a time.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use firebrick_core::without_bom;
use serde_json::{Map, Value};

use crate::{
    DataError, Position, Row,
    folder::{self, json_error},
    number,
};

/// Limit on a line, or on a row of CSV, in bytes. A prompt has a few kilobytes. Without a limit, a file without line ends would be read
/// into memory in full.
pub(crate) const MAX_LINE: u64 = 64 << 20;

const REMEDY: &str = "every line of a JSON Lines file is one JSON object";

/// Advice for the text that Python writes for a missing number, although JSON has none.
const NAN: &str = "NaN is not valid JSON: write the number, or remove the row";

/// Reads a JSON Lines file row by row, so that a large file need not fit in memory. The file is UTF-8
/// with one object a line. Blank lines are skipped.
pub(crate) struct JsonlRows {
    path: PathBuf,
    file: Arc<Path>,
    reader: BufReader<File>,
    line: u64,
    buffer: Vec<u8>,
    failed: bool,
}

impl JsonlRows {
    /// Opens the file.
    pub(crate) fn open(path: &Path) -> Result<Self, DataError> {
        let path = path.to_owned();
        let file =
            folder::open(&path).map_err(|source| DataError::Read { path: path.clone(), source })?;

        Ok(JsonlRows {
            file: path.as_path().into(),
            path,
            reader: BufReader::new(file),
            line: 0,
            buffer: Vec::new(),
            failed: false,
        })
    }

    fn next_row(&mut self) -> Result<Option<Row>, DataError> {
        loop {
            self.buffer.clear();
            self.line += 1;

            // One byte more than the limit tells a line that is too long from one that just fits.
            let read = Read::by_ref(&mut self.reader)
                .take(MAX_LINE + 1)
                .read_until(b'\n', &mut self.buffer)
                .map_err(|source| DataError::Read { path: self.path.clone(), source })?;
            if read == 0 {
                return Ok(None);
            }
            if read as u64 > MAX_LINE {
                let path = self.path.clone();
                let line = Some(self.line);
                return Err(DataError::TooLarge { path, line, limit: MAX_LINE });
            }

            // The beginning of a file may be in the middle, where files were joined.
            let line = without_bom(&self.buffer)
                .map_err(|source| DataError::Read { path: self.path.clone(), source })?;
            // The line's end is removed, so that it isn't part of a string that is cut off.
            let line = line.trim_ascii_end();

            if line.starts_with(b"[") {
                return Err(DataError::Json {
                    path: self.path.clone(),
                    line: self.line,
                    column: 1,
                    problem: "a JSON array".into(),
                    remedy: "expected one object a line, which `jq -c '.[]'` makes of the array",
                });
            }

            if !line.is_empty() {
                // The column of an error may be after the line's last byte.
                let fields = parse(line).map_err(|(column, error)| {
                    let rest = line.get(column.saturating_sub(1) as usize..).unwrap_or_default();
                    let remedy = if rest.starts_with(b"NaN") { NAN } else { REMEDY };
                    json_error(self.path.clone(), self.line, column, &error, remedy)
                })?;
                let file = self.file.clone();
                let position = Position::Line(self.line);
                return Ok(Some(Row { file, position, fields }));
            }
        }
    }
}

impl Iterator for JsonlRows {
    type Item = Result<Row, DataError>;

    /// Returns the next row. Nothing comes after an error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }

        let row = self.next_row().transpose();
        self.failed = !matches!(row, Some(Ok(_)));
        row
    }
}

fn parse(line: &[u8]) -> Result<Map<String, Value>, (u64, serde_json::Error)> {
    number::parse(line).map_err(|error| (error.column() as u64, error))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn rows(text: &[u8]) -> Result<Vec<Row>, DataError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("set.jsonl");
        fs::write(&path, text).unwrap();
        JsonlRows::open(&path)?.collect()
    }

    fn message(text: &[u8]) -> String {
        let message = rows(text).unwrap_err().to_string();
        message[message.find("set.jsonl").unwrap()..].to_owned()
    }

    #[test]
    fn blank_lines_do_not_count_but_are_counted() {
        let rows =
            rows(b"\xef\xbb\xbf{\"a\": 1}\r\n\n  \n{\"a\": {\"b\": {\"c\": 2}}, \"d.e\": 3}")
                .unwrap();
        assert_eq!(
            rows.iter().map(|row| row.position).collect::<Vec<_>>(),
            [1, 4].map(Position::Line)
        );
        assert_eq!(rows[1].get("a.b.c"), Some(&Value::from(2)));
        assert_eq!(rows[1].get("d.e"), Some(&Value::from(3)));
        assert_eq!(rows[1].get("a.b.c.d"), None);
        assert_eq!(rows[1].columns(), ["a.b", "d.e"]);
        assert!(self::rows(b"\n\n").unwrap().is_empty());
    }

    #[test]
    fn a_broken_line_is_named() {
        assert_eq!(
            message(b"{\"a\": 1}\n\n{\"a\": }\n"),
            "set.jsonl, line 3, column 7: expected value; every line of a JSON Lines file is one \
             JSON object"
        );
        assert_eq!(
            message(b"{\"a\": \"1}\n"),
            "set.jsonl, line 1, column 9: EOF while parsing a string; every line of a JSON Lines \
             file is one JSON object"
        );

        assert!(
            message(b"\n[\n{\"a\": 1}\n]\n").starts_with(
                "set.jsonl, line 2, column 1: a JSON array; expected one object a line"
            )
        );
        assert!(message(b"{\"a\": \"\xff\"}\n").contains("invalid unicode"));
        assert_eq!(
            message(b"{\"a\": NaN}\n"),
            "set.jsonl, line 1, column 7: expected value; NaN is not valid JSON: write the number, or remove the row"
        );

        assert!(message(&b"[".repeat(100_000)).contains("line 1"));
        assert_eq!(
            message(b"\xff\xfe{\0}\0\n\0"),
            "set.jsonl: it is UTF-16 text, expected UTF-8: save it as UTF-8"
        );
    }
}
