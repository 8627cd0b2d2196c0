//! Files that grow by entire records, while other programs read them.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use firebrick_runs::RunError;

use crate::ViewError;

/// A file for another project's viewer. It takes the metrics of a run one step after the other.
///
/// When the call returns, the step is in the file, completely or not at all. A program that reads the file
/// meanwhile sees it.
pub trait EventLog: Send {
    /// Records the values of `step`, measured at `time` in seconds since 1970. Steps come in ascending order. Not
    /// every step has every name.
    ///
    /// # Errors
    /// Fails if the file system refuses. Earlier records stay readable, and later ones may be logged.
    fn log(&mut self, step: u64, time: f64, values: &[(String, f64)]) -> Result<(), ViewError>;

    /// Records that the run has ended: with 0 if it was completed, with another number if it was not. By default
    /// nothing is recorded.
    ///
    /// # Errors
    /// Fails as [`EventLog::log`] does.
    fn finish(&mut self, exit_code: i32) -> Result<(), ViewError> {
        let _ = exit_code;
        Ok(())
    }
}

/// A file that grows by records at its end.
#[derive(Debug)]
pub(crate) struct Records {
    path: PathBuf,
    file: File,
    length: u64,
}

impl Records {
    /// Makes an empty file, and the folders that lead to it. An earlier file of that name is removed. A program
    /// that is reading it keeps the old file.
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

    /// Returns the length so far, in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Appends `bytes`: all of them, or none.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), ViewError> {
        if let Err(error) = self.file.write_all(bytes) {
            // A full disk may leave a part of a record, which would make all later records unreadable. So that part is
            // removed. If this fails too, the first error is returned.
            let _ = self.file.set_len(self.length);
            return Err(refused("write", &self.path)(error));
        }
        self.length += bytes.len() as u64;
        Ok(())
    }
}

/// Makes a folder, and the folders that lead to it.
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

/// Makes the error of a file system that refused.
fn refused(action: &'static str, path: &Path) -> impl Fn(io::Error) -> ViewError {
    move |error| RunError::File { action, path: path.to_owned(), error }.into()
}

/// Returns the time since 1970; zero if the clock is set before that.
pub(crate) fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}
