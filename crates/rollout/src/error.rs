use std::error::Error;

use firebrick_core::EnvironmentFailed;

use crate::RequestId;

/// Why completions could not be sampled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RolloutError {
    /// A prompt and its completion would be longer than the model's context.
    #[error(
        "prompt {id} has {prompt} tokens and a completion may have {completion}, but the model \
         takes {limit} in all; lower data.max_prompt_tokens or rollout.max_completion_tokens"
    )]
    TooLong {
        /// [`Prompt::id`](firebrick_core::Prompt::id).
        id: u64,
        /// Its tokens.
        prompt: usize,
        /// `max_completion_tokens`.
        completion: usize,
        /// The model's `max_position_embeddings`.
        limit: usize,
    },
    /// A request that no engine can serve.
    #[error("rollout request {id} {problem}")]
    Request {
        /// [`GroupRequest::id`](crate::GroupRequest::id).
        id: RequestId,
        /// The fault of the request, and what was expected.
        problem: String,
    },
    /// An answer that was not asked for.
    #[error(
        "the rollout engine's answer to request {id} cannot be used: {problem}; the engine, or what \
         it asks, is at fault"
    )]
    Answer {
        /// The id that came with it.
        id: RequestId,
        /// The answer that was expected and the one that came.
        problem: String,
    },
    /// An engine of one's own failed, and has nothing in flight any more.
    #[error("the rollout engine failed: {source}")]
    Engine {
        /// In its own words.
        source: Box<dyn Error + Send + Sync>,
        /// True where the lost work may be submitted again: the engine is there, or will be, with
        /// the weights that were published last.
        retryable: bool,
    },
    /// The environment that completions talk with can answer nobody any more.
    #[error("the environment failed: {0}")]
    Environment(EnvironmentFailed),
    /// An engine lost its work again and again.
    #[error("the rollout engine lost its work {times} times, at last because: {source}")]
    GivenUp {
        /// How often.
        times: usize,
        /// The last time's reason.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The run is to end, and what was in flight has been dropped.
    #[error("sampling was interrupted")]
    Interrupted,
    /// The engine has no policy: publishing the last one failed.
    #[error(
        "the rollout engine has no weights, since the last could not be published; publish them again"
    )]
    NoWeights,
    /// A policy of one's own gave another number of rows than it was asked for.
    #[error("{what} of the policy gave {came} rows, expected {expected}: one for each completion")]
    Rows {
        /// Which of its methods.
        what: &'static str,
        /// Rows that are being decoded.
        expected: usize,
        /// Rows that came.
        came: usize,
    },
    /// The device could not give its values back.
    #[error("the device could not read back sampled tokens: {0}")]
    Device(String),
}

impl RolloutError {
    /// [`RolloutError::Engine`] of whatever error or text.
    pub fn engine(source: impl Into<Box<dyn Error + Send + Sync>>, retryable: bool) -> Self {
        RolloutError::Engine { source: source.into(), retryable }
    }
}
