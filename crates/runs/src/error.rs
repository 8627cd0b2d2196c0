use std::{io, path::PathBuf};

/// Why a run could not be recorded or read.
///
/// Each message is complete: what the system said stands in it, and is not repeated as a source.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The name can't be a folder's.
    #[error("`{name}` can't be a run's name: {why}")]
    Name {
        /// The name that was given.
        name: String,
        /// What about it.
        why: &'static str,
    },
    /// The folder exists and holds a run.
    #[error(
        "{} already holds a run: continue it with --resume, give this one another name, or remove the folder",
        path.display()
    )]
    Exists {
        /// The run's folder.
        path: PathBuf,
    },
    /// There is no run to continue.
    #[error("{} holds no run to resume: expected a recipe.toml in it; start without --resume", path.display())]
    NothingToResume {
        /// Where a run was expected.
        path: PathBuf,
    },
    /// A checkpoint is to be published over one that is already complete.
    #[error("{} already exists: a checkpoint is never overwritten; remove it first", path.display())]
    Published {
        /// The folder in the way.
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
    /// SQLite refused.
    #[error("can't {action} in {}: {error}", path.display())]
    Database {
        /// What was tried, as a verb.
        action: &'static str,
        /// The database file.
        path: PathBuf,
        /// What SQLite said.
        error: rusqlite::Error,
    },
    /// The database was made by a later Firebrick.
    #[error(
        "{} has schema version {found}, this program knows versions up to {known}: open it with the newer Firebrick that wrote it",
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
    /// The database file is not one of ours.
    #[error("{} is not a run database: expected the tables of Firebrick; {why}", path.display())]
    Foreign {
        /// The database file.
        path: PathBuf,
        /// What gave it away.
        why: String,
    },
    /// The export's destination refused.
    #[error("can't write the exported metrics: {0}")]
    Export(io::Error),
}
