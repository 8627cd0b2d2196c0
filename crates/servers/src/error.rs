//! Errors of single servers, and of the pool as a whole.

use std::error::Error;

/// Why a pool ends a run. The run continues with `--resume` once the reason is fixed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// No server has taken the weights.
    #[error(
        "no inference server took the weights of version {version}, expected at least one:\n{servers}\nThe run can continue \
         with --resume when a server takes them"
    )]
    NoneReady {
        /// Version of the weights.
        version: u64,
        /// A line for each server, with its reason.
        servers: String,
    },
    /// All servers have failed, and none has recovered.
    #[error(
        "no inference server could be used for {seconds} s:\n{servers}\nThe run can continue with --resume when a server can be used"
    )]
    NoneLeft {
        /// Seconds that the pool waited for a server.
        seconds: u64,
        /// A line for each server, with its reason.
        servers: String,
    },
    /// A request failed on every server that it was sent to.
    #[error(
        "no server answered the group of prompt {prompt} (requests sent: {times}); the last failure, of {server}: {source}"
    )]
    Unanswered {
        /// Prompt, by its [`Prompt::id`](firebrick_core::Prompt::id).
        prompt: u64,
        /// How often the group was requested.
        times: usize,
        /// Server that was asked last.
        server: String,
        /// Last reason.
        source: ServerError,
    },
    /// A server refused a text that it was to score, or no server has answered for too long.
    #[error(
        "the teacher's servers refused a completion, or answered nothing for {seconds} s; the last failure, of {server}: \
         {source}{hint}\nThe run can continue with --resume when a server answers"
    )]
    NotScored {
        /// What may help, if anything is known.
        hint: &'static str,
        /// Server that was asked last.
        server: String,
        /// Seconds for which the servers may fail.
        seconds: u64,
        /// Last reason.
        source: ServerError,
    },
    /// Writing the weights failed, or the trainer could not compute with them.
    #[error("the weights of version {version} could not be published: {source}")]
    Weights {
        /// Version of the weights.
        version: u64,
        /// What went wrong.
        source: Box<dyn Error + Send + Sync>,
    },
    /// An address is not that of a server.
    #[error(
        "{address:?} is not the address of an inference server, expected one such as http://127.0.0.1:8000"
    )]
    Address {
        /// Text that was given.
        address: String,
    },
}

/// Why one server did not fulfil a request.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The server can't be reached, or the connection broke.
    #[error("it does not answer: {0}")]
    Unreachable(String),
    /// The server took too long.
    #[error("it gave no complete answer within {seconds} s")]
    Silent {
        /// Seconds that the server had.
        seconds: u64,
    },
    /// The connection ended before the answer did, so that nobody knows whether the request was done.
    #[error("the connection ended before its answer: {0}")]
    Lost(String),
    /// The server reports that it is busy.
    #[error("it is busy (status {status})")]
    Busy {
        /// HTTP status, 429 or 503.
        status: u16,
    },
    /// The server refused the request.
    #[error("it refuses {request} with status {status}: {words}")]
    Refused {
        /// Path of the request.
        request: &'static str,
        /// HTTP status.
        status: u16,
        /// Beginning of the server's message.
        words: String,
    },
    /// The server reports that it failed.
    #[error("it failed at {request} with status {status}: {words}")]
    Failed {
        /// Path of the request.
        request: &'static str,
        /// HTTP status.
        status: u16,
        /// Beginning of the server's message.
        words: String,
    },
    /// An answer does not fit the request.
    #[error("its answer to {request} cannot be used: {problem}")]
    Answer {
        /// Path of the request.
        request: &'static str,
        /// Fault, with what was expected.
        problem: String,
    },
    /// The server ended a completion early.
    #[error("it ended completion {index} early")]
    Aborted {
        /// Index of the completion in the group.
        index: usize,
    },
    /// The server has other weights than it was sent.
    #[error(
        "its log-probabilities are {distance:.2e} nats from the trainer's on average, expected at most {tolerance:.0e}, or only \
         rounding if it was nearer before: it has other weights than those of version {version}, or computes another model"
    )]
    OtherWeights {
        /// Mean distance over the tokens of the probes.
        distance: f64,
        /// Largest mean distance that is allowed.
        tolerance: f64,
        /// Version of the weights that it should have.
        version: u64,
    },
    /// The server still has the weights that it had before.
    #[error(
        "its log-probabilities are those of the weights before version {version} ({before:.2e} nats from them, {now:.2e} from \
         the new ones)"
    )]
    OldWeights {
        /// Mean distance to the weights before.
        before: f64,
        /// Mean distance to the weights that it should have.
        now: f64,
        /// Version of the weights that it should have.
        version: u64,
    },
    /// Log-probabilities of the server's samples are computed differently.
    #[error(
        "the log-probabilities of its samples are {distance:.2e} nats from the trainer's on average, although those of given \
         tokens agree: {hint}"
    )]
    OtherLogprobs {
        /// Mean distance.
        distance: f64,
        /// Change that would help.
        hint: &'static str,
    },
}

impl ServerError {
    /// Tells whether the server refused the request itself, so that another server will refuse it too.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, ServerError::Refused { status: 400 | 413 | 422, .. })
    }

    /// Tells whether the server is gone, or has too much to do, whatever it is asked.
    pub(crate) fn is_outage(&self) -> bool {
        matches!(
            self,
            ServerError::Unreachable(_)
                | ServerError::Lost(_)
                | ServerError::Busy { .. }
                | ServerError::Failed { status: 502 | 504, .. }
        )
    }

    /// Tells whether the request may have been done all the same.
    pub(crate) fn may_have_arrived(&self) -> bool {
        matches!(
            self,
            ServerError::Lost(_)
                | ServerError::Silent { .. }
                | ServerError::Failed { .. }
                | ServerError::Answer { .. }
        )
    }

    /// Tells whether the server has lost what it was sent, because it was restarted.
    pub(crate) fn has_forgotten(&self) -> bool {
        matches!(self, ServerError::Refused { status: 404, .. })
    }
}
