use std::path::{Path, PathBuf};

use super::{CheckpointError, WeightDtype, folder::Tensors};

/// What the weights of a model folder are, without their values.
#[derive(Clone, Debug, PartialEq)]
pub struct Inventory {
    /// Every tensor, by name.
    pub tensors: Vec<TensorInfo>,
}

/// A tensor of a model folder.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    /// Such as `model.norm.weight`.
    pub name: String,
    /// Such as `BF16`, as safetensors names it.
    pub dtype: String,
    /// Its shape; matrices are `[outputs, inputs]`.
    pub shape: Vec<usize>,
    /// Size of its values in the file.
    pub bytes: u64,
    /// The file that holds it.
    pub file: PathBuf,
}

/// Lists the tensors of a model folder; reads headers only, whatever the size of the model.
///
/// # Errors
/// When a safetensors file or the index of the shards is missing or damaged.
pub fn inventory(folder: &Path) -> Result<Inventory, CheckpointError> {
    let tensors = Tensors::open(folder)?;
    let info = |name: &str| {
        let (file, info) = tensors.find(name)?;
        Some(TensorInfo {
            name: name.to_owned(),
            dtype: info.dtype.to_string(),
            shape: info.shape.clone(),
            bytes: (info.data_offsets.1 - info.data_offsets.0) as u64,
            file: file.path().to_owned(),
        })
    };
    Ok(Inventory { tensors: tensors.names().filter_map(info).collect() })
}

impl Inventory {
    /// Size of all values in the files.
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.bytes).sum()
    }

    /// Number of all values.
    pub fn parameters(&self) -> u64 {
        self.tensors.iter().map(TensorInfo::parameters).sum()
    }

    /// The type that most of the weights have; `None` when none has one that weights are read from.
    pub fn dtype(&self) -> Option<WeightDtype> {
        let share = |dtype: &WeightDtype| -> u64 {
            let name = dtype.in_file().to_string();
            let of_it = self.tensors.iter().filter(|tensor| tensor.dtype == name);
            of_it.map(TensorInfo::parameters).sum()
        };
        let dtypes = [WeightDtype::BF16, WeightDtype::F16, WeightDtype::F32];
        dtypes.into_iter().max_by_key(share).filter(|dtype| share(dtype) > 0)
    }
}

impl TensorInfo {
    /// Number of its values.
    pub fn parameters(&self) -> u64 {
        self.shape.iter().map(|&size| size as u64).product()
    }
}
