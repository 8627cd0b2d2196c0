//! The inventory of a model folder: names, types and shapes of its tensors, without their values.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{CheckpointError, Formats, WeightDtype, tensors::Tensors};

/// A description of the weights in a model folder, without their values.
#[derive(Clone, Debug, PartialEq)]
pub struct Inventory {
    /// All tensors, ordered by name.
    pub tensors: Vec<TensorInfo>,
}

/// A tensor of a model folder.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    /// Name, such as `model.norm.weight`.
    pub name: String,
    /// Type, such as `BF16`, as safetensors or GGUF names it.
    pub dtype: String,
    /// Shape; matrices are `[outputs, inputs]`.
    pub shape: Vec<usize>,
    /// Size of the values in the file.
    pub bytes: u64,
    /// Path of the file that holds it.
    pub file: PathBuf,
}

/// Lists the tensors of a model folder or GGUF file from the headers alone, whatever the size of the model.
///
/// # Errors
/// Fails if a file of weights or the index of the shards is missing or damaged.
pub fn inventory(folder: &Path) -> Result<Inventory, CheckpointError> {
    let tensors = Tensors::open(folder)?;
    let info = |name| tensors.info(name);
    Ok(Inventory { tensors: tensors.names().filter_map(info).collect() })
}

impl Inventory {
    /// Returns the size of all values in the files.
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.bytes).sum()
    }

    /// Returns the number of all values.
    pub fn parameters(&self) -> u64 {
        self.tensors.iter().map(TensorInfo::parameters).sum()
    }

    /// Lists the types with their numbers of tensors, as `210 in Q4_1, 61 in F32`. The type with the largest share
    /// of the values comes first.
    pub fn types(&self) -> String {
        let mut types: BTreeMap<&str, (u64, usize)> = BTreeMap::new();
        for tensor in &self.tensors {
            let (values, count) = types.entry(&tensor.dtype).or_default();
            *values += tensor.parameters();
            *count += 1;
        }

        let mut types: Vec<_> = types.into_iter().collect();
        types.sort_by_key(|(_, (values, _))| Reverse(*values));
        let types = types.iter().map(|(dtype, (_, count))| format!("{count} in {dtype}"));
        types.collect::<Vec<_>>().join(", ")
    }

    /// Tells whether some weights have 8 or 4 bits, and scales.
    pub fn has_scales(&self) -> bool {
        let scaled = ["F8_E4M3", "MXFP4"];
        self.tensors.iter().any(|tensor| scaled.contains(&tensor.dtype.as_str()))
    }

    /// Returns the type that most of the weights have. `None` if no tensor has a type that weights are read from.
    pub fn dtype(&self) -> Option<WeightDtype> {
        let share = |dtype: &WeightDtype| -> u64 {
            let is_it = |tensor: &&TensorInfo| WeightDtype::named(&tensor.dtype) == Some(*dtype);
            let of_it = self.tensors.iter().filter(is_it);
            of_it.map(TensorInfo::parameters).sum()
        };

        let dtypes = [WeightDtype::BF16, WeightDtype::F16, WeightDtype::F32];
        dtypes.into_iter().max_by_key(share).filter(|dtype| share(dtype) > 0)
    }

    /// Returns the format of each tensor. For a tensor without such a format, as GGUF's blocks, it is that of most
    /// other tensors, or f32.
    pub fn formats(&self) -> Formats {
        let mut formats = Formats::all(self.dtype().unwrap_or_default());
        for tensor in &self.tensors {
            if let Some(dtype) = WeightDtype::named(&tensor.dtype) {
                formats.set(&tensor.name, dtype);
            }
        }
        formats
    }
}

impl TensorInfo {
    /// Returns the number of the tensor's values.
    pub fn parameters(&self) -> u64 {
        self.shape.iter().map(|&size| size as u64).product()
    }
}
