//! A reader for a GGUF file from beginning to end, which checks every length before it believes it.

use std::{
    fs::File,
    io::{BufReader, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use crate::GgufError;

/// A reader that goes through a file from one end to the other, and knows its place there. It compares every
/// length with the bytes that are left before it believes the length.
pub(crate) struct Cursor<'a> {
    path: &'a Path,
    reader: BufReader<&'a File>,
    at: u64,
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
        Ok(Cursor { path, reader, at, end })
    }

    /// Returns the place of the next byte.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Returns the number of bytes that are left.
    pub(crate) fn left(&self) -> u64 {
        self.end - self.at
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

    /// Reads a text of at most `most` bytes, which stands behind its length. Messages call it `what`.
    pub(crate) fn text(&mut self, most: u64, what: &str) -> Result<String, GgufError> {
        let at = self.at;
        let length = self.u64()?;
        if length > most {
            let problem = format!("{what} would have {length} bytes, expected at most {most}");
            return Err(self.damaged(at, problem));
        }
        self.there(length)?;
        let mut bytes = vec![0; length as usize];
        self.fill(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| self.damaged(at, format!("{what} is not UTF-8 text")))
    }

    pub(crate) fn skip(&mut self, count: u64) -> Result<(), GgufError> {
        self.there(count)?;
        // `count` is at most the size of a file.
        self.reader.seek_relative(count as i64).map_err(|source| self.unreadable(source))?;
        self.at += count;
        Ok(())
    }

    /// Makes the error for a part of the file that is sound, but is not read. The part begins at byte `at`.
    pub(crate) fn unread(&self, at: u64, problem: String) -> GgufError {
        GgufError::Unread { path: self.path.to_owned(), at, problem }
    }

    /// Makes the error for a part of the file that is wrong. The part begins at byte `at`.
    pub(crate) fn damaged(&self, at: u64, problem: String) -> GgufError {
        GgufError::Damaged { path: self.path.to_owned(), at, problem }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), GgufError> {
        self.there(bytes.len() as u64)?;
        self.reader.read_exact(bytes).map_err(|source| self.unreadable(source))?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn there(&self, count: u64) -> Result<(), GgufError> {
        if count <= self.left() {
            return Ok(());
        }
        let left = self.left();
        Err(self.damaged(self.at, format!("{count} bytes should follow, but only {left} do")))
    }

    fn unreadable(&self, source: std::io::Error) -> GgufError {
        GgufError::Read { path: PathBuf::from(self.path), source }
    }
}
