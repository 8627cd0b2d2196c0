//! Cases of the suite: drawing tokens, alone and in the engine.

use std::sync::Arc;

use burn::tensor::{Device, Tensor, TensorData};
use firebrick_core::{Detokenizer, Prompt, Seed, TokenId};
use firebrick_kernels::{sample_on_device, sample_on_host};
use firebrick_models::Decoder;
use firebrick_rollout::{GroupRequest, LocalEngine, SampleOn, Sampling};

use super::{
    Array, Case,
    model::{failed, policy, tokens},
    tensors::{in_f32, values, whole},
};
use crate::{Failure, Precision, Tolerance};

pub(super) fn cases() -> Vec<Case> {
    vec![
        in_f32("sampling/draws", Tolerance::ELEMENTWISE, draws),
        in_f32("sampling/engine", Tolerance::FORWARD, engine),
    ]
}

/// Draws tokens on the device, and expects the tokens that the host draws from the same logits at the same uniform
/// numbers. No uniform number is within rounding of a boundary. Every fifth token is as likely as the token before it.
fn draws(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    let mut arrays = Vec::new();
    for [rows, vocab] in [[16, 61], [1, 1], [5, 5001], [2, 70_001]] {
        let mut stream = Seed::run(4).stream();
        // A sum of three uniforms is normal enough.
        let mut logits: Vec<f32> = (0..(rows * vocab) as u64)
            .map(|at| {
                (0..3).map(|part| 4.0 * stream.uniform_at(3 * at + part) - 2.0).sum::<f64>() as f32
            })
            .collect();
        (4..logits.len()).step_by(5).for_each(|at| logits[at] = logits[at - 1]);

        let mut stream = Seed::run(5).stream();
        let uniforms: Vec<f32> = (0..rows as u64).map(|at| stream.uniform_at(at) as f32).collect();
        let on_host: Vec<f64> = uniforms.iter().map(|&uniform| f64::from(uniform)).collect();

        for (name, sampling) in [
            ("greedy", Sampling::greedy(1, Vec::new())),
            ("temperature", sampling(0.7, 0, 1.0, 1)),
            ("top-k", sampling(1.0, 10, 1.0, 1)),
            ("top-p", sampling(1.0, 0, 0.8, 1)),
            ("both", sampling(0.8, 7, 0.6, 1)),
        ] {
            let (tokens, logprobs) = sample_on_device(
                Tensor::from_data(TensorData::new(logits.clone(), [rows, vocab]), device),
                Tensor::from_floats(uniforms.as_slice(), device),
                &sampling.token_sampling(),
            );

            // The host is the reference on every device, the CPU included.
            let expected = sample_on_host(&logits, &on_host, &sampling.token_sampling());
            arrays.push(Array::with_expected(
                format!("{name} of {vocab}: tokens"),
                whole(tokens)?,
                expected.iter().map(|drawn| drawn.0 as f32).collect(),
            ));
            arrays.push(Array::with_expected(
                format!("{name} of {vocab}: log-probs"),
                values(logprobs)?,
                expected.iter().map(|drawn| drawn.1).collect(),
            ));
        }
    }
    Ok(arrays)
}

/// Draws entire completions on the device, and on the host from the device's logits.
fn engine(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    let policy = policy(device)?;
    let mut arrays = Vec::new();

    // A new model's logits are nearly equal; this temperature spreads them.
    for (name, sampling) in [
        ("all", sampling(0.05, 0, 1.0, 12)),
        ("truncated", sampling(0.05, 20, 0.9, 12)),
        ("greedy", Sampling::greedy(12, Vec::new())),
    ] {
        let requests = || requests(&sampling, 6);
        let (tokens, logprobs) = generate(&policy, requests(), SampleOn::Device)?;
        let (expected, expected_logprobs) = generate(&policy, requests(), SampleOn::Host)?;

        arrays.push(Array::with_expected(format!("{name}: tokens"), tokens, expected));
        arrays.push(Array::with_expected(
            format!("{name}: log-probs"),
            logprobs,
            expected_logprobs,
        ));
    }
    Ok(arrays)
}

/// Returns the tokens and log-probabilities of all completions, one after the other.
fn generate(
    policy: &Decoder,
    requests: Vec<GroupRequest>,
    sample_on: SampleOn,
) -> Result<(Vec<f32>, Vec<f32>), Failure> {
    let mut engine = LocalEngine::new(policy, silent(), 64, 512, sample_on);
    let groups = firebrick_rollout::generate(&mut engine, requests, &mut |_| {}).map_err(failed)?;
    let completions = || groups.iter().flat_map(|group| &group.completions);
    let tokens = completions().flat_map(|completion| &completion.tokens);
    let logprobs = completions().flat_map(|completion| &completion.logprobs);
    Ok((tokens.map(|&token| token as f32).collect(), logprobs.copied().collect()))
}

/// Requests three completions each of two prompts, of 4 and 7 tokens.
pub(super) fn requests(sampling: &Sampling, seed: u64) -> Vec<GroupRequest> {
    let prompts = [4, 7].map(|length| (length, prompt(length, length as usize)));
    GroupRequest::of_prompts(prompts, 3, sampling, Seed::run(seed))
}

/// Makes a prompt of `length` tokens that follow from `id`.
pub(super) fn prompt(id: u64, length: usize) -> Prompt {
    Prompt { id, tokens: tokens(id as usize, length), ..Prompt::default() }
}

/// Draws up to `max_completion_tokens` tokens from the `top_k` likeliest that make up `top_p`, and has no stop tokens.
pub(super) fn sampling(
    temperature: f64,
    top_k: usize,
    top_p: f64,
    max_completion_tokens: usize,
) -> Sampling {
    Sampling { temperature, top_k, top_p, max_completion_tokens, stop: Vec::new() }
}

/// Makes a detokenizer that writes nothing, because completions have no text here.
pub(super) fn silent() -> Arc<dyn Detokenizer> {
    struct Silent;
    impl Detokenizer for Silent {
        fn detokenize(&self, _: &[TokenId]) -> String {
            String::new()
        }
    }
    Arc::new(Silent)
}
