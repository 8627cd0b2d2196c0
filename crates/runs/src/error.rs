//! Errors of recording and reading runs.

use std::{io, path::PathBuf};

use firebrick_core::RunNameError;

/// An error while a run is recorded or read.
///
/// Each message is complete: it includes the system's own words, which are not repeated as a source.
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
        /// The folder that was expected to hold a run.
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
    /// The folder, or the record in it, is no longer the one in which the run began.
    #[error(
        "{} was removed, moved or replaced while the run was writing it; the work since the last \
         checkpoint is lost",
        path.display()
    )]
    Gone {
        /// The run's folder, or the file of the record.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("can't {action} {}: {error}", path.display())]
    File {
        /// The action that failed, as a verb.
        action: &'static str,
        /// The file or folder of the action.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The database is of an earlier version, whose completions this one does not read.
    #[error(
        "{} has schema version {found}, this firebrick knows version {known}: open it with the \
         firebrick that wrote it",
        path.display()
    )]
    Older {
        /// The database.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The version that this program reads and writes.
        known: i64,
    },
    /// The thread that writes the database could not be started, or has ended.
    #[error("the thread that writes run.db can't continue: {0}")]
    Thread(io::Error),
    /// A file is no valid run summary.
    #[error("{} is no valid run summary: {error}; it is written again at the end of a run", path.display())]
    Summary {
        /// The file.
        path: PathBuf,
        /// The place in the file that is wrong.
        error: serde_json::Error,
    },
    /// SQLite refused.
    #[error("can't {action} {}: {error}", path.display())]
    Database {
        /// The action that failed, as a verb.
        action: &'static str,
        /// The database file.
        path: PathBuf,
        /// SQLite's error.
        error: rusqlite::Error,
    },
    /// The file is damaged, or is no database.
    #[error(
        "{} is damaged, or no SQLite database ({error}): move it away, and a resumed run starts a \
         new database",
        path.display()
    )]
    Corrupt {
        /// The database file.
        path: PathBuf,
        /// SQLite's error.
        error: rusqlite::Error,
    },
    /// The database was made by a later Firebrick.
    #[error(
        "{} has schema version {found}, this firebrick knows versions up to {known}: open it with \
         the newer firebrick that wrote it",
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
    /// Something else stands in the place of a table.
    #[error(
        "{} is no record that firebrick made: {problem}; remove that with an SQLite client, or ask \
         for another copy of the run",
        path.display()
    )]
    Schema {
        /// The database file.
        path: PathBuf,
        /// The thing that is there instead.
        problem: String,
    },
    /// A question to the database takes far more work than a database of its size can need.
    #[error(
        "{} takes more work to read than a record of its size can need: it is damaged, or was made \
         to hold its readers; ask for another copy of the run",
        path.display()
    )]
    Endless {
        /// The database file.
        path: PathBuf,
    },
    /// The database of a run that did not end well lies where nothing may be written.
    #[error(
        "can't open {}: {error}; its last changes are in the file next to it that ends in -wal, and \
         reading them takes the right to write: copy the run's folder to a place where you may write",
        path.display()
    )]
    Unfinished {
        /// The database file.
        path: PathBuf,
        /// SQLite's error.
        error: rusqlite::Error,
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
    /// The exported metrics could not be written.
    #[error("can't write the exported metrics: {0}")]
    Export(io::Error),
}
