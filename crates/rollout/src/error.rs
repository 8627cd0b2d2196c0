//! Errors of sampling.

use std::error::Error;

use firebrick_core::EnvironmentFailed;

use crate::RequestId;

/// The reasons why completions could not be sampled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RolloutError {
    /// A prompt and its completion would be longer than the model's context.
    #[error(
        "prompt {id} has {prompt} tokens and a completion may have {completion}, but the model \
         takes {limit} in all; lower data.max_prompt_tokens or rollout.max_completion_tokens"
    )]
    TooLong {
        /// The prompt, by its [`Prompt::id`](firebrick_core::Prompt::id).
        id: u64,
        /// The number of the prompt's tokens.
        prompt: usize,
        /// The limit of the completion, `max_completion_tokens`.
        completion: usize,
        /// The limit of the model, `max_position_embeddings`.
        limit: usize,
    },
    /// A request that no engine can serve.
    #[error("rollout request {id} {problem}")]
    Request {
        /// The request, by its [`GroupRequest::id`](crate::GroupRequest::id).
        id: RequestId,
        /// The fault of the request, and the value that was expected.
        problem: String,
    },
    /// An engine's answer does not fit what was asked for.
    #[error(
        "the rollout engine's answer to request {id} cannot be used: {problem}; the engine, or the \
         program behind it, is at fault"
    )]
    Answer {
        /// The id that came with the answer.
        id: RequestId,
        /// The answer that was expected and the one that came.
        problem: String,
    },
    /// An engine failed, and has nothing in flight any more.
    #[error("the rollout engine failed: {source}")]
    Engine {
        /// The engine's own words.
        source: Box<dyn Error + Send + Sync>,
        /// True if the lost work may be submitted again: the engine is there, or will be, with the weights
        /// that were published last.
        retryable: bool,
    },
    /// The environment that completions talk with can answer nobody any more.
    #[error("the environment failed: {0}")]
    Environment(EnvironmentFailed),
    /// An engine lost its work again and again.
    #[error("the rollout engine lost its work {times} times, the last time because: {source}")]
    GivenUp {
        /// The number of times.
        times: usize,
        /// The reason of the last time.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The run is to end, and the work in flight has been dropped.
    #[error("sampling was interrupted")]
    Interrupted,
    /// The engine has no policy: publishing the last one failed.
    #[error(
        "the rollout engine has no weights, because the last weights could not be published; publish them again"
    )]
    NoWeights,
    /// A policy gave another number of rows than it was asked for.
    #[error("{what} of the policy gave {came} rows, expected {expected}: one for each completion")]
    Rows {
        /// The name of the policy's method.
        what: &'static str,
        /// The number of rows that are being decoded.
        expected: usize,
        /// The number of rows that came.
        came: usize,
    },
    /// A policy that is sampled in this process gave a token a log-probability that is no finite number.
    #[error(
        "the policy gave a token of rollout request {id} a log-probability of {logprob}, expected a finite \
         number: the policy's weights or logits are not finite; lower optim.lr, or choose another model.dtype"
    )]
    NotFinite {
        /// The request, by its [`GroupRequest::id`](crate::GroupRequest::id).
        id: RequestId,
        /// The log-probability.
        logprob: f32,
    },
    /// The device failed, or has no memory left.
    #[error("the device failed while it sampled tokens: {0}")]
    Device(String),
}

impl RolloutError {
    /// Makes a [`RolloutError::Engine`] of any error or text.
    pub fn engine(source: impl Into<Box<dyn Error + Send + Sync>>, retryable: bool) -> Self {
        RolloutError::Engine { source: source.into(), retryable }
    }
}
