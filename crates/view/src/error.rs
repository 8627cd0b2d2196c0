use std::{io, path::PathBuf};

use firebrick_runs::RunError;

/// Why a view of a run could not be made.
///
/// Each message is complete: what the system said stands in it, and is not repeated as a source.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The folder holds no run.
    #[error("{} holds no run: it has no run.db", path.display())]
    NotARun {
        /// As given.
        path: PathBuf,
    },
    /// The run's record can't be read, or a file not be written.
    #[error(transparent)]
    Record(#[from] RunError),
    /// A chart or the data of a page could not be made.
    #[error("can't make the page: {0}")]
    Page(String),
    /// Browsers can't be served.
    #[error("can't listen on 127.0.0.1:{port}: {error}")]
    Listen {
        /// The port that was asked for; 0 for any.
        port: u16,
        /// What the system said.
        error: io::Error,
    },
    /// W&B takes no run of this id, or no folder can have it as its name.
    #[error(
        "`{id}` can't be a run's id on W&B: expected the name of a folder, \
         without any of : ; , # ? / ' % and without spaces at its ends"
    )]
    WandbId {
        /// The id that was given.
        id: String,
    },
}
