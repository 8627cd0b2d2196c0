use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use safetensors::tensor::{Metadata, TensorInfo};

use super::{CheckpointError, WeightDtype, json};

/// One safetensors file: its header in memory, its tensors on disk until one is asked for.
///
/// Files are read and not mapped. A mapping is `unsafe`, because the file may change under it; and
/// one that is cut off meanwhile ends the process with a signal (SIGBUS), where reading gives an
/// error that can be reported.
#[derive(Debug)]
pub(super) struct TensorFile {
    path: PathBuf,
    file: File,
    header: Metadata,
    /// Where the header ends and the first tensor begins.
    start: u64,
}

/// Bytes of a header that the format allows.
const MAX_HEADER: u64 = 100_000_000;

/// Bytes that are read at once, and widened from there.
const AT_ONCE: usize = 1 << 20;

impl TensorFile {
    /// Reads the header and checks it: every tensor has the bytes of its shape and type, and they
    /// lie one behind the other, without gaps, to the end of the file.
    pub(super) fn open(path: &Path) -> Result<Self, CheckpointError> {
        let damaged = |problem| CheckpointError::Damaged { path: path.to_owned(), problem };
        let unreadable = |source| CheckpointError::Read { path: path.to_owned(), source };
        let (mut file, bytes) = json::open(path)?;
        let Some(rest) = bytes.checked_sub(8) else {
            return Err(damaged(format!("it has {bytes} bytes, and the header's length takes 8")));
        };
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(unreadable)?;
        if length == *b"version " {
            return Err(damaged(
                "it begins as a pointer of Git LFS: git lfs pull fetches the file".into(),
            ));
        }
        let length = u64::from_le_bytes(length);
        // Before anything is allocated for it: the length is eight bytes of anybody's choice.
        if length > MAX_HEADER {
            return Err(damaged(format!(
                "its header would have {length} bytes, and the format allows {MAX_HEADER}"
            )));
        }
        if length > rest {
            return Err(damaged(format!(
                "its header would have {length} bytes, and the file has {rest} after its length"
            )));
        }
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header).map_err(unreadable)?;
        // Checks the shapes and offsets against each other too.
        let header: Metadata = serde_json::from_slice(&header)
            .map_err(|error| damaged(format!("its header is wrong: {error}")))?;
        let ends = header.tensors().values().map(|info| info.data_offsets.1 as u64).max();
        let (came, expected) = (rest - length, ends.unwrap_or(0));
        if came != expected {
            return Err(damaged(format!(
                "its header promises {expected} bytes of tensors, and {came} follow"
            )));
        }
        Ok(TensorFile { path: path.to_owned(), file, header, start: 8 + length })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Every tensor's name, in the order of their bytes.
    pub(super) fn names(&self) -> Vec<String> {
        self.header.offset_keys()
    }

    /// Type, shape and place of a tensor.
    pub(super) fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.header.info(name)
    }

    /// Appends the values of a tensor to `values`, and says whether all are finite.
    ///
    /// `info` comes from [`TensorFile::info`].
    pub(super) fn read(
        &self,
        info: &TensorInfo,
        dtype: WeightDtype,
        values: &mut Vec<f32>,
    ) -> Result<bool, CheckpointError> {
        let unreadable = |source| CheckpointError::Read { path: self.path.clone(), source };
        let (begin, end) = info.data_offsets;
        let mut file = &self.file;
        file.seek(SeekFrom::Start(self.start + begin as u64)).map_err(unreadable)?;
        let mut buffer = vec![0; AT_ONCE.min(end - begin)];
        let (mut rest, mut finite) = (end - begin, true);
        while rest > 0 {
            let part = &mut buffer[..AT_ONCE.min(rest)];
            file.read_exact(part).map_err(unreadable)?;
            rest -= part.len();
            let before = values.len();
            dtype.widen(part, values);
            finite &= values[before..].iter().all(|value| value.is_finite());
        }
        Ok(finite)
    }
}
