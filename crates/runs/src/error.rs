use std::{io, path::PathBuf};

use firebrick_core::RunNameError;

/// Why a run could not be recorded or read.
///
/// Each message is complete: what the system said stands in it, and is not repeated as a source.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The name can't be a folder's.
    #[error(transparent)]
    Name(#[from] RunNameError),
    /// The folder exists and holds a run.
    #[error(
        "{} already holds a run: continue it with --resume, give this one another name, \
         or remove the folder",
        path.display()
    )]
    Exists {
        /// The run's folder.
        path: PathBuf,
    },
    /// There is no run to continue.
    #[error(
        "{} holds no run to resume: expected a recipe.toml in it; start without --resume",
        path.display()
    )]
    NothingToResume {
        /// Where a run was expected.
        path: PathBuf,
    },
    /// Another process is writing the same run.
    #[error(
        "{} is in use by another firebrick: wait for it, stop it, or give this run another name",
        path.display()
    )]
    Busy {
        /// The run's folder.
        path: PathBuf,
    },
    /// The folder is another one than the run was begun in.
    #[error("{} was removed, moved or replaced while the run was writing it; what it did since its last checkpoint is lost", path.display())]
    Gone {
        /// The run's folder.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("can't {action} {}: {error}", path.display())]
    File {
        /// What was tried, as a verb.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A database of an early version has not what is asked for.
    #[error(
        "{} is of version {found}, which says too little of completions: resume its run once, which brings it up to date",
        path.display()
    )]
    Older {
        /// The database.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
    /// The thread that writes the database is not there.
    #[error("the thread that writes run.db can't go on: {0}")]
    Thread(io::Error),
    /// A file of the run says something else than expected.
    #[error("{} is no valid run summary: {error}; it is written anew at the end of a run", path.display())]
    Summary {
        /// The file.
        path: PathBuf,
        /// Where it departs from one.
        error: serde_json::Error,
    },
    /// SQLite refused.
    #[error("can't {action} {}: {error}", path.display())]
    Database {
        /// What was tried, as a verb.
        action: &'static str,
        /// The database file.
        path: PathBuf,
        /// What SQLite said.
        error: rusqlite::Error,
    },
    /// The file is no database, or a damaged one.
    #[error(
        "{} is damaged, or no SQLite database ({error}): move it away, and a resumed run starts a new one",
        path.display()
    )]
    Corrupt {
        /// The database file.
        path: PathBuf,
        /// What SQLite said.
        error: rusqlite::Error,
    },
    /// The database was made by a later Firebrick.
    #[error(
        "{} has schema version {found}, this firebrick knows versions up to {known}: \
         open it with the newer one that wrote it",
        path.display()
    )]
    Newer {
        /// The database file.
        path: PathBuf,
        /// The version it states.
        found: i64,
        /// The latest version this program knows.
        known: i64,
    },
    /// The database is someone else's.
    #[error(
        "{} is an SQLite database, but not a run's: expected one that firebrick made; \
         move it away or choose another folder",
        path.display()
    )]
    Foreign {
        /// The database file.
        path: PathBuf,
    },
    /// The export's destination refused.
    #[error("can't write the exported metrics: {0}")]
    Export(io::Error),
}
