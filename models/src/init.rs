//! Random weights for new models.

use burn::tensor::Device;
use firebrick_core::Seed;

use crate::{
    base::FrozenFormat, checkpoint::CheckpointError, config::DecoderConfig, decoder::Decoder,
    normal::normals, source::ParameterSource,
};

/// Makes a decoder with random weights.
///
/// Matrices are normal with deviation `1/√inputs`. The matrices that write to the residual stream are smaller by
/// `√(2·layers)`, so that its variance does not grow with depth (Radford et al. 2019). Embeddings and the head have
/// deviation 0.02. Norms multiply by 1 and biases are 0. The heads of a recurrence forget at rates of up
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
            "bias" | "router_bias" | "correction" | "sinks" => return Ok(vec![0.0; count]),
            "scale" | "decay_bias" => return Ok(vec![1.0; count]),
            // The rate of each head is in (0, 16], as transformers draws it.
            "decay" => {
                let mut stream = self.seed.derive(path, &[]).stream();
                let rate = |head: u64| (16.0 * (1.0 - stream.uniform_at(head))).max(0.01);
                return Ok((0..count as u64).map(rate).map(|rate| rate.ln() as f32).collect());
            }
            "convolution" | "kernel" => 1.0 / (shape[2] as f64).sqrt(),
            "embedding" | "head" | "table" => 0.02,
            "output" | "down" => 1.0 / (shape[0] as f64 * 2.0 * self.layers as f64).sqrt(),
            _ => 1.0 / (shape[0] as f64).sqrt(),
        };

        Ok(normals(self.seed.derive(path, &[]), deviation, count))
    }
}
