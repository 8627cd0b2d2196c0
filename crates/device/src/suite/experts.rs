//! Cases of the suite: a layer of experts that get many tokens each.

use burn::tensor::Device;
use firebrick_core::{Completion, FinishReason, Seed, TokenId};
use firebrick_models::{
    Decoder, DecoderConfig, Family, FrozenFormat, Padding, PolicyModel, Sizes, TokenBatch,
    random_in,
};
use firebrick_train::Sample;

use super::{
    Array, Case,
    model::{VOCABULARY, WHOLE, failed, in_bf16, named, tokens, updater},
    operations,
    tensors::{in_f32, values},
};
use crate::{Failure, Precision, Tolerance};

pub(super) fn cases() -> Vec<Case> {
    vec![
        in_f32("model/experts", Tolerance::BACKWARD, experts),
        in_bf16("model/experts", Tolerance::BACKWARD, experts),
    ]
}

/// Computes hidden states and gradients of one layer with eight experts, of which each token takes two. Each gets a
/// quarter of 270 tokens, which gives matmuls of many rows, instead of few as in `model/kinds`.
fn experts(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    let policy = policy(precision, &device.clone().autodiff())?;
    let mut arrays = vec![Array::new("hidden", hidden(&policy)?)];
    let report = updater(WHOLE).gradients(&policy, &samples()).map_err(failed)?;
    let named = named(&policy, &report)?;
    arrays.extend(named.into_iter().map(|(name, values)| Array::new(name, values)));
    Ok(arrays)
}

/// Seed of the weights. A token on the boundary between two experts may be routed to either, and everything that
/// depends on it changes. With this seed, no token is so close to a boundary that 16 bits change its expert.
const SEED: u64 = 1;

/// Width of the model.
const HIDDEN: usize = 64;

fn policy(precision: Precision, device: &Device) -> Result<Decoder, Failure> {
    let sizes = Sizes {
        vocab_size: VOCABULARY,
        hidden_size: HIDDEN,
        layers: 1,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        intermediate_size: 96,
        max_position_embeddings: 512,
        rope_theta: 10_000.0,
        tied: false,
    };

    let config = DecoderConfig::new(Family::Qwen3Moe, sizes);
    let policy = random_in(&config, FrozenFormat::F32, Seed::run(SEED), device).map_err(failed)?;
    Ok(policy.with_compute(operations::compute(precision)))
}

/// Makes six samples of some 45 tokens each.
fn samples() -> Vec<Sample> {
    let sample = |index: usize| {
        let prompt = tokens(300 + index, 9 + index);
        let completion = tokens(400 + index, 31 + index);

        // A token among 61 has about this log-probability.
        let old_logprobs = vec![-4.11; completion.len()];
        let completion = Completion::written(completion, old_logprobs, FinishReason::Stop);

        let mut sample = Sample::new(&prompt, &completion, index as u64 / 2);
        sample.ref_logprobs = vec![-4.2; sample.completion.len()];
        sample.with_advantage(if index.is_multiple_of(2) { 0.7 } else { -0.9 })
    };
    (0..6).map(sample).collect()
}

/// Computes the hidden states of the samples.
fn hidden(policy: &Decoder) -> Result<Vec<f32>, Failure> {
    let texts: Vec<Vec<TokenId>> =
        samples().iter().map(|it| [&it.prompt[..], &it.completion[..]].concat()).collect();
    let texts: Vec<&[TokenId]> = texts.iter().map(Vec::as_slice).collect();
    let batch = TokenBatch::new(&texts, Padding::None, &policy.device());
    values(policy.sampler().hidden(&batch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_moves_no_token_to_another_expert() {
        let of = |precision| hidden(&policy(precision, &Device::flex()).unwrap()).unwrap();
        // One token at another expert would move its hidden state by far more than rounding.
        let exact = of(Precision::F32);
        let largest = exact.iter().fold(0f32, |most, number| most.max(number.abs()));
        for precision in [Precision::F16, Precision::Bf16] {
            let off = exact.iter().zip(of(precision)).map(|(exact, found)| (exact - found).abs());
            let worst = off.fold(0f32, f32::max) / largest;
            assert!(worst < 0.02, "{precision}: a hidden state is {worst} off");
        }
    }
}
