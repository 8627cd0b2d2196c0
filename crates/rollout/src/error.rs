//! Errors of sampling.

use std::error::Error;

use firebrick_core::EnvironmentFailed;

use crate::request::RequestId;

/// Why completions could not be sampled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RolloutError {
    /// A prompt and its completion would be longer than the model's context.
    #[error(
        "prompt {id} has {prompt} tokens and a completion may have {completion}, but the model \
         takes {limit} in total; lower data.max_prompt_tokens or rollout.max_completion_tokens"
    )]
    TooLong {
        /// [`Prompt::id`](firebrick_core::Prompt::id) of the prompt.
        id: u64,
        /// How many tokens the prompt has.
        prompt: usize,
        /// Limit of the completion, `max_completion_tokens`.
        completion: usize,
        /// Limit of the model, `max_position_embeddings`.
        limit: usize,
    },
    /// A request that no engine can serve.
    #[error("rollout request {id} {problem}")]
    Request {
        /// [`GroupRequest::id`](crate::GroupRequest::id) of the request.
        id: RequestId,
        /// What is wrong with the request, and the value that was expected.
        problem: String,
    },
    /// An engine's answer does not fit what was asked for.
    #[error(
        "the rollout engine's answer to request {id} cannot be used: {problem}; the engine, or the \
         program behind it, is at fault"
    )]
    Answer {
        /// Id that came with the answer.
        id: RequestId,
        /// What the engine answered, and what was expected.
        problem: String,
    },
    /// An engine failed, and has nothing in flight any more.
    #[error("the rollout engine failed: {source}")]
    Engine {
        /// What the engine itself says.
        source: Box<dyn Error + Send + Sync>,
        /// True if the lost work may be submitted again, because the engine is there, or will be, with the weights
        /// that were published last.
        retryable: bool,
    },
    /// The environment that completions talk with failed and gives no more answers.
    #[error("the environment failed: {0}")]
    Environment(#[source] EnvironmentFailed),
    /// An engine lost its work again and again.
    #[error("the rollout engine lost its work {times} times, the last time because: {source}")]
    GivenUp {
        /// How many times it did.
        times: usize,
        /// Why it did the last time.
        source: Box<dyn Error + Send + Sync>,
    },
    /// Nothing is in flight any more, because the run was told to end.
    #[error("sampling was interrupted")]
    Interrupted,
    /// No policy to sample from: publishing the last one failed.
    #[error(
        "the rollout engine has no weights, because the last weights could not be published; publish them again"
    )]
    NoWeights,
    /// A policy returned another number of rows than it was asked for.
    #[error(
        "{what} of the policy returned {actual} rows, expected {expected}: one for each completion"
    )]
    Rows {
        /// Name of the policy's method.
        what: &'static str,
        /// How many rows are being decoded.
        expected: usize,
        /// How many rows it returned.
        actual: usize,
    },
    /// A log-probability that is not finite, from a policy that is sampled in this process.
    #[error(
        "the policy gave a token of rollout request {id} a log-probability of {logprob}, expected a finite \
         number: the policy's weights or logits are not finite; lower optim.lr, or choose another model.dtype"
    )]
    NotFinite {
        /// [`GroupRequest::id`](crate::GroupRequest::id) of the request.
        id: RequestId,
        /// Log-probability of the token.
        logprob: f32,
    },
    /// A device that failed, or has no memory left.
    #[error("the device failed while it sampled tokens: {0}")]
    Device(String),
}

impl RolloutError {
    /// Makes a [`RolloutError::Engine`] of any error or text.
    pub fn engine(source: impl Into<Box<dyn Error + Send + Sync>>, retryable: bool) -> Self {
        RolloutError::Engine { source: source.into(), retryable }
    }
}
