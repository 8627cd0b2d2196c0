//! Errors of a server that speaks Tinker's API.

use crate::error::{PoolError, ServerError};

/// Why a server that speaks Tinker's API did not do what it was asked for. The run continues with `--resume`, from its
/// last checkpoint, once the reason is fixed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TinkerError {
    /// An address is not that of a server.
    #[error(transparent)]
    Address(#[from] PoolError),
    /// The server refused a request, or failed at it again and again, or was not there for too long.
    #[error(
        "the server at {base} did not {task}: {source}; once it does, --resume continues from the last checkpoint"
    )]
    Server {
        /// Address of the server.
        base: String,
        /// What it was to do.
        task: &'static str,
        /// Last reason.
        source: ServerError,
    },
    /// The server did not finish in time.
    #[error(
        "the server at {base} did not {task} within {seconds} s (engine.deadline): raise it if the server was at work, for a first \
         compilation counts, and continue with --resume"
    )]
    Late {
        /// Address of the server.
        base: String,
        /// What it was to do.
        task: &'static str,
        /// Seconds that it had.
        seconds: u64,
    },
    /// The server has forgotten a request, or the whole session.
    #[error(
        "the server at {base} has forgotten the run's session or its request to {task}, because it was restarted or had no sign \
         of life for too long: with its checkpoints still there, --resume continues from the last of them"
    )]
    Gone {
        /// Address of the server.
        base: String,
        /// What it was to do.
        task: &'static str,
    },
    /// An answer was lost, and the server counts a repeated request twice.
    #[error(
        "nobody knows whether the server at {base} did {task}: {source}. It would count a repeated request twice, so the step is \
         given up; --resume continues from the last checkpoint"
    )]
    Unsure {
        /// Address of the server.
        base: String,
        /// What it was to do.
        task: &'static str,
        /// How the answer was lost.
        source: ServerError,
    },
    /// The server can't do what a run needs.
    #[error("the server at {base} can't be used: {problem}")]
    Unfit {
        /// Address of the server.
        base: String,
        /// What it did, and what was expected.
        problem: String,
    },
    /// The run was told to end.
    #[error("waiting for a server was interrupted")]
    Interrupted,
}

impl TinkerError {
    /// Tells whether the same request may succeed later.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            TinkerError::Late { .. } => true,
            TinkerError::Server { source, .. } => !matches!(source, ServerError::Refused { .. }),
            _ => false,
        }
    }
}
