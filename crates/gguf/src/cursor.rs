//! Reads a GGUF file from beginning to end, and checks every length before it is used.

use std::{
    fs::File,
    io::{BufReader, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use crate::GgufError;

/// Reads a file from one end to the other and knows its position. Every length is compared with the bytes that are
/// left before it is used.
pub(crate) struct Cursor<'a> {
    path: &'a Path,
    reader: BufReader<&'a File>,
    position: u64,
    end: u64,
}

impl<'a> Cursor<'a> {
    /// Begins at byte `at` of a file of `end` bytes.
    pub(crate) fn new(
        path: &'a Path,
        file: &'a File,
        at: u64,
        end: u64,
    ) -> Result<Self, GgufError> {
        let mut reader = BufReader::with_capacity(1 << 16, file);
        reader
            .seek(SeekFrom::Start(at))
            .map_err(|source| GgufError::Read { path: path.to_owned(), source })?;
        Ok(Cursor { path, reader, position: at, end })
    }

    /// Returns the position of the next byte.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Returns the number of bytes that are left.
    pub(crate) fn remaining(&self) -> u64 {
        self.end - self.position
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    /// Reads a text of at most `max_bytes` bytes, which follows its length. Messages call it `what`.
    pub(crate) fn text(&mut self, max_bytes: u64, what: &str) -> Result<String, GgufError> {
        let start = self.position;
        let length = self.u64()?;
        if length > max_bytes {
            let problem = format!("{what} would have {length} bytes, expected at most {max_bytes}");
            return Err(self.damaged(start, problem));
        }

        // Room is made only once it is known that the file has that many bytes.
        self.check_remaining(length)?;
        let mut bytes = vec![0; length as usize];
        self.fill(&mut bytes)?;
        String::from_utf8(bytes)
            .map_err(|_| self.damaged(start, format!("{what} is not UTF-8 text")))
    }

    pub(crate) fn skip(&mut self, count: u64) -> Result<(), GgufError> {
        self.check_remaining(count)?;
        // `count` is at most the size of a file.
        self.reader.seek_relative(count as i64).map_err(|source| self.unreadable(source))?;
        self.position += count;
        Ok(())
    }

    /// Makes the error for a part of the file that is intact, but is not read. The part begins at byte `at`.
    pub(crate) fn unread(&self, at: u64, problem: String) -> GgufError {
        GgufError::Unread { path: self.path.to_owned(), at, problem }
    }

    /// Makes the error for a part of the file that is damaged. The part begins at byte `at`.
    pub(crate) fn damaged(&self, at: u64, problem: String) -> GgufError {
        GgufError::Damaged { path: self.path.to_owned(), at, problem }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), GgufError> {
        self.check_remaining(bytes.len() as u64)?;
        self.reader.read_exact(bytes).map_err(|source| self.unreadable(source))?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    fn check_remaining(&self, count: u64) -> Result<(), GgufError> {
        let remaining = self.remaining();
        if count <= remaining {
            return Ok(());
        }
        Err(self.damaged(
            self.position,
            format!("{count} bytes should follow, but only {remaining} do"),
        ))
    }

    fn unreadable(&self, source: std::io::Error) -> GgufError {
        GgufError::Read { path: PathBuf::from(self.path), source }
    }
}
