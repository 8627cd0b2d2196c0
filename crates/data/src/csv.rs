//! Reads CSV and TSV, a row at a time.
//!
//! The parser is that of the crate `csv`, whose own reader has no limit on a row and takes the rest of a file for a
//! field if a quote is never closed.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, BufRead, BufReader},
    path::Path,
    sync::Arc,
};

use csv_core::{ReadFieldResult, Reader, ReaderBuilder};
use firebrick_core::without_bom;
use serde_json::Value;

use crate::{DataError, Position, Row, folder, jsonl::MAX_LINE};

/// Limit on the header, in bytes. Every row carries the names of its columns, so a header as long as a row may be
/// would make a file of short rows slow.
const MAX_HEADER: u64 = 1 << 20;

/// Bytes that are parsed at a time.
const CHUNK: usize = 512;

/// Returns the separator of a file's fields, by the ending of its name. `None` if it is neither CSV nor TSV.
pub(crate) fn separator(path: &Path) -> Option<u8> {
    match path.extension()?.to_ascii_lowercase().to_str()? {
        "csv" => Some(b','),
        "tsv" => Some(b'\t'),
        _ => None,
    }
}

/// Returns the separator that the header has. Where numbers have a decimal comma, spreadsheets separate the fields of a
/// CSV file by semicolons, and some write tabs.
fn separator_within(text: &[u8], by_ending: u8) -> u8 {
    let mut lines = text.split(|byte| *byte == b'\n');
    let header = lines.find(|line| !line.trim_ascii().is_empty()).unwrap_or_default();
    let others = [b';', b'\t'].into_iter().filter(|byte| header.contains(byte));
    match others.collect::<Vec<_>>().as_slice() {
        [only] if by_ending == b',' && !header.contains(&by_ending) => *only,
        _ => by_ending,
    }
}

/// Reads a file of separated values row by row, as RFC 4180 describes it. The file is UTF-8, and its first line names
/// the columns. A field is a text, or null if it is empty. Blank lines are skipped.
pub(crate) struct CsvRows {
    file: Arc<Path>,
    reader: BufReader<File>,
    separator: u8,
    parser: Reader,
    /// Names of the columns. A column without a name is left out: programs that number their rows leave the name of
    /// the number empty.
    columns: Vec<String>,
    /// The field that was read last.
    field: Field,
    /// Bytes that the current row may still have.
    room: u64,
    failed: bool,
}

/// A field as it stands in the file, with the separator behind it, and its text.
#[derive(Default)]
struct Field {
    raw: Vec<u8>,
    text: Vec<u8>,
    /// Line on which it begins.
    line: u64,
    ends_row: bool,
}

/// Fields of a row, as far as they have columns.
struct Record {
    /// Line on which it begins.
    line: u64,
    fields: Vec<String>,
    /// Number of fields, those without a column included.
    count: usize,
}

impl CsvRows {
    /// Opens the file and reads its header.
    pub(crate) fn open(path: &Path, separator: u8) -> Result<Self, DataError> {
        let read = |source| DataError::Read { path: path.to_owned(), source };
        let mut reader = BufReader::new(folder::open(path).map_err(read)?);

        let start = fill(&mut reader).map_err(read)?;
        let text = without_bom(start).map_err(read)?;
        let mark = start.len() - text.len();
        let separator = separator_within(text, separator);
        reader.consume(mark);

        let mut rows = CsvRows {
            file: path.into(),
            reader,
            separator,
            parser: ReaderBuilder::new().delimiter(separator).build(),
            columns: Vec::new(),
            field: Field::default(),
            room: 0,
            failed: false,
        };
        rows.columns = rows.header()?;
        Ok(rows)
    }

    /// Reads the names of the columns. There are none in an empty file.
    fn header(&mut self) -> Result<Vec<String>, DataError> {
        let Some(header) = self.record(MAX_HEADER, usize::MAX)? else { return Ok(Vec::new()) };
        let names: Vec<String> = header.fields.iter().map(|name| name.trim().to_owned()).collect();

        // The whole header is one name if the file separates its fields by something else.
        if let [name] = names.as_slice()
            && name.contains([',', ';', '\t'])
        {
            let problem = "the header names one column, whose name has separators in it; a .csv file separates \
                           its fields by commas, semicolons or tabs, and a .tsv file by tabs: write the file again";
            return Err(self.refused(header.line, problem.into()));
        }

        let mut seen = HashSet::new();
        match names.iter().find(|name| !name.is_empty() && !seen.insert(name.as_str())) {
            Some(name) => {
                let problem =
                    format!("the header names the column `{name}` twice: rename one of them");
                Err(self.refused(header.line, problem))
            }
            None => Ok(names),
        }
    }

    fn next_row(&mut self) -> Result<Option<Row>, DataError> {
        let columns = self.columns.len();
        let Some(record) = self.record(MAX_LINE, columns)? else { return Ok(None) };

        let Record { line, fields, count } = record;
        if count != columns {
            let problem = format!(
                "the row has {count} fields, expected {columns}, one for each column that the first line names; \
                 put a field that contains a separator or a line break between quotes"
            );
            return Err(self.refused(line, problem));
        }

        let value = |field: String| if field.is_empty() { Value::Null } else { field.into() };
        let named = self.columns.iter().zip(fields).filter(|(name, _)| !name.is_empty());
        let fields = named.map(|(name, field)| (name.clone(), value(field))).collect();
        Ok(Some(Row { file: self.file.clone(), position: Position::Line(line), fields }))
    }

    /// Reads a row of at most `limit` bytes, and keeps its first `kept` fields. `None` at the end of the file.
    fn record(&mut self, limit: u64, kept: usize) -> Result<Option<Record>, DataError> {
        self.skip_blank_lines().map_err(|source| self.unreadable(source))?;
        let mut record = Record { line: self.parser.line(), fields: Vec::new(), count: 0 };
        self.room = limit;

        while self.next_field(&record, limit)? {
            let Field { text, line, .. } = &self.field;
            let column = || match self.columns.get(record.count) {
                Some(name) if !name.is_empty() => format!("column `{name}`"),
                _ => format!("field {}", record.count + 1),
            };

            if !self.field.is_well_quoted(self.separator) {
                let problem = format!(
                    "{} begins with a quote that is never closed, or that is closed before the field ends: write a \
                     quote inside a field twice",
                    column()
                );
                return Err(self.refused(*line, problem));
            }
            let Ok(text) = str::from_utf8(text) else {
                let problem = format!("{} is not UTF-8 text: save the file as UTF-8", column());
                return Err(self.refused(*line, problem));
            };

            if record.count < kept {
                record.fields.push(text.to_owned());
            }
            record.count += 1;
            if self.field.ends_row {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Skips blank lines, so that the parser's line is that of the next row.
    fn skip_blank_lines(&mut self) -> io::Result<()> {
        loop {
            let bytes = fill(&mut self.reader)?;
            let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            if blank == 0 {
                return Ok(());
            }
            self.parser.read_field(&bytes[..blank], &mut [0]);
            self.reader.consume(blank);
        }
    }

    /// Reads the next field of a row. Returns false at the end of the file.
    fn next_field(&mut self, record: &Record, limit: u64) -> Result<bool, DataError> {
        let Field { raw, text, line, ends_row } = &mut self.field;
        raw.clear();
        text.clear();
        *line = self.parser.line();

        let mut chunk = [0; CHUNK];
        loop {
            let bytes = match fill(&mut self.reader) {
                Ok(bytes) => &bytes[..bytes.len().min(CHUNK)],
                Err(source) => return Err(self.unreadable(source)),
            };
            // No byte becomes more than one byte of text, so the chunk is never too small.
            let (result, read, written) = self.parser.read_field(bytes, &mut chunk);
            raw.extend_from_slice(&bytes[..read]);
            text.extend_from_slice(&chunk[..written]);
            self.reader.consume(read);

            self.room = match self.room.checked_sub(read as u64) {
                Some(room) => room,
                None => {
                    let path = self.file.to_path_buf();
                    return Err(DataError::TooLarge { path, line: Some(record.line), limit });
                }
            };
            match result {
                ReadFieldResult::Field { record_end } => {
                    *ends_row = record_end;
                    return Ok(true);
                }
                ReadFieldResult::End => return Ok(false),
                ReadFieldResult::InputEmpty | ReadFieldResult::OutputFull => {}
            }
        }
    }

    fn refused(&self, line: u64, problem: String) -> DataError {
        let path = self.file.to_path_buf();
        DataError::Row { path, position: Position::Line(line), problem }
    }

    fn unreadable(&self, source: io::Error) -> DataError {
        DataError::Read { path: self.file.to_path_buf(), source }
    }
}

impl Field {
    /// Tells whether the field is whole, if it begins with a quote. The parser would take what follows the closing
    /// quote as a part of the field, and the end of the file for that quote.
    fn is_well_quoted(&self, separator: u8) -> bool {
        if !self.raw.starts_with(b"\"") {
            return true;
        }

        let raw = match self.raw.split_last() {
            Some((last, rest)) if [separator, b'\r', b'\n'].contains(last) => rest,
            _ => &self.raw,
        };
        // Between the two quotes around the field each quote of its text stands twice. Behind the second one, a quote
        // would be one of the text as it stands.
        let quotes = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte == b'"').count();
        raw.len() > 1 && raw.ends_with(b"\"") && quotes(raw) == 2 + 2 * quotes(&self.text)
    }
}

impl Iterator for CsvRows {
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

/// Returns bytes that were not read yet. There are none at the end of the file.
fn fill(reader: &mut BufReader<File>) -> io::Result<&[u8]> {
    while let Err(error) = reader.fill_buf() {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    reader.fill_buf()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(name: &str, text: &[u8]) -> Result<Vec<Row>, DataError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        CsvRows::open(&path, separator(&path).unwrap())?.collect()
    }

    /// Returns each row's line and its fields, with `-` for null.
    fn rows(name: &str, text: &str) -> Vec<(Position, Vec<String>)> {
        let fields = |row: Row| {
            let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
            (row.position, row.fields.values().map(text).collect())
        };
        read(name, text.as_bytes()).unwrap().into_iter().map(fields).collect()
    }

    fn message(text: &[u8]) -> String {
        let message = read("set.csv", text).unwrap_err().to_string();
        message[message.find("set.csv").unwrap()..].to_owned()
    }

    #[test]
    fn rows_are_those_that_a_spreadsheet_shows() {
        let rows = |name: &str, text: &str| {
            let rows = rows(name, text).into_iter();
            rows.map(|(position, fields)| format!("{position}: {}", fields.join("|")))
                .collect::<Vec<_>>()
        };

        // A mark, line ends of all kinds, quotes, separators and line breaks in quotes, and no line end at the end.
        let text =
            "\u{feff}question,answer\r\n\"a, \"\"b\"\"\nc\",8.0\r\n\r\n\n5\" pipe,\"\"\nlast,NaN";
        assert_eq!(
            rows("set.csv", text),
            ["line 2: a, \"b\"\nc|8.0", "line 6: 5\" pipe|-", "line 7: last|NaN"]
        );
        assert_eq!(rows("set.csv", "a;b\n1,2;\"3;4\"\n"), ["line 2: 1,2|3;4"]);
        assert_eq!(rows("set.tsv", "a\tb\n1,2\t\"3\t4\"\n"), ["line 2: 1,2|3\t4"]);

        // The name of a column of numbers is empty, and so are columns that nobody filled in.
        let unnamed = read("set.csv", b",prompt, answer ,\n0,?,4,\n").unwrap();
        assert_eq!(unnamed[0].columns(), ["prompt", "answer"]);
        assert_eq!(unnamed[0].get("answer"), Some(&"4".into()));

        for empty in ["", "\u{feff}", "\n\n", "question,answer", "question,answer\n\n"] {
            assert_eq!(rows("set.csv", empty), [""; 0], "{empty:?}");
        }
    }

    /// A field may end anywhere in what is read at a time.
    #[test]
    fn a_field_of_any_length_is_read_whole() {
        for length in [CHUNK - 2, CHUNK - 1, CHUNK, CHUNK + 1, 8192 - 3, 8192, 3 * 8192 + 5] {
            let long = "é\"".repeat(length / 3) + &"x".repeat(length % 3);
            let text = format!("a,b\n\"{}\",1\n2,{long}", long.replace('"', "\"\""));
            let rows = rows("set.csv", &text);
            assert_eq!(rows[0].1, [&long, "1"], "{length}");
            assert_eq!(rows[1].1, ["2", &long], "{length}");
        }
    }

    #[test]
    fn a_broken_row_is_named() {
        let fields = "; put a field that contains a separator or a line break between quotes";
        for (text, expected) in [
            ("a,b\n1,2\n\n3\n", "set.csv, line 4: the row has 1 fields, expected 2, one for"),
            (
                "a,b\n\"1\n\",2\n3,4,5\n",
                "set.csv, line 4: the row has 3 fields, expected 2, one for",
            ),
            ("a,b\n1,2,\n", "set.csv, line 2: the row has 3 fields, expected 2, one for"),
            ("a, b,a\n", "set.csv, line 1: the header names the column `a` twice"),
            (
                "\n\"a;b\"\n1;2\n",
                "set.csv, line 2: the header names one column, whose name has separators",
            ),
            (
                "a;b\tc\n1;2\t3\n",
                "set.csv, line 1: the header names one column, whose name has separators",
            ),
            (
                "a,b\n1,\"2\n3,4\n",
                "set.csv, line 2: column `b` begins with a quote that is never closed",
            ),
            (
                "a,b\n1,\"2\"\"\n",
                "set.csv, line 2: column `b` begins with a quote that is never closed",
            ),
            ("a,b\n1,\"", "set.csv, line 2: column `b` begins with a quote that is never closed"),
            (
                "a,b\n\"1\n\",\"2\" 3\n",
                "set.csv, line 3: column `b` begins with a quote that is never closed",
            ),
            (
                "a,b\n\"1 \"2\" 3\",4\n",
                "set.csv, line 2: column `a` begins with a quote that is never closed",
            ),
            ("\"a,b\n1,2\n", "set.csv, line 1: field 1 begins with a quote that is never closed"),
        ] {
            let message = message(text.as_bytes());
            assert!(message.starts_with(expected), "{text:?}: {message}");
            assert_eq!(message.contains("the row has"), message.ends_with(fields), "{message}");
        }

        assert_eq!(
            message(b"a,b\n1,\xff\n"),
            "set.csv, line 2: column `b` is not UTF-8 text: save the file as UTF-8"
        );
        assert_eq!(
            message(b"\xff\xfea\0,\0b\0\n\0"),
            "set.csv: it is UTF-16 text, expected UTF-8: save it as UTF-8"
        );
    }

    #[test]
    fn a_row_is_bounded() {
        // A quote that is never closed makes one row of the rest of the file.
        let open = "a,b\n1,2\n\"".to_owned() + &"x\n".repeat(MAX_LINE as usize / 2);
        let expected = format!("set.csv, line 3, is larger than the limit of {MAX_LINE} bytes");
        assert!(message(open.as_bytes()).starts_with(&expected));

        let header = |name: usize| "x".repeat(name - 3) + ",b\n" + "1,2\n";
        assert_eq!(rows("set.csv", &header(1 << 20)).len(), 1);
        let expected = "set.csv, line 1, is larger than the limit of 1048576 bytes";
        for header in [header((1 << 20) + 1), ",".repeat((1 << 20) + 1)] {
            assert!(message(header.as_bytes()).starts_with(expected));
        }
    }
}
