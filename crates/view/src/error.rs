//! Errors while a run is shown.

use std::{io, path::PathBuf};

use firebrick_runs::RunError;

/// Why a view of a run could not be made.
///
/// Each message is complete. It contains the system's error, which is not repeated as a source.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// A folder that does not hold a run.
    #[error("{} holds no run: it has no run.db", path.display())]
    NotARun {
        /// Path, as given.
        path: PathBuf,
    },
    /// A record that can't be read, or a file that can't be written.
    #[error(transparent)]
    Record(#[from] RunError),
    /// A chart or the data of a page could not be made.
    #[error("can't make the page: {0}")]
    Page(String),
    /// Browsers can't be served.
    #[error("can't listen on 127.0.0.1:{port}: {error}")]
    Listen {
        /// Requested port; 0 for any.
        port: u16,
        /// Error of the system.
        error: io::Error,
    },
    /// W&B does not accept a run with this id, or a folder can't have the id as its name.
    #[error(
        "`{id}` can't be a run's id on W&B: expected the name of a folder, \
         without any of : ; , # ? / ' % and without spaces at its ends"
    )]
    WandbId {
        /// Id that was given.
        id: String,
    },
}
