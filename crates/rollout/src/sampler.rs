//! The settings of sampling: how tokens are sampled, and where completions end.

use burn::tensor::Tensor;
use firebrick_core::{FinishReason, TokenId};
use firebrick_kernels::{Choice, Kernels, kernels, sample_on_device, sample_on_host};
use serde::{Deserialize, Serialize};

use crate::RolloutError;

/// How tokens are sampled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// Divides the logits; 0 takes the likeliest token.
    pub temperature: f64,
    /// How many of the likeliest tokens can be sampled; 0 means all tokens.
    pub top_k: usize,
    /// Probability, in `(0, 1]`, that the likeliest tokens have to reach together: only the smallest set of them
    /// that has at least this probability can be sampled.
    pub top_p: f64,
    /// At this many tokens a completion ends with `FinishReason::Length`.
    pub max_completion_tokens: usize,
    /// Tokens that end a completion.
    pub stop: Vec<TokenId>,
}

impl Sampling {
    /// Always takes the likeliest token.
    pub fn greedy(max_completion_tokens: usize, stop: Vec<TokenId>) -> Self {
        Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, max_completion_tokens, stop }
    }

    /// Returns the reason why a completion of `tokens` has ended, if it has.
    pub fn finish(&self, tokens: &[TokenId]) -> Option<FinishReason> {
        if tokens.last().is_some_and(|last| self.stop.contains(last)) {
            Some(FinishReason::Stop)
        } else {
            (tokens.len() >= self.max_completion_tokens).then_some(FinishReason::Length)
        }
    }

    /// Returns the settings by which each single token is sampled, without the end of completions.
    pub fn token_sampling(&self) -> Choice {
        Choice { temperature: self.temperature, top_k: self.top_k, top_p: self.top_p }
    }
}

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
