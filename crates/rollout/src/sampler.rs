use burn::tensor::{Int, Tensor};
use firebrick_core::{FinishReason, TokenId};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::RolloutError;

/// How tokens are drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// Divides the logits; 0 takes the likeliest token.
    pub temperature: f64,
    /// Only the `top_k` likeliest tokens can be drawn; 0 means all.
    pub top_k: usize,
    /// Only the smallest set of likeliest tokens with at least this probability can be drawn;
    /// in `(0, 1]`.
    pub top_p: f64,
    /// A completion of so many tokens ends with `FinishReason::Length`.
    pub max_completion_tokens: usize,
    /// A completion ends with any of these tokens.
    pub stop: Vec<TokenId>,
}

impl Sampling {
    /// The likeliest token, always.
    pub fn greedy(max_completion_tokens: usize, stop: Vec<TokenId>) -> Self {
        Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, max_completion_tokens, stop }
    }

    /// Why a completion of `tokens` has ended, if it has.
    pub(crate) fn finish(&self, tokens: &[TokenId]) -> Option<FinishReason> {
        if tokens.last().is_some_and(|last| self.stop.contains(last)) {
            Some(FinishReason::Stop)
        } else {
            (tokens.len() >= self.max_completion_tokens).then_some(FinishReason::Length)
        }
    }

    fn truncates(&self, vocab: usize) -> bool {
        self.top_p < 1.0 || (1..vocab).contains(&self.top_k)
    }

    /// Greedy log-probabilities are reported at temperature 1.
    fn divisor(&self) -> f64 {
        if self.temperature == 0.0 { 1.0 } else { self.temperature }
    }
}

/// Where tokens are drawn. Both ways invert the same cumulative distribution at the same uniform
/// number, so they draw the same token unless that number falls within rounding of its edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleOn {
    /// Rows in parallel on the CPU: right where the device is the CPU, on which a sort of
    /// [64, 4096] takes 4 ms and a pass over it a tenth of that.
    Host,
    /// On the device, with one read-back of ids and log-probs.
    Device,
}

/// Draws one token per row of `logits`, `[rows, vocab]`, at the uniform numbers; gives it with its
/// log-probability.
pub(crate) fn draw_tokens(
    logits: Tensor<2>,
    uniforms: &[f64],
    sampling: &Sampling,
    sample_on: SampleOn,
) -> Result<Vec<(TokenId, f32)>, RolloutError> {
    match sample_on {
        SampleOn::Host => {
            let logits: Vec<f32> = read(logits.try_into_vec_as::<f32>())?;
            Ok(sample_on_host(&logits, uniforms, sampling))
        }
        SampleOn::Device => {
            let uniforms: Vec<f32> = uniforms.iter().map(|&uniform| uniform as f32).collect();
            let uniforms = Tensor::from_floats(uniforms.as_slice(), &logits.device());
            let (tokens, logprobs) = sample_on_device(logits, uniforms, sampling);
            // One tensor, one read-back. Ids below 2²⁴ are exact in f32.
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

/// Draws one token per row of `logits` (`rows` × `vocab`, row-major), at the uniform numbers in
/// `[0, 1)`; gives the tokens with their log-probabilities over the whole vocabulary.
pub fn sample_on_host(
    logits: &[f32],
    uniforms: &[f64],
    sampling: &Sampling,
) -> Vec<(TokenId, f32)> {
    let vocab = logits.len() / uniforms.len().max(1);
    let rows = logits.par_chunks_exact(vocab.max(1)).zip(uniforms);
    rows.with_min_len(8192usize.div_ceil(vocab.max(1)))
        .map(|(row, &uniform)| sample_row(row, uniform, sampling))
        .collect()
}

/// [`sample_on_host`] in tensor operations: `[rows, vocab]` and `[rows]` to `[rows]` and `[rows]`.
pub fn sample_on_device(
    logits: Tensor<2>,
    uniforms: Tensor<1>,
    sampling: &Sampling,
) -> (Tensor<1, Int>, Tensor<1>) {
    let [rows, vocab] = logits.dims();
    let logits = logits.div_scalar(sampling.divisor());
    let shifted = logits.clone() - logits.max_dim(1);
    let weights = shifted.clone().exp();
    let log_p = shifted - weights.clone().sum_dim(1).log();
    let token: Tensor<2, Int> = if sampling.temperature == 0.0 {
        log_p.clone().argmax(1)
    } else if sampling.truncates(vocab) {
        let (weights, ids) = weights.sort_descending_with_indices(1);
        let total = weights.clone().sum_dim(1);
        // A token stays if what comes before it has not yet reached top_p.
        let before = weights.clone().cumsum(1) - weights.clone();
        let mut cut = before.greater_equal(total.mul_scalar(sampling.top_p).expand([rows, vocab]));
        if (1..vocab).contains(&sampling.top_k) {
            let column = Tensor::<1, Int>::arange(0..vocab as i64, &weights.device());
            let beyond = column.greater_equal_elem(sampling.top_k as i64).unsqueeze::<2>();
            cut = cut.bool_or(beyond.expand([rows, vocab]));
        }
        ids.gather(1, invert(weights.mask_fill(cut, 0.0), uniforms))
    } else {
        invert(weights, uniforms)
    };
    let logprob = log_p.gather(1, token.clone());
    (token.squeeze_dim(1), logprob.squeeze_dim(1))
}

/// The first column whose cumulative weight exceeds `uniform · total`.
fn invert(weights: Tensor<2>, uniforms: Tensor<1>) -> Tensor<2, Int> {
    let [rows, vocab] = weights.dims();
    let cumulative = weights.cumsum(1);
    let total = cumulative.clone().slice_dim(1, vocab - 1..vocab);
    let target = total.clone() * uniforms.unsqueeze_dim::<2>(1);
    // In f32 the target can round up to the total; columns without weight at the end, which have
    // reached it too, must not be drawn then.
    let short = cumulative.clone().lower(total.expand([rows, vocab]));
    let passed = cumulative.lower_equal(target.expand([rows, vocab])).bool_and(short);
    passed.int().sum_dim(1)
}

fn sample_row(logits: &[f32], uniform: f64, sampling: &Sampling) -> (TokenId, f32) {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let divisor = sampling.divisor() as f32;
    let weights: Vec<f32> = logits.iter().map(|logit| ((logit - max) / divisor).exp()).collect();
    let total: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
    let token = if sampling.temperature == 0.0 {
        logits.iter().position(|&logit| logit == max).unwrap_or(0)
    } else if sampling.truncates(logits.len()) {
        let mut order: Vec<usize> = (0..weights.len()).collect();
        order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]));
        order.truncate(if sampling.top_k == 0 { order.len() } else { sampling.top_k });
        let mut mass = 0.0;
        let kept = order.iter().take_while(|&&token| {
            let before = mass;
            mass += f64::from(weights[token]);
            before < sampling.top_p * total
        });
        let kept: Vec<usize> = kept.copied().collect();
        draw(kept.iter().map(|&token| weights[token]), uniform).map_or(0, |at| kept[at])
    } else {
        draw(weights.iter().copied(), uniform).unwrap_or(0)
    };
    let logprob = f64::from((logits[token] - max) / divisor) - total.ln();
    (token as TokenId, logprob as f32)
}

/// The first index whose cumulative weight exceeds `uniform · total`; the last with any weight if
/// rounding let none.
fn draw(weights: impl Iterator<Item = f32> + Clone, uniform: f64) -> Option<usize> {
    let total: f64 = weights.clone().map(f64::from).sum();
    let target = uniform * total;
    let mut cumulative = 0.0;
    let mut last = None;
    for (index, weight) in weights.enumerate() {
        if weight > 0.0 {
            cumulative += f64::from(weight);
            last = Some(index);
            if cumulative > target {
                break;
            }
        }
    }
    last
}
