//! Lines of files in batches, so that no file has to fit into memory.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use firebrick_core::without_bom;
use firebrick_data::DataError;

use super::{Row, row::clip};
use crate::ProgramError;

/// Longest line that is read, in bytes. A file without line ends would otherwise fill the memory.
const MAX_LINE: u64 = 64 << 20;

/// Lines after which a batch ends, unless `MAX_BATCH` bytes end it first. A batch is large enough to keep every core
/// busy, and small enough that a file of any size needs little memory.
const BATCH: usize = 4096;
const MAX_BATCH: usize = 32 << 20;

/// Reads the lines of several files, one file after the other, without blank lines.
pub(super) struct Lines {
    /// Files that are not read to their end, the next one last.
    files: Vec<Source>,
}

struct Source {
    name: Arc<Path>,
    reader: Box<dyn BufRead>,
    line: u64,
}

/// A line and its position.
pub(super) struct Line {
    file: Arc<Path>,
    /// Counted from 1.
    number: u64,
    /// `None` if the line is longer than `MAX_LINE`.
    bytes: Option<Vec<u8>>,
}

impl Lines {
    /// Opens all files before anything is read, so that a missing file is noticed immediately.
    pub(super) fn open(files: &[PathBuf]) -> Result<Self, ProgramError> {
        let files = files.iter().rev().map(|path| Source::open(path));
        Ok(Lines { files: files.collect::<Result<_, _>>()? })
    }

    /// Reads the next lines. At the end the batch is empty.
    pub(super) fn batch(&mut self) -> Result<Vec<Line>, ProgramError> {
        let mut batch = Vec::new();
        let mut bytes = 0;

        while batch.len() < BATCH && bytes <= MAX_BATCH {
            // Files are in reverse order, so that the one being read can be popped.
            let Some(source) = self.files.last_mut() else { break };
            match source.next() {
                Ok(Some(line)) => {
                    bytes += line.bytes.as_ref().map_or(0, Vec::len);
                    batch.push(line);
                }
                Ok(None) => drop(self.files.pop()),
                Err(error) => {
                    return Err(unreadable(&source.name, error));
                }
            }
        }
        Ok(batch)
    }
}

impl Source {
    fn open(path: &Path) -> Result<Self, ProgramError> {
        if path == "-" {
            let reader = Box::new(BufReader::new(io::stdin()));
            return Ok(Source { name: Path::new("standard input").into(), reader, line: 0 });
        }

        // A file that the shell has opened has a writer. Another pipe may have none, and a device may have no end.
        let is_open = ["/dev/stdin", "/dev/fd", "/proc"].iter().any(|open| path.starts_with(open));

        let open = || {
            let metadata = fs::metadata(path)?;
            if !metadata.is_file() && !metadata.is_dir() && !is_open {
                let problem = "it is a pipe or a device, expected a file; - reads standard input";
                return Err(io::Error::other(problem));
            }

            let file = File::open(path)?;
            // A folder can be opened as well. It fails only when it is read.
            if file.metadata()?.is_dir() {
                Err(io::ErrorKind::IsADirectory.into())
            } else {
                Ok(file)
            }
        };

        let file = open().map_err(|error| unreadable(path, error))?;
        Ok(Source { name: path.into(), reader: Box::new(BufReader::new(file)), line: 0 })
    }

    fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let mut bytes = Vec::new();
            let read = self.reader.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut bytes)?;
            if read == 0 {
                return Ok(None);
            }

            self.line += 1;
            if self.line == 1 {
                // No line of a file in UTF-16 is a row, and one error says so.
                without_bom(&bytes)?;
            }

            let too_long = read as u64 > MAX_LINE;
            if too_long {
                // The rest of the line is skipped without being kept, however long it is.
                if bytes.last() != Some(&b'\n') {
                    self.reader.skip_until(b'\n')?;
                }
            } else if bytes.trim_ascii().is_empty() {
                continue;
            }

            let bytes = (!too_long).then_some(bytes);
            return Ok(Some(Line { file: self.name.clone(), number: self.line, bytes }));
        }
    }
}

fn unreadable(path: &Path, source: io::Error) -> ProgramError {
    DataError::Read { path: path.to_owned(), source }.into()
}

impl Line {
    /// Reads the row in this line. The error says where the line is and why it is not a row.
    pub(super) fn row(&self) -> Result<Row, String> {
        let Some(bytes) = &self.bytes else {
            return Err(format!("{}: the line is longer than {MAX_LINE} bytes", self.position()));
        };
        Row::parse(bytes).map_err(|error| match error.column {
            0 => format!("{}: {}", self.position(), clip(&error.problem)),
            column => format!("{}, column {column}: {}", self.position(), clip(&error.problem)),
        })
    }

    /// Returns the row's own id, or else the file and line.
    pub(super) fn id(&self, row: &Row) -> String {
        self.name(row.id.clone().map(Into::into).as_ref())
    }

    /// Returns the line's bytes; `None` if it is too long.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        self.bytes.as_deref()
    }

    /// Names the row by its own id, or else by file and line.
    pub(super) fn name(&self, id: Option<&serde_json::Value>) -> String {
        match id {
            Some(serde_json::Value::String(id)) => id.clone(),
            Some(id) if !id.is_null() => id.to_string(),
            _ => format!("{}:{}", self.file.display(), self.number),
        }
    }

    /// Names the file and the line's number.
    pub(super) fn position(&self) -> String {
        format!("{}, line {}", self.file.display(), self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(reader: impl BufRead + 'static) -> Vec<Line> {
        let name = Path::new("set.jsonl").into();
        let mut lines = Lines { files: vec![Source { name, reader: Box::new(reader), line: 0 }] };
        let mut all = Vec::new();

        loop {
            let batch = lines.batch().unwrap();
            if batch.is_empty() {
                return all;
            }
            assert!(batch.len() <= BATCH);
            all.extend(batch);
        }
    }

    #[test]
    fn every_line_that_is_not_blank_is_read_once() {
        let text = "a\n\n \r\n".repeat(2 * BATCH) + "z";
        let lines = lines(io::Cursor::new(text));

        assert_eq!(lines.len(), 2 * BATCH + 1);
        let numbers: Vec<u64> = lines.iter().map(|line| line.number).collect();
        assert!(numbers.iter().zip(0..).all(|(&number, index)| number == 3 * index + 1));
    }

    #[test]
    fn a_line_without_end_is_passed_over_and_the_next_is_read() {
        let long = io::repeat(b'x').take(MAX_LINE + 5).chain(&b"\nshort\n"[..]);
        let exact = io::repeat(b'x').take(MAX_LINE).chain(&b"\nshort\n"[..]);

        for reader in [long, exact] {
            let lines = lines(BufReader::new(reader));
            let read: Vec<(u64, Option<&[u8]>)> =
                lines.iter().map(|line| (line.number, line.bytes.as_deref())).collect();
            assert_eq!(read, [(1, None), (2, Some(&b"short\n"[..]))]);
        }
    }
}
