//! Where a decoder's parameters come from, and how they are read from there.

use burn::{
    module::Param,
    tensor::{Device, Tensor, TensorData},
};

use crate::{
    base::{FrozenFormat, frozen},
    checkpoint::CheckpointError,
};

/// Where a decoder's parameters come from: a checkpoint or a seed.
pub(crate) trait ParameterSource {
    /// Returns the values of the parameter at `path`, row-major in the decoder's own shape.
    fn values(&mut self, path: &str, shape: &[usize]) -> Result<Vec<f32>, CheckpointError>;

    /// Returns the format in which matrices are kept. A matrix in another format than f32 is frozen.
    fn base(&self) -> FrozenFormat {
        FrozenFormat::F32
    }
}

/// Reads a vector parameter from `source`.
pub(crate) fn vector(
    source: &mut dyn ParameterSource,
    path: &str,
    length: usize,
    device: &Device,
) -> Result<Param<Tensor<1>>, CheckpointError> {
    exact(source, path, [length], device)
}

/// Reads a matrix parameter from `source`.
pub(crate) fn matrix(
    source: &mut dyn ParameterSource,
    path: &str,
    shape: [usize; 2],
    device: &Device,
) -> Result<Param<Tensor<2>>, CheckpointError> {
    Ok(parameter(source.values(path, &shape)?, shape, source.base(), device))
}

/// Reads a parameter from `source` and keeps it in f32, whatever the format of matrices.
pub(crate) fn exact<const D: usize>(
    source: &mut dyn ParameterSource,
    path: &str,
    shape: [usize; D],
    device: &Device,
) -> Result<Param<Tensor<D>>, CheckpointError> {
    Ok(Param::from_data(TensorData::new(source.values(path, &shape)?, shape), device))
}

/// Makes a matrix parameter from these values in the format `base`.
pub(crate) fn parameter(
    values: Vec<f32>,
    shape: [usize; 2],
    base: FrozenFormat,
    device: &Device,
) -> Param<Tensor<2>> {
    match base {
        FrozenFormat::F32 => Param::from_data(TensorData::new(values, shape), device),
        FrozenFormat::Bf16 | FrozenFormat::Int8 | FrozenFormat::Int4 => {
            frozen(values, shape, device)
        }
    }
}
