//! One completion, token by token, for a listener who watches it being written.

use std::ops::ControlFlow;

use firebrick_core::{FinishReason, Seed, TokenId};
use firebrick_models::{DecodeCache, Padding, PolicyModel, TokenBatch, head_logits};

use crate::{RolloutError, SampleOn, Sampling, local::indices, sampler::sample_with};

/// What a stream has sampled.
#[derive(Clone, Debug, PartialEq)]
pub struct Streamed {
    /// Sampled tokens, the stop token included.
    pub tokens: Vec<TokenId>,
    /// Log-probability of each token, as in [`Completion::logprobs`](firebrick_core::Completion).
    pub logprobs: Vec<f32>,
    /// Why the stream ended; `None` if the listener ended it.
    pub finish: Option<FinishReason>,
}

/// Samples one completion of `prompt`, which has at least one token. Calls `on_token` with every token and its
/// log-probability as it is sampled, the stop token included.
///
/// With the seed of a completion ([`GroupRequest::completion_seed`](crate::GroupRequest)) it is the completion that
/// [`LocalEngine`](crate::LocalEngine) samples. `max_tokens` is the model's context, prompt and completion together.
///
/// # Errors
/// Fails if prompt and completion do not fit the context, or the device fails.
pub fn stream<M: PolicyModel>(
    policy: &M,
    prompt: &[TokenId],
    sampling: &Sampling,
    seed: Seed,
    max_tokens: usize,
    sample_on: SampleOn,
    on_token: &mut dyn FnMut(TokenId, f32) -> ControlFlow<()>,
) -> Result<Streamed, RolloutError> {
    let completion = sampling.max_completion_tokens;
    if prompt.len().saturating_add(completion) > max_tokens {
        let prompt = prompt.len();
        return Err(RolloutError::TooLong { id: 0, prompt, completion, limit: max_tokens });
    }
    let policy = policy.sampler();
    let device = policy.device();
    let mut uniforms = seed.stream();
    let mut streamed = Streamed { tokens: Vec::new(), logprobs: Vec::new(), finish: None };

    let batch = TokenBatch::new(&[prompt], Padding::Left, &device);
    let (mut hidden, mut cache) = policy.prefill(&batch);
    loop {
        let logits = head_logits(hidden, policy.head().val());
        let uniform = uniforms.uniform_at(streamed.tokens.len() as u64);
        let sampled = sample_with(logits, &[uniform], sampling, sample_on)?;

        for (token, logprob) in sampled {
            // A token is invalid if it was sampled from logits that are not finite.
            if !logprob.is_finite() {
                return Err(RolloutError::NotFinite { id: 0, logprob });
            }
            streamed.tokens.push(token);
            streamed.logprobs.push(logprob);
            streamed.finish = sampling.finish(&streamed.tokens);
            if on_token(token, logprob).is_break() || streamed.finish.is_some() {
                return Ok(streamed);
            }
        }

        if cache.room() == 0 {
            // As much room as the engine makes, so that the sums have the same lengths.
            cache = cache.arrange(&[0], None, (completion - streamed.tokens.len()).max(1));
        }

        let last: Vec<usize> =
            streamed.tokens.last().map(|&token| token as usize).into_iter().collect();
        hidden = policy.decode(indices(&last, &device), &mut cache);
    }
}
