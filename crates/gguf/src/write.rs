//! A GGUF file that is being written: everything but the weights at once, then tensor by tensor.

mod config;
mod new_keys;
mod tokenizer;

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{self, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use serde_json::Value;

pub use tokenizer::Vocabulary;

use self::new_keys::NewKeys;
use crate::{
    FileType, GgufError,
    change::{Towards, changes},
    family::Family,
    file::MAGIC,
    metadata::Metadata,
    names,
};

/// Version of the format that is written.
const VERSION: u32 = 3;

/// Number that all positions of tensors are multiples of. Files without `general.alignment` have this one.
const ALIGN: u64 = 32;

/// How many values are rounded and written together: a multiple of every block.
const VALUES_PER_WRITE: usize = 1 << 18;

/// A model that is to be written as a GGUF file, without its weights.
#[derive(Clone, Debug)]
pub struct NewModel<'a> {
    /// Name that programs show.
    pub name: &'a str,
    /// Content of `config.json`, with the fields that [`Gguf::file`](crate::Gguf::file) makes.
    pub config: &'a Value,
    /// Tensors by their names and shapes in a folder. A head that is the embedding is not among them.
    pub tensors: Vec<(String, Vec<usize>)>,
    /// Tokenizer and chat template.
    pub vocabulary: Vocabulary<'a>,
}

/// A GGUF file whose tensors are being written.
#[derive(Debug)]
pub struct NewGguf {
    path: PathBuf,
    file: File,
    metadata: Metadata,
    /// Tensors that are not written yet, by their names in a folder.
    missing: BTreeMap<String, Vec<Slot>>,
}

/// Where the values of a folder's tensor go, or some of its rows, if a file has it in parts.
#[derive(Debug)]
struct Slot {
    /// Name of the file's tensor.
    name: String,
    kind: FileType,
    shape: Vec<usize>,
    /// Offset in the file, in bytes.
    at: u64,
}

/// A tensor of the file.
#[derive(Debug)]
struct NewTensor {
    name: String,
    kind: FileType,
    shape: Vec<usize>,
    /// Offset from the first tensor, in bytes.
    at: u64,
}

impl NewGguf {
    /// Makes the file at `path`, which must not exist, and writes everything but the weights. [`Gguf`](crate::Gguf)
    /// can then open it already, and finds zeros as the values of its tensors.
    ///
    /// Matrices become `file_type`, while everything that programs expect in f32 stays in f32. Where a row has no whole
    /// number of blocks, a matrix becomes f16.
    ///
    /// # Errors
    /// Fails if the file can't be written, or the format has no words for such a model.
    pub fn create(
        path: &Path,
        model: &NewModel<'_>,
        file_type: FileType,
    ) -> Result<Self, GgufError> {
        let unwritable = |problem| GgufError::Unwritable { problem };
        let family = family(model.config).map_err(unwritable)?;

        let mut keys = NewKeys::new(family);
        keys.text("general.architecture", family.name());
        keys.text("general.type", "model");
        keys.text("general.name", model.name);
        keys.number("general.file_type", file_type.number().into());
        // The version of the blocks' formats, which programs want to know if there are blocks.
        keys.number("general.quantization_version", 2);
        let rows = config::size(model.config, "vocab_size").map_err(unwritable)?;
        tokenizer::write(&model.vocabulary, rows, &mut keys).map_err(unwritable)?;
        let further = config::write(model.config, family, &mut keys).map_err(unwritable)?;

        let mut plan = Plan::new(file_type);
        for (name, values) in &further {
            plan.add(name, vec![values.len()], FileType::F32);
        }
        for (name, shape) in &model.tensors {
            plan.add_from_folder(name, shape, family, model.config).map_err(unwritable)?;
        }

        let head = head(&keys, &plan.tensors);
        let failed = |source| GgufError::Write { path: path.to_owned(), source };
        let mut file = File::create_new(path).map_err(failed)?;
        file.write_all(&head).map_err(failed)?;
        file.set_len(head.len() as u64 + plan.end).map_err(failed)?;

        let missing = plan.slots(head.len() as u64);
        let mut new =
            NewGguf { path: path.to_owned(), file, metadata: keys.into_metadata(), missing };
        for (name, values) in further {
            new.write(name, values)?;
        }
        Ok(new)
    }

    /// Writes the values of a tensor. `name` and `values` are those of a folder. Tensors come in any order.
    ///
    /// # Errors
    /// Fails if the file can't be written, a value is beyond the file's type, or the model has no such tensor or
    /// it was written already.
    pub fn write(&mut self, name: &str, mut values: Vec<f32>) -> Result<(), GgufError> {
        let unwritable = |problem| GgufError::Unwritable { problem };
        let slots = self.missing.remove(name).unwrap_or_default();
        let first = slots
            .first()
            .ok_or_else(|| unwritable(format!("{name} is not among the tensors to write")))?;

        let expected: usize = slots.iter().map(Slot::values).sum();
        if values.len() != expected {
            let actual = values.len();
            return Err(unwritable(format!("{name} has {actual} values, expected {expected}")));
        }

        // Parts of a tensor are changed together, as when they are read.
        let mut shape = first.shape.clone();
        shape[0] = slots.iter().map(|slot| slot.shape[0]).sum();
        let changes = changes(&self.metadata, name, &first.name, &shape);
        for change in changes.map_err(unwritable)?.into_iter().rev() {
            change.apply(Towards::File, shape[0], &mut values);
        }

        let mut rest = values.as_slice();
        for slot in &slots {
            let (part, others) = rest.split_at(slot.values());
            self.write_at(name, slot, part)?;
            rest = others;
        }
        Ok(())
    }

    /// Tells that every tensor is written.
    ///
    /// # Errors
    /// Fails if a tensor is missing.
    pub fn finish(self) -> Result<(), GgufError> {
        match self.missing.first_key_value() {
            None => Ok(()),
            Some((name, _)) => {
                Err(GgufError::Unwritable { problem: format!("{name} was not written") })
            }
        }
    }

    fn write_at(&mut self, name: &str, slot: &Slot, values: &[f32]) -> Result<(), GgufError> {
        let failed = |source: io::Error| GgufError::Write { path: self.path.clone(), source };
        self.file.seek(SeekFrom::Start(slot.at)).map_err(failed)?;

        let mut bytes = Vec::new();
        for values in values.chunks(VALUES_PER_WRITE) {
            bytes.clear();
            if let Err(value) = slot.kind.narrow(values, &mut bytes) {
                let kind = slot.kind;
                return Err(GgufError::Range { name: name.to_owned(), value, kind });
            }
            self.file.write_all(&bytes).map_err(failed)?;
        }
        Ok(())
    }
}

impl Slot {
    fn values(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Finds the family whose files hold such a model.
fn family(config: &Value) -> Result<Family, String> {
    let model_type = config["model_type"].as_str().unwrap_or_default();
    Family::of_model_type(model_type).ok_or_else(|| {
        let known = Family::names();
        format!(
            "its model_type is {model_type:?}, which is none of the architectures that are written: {known}"
        )
    })
}

/// The tensors of the file in their order.
struct Plan {
    file_type: FileType,
    tensors: Vec<NewTensor>,
    /// Positions in the list, by names in the file.
    by_name: HashMap<String, usize>,
    /// Names in a folder and shapes, with the file's tensor and the number of bytes before the values in it. A name
    /// that occurs twice is of a tensor that the file has in parts.
    pieces: Vec<(String, Vec<usize>, usize, u64)>,
    /// Offset behind the last tensor.
    end: u64,
}

impl Plan {
    fn new(file_type: FileType) -> Self {
        let by_name = HashMap::new();
        Plan { file_type, tensors: Vec::new(), by_name, pieces: Vec::new(), end: 0 }
    }

    /// Adds a tensor that has the same name and shape in a folder.
    fn add(&mut self, name: &str, shape: Vec<usize>, kind: FileType) {
        let tensor = self.add_tensor(name.to_owned(), shape.clone(), kind);
        self.pieces.push((name.to_owned(), shape, tensor, 0));
    }

    /// Adds a tensor of a folder, which the file may have in parts.
    fn add_from_folder(
        &mut self,
        name: &str,
        shape: &[usize],
        family: Family,
        config: &Value,
    ) -> Result<(), String> {
        let rows = shape.first().copied().unwrap_or(1);
        let parts = match names::parts(name, family) {
            None => vec![(name.to_owned(), rows)],
            Some(([first, last], fields)) => {
                let sizes = fields.iter().map(|field| config::size(config, field));
                let of_last = sizes.product::<Result<usize, _>>()?;
                let of_first = rows.checked_sub(of_last);
                let of_first = of_first.ok_or_else(|| {
                    format!("{name} has {rows} rows, expected at least {of_last}")
                })?;
                vec![(first, of_first), (last, of_last)]
            }
        };

        for (part, rows) in parts {
            let mut shape = shape.to_vec();
            if let Some(first) = shape.first_mut() {
                *first = rows;
            }
            let (tensor, before) = self.add_part(&part, &shape, family, config)?;
            self.pieces.push((name.to_owned(), shape, tensor, before));
        }
        Ok(())
    }

    /// Adds what has this name and this shape in a folder, and returns the file's tensor and the number of bytes before
    /// the values in it. The matrices of all experts become one tensor, which the first of them adds, and so do their
    /// biases.
    fn add_part(
        &mut self,
        name: &str,
        shape: &[usize],
        family: Family,
        config: &Value,
    ) -> Result<(usize, u64), String> {
        let unknown = || format!("{} has no tensor for {name}", family.name());
        let in_file = names::in_file(name, family).ok_or_else(unknown)?;

        let mut file_shape = shape.to_vec();
        if in_file.name.ends_with("conv1d.weight") || in_file.name.ends_with("conv.weight") {
            // A folder has a size of 1 in the middle.
            file_shape.retain(|&size| size != 1);
        }
        if in_file.expert.is_some() {
            let count = family.experts().ok_or_else(unknown)?;
            file_shape.insert(0, config::size(config, count)?);
        }

        let tensor = match self.by_name.get(&in_file.name) {
            Some(&tensor) => tensor,
            None => {
                let kind = self.file_type.of_tensor(&in_file.name, &file_shape);
                self.add_tensor(in_file.name, file_shape, kind)
            }
        };
        let part = self.tensors[tensor].kind.bytes(shape);
        let before = in_file.expert.unwrap_or(0) as u64 * part;
        if before + part > self.tensors[tensor].kind.bytes(&self.tensors[tensor].shape) {
            return Err(format!("{name} is beyond the experts that config.json counts"));
        }
        Ok((tensor, before))
    }

    fn add_tensor(&mut self, name: String, shape: Vec<usize>, kind: FileType) -> usize {
        let tensor = self.tensors.len();
        self.by_name.insert(name.clone(), tensor);
        let at = self.end;
        self.end = (at + kind.bytes(&shape)).next_multiple_of(ALIGN);
        self.tensors.push(NewTensor { name, kind, shape, at });
        tensor
    }

    /// Returns where the values of each tensor of a folder go, if the first tensor begins at byte `start`.
    fn slots(self, start: u64) -> BTreeMap<String, Vec<Slot>> {
        let mut slots: BTreeMap<String, Vec<Slot>> = BTreeMap::new();
        for (name, shape, tensor, before) in self.pieces {
            let tensor: &NewTensor = &self.tensors[tensor];
            let at = start + tensor.at + before;
            let slot = Slot { name: tensor.name.clone(), kind: tensor.kind, shape, at };
            slots.entry(name).or_default().push(slot);
        }
        slots
    }
}

/// Makes the bytes before the first tensor.
fn head(keys: &NewKeys, tensors: &[NewTensor]) -> Vec<u8> {
    let mut head = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
    for count in [tensors.len(), keys.len()] {
        head.extend((count as u64).to_le_bytes());
    }
    keys.write(&mut head);

    for tensor in tensors {
        new_keys::write_text(&tensor.name, &mut head);
        head.extend((tensor.shape.len() as u32).to_le_bytes());
        // The innermost size is first in the file, and last in a folder.
        for &size in tensor.shape.iter().rev() {
            head.extend((size as u64).to_le_bytes());
        }
        head.extend(tensor.kind.block().number().to_le_bytes());
        head.extend(tensor.at.to_le_bytes());
    }

    head.resize(head.len().next_multiple_of(ALIGN as usize), 0);
    head
}
