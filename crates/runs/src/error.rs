//! Errors of recording and reading runs.

use std::{io, path::PathBuf};

use firebrick_core::RunNameError;

use crate::resume_command;

/// An error while a run is recorded or read.
///
/// Each message is complete: it includes the system's own message, which is not repeated as a source.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The name can't be a folder's.
    #[error(transparent)]
    Name(#[from] RunNameError),
    /// The folder exists and holds a run.
    #[error(
        "{} already holds a run: continue it with `{}`, give this one another name with --set name=…, \
         or remove the folder",
        path.display(),
        resume_command(path)
    )]
    Exists {
        /// Folder of the run.
        path: PathBuf,
    },
    /// There is no run to continue.
    #[error(
        "{} holds no run to resume: expected a recipe.toml in it; start without --resume",
        path.display()
    )]
    NothingToResume {
        /// Folder that was expected to hold a run.
        path: PathBuf,
    },
    /// A run has no checkpoint that could be used.
    #[error(
        "{} has no checkpoint yet: a run that is under way writes its first one before its first step; \
         one that has ended continues with `{}`",
        run.display(),
        resume_command(run)
    )]
    NoCheckpoint {
        /// Folder of the run.
        run: PathBuf,
    },
    /// Every checkpoint of a run lacks a file.
    #[error(
        "{} lacks {file}, and {} has no other checkpoint that is whole: copy the checkpoint again, or \
         give another model",
        checkpoint.display(),
        run.display()
    )]
    NoWhole {
        /// Folder of the run.
        run: PathBuf,
        /// Newest checkpoint.
        checkpoint: PathBuf,
        /// File that is missing.
        file: String,
    },
    /// Another process is writing the same run.
    #[error(
        "{} is in use by another firebrick: wait for it, stop it, or give this run another name",
        path.display()
    )]
    Busy {
        /// Folder of the run.
        path: PathBuf,
    },
    /// The folder, or the record in it, is no longer the one in which the run began.
    #[error(
        "{} was removed, moved or replaced while the run was writing it; the work since the last \
         checkpoint is lost",
        path.display()
    )]
    Gone {
        /// Folder of the run, or file of the record.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("can't {action} {}: {error}", path.display())]
    File {
        /// Action that failed, as a verb.
        action: &'static str,
        /// File or folder of the action.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The database is of an earlier version, whose completions this one does not read.
    #[error(
        "{} has schema version {found}, this firebrick knows version {known}: open it with the \
         firebrick that wrote it",
        path.display()
    )]
    Older {
        /// Path of the database.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// Version that this program reads and writes.
        known: i64,
    },
    /// The thread that writes the database could not be started, or has ended.
    #[error("the thread that writes run.db can't continue: {0}")]
    Thread(io::Error),
    /// A file is not a valid run summary.
    #[error("{} is not a valid run summary: {error}; a run writes it again when it ends", path.display())]
    Summary {
        /// Path of the file.
        path: PathBuf,
        /// Error, with its position in the file.
        error: serde_json::Error,
    },
    /// SQLite refused.
    #[error("can't {action} {}: {error}", path.display())]
    Database {
        /// Action that failed, as a verb.
        action: &'static str,
        /// Path of the database.
        path: PathBuf,
        /// SQLite's error.
        error: rusqlite::Error,
    },
    /// The file is damaged, or is not a database.
    #[error(
        "{} is damaged, or not an SQLite database ({error}): move it away, and a resumed run starts a \
         new database",
        path.display()
    )]
    Corrupt {
        /// Path of the database.
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
        /// Path of the database.
        path: PathBuf,
        /// Version that it states.
        found: i64,
        /// Latest version that this program knows.
        known: i64,
    },
    /// Something else has the name of a table.
    #[error(
        "{} is not a record that firebrick made: {problem}; remove that with an SQLite client, or ask \
         for another copy of the run",
        path.display()
    )]
    Schema {
        /// Path of the database.
        path: PathBuf,
        /// What is there instead.
        problem: String,
    },
    /// A question to the database takes far more work than a database of its size can need.
    #[error(
        "{} takes more work to read than a record of its size can need: it is damaged, or was made \
         to keep its readers busy; ask for another copy of the run",
        path.display()
    )]
    Endless {
        /// Path of the database.
        path: PathBuf,
    },
    /// The database of a run that did not end well is where nothing may be written.
    #[error(
        "can't open {}: {error}; its last changes are in the file next to it that ends in -wal, and \
         reading them needs write permission: copy the run's folder to a folder where you may write",
        path.display()
    )]
    Unfinished {
        /// Path of the database.
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
        /// Path of the database.
        path: PathBuf,
    },
    /// The exported metrics could not be written.
    #[error("can't write the exported metrics: {0}")]
    Export(io::Error),
}
