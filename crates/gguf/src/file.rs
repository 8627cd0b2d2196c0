//! A GGUF file, checked when it is opened, and the values of its tensors.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom},
    marker::PhantomData,
    path::{Path, PathBuf},
};

use crate::{
    BlockType, GgufError,
    change::{Towards, changes},
    cursor::Cursor,
    error::quoted,
    family::Family,
    metadata::{Metadata, Value},
    names::{self, Stacked},
};

/// First bytes of every file.
pub(crate) const MAGIC: [u8; 4] = *b"GGUF";

/// Limit on the tensors of a file. A model of a hundred layers has some thousand.
const TENSORS: u64 = 65_536;

/// Limit of the format on a tensor's name, in bytes.
const NAME: u64 = 64;

/// Limit of the format on the sizes of a tensor.
const SIZES: u32 = 4;

/// Limit on the tensors of a model whose experts are taken apart. The largest models have some 40,000.
const PARTS: usize = 1 << 17;

/// How many blocks are read and dequantised together.
const BLOCKS_PER_READ: usize = 4096;

/// A GGUF file. Its metadata are in memory, while its tensors stay on disk until they are asked for.
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    file: File,
    /// Keeps two threads from sharing the file, which has one position that every read moves.
    one_reader: PhantomData<Cell<()>>,
    bytes: u64,
    metadata: Metadata,
    /// Number of key heads of each layer, if the file lists them.
    key_heads: Vec<f64>,
    /// Width of each layer's MLP, if the file lists them.
    mlp_widths: Vec<f64>,
    /// Tensors by their names in a folder.
    tensors: BTreeMap<String, Tensor>,
}

/// A tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Name of the tensor in the file, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Type of the tensor's blocks.
    pub kind: BlockType,
    /// Shape of the tensor. Matrices are `[outputs, inputs]`.
    pub shape: Vec<usize>,
    /// Bytes that the tensor takes in the file.
    pub bytes: u64,
    /// Offset of these bytes in the file.
    at: u64,
    /// Tensor of the file with the last rows, if a folder has both as one. Its bytes are counted in `bytes`.
    last: Option<Box<Tensor>>,
}

/// Tells whether a path is a GGUF file, by its ending or its first bytes, because some programs write files without
/// an ending.
pub fn is_gguf(path: &Path) -> bool {
    if !path.is_file() {
        return false;
    }

    let has_extension = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"));
    let has_magic = || {
        let mut bytes = [0; 4];
        let read = File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
        read.is_ok() && bytes == MAGIC
    };
    has_extension || has_magic()
}

/// Reads the file at a path that leads into a GGUF file, such as `model.gguf/config.json`. Returns `None` if the
/// path leads elsewhere. See [`Gguf::file`].
///
/// # Errors
/// Fails as [`Gguf::open`] and [`Gguf::file`] do.
pub fn file_within(path: &Path) -> Option<Result<Option<Vec<u8>>, GgufError>> {
    let model = path.parent().filter(|model| is_gguf(model))?;
    let name = path.file_name()?.to_str()?;
    Some(Gguf::open(model).and_then(|model| model.file(name)))
}

impl Gguf {
    /// Reads the metadata and the list of tensors, and checks them: everything has to end before the file does, every
    /// tensor's bytes have to fit its shape, and the tensors have to follow one another.
    ///
    /// # Errors
    /// Fails if the file can't be read, or is not a complete GGUF file of version 2 or 3 with weights of known types.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let unreadable = |source| GgufError::Read { path: path.to_owned(), source };
        // The kind is checked before the file is opened, because opening a pipe waits until somebody writes to it.
        let file_metadata = fs::metadata(path).map_err(unreadable)?;
        if !file_metadata.is_file() {
            return Err(unreadable(io::Error::other("it is not a file")));
        }

        let file = File::open(path).map_err(unreadable)?;
        let bytes = file_metadata.len();

        let mut cursor = Cursor::new(path, &file, 0, bytes)?;
        let (tensors, keys) = head(&mut cursor)?;
        let metadata = Metadata::read(&mut cursor, keys)?;
        check_unsplit(path, &metadata)?;
        let tensors = read_tensors(&mut cursor, tensors, &metadata)?;

        let mut gguf = Gguf {
            path: path.to_owned(),
            file,
            one_reader: PhantomData,
            bytes,
            metadata,
            key_heads: Vec::new(),
            mlp_widths: Vec::new(),
            tensors,
        };
        gguf.unify_key_heads()?;
        gguf.unify_mlp_widths()?;
        Ok(gguf)
    }

    /// Replaces the list of the key heads of each layer, which files of Granite 4, LFM2 and Gemma 4 have, by their
    /// number if all layers have the same. Those of LFM2 with a convolution instead of attention have none. In Gemma 4
    /// the number is that of the first layer, and whoever makes its configuration looks at the list.
    fn unify_key_heads(&mut self) -> Result<(), GgufError> {
        let Some(family) = Family::of(&self.metadata) else { return Ok(()) };
        let key = format!("{}.attention.head_count_kv", family.name());
        if !matches!(self.metadata.get(&key), Some(Value::Array(_))) {
            return Ok(());
        }

        self.key_heads = self.numbers(&key)?.unwrap_or_default();
        let attends = |heads: &&f64| **heads != 0.0 || family != Family::Lfm2;
        let heads: Vec<f64> = self.key_heads.iter().filter(attends).copied().collect();
        let first = heads.first().map_or(0, |first| *first as u64);
        if family == Family::Gemma4 || heads.iter().all(|heads| *heads == first as f64) {
            self.metadata.set(&key, Value::Unsigned(first));
        }
        Ok(())
    }

    /// Replaces the list of the width of each layer's MLP, which files of Gemma 4 E2B have, by the first width. Whoever
    /// makes the configuration looks at the list.
    fn unify_mlp_widths(&mut self) -> Result<(), GgufError> {
        let Some(family @ Family::Gemma4) = Family::of(&self.metadata) else { return Ok(()) };
        let key = format!("{}.feed_forward_length", family.name());
        if matches!(self.metadata.get(&key), Some(Value::Array(_))) {
            self.mlp_widths = self.numbers(&key)?.unwrap_or_default();
            let first = self.mlp_widths.first().map_or(0, |first| *first as u64);
            self.metadata.set(&key, Value::Unsigned(first));
        }
        Ok(())
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the tensors by the names that they have in a folder, such as
    /// `model.layers.0.self_attn.q_proj.weight`.
    pub fn tensors(&self) -> &BTreeMap<String, Tensor> {
        &self.tensors
    }

    /// Appends the values of a tensor to `values`, in the form that they have in a folder. `name` is the tensor's
    /// name in a folder. Returns true if all values are finite.
    ///
    /// # Errors
    /// Fails if there is no such tensor, or the file can't be read.
    pub fn read(&self, name: &str, values: &mut Vec<f32>) -> Result<bool, GgufError> {
        let tensor = self
            .tensors
            .get(name)
            .ok_or_else(|| self.model(format!("the file has no tensor for {name}")))?;

        let changes = changes(&self.metadata, name, &tensor.name, &tensor.shape);
        let changes = changes.map_err(|problem| self.model(problem))?;

        let old_length = values.len();
        let of_last = tensor.last.as_ref().map_or(0, |last| last.bytes);
        self.dequantise(tensor, tensor.bytes - of_last, values)?;
        if let Some(last) = &tensor.last {
            self.dequantise(last, last.bytes, values)?;
        }

        let values = &mut values[old_length..];
        // The changes come last one first, which is the order to undo them in.
        for change in changes {
            change.apply(Towards::Folder, tensor.shape[0], values);
        }

        Ok(values.iter().all(|value| value.is_finite()))
    }

    /// Appends the values of the first `remaining` bytes of a tensor of the file.
    fn dequantise(
        &self,
        tensor: &Tensor,
        mut remaining: u64,
        values: &mut Vec<f32>,
    ) -> Result<(), GgufError> {
        let unreadable = |source| GgufError::Read { path: self.path.clone(), source };
        let mut file = &self.file;
        file.seek(SeekFrom::Start(tensor.at)).map_err(unreadable)?;

        let chunk_bytes = (BLOCKS_PER_READ * tensor.kind.bytes()) as u64;
        let mut buffer = vec![0; chunk_bytes.min(remaining) as usize];
        while remaining > 0 {
            let part = &mut buffer[..chunk_bytes.min(remaining) as usize];
            file.read_exact(part).map_err(unreadable)?;
            remaining -= part.len() as u64;
            tensor.kind.dequantise(part, values);
        }
        Ok(())
    }

    pub(crate) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns the number of key heads of each layer. The list is empty if the file has no such list.
    pub(crate) fn key_heads(&self) -> &[f64] {
        &self.key_heads
    }

    /// Returns the width of each layer's MLP. The list is empty if the file has no such list.
    pub(crate) fn mlp_widths(&self) -> &[f64] {
        &self.mlp_widths
    }

    /// Returns a cursor at byte `at` of the file.
    pub(crate) fn cursor(&self, at: u64) -> Result<Cursor<'_>, GgufError> {
        Cursor::new(&self.path, &self.file, at, self.bytes)
    }

    /// Makes the error for a model that can't be used.
    pub(crate) fn model(&self, problem: String) -> GgufError {
        GgufError::Model { path: self.path.clone(), problem }
    }
}

/// Reads the numbers of tensors and of keys.
fn head(cursor: &mut Cursor<'_>) -> Result<(u64, u64), GgufError> {
    let magic: [u8; 4] = cursor.bytes()?;
    if magic != MAGIC {
        // A pointer of Git LFS is a text whose first word is `version`.
        if magic == *b"vers" {
            let problem = "it is a pointer of Git LFS: fetch the file with git lfs pull";
            return Err(cursor.unread(0, problem.into()));
        }

        let actual = magic.escape_ascii();
        let problem = format!("a GGUF file begins with GGUF, this file with {actual}");
        return Err(cursor.damaged(0, problem));
    }

    let version = cursor.u32()?;
    if !(2..=3).contains(&version) {
        // The other order of bytes turns a small version into a huge one.
        let problem = match version.swap_bytes() {
            1..=3 => "it is big-endian, expected little-endian".to_owned(),
            _ => format!("it has version {version}, expected 2 or 3"),
        };
        return Err(cursor.unread(4, problem));
    }

    Ok((cursor.u64()?, cursor.u64()?))
}

/// Refuses a file that is one of several parts of a model.
fn check_unsplit(path: &Path, metadata: &Metadata) -> Result<(), GgufError> {
    let wrong = |problem| GgufError::Model { path: path.to_owned(), problem };
    match metadata.count("split.count").map_err(wrong)? {
        Some(parts) if parts > 1 => Err(wrong(format!(
            "it is one of the {parts} files of a split model, expected a complete model: \
             llama.cpp's llama-gguf-split --merge joins the files"
        ))),
        _ => Ok(()),
    }
}

fn read_tensors(
    cursor: &mut Cursor<'_>,
    count: u64,
    metadata: &Metadata,
) -> Result<BTreeMap<String, Tensor>, GgufError> {
    if count > TENSORS {
        let problem = format!("the file claims {count} tensors, expected at most {TENSORS}");
        return Err(cursor.damaged(8, problem));
    }

    let align = alignment(metadata).map_err(|problem| cursor.unread(cursor.position(), problem))?;
    // Each tensor has to begin at the next multiple of the alignment after the tensor before it, so that no byte is
    // skipped or read as two tensors.
    let mut tensors = BTreeMap::new();
    let mut next_offset = 0u64;
    let family = Family::of(metadata);
    let blocks = blocks(metadata);

    for _ in 0..count {
        let entry_start = cursor.position();
        let tensor = read_tensor(cursor)?;
        if tensor.at != next_offset {
            let problem =
                format!("{} begins at {}, expected {next_offset}", tensor.name, tensor.at);
            return Err(cursor.damaged(entry_start, problem));
        }

        let aligned = next_offset
            .checked_add(tensor.bytes)
            .and_then(|end| end.checked_next_multiple_of(align));
        next_offset = aligned.ok_or_else(|| {
            cursor.damaged(entry_start, format!("{} would end beyond byte 2^64", tensor.name))
        })?;

        let name = names::in_folder(&tensor.name, family, blocks);
        if let Some(other) = tensors.insert(name, tensor) {
            return Err(cursor.damaged(entry_start, format!("{} occurs twice", other.name)));
        }
    }

    let start = cursor.position().next_multiple_of(align);
    for tensor in tensors.values_mut() {
        let end = start.checked_add(tensor.at).and_then(|at| at.checked_add(tensor.bytes));
        if end.is_none_or(|end| end > cursor.position() + cursor.remaining()) {
            let name = &tensor.name;
            let bytes = tensor.bytes;
            let problem = format!("the {bytes} bytes of {name} would end beyond the file");
            return Err(cursor.damaged(start.saturating_add(tensor.at), problem));
        }
        tensor.at += start;
    }

    if let Some(family) = family {
        if family.experts().is_some() {
            tensors = split_experts(cursor, tensors, family)?;
        }
        join(&mut tensors, family);
    }

    Ok(tensors.into_iter().map(reshaped).collect())
}

/// Returns the number of blocks that are the model's layers, if the file has more blocks.
fn blocks(metadata: &Metadata) -> Option<u64> {
    let name = metadata.text("general.architecture").ok()??;
    let count = |key: &str| metadata.count(&format!("{name}.{key}")).ok()?;
    count("block_count")?.checked_sub(count("nextn_predict_layers")?)
}

/// Splits each tensor that holds the matrices or the biases of all experts into one tensor for each expert and map.
fn split_experts(
    cursor: &Cursor<'_>,
    tensors: BTreeMap<String, Tensor>,
    family: Family,
) -> Result<BTreeMap<String, Tensor>, GgufError> {
    let mut parts = BTreeMap::new();
    for (name, tensor) in tensors {
        let Some(Stacked { experts: name, maps, kind }) = names::stacked(&name, family) else {
            parts.insert(name, tensor);
            continue;
        };
        let invalid_shape = |problem: &str| {
            let shape = &tensor.shape;
            cursor.damaged(tensor.at, format!("{} has the shape {shape:?}, {problem}", tensor.name))
        };

        // A size of 1 in front of others, which is the number of experts, has been removed.
        let sizes = if kind == "bias" { 1 } else { 2 };
        let (experts, shape) = match tensor.shape.len().checked_sub(sizes) {
            Some(0) => (1, &tensor.shape[..]),
            Some(1) => (tensor.shape[0], &tensor.shape[1..]),
            _ => return Err(invalid_shape(&format!("expected a {kind} for each expert"))),
        };

        if !shape[0].is_multiple_of(maps.len()) {
            return Err(invalid_shape("expected as many rows for gate as for up"));
        }
        let mut shape = shape.to_vec();
        shape[0] /= maps.len();

        // A row of a matrix is made of whole blocks, so every matrix is, while two biases in one row may share a block.
        if !shape[sizes - 1].is_multiple_of(tensor.kind.values()) {
            return Err(invalid_shape("expected whole blocks for gate and for up"));
        }

        let count = experts.saturating_mul(maps.len());
        if parts.len().saturating_add(count) > PARTS {
            return Err(invalid_shape(&format!(
                "which makes more than {PARTS} tensors of experts"
            )));
        }

        let bytes = tensor.bytes / count as u64;
        for number in 0..count {
            let expert = number / maps.len();
            let map = maps[number % maps.len()];
            let part = Tensor {
                shape: shape.clone(),
                bytes,
                at: tensor.at + number as u64 * bytes,
                ..tensor.clone()
            };
            parts.insert(format!("{name}.{expert}.{map}.{kind}"), part);
        }
    }

    Ok(parts)
}

/// Joins the tensors that a folder has as one. If one is missing, the other keeps its name, and no model takes it.
fn join(tensors: &mut BTreeMap<String, Tensor>, family: Family) {
    let found: Vec<_> = tensors.keys().filter_map(|name| names::joined(name, family)).collect();
    for [first, last, whole] in found {
        let (Some(one), Some(other)) = (tensors.get(&first), tensors.get(&last)) else { continue };
        if one.shape[1..] != other.shape[1..] {
            continue;
        }

        let mut shape = one.shape.clone();
        shape[0] += other.shape[0];
        let bytes = one.bytes + other.bytes;
        let joined = Tensor { shape, bytes, last: Some(Box::new(other.clone())), ..one.clone() };
        tensors.remove(&first);
        tensors.remove(&last);
        tensors.insert(whole, joined);
    }
}

/// Changes a tensor's shape to the one in a folder, where a convolution has a size of 1 in the middle, and the gate of
/// an expert a single row.
fn reshaped((name, mut tensor): (String, Tensor)) -> (String, Tensor) {
    let convolves =
        name.ends_with(".linear_attn.conv1d.weight") || name.ends_with(".conv.conv.weight");
    if convolves && tensor.shape.len() == 2 {
        tensor.shape.insert(1, 1);
    }
    if name.ends_with(".mlp.shared_expert_gate.weight") && tensor.shape.len() == 1 {
        tensor.shape.insert(0, 1);
    }
    (name, tensor)
}

/// Returns the number that all positions of tensors are multiples of.
fn alignment(metadata: &Metadata) -> Result<u64, String> {
    match metadata.count("general.alignment")? {
        None => Ok(32),
        Some(align) if align.is_power_of_two() && (8..=1 << 20).contains(&align) => Ok(align),
        Some(align) => {
            Err(format!("general.alignment is {align}, expected a power of 2 from 8 to 2^20"))
        }
    }
}

/// Reads a tensor. Its position is still counted from the beginning of the first tensor.
fn read_tensor(cursor: &mut Cursor<'_>) -> Result<Tensor, GgufError> {
    let entry_start = cursor.position();
    let name = cursor.text(NAME, "a tensor's name")?;
    // Names get into messages, and a terminal obeys control characters.
    if name.contains(char::is_control) {
        let problem = format!("the tensor's name {} has control characters", quoted(&name));
        return Err(cursor.damaged(entry_start, problem));
    }

    let sizes = cursor.u32()?;
    if !(1..=SIZES).contains(&sizes) {
        let problem = format!("{name} has {sizes} sizes, expected 1 to {SIZES}");
        return Err(cursor.damaged(entry_start, problem));
    }

    let mut shape = Vec::new();
    for _ in 0..sizes {
        let size = cursor.u64()?;
        match usize::try_from(size) {
            Ok(size) if size > 0 => shape.push(size),
            _ => {
                let problem = format!("{name} has a size of {size}, expected at least 1");
                return Err(cursor.damaged(entry_start, problem));
            }
        }
    }

    let number = cursor.u32()?;
    let Some(kind) = BlockType::of(number) else {
        let actual = name_of(number);
        let read = BlockType::ALL.map(BlockType::name).join(", ");
        let problem = format!(
            "{name} has the type {number}{actual}, expected one of {read}: take another quantisation of \
             the model"
        );
        return Err(cursor.unread(entry_start, problem));
    };

    if !shape[0].is_multiple_of(kind.values()) {
        let (inputs, kind, block) = (shape[0], kind.name(), kind.values());
        let problem =
            format!("{name} has rows of {inputs}, but {kind} needs whole blocks of {block}");
        return Err(cursor.damaged(entry_start, problem));
    }

    let values = shape.iter().try_fold(1u64, |all, &size| all.checked_mul(size as u64));
    let bytes =
        values.and_then(|all| (all / kind.values() as u64).checked_mul(kind.bytes() as u64));
    let Some(bytes) = bytes else {
        let problem =
            format!("{name} has the sizes {shape:?}, which make more than 2^64 values or bytes");
        return Err(cursor.damaged(entry_start, problem));
    };
    // The innermost size is first in the file, and last in a folder.
    shape.reverse();
    while shape.len() > 1 && shape[0] == 1 && sizes > 2 {
        shape.remove(0);
    }
    Ok(Tensor { name, kind, shape, bytes, at: cursor.u64()?, last: None })
}

/// Returns the name of a type that is not read.
fn name_of(number: u32) -> &'static str {
    match number {
        10 => " (Q2_K)",
        11 => " (Q3_K)",
        15 => " (Q8_K)",
        16..=23 | 29 => " (one of the IQ types)",
        34 | 35 => " (one of the TQ types)",
        40 => " (NVFP4)",
        _ => "",
    }
}
