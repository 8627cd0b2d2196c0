//! Files that grow by whole records, while others read them.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use firebrick_runs::RunError;

use crate::ViewError;

/// A file of another project's viewer, which takes the metrics of a run one step after the other.
///
/// A step is in the file when the call returns, as a whole or not at all. Whoever reads the file meanwhile sees it.
pub trait EventLog: Send {
    /// Records what was measured in `step`, at `time` in seconds since 1970. Steps come in ascending order; not every
    /// step has every name.
    ///
    /// # Errors
    /// When the file system refuses. The records before stay readable, and later ones may be logged.
    fn log(&mut self, step: u64, time: f64, values: &[(String, f64)]) -> Result<(), ViewError>;

    /// Records that the run has ended: with 0 if it was completed, with another number if it was not. By default
    /// nothing is said of that.
    ///
    /// # Errors
    /// As for [`EventLog::log`].
    fn finish(&mut self, exit_code: i32) -> Result<(), ViewError> {
        let _ = exit_code;
        Ok(())
    }
}

/// A file at whose end records are put.
#[derive(Debug)]
pub(crate) struct Records {
    path: PathBuf,
    file: File,
    length: u64,
}

impl Records {
    /// Makes an empty file, and the folders that lead to it. An earlier file of that name makes way; who reads it
    /// still has the old one.
    pub(crate) fn create(path: PathBuf) -> Result<Self, ViewError> {
        if let Some(folder) = path.parent() {
            create_folder(folder)?;
        }
        remove(&path)?;
        match OpenOptions::new().append(true).create_new(true).open(&path) {
            Ok(file) => Ok(Self { path, file, length: 0 }),
            Err(error) => Err(refused("create", &path)(error)),
        }
    }

    /// The length so far, in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Appends `bytes`: all of them, or none.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), ViewError> {
        if let Err(error) = self.file.write_all(bytes) {
            // A part of a record, as a full disk leaves it, would make unreadable what follows. If it can't be taken
            // back either, the error that is told is the first one.
            let _ = self.file.set_len(self.length);
            return Err(refused("write", &self.path)(error));
        }
        self.length += bytes.len() as u64;
        Ok(())
    }
}

/// Makes a folder, and those that lead to it.
pub(crate) fn create_folder(path: &Path) -> Result<(), ViewError> {
    fs::create_dir_all(path).map_err(refused("create the folder", path))
}

/// Removes a file, if there is one.
pub(crate) fn remove(path: &Path) -> Result<(), ViewError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(refused("replace", path)(error))
        }
        _ => Ok(()),
    }
}

/// The error of a file system that refused.
fn refused(action: &'static str, path: &Path) -> impl Fn(io::Error) -> ViewError {
    move |error| RunError::File { action, path: path.to_owned(), error }.into()
}

/// The time since 1970; none for a clock that is set before.
pub(crate) fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}
