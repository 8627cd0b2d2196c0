use std::{
    fs::File,
    io::{BufReader, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use crate::GgufError;

/// Reads a file from one end to the other, and knows where it is: no length that it reads is believed
/// before it is held against what is left.
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

    /// The next byte's place.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Bytes that are left.
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

    /// A text of at most `most` bytes, behind its length; `what` it is.
    pub(crate) fn text(&mut self, most: u64, what: &str) -> Result<String, GgufError> {
        let at = self.at;
        let length = self.u64()?;
        if length > most {
            let problem = format!("{what} would have {length} bytes, and may have {most}");
            return Err(self.damaged(at, problem));
        }
        self.there(length)?;
        let mut bytes = vec![0; length as usize];
        self.fill(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| self.damaged(at, format!("{what} is not UTF-8 text")))
    }

    pub(crate) fn skip(&mut self, count: u64) -> Result<(), GgufError> {
        self.there(count)?;
        // At most the size of a file.
        self.reader.seek_relative(count as i64).map_err(|source| self.unreadable(source))?;
        self.at += count;
        Ok(())
    }

    /// Something at a place that is as it should be, and is not read.
    pub(crate) fn unread(&self, at: u64, problem: String) -> GgufError {
        GgufError::Unread { path: self.path.to_owned(), at, problem }
    }

    /// Something wrong at a place.
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
        Err(self.damaged(self.at, format!("{count} bytes should follow, and {left} do")))
    }

    fn unreadable(&self, source: std::io::Error) -> GgufError {
        GgufError::Read { path: PathBuf::from(self.path), source }
    }
}
