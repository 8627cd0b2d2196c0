//! Errors while a run is shown.

use std::{io, path::PathBuf};

use firebrick_runs::RunError;

/// The reason why a view of a run could not be made.
///
/// Each message is complete. It contains the system's error, which is not repeated as a source.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The folder holds no run.
    #[error("{} holds no run: it has no run.db", path.display())]
    NotARun {
        /// The path, as given.
        path: PathBuf,
    },
    /// The run's record can't be read, or a file can't be written.
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
        /// The system's error.
        error: io::Error,
    },
    /// W&B takes no run with this id, or no folder can have the id as its name.
    #[error(
        "`{id}` can't be a run's id on W&B: expected the name of a folder, \
         without any of : ; , # ? / ' % and without spaces at its ends"
    )]
    WandbId {
        /// The id that was given.
        id: String,
    },
}
