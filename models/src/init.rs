//! Random weights for new models, and the trait of the sources of parameters.

use burn::{
    module::Param,
    tensor::{Device, Tensor, TensorData},
};
use firebrick_core::Seed;

use crate::{CheckpointError, Decoder, DecoderConfig, FrozenFormat, base::frozen, normal::normals};

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

/// Makes a decoder with random weights.
///
/// Matrices are normal with deviation `1/√inputs`. The two matrices that write to the residual stream are smaller
/// by `√(2·layers)`, so that its variance does not grow with depth (Radford et al. 2019). The embedding and the
/// head have deviation 0.02. Norms multiply by 1 and biases are 0. The heads of a recurrence forget at rates of up
/// to 16 a token, times the softplus of 1. Each parameter has its own seed, so its values do not depend on the order in
/// which parameters are made.
///
/// # Errors
/// Fails if the sizes do not fit together.
pub fn random(
    config: &DecoderConfig,
    seed: Seed,
    device: &Device,
) -> Result<Decoder, CheckpointError> {
    random_in(config, FrozenFormat::F32, seed, device)
}

/// Makes a decoder like [`random`], with its weights kept in the format `base`, as
/// [`load_noting`](crate::load_noting) keeps them.
///
/// # Errors
/// Fails if the sizes do not fit together.
pub fn random_in(
    config: &DecoderConfig,
    base: FrozenFormat,
    seed: Seed,
    device: &Device,
) -> Result<Decoder, CheckpointError> {
    config.check().map_err(CheckpointError::NewModel)?;
    let norm = (1.0 - config.norm_offset) as f32;
    Decoder::from_source(config, &mut Random { layers: config.layers, norm, base, seed }, device)
}

struct Random {
    layers: usize,
    /// At this weight a norm multiplies by one.
    norm: f32,
    base: FrozenFormat,
    seed: Seed,
}

impl ParameterSource for Random {
    fn base(&self) -> FrozenFormat {
        self.base
    }

    fn values(&mut self, path: &str, shape: &[usize]) -> Result<Vec<f32>, CheckpointError> {
        let count = shape.iter().product();
        let path = path.strip_suffix(".weight").unwrap_or(path);

        let deviation = match path.rsplit('.').next().unwrap_or(path) {
            norm if norm.ends_with("norm") => {
                return Ok(vec![self.norm; count]);
            }
            "bias" => return Ok(vec![0.0; count]),
            "scale" | "decay_bias" => return Ok(vec![1.0; count]),
            // The rate of each head is in (0, 16], as transformers draws it.
            "decay" => {
                let mut stream = self.seed.derive(path, &[]).stream();
                let rate = |head: u64| (16.0 * (1.0 - stream.uniform_at(head))).max(0.01);
                return Ok((0..count as u64).map(rate).map(|rate| rate.ln() as f32).collect());
            }
            "convolution" => 1.0 / (shape[2] as f64).sqrt(),
            "embedding" | "head" => 0.02,
            "output" | "down" => 1.0 / (shape[0] as f64 * 2.0 * self.layers as f64).sqrt(),
            _ => 1.0 / (shape[0] as f64).sqrt(),
        };

        Ok(normals(self.seed.derive(path, &[]), deviation, count))
    }
}
