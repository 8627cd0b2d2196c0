//! Samples tokens from logits, on the CPU or on the device.

use burn::tensor::Tensor;
use firebrick_core::TokenId;
use firebrick_kernels::{Kernels, kernels, sample_on_device, sample_on_host};

use crate::{error::RolloutError, sampling::Sampling};

/// Where tokens are sampled: the same token on either side, except for rounding ([`sample_on_device`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleOn {
    /// On the CPU ([`sample_on_host`]), unless the kernels are the reference.
    Host,
    /// On the device, with one read-back of ids and log-probs.
    Device,
}

/// Samples one token per row of `logits`, `[rows, vocab]`, with the uniform random numbers `uniforms` and the same
/// `sampling` for all rows, and returns each with its log-probability.
pub(crate) fn sample_with(
    logits: Tensor<2>,
    uniforms: &[f64],
    sampling: &Sampling,
    sample_on: SampleOn,
) -> Result<Vec<(TokenId, f32)>, RolloutError> {
    let token_sampling = sampling.token_sampling();
    match (sample_on, kernels()) {
        (SampleOn::Host, Kernels::Fast) => {
            let logits: Vec<f32> = read(logits.try_into_vec_as::<f32>())?;
            Ok(sample_on_host(&logits, uniforms, &token_sampling))
        }
        _ => {
            let uniforms: Vec<f32> = uniforms.iter().map(|&uniform| uniform as f32).collect();
            let uniforms = Tensor::from_floats(uniforms.as_slice(), &logits.device());
            let (tokens, logprobs) = sample_on_device(logits, uniforms, &token_sampling);

            // One tensor needs one read-back. Ids below 2²⁴ are exact in f32.
            let both = Tensor::stack::<2>(vec![tokens.float(), logprobs], 1);
            let both: Vec<f32> = read(both.try_into_vec_as::<f32>())?;
            let pairs = both.as_chunks::<2>().0.iter();
            Ok(pairs.map(|&[token, logprob]| (token as TokenId, logprob)).collect())
        }
    }
}

fn read<T, E: std::fmt::Debug>(result: Result<T, E>) -> Result<T, RolloutError> {
    result.map_err(|error| RolloutError::Device(format!("{error:?}")))
}
