//! One safetensors file, read a tensor at a time.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    ops::Range,
    path::{Path, PathBuf},
};

use safetensors::tensor::{Metadata, TensorInfo};

use super::{CheckpointError, WeightDtype, json};

/// One safetensors file. Its header is in memory, and its tensors stay on disk until they are asked for.
///
/// Files are read and not mapped. A mapping is `unsafe`, because the file may change under it: if it is cut off
/// meanwhile, the process ends with a signal (SIGBUS), while reading returns an error that can be reported.
#[derive(Debug)]
pub(super) struct TensorFile {
    path: PathBuf,
    file: File,
    header: Metadata,
    /// Offset at which the header ends and the first tensor begins.
    start: u64,
}

/// Largest header that the format allows, in bytes.
const MAX_HEADER: u64 = 100_000_000;

/// How many bytes are read and widened at a time; a multiple of every format's size.
const CHUNK_BYTES: usize = 1 << 20;

impl TensorFile {
    /// Reads the header and checks it: every tensor has the bytes of its shape and type, and tensors are stored one
    /// after the other, without gaps, to the end of the file.
    pub(super) fn open(path: &Path) -> Result<Self, CheckpointError> {
        let damaged = |problem| CheckpointError::Damaged { path: path.to_owned(), problem };
        let unreadable = |source| CheckpointError::Read { path: path.to_owned(), source };
        let (mut file, bytes) = json::open(path)?;

        let Some(rest) = bytes.checked_sub(8) else {
            return Err(damaged(format!("it has {bytes} bytes, and the header's length takes 8")));
        };

        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(unreadable)?;
        // Such a pointer is a small text file, which would pass for a header of about 2.3·10¹⁸ bytes.
        if length == *b"version " {
            return Err(damaged(
                "it is a pointer of Git LFS: fetch the file with git lfs pull".into(),
            ));
        }
        let length = u64::from_le_bytes(length);

        // Checked before anything is allocated: the length comes from the file and is not trusted.
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
        // This also checks the shapes and offsets against each other.
        let header: Metadata = serde_json::from_slice(&header)
            .map_err(|error| damaged(format!("its header is wrong: {error}")))?;

        let ends = header.tensors().values().map(|info| info.data_offsets.1 as u64).max();
        let actual = rest - length;
        let expected = ends.unwrap_or(0);
        if actual != expected {
            return Err(damaged(format!(
                "its header promises {expected} bytes of tensors, and {actual} follow"
            )));
        }

        Ok(TensorFile { path: path.to_owned(), file, header, start: 8 + length })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Lists every tensor's name, in the order of their bytes.
    pub(super) fn names(&self) -> Vec<String> {
        self.header.offset_keys()
    }

    /// Returns the type, shape and offsets of a tensor.
    pub(super) fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.header.info(name)
    }

    /// Appends the values of a tensor to `values`, and tells whether all are finite.
    ///
    /// `info` comes from [`TensorFile::info`], or is of a part of such a tensor.
    pub(super) fn read(
        &self,
        info: &TensorInfo,
        dtype: WeightDtype,
        values: &mut Vec<f32>,
    ) -> Result<bool, CheckpointError> {
        let (begin, end) = info.data_offsets;
        let mut finite = true;
        for part in (begin..end).step_by(CHUNK_BYTES) {
            let count = values.len();
            self.read_part(part..end.min(part + CHUNK_BYTES), dtype, values)?;
            finite &= values[count..].iter().all(|value| value.is_finite());
        }
        Ok(finite)
    }

    /// Returns some bytes of the file's data.
    pub(super) fn bytes(&self, (begin, end): (usize, usize)) -> Result<Vec<u8>, CheckpointError> {
        let unreadable = |source| CheckpointError::Read { path: self.path.clone(), source };
        let mut file = &self.file;
        let mut bytes = vec![0; end - begin];
        file.seek(SeekFrom::Start(self.start + begin as u64)).map_err(unreadable)?;
        file.read_exact(&mut bytes).map_err(unreadable)?;
        Ok(bytes)
    }

    /// Appends the values that are stored in some bytes of the file's data.
    fn read_part(
        &self,
        bytes: Range<usize>,
        dtype: WeightDtype,
        values: &mut Vec<f32>,
    ) -> Result<(), CheckpointError> {
        dtype.widen(&self.bytes((bytes.start, bytes.end))?, values);
        Ok(())
    }
}

/// Tells whether two tensors of one shape hold the same values, in whatever formats. A NaN equals nothing.
pub(super) fn same(
    (one, its): (&TensorFile, &TensorInfo),
    (other, others): (&TensorFile, &TensorInfo),
) -> Result<bool, CheckpointError> {
    let (Some(dtype), Some(others_dtype)) =
        (WeightDtype::of(its.dtype), WeightDtype::of(others.dtype))
    else {
        return Ok(false);
    };

    let count: usize = its.shape.iter().product();
    let part = |info: &TensorInfo, dtype: WeightDtype, values: &Range<usize>| {
        let begin = info.data_offsets.0;
        begin + values.start * dtype.bytes()..begin + values.end * dtype.bytes()
    };

    for first in (0..count).step_by(CHUNK_BYTES) {
        let values = first..count.min(first + CHUNK_BYTES);
        let mut ours = Vec::new();
        let mut theirs = Vec::new();
        one.read_part(part(its, dtype, &values), dtype, &mut ours)?;
        other.read_part(part(others, others_dtype, &values), others_dtype, &mut theirs)?;
        if ours != theirs {
            return Ok(false);
        }
    }
    Ok(true)
}
