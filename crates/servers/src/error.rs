//! Errors of single servers, and of the pool as a whole.

use std::error::Error;

/// The reasons why a pool ends a run. The run continues with `--resume` once the reason is fixed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// No server has taken the weights.
    #[error(
        "no inference server took the weights of version {version}, expected at least one:\n{servers}\nThe run can continue \
         with --resume when a server takes them"
    )]
    NoneReady {
        /// The weights' version.
        version: u64,
        /// A line for each server, with its reason.
        servers: String,
    },
    /// All servers have failed, and none came back.
    #[error(
        "no inference server could be used for {seconds} s:\n{servers}\nThe run can continue with --resume when a server can be used"
    )]
    NoneLeft {
        /// The seconds that the pool waited for a server.
        seconds: u64,
        /// A line for each server, with its reason.
        servers: String,
    },
    /// A request failed on every server that it was sent to.
    #[error(
        "the group of prompt {prompt} was asked for {times} times without an answer; the last failure, of {server}: {source}"
    )]
    Unanswered {
        /// The prompt, by its [`Prompt::id`](firebrick_core::Prompt::id).
        prompt: u64,
        /// The number of times that the group was asked for.
        times: usize,
        /// The last server.
        server: String,
        /// The last reason.
        source: ServerError,
    },
    /// The weights could not be written, or the trainer could not compute with them.
    #[error("the weights of version {version} could not be published: {source}")]
    Weights {
        /// The weights' version.
        version: u64,
        /// The reason.
        source: Box<dyn Error + Send + Sync>,
    },
    /// An address is no address of a server.
    #[error(
        "{address:?} is not the address of an inference server, expected one such as http://127.0.0.1:8000"
    )]
    Address {
        /// The text that was given.
        address: String,
    },
}

/// The reasons why one server did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The server can't be reached, or the connection broke.
    #[error("it gives no answer: {0}")]
    Unreachable(String),
    /// The server took too long.
    #[error("it gave no whole answer within {seconds} s")]
    Silent {
        /// The seconds that the server had.
        seconds: u64,
    },
    /// The server is busy, and says so.
    #[error("it is busy (status {status})")]
    Busy {
        /// The HTTP status, 429 or 503.
        status: u16,
    },
    /// The server refused the request.
    #[error("it refuses {request} with status {status}: {words}")]
    Refused {
        /// The request's path.
        request: &'static str,
        /// The HTTP status.
        status: u16,
        /// The first of the server's words.
        words: String,
    },
    /// The server says that it failed.
    #[error("it failed at {request} with status {status}: {words}")]
    Failed {
        /// The request's path.
        request: &'static str,
        /// The HTTP status.
        status: u16,
        /// The first of the server's words.
        words: String,
    },
    /// The server's answer does not fit the request.
    #[error("its answer to {request} cannot be used: {problem}")]
    Answer {
        /// The request's path.
        request: &'static str,
        /// The fault, with what was expected.
        problem: String,
    },
    /// The server ended a completion early.
    #[error("it ended completion {index} early")]
    Aborted {
        /// The completion's place in the group.
        index: usize,
    },
    /// The server has other weights than it was given.
    #[error(
        "its log-probabilities are {distance:.2e} nats from the trainer's in the mean, expected at most {tolerance:.0e}, or only \
         rounding if it was nearer before: it has other weights than those of version {version}, or computes another model"
    )]
    OtherWeights {
        /// The mean distance over the tokens of the probes.
        distance: f64,
        /// The largest mean distance that is allowed.
        tolerance: f64,
        /// The version of the weights that it should have.
        version: u64,
    },
    /// The server still has the weights that it had before.
    #[error(
        "its log-probabilities are those of the weights before version {version} ({before:.2e} nats from them, {now:.2e} from \
         the new ones)"
    )]
    OldWeights {
        /// The mean distance to the weights before.
        before: f64,
        /// The mean distance to the weights that it should have.
        now: f64,
        /// The version of the weights that it should have.
        version: u64,
    },
    /// The log-probabilities that come with the server's samples are of another kind.
    #[error(
        "the log-probabilities of its samples are {distance:.2e} nats from the trainer's in the mean, although those of given \
         tokens agree: {hint}"
    )]
    OtherLogprobs {
        /// The mean distance.
        distance: f64,
        /// The change that would help.
        hint: &'static str,
    },
}

impl ServerError {
    /// Tells whether the server refused the request itself, so that another server will refuse it too.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, ServerError::Refused { status: 400 | 413 | 422, .. })
    }

    /// Tells whether the server has lost what it was given, because it was restarted.
    pub(crate) fn has_forgotten(&self) -> bool {
        matches!(self, ServerError::Refused { status: 404, .. })
    }
}
