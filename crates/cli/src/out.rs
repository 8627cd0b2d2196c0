//! Files that a user names for a command to write.
//!
//! A rename replaces the program's own files in one go. With a device, a pipe or a link it would leave an ordinary
//! file instead, so a command writes into whatever the user has named.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use firebrick_runs::{RunFolder, write_atomically};

use crate::ProgramError;

/// A target that a command writes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Out {
    /// An ordinary file, which may not be there yet. Links on the way to it are followed.
    File(PathBuf),
    /// A device, a pipe, or an open file of this process, such as `/dev/stdout`.
    Stream(PathBuf),
}

impl Out {
    /// Finds the target that `path` leads to.
    ///
    /// # Errors
    /// Fails if it is a folder or a part of a run's own record, or if its metadata can't be read.
    pub(crate) fn at_path(path: &Path) -> Result<Self, ProgramError> {
        // The shell has opened these files, and may append more bytes to them.
        let streams = ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc"];
        if streams.iter().any(|stream| path.starts_with(stream)) {
            return Ok(Out::Stream(path.to_owned()));
        }

        let target = match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => {
                let error = io::Error::new(
                    io::ErrorKind::IsADirectory,
                    "it is a folder, expected a file to write",
                );
                return Err(ProgramError::file(path)(error));
            }
            Ok(metadata) if !metadata.is_file() => return Ok(Out::Stream(path.to_owned())),
            Ok(_) => fs::canonicalize(path).map_err(ProgramError::file(path))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => new_file(path),
            Err(error) => return Err(ProgramError::file(path)(error)),
        };

        match run_of(&target) {
            Some(run) => Err(ProgramError::OwnFile { path: path.to_owned(), run }),
            None => Ok(Out::File(target)),
        }
    }

    /// Writes the bytes: a file completely or not at all, and into anything else.
    ///
    /// # Errors
    /// Fails if it can't be written.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), ProgramError> {
        match self {
            Out::File(path) => {
                if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty())
                {
                    fs::create_dir_all(folder).map_err(ProgramError::file(folder))?;
                }

                Ok(write_atomically(path, bytes)?)
            }
            Out::Stream(path) => {
                let mut open = OpenOptions::new();
                // What others have written into it stays.
                let write = open.append(true).open(path).and_then(|mut file| {
                    file.write_all(bytes)?;
                    file.flush()
                });
                write.map_err(ProgramError::file(path))
            }
        }
    }

    /// Opens the target before there is something to write. Until then a file keeps its contents.
    ///
    /// # Errors
    /// Fails if it can't be opened.
    pub(crate) fn open(&self) -> Result<File, ProgramError> {
        let mut open = OpenOptions::new();
        match self {
            Out::File(path) => open.write(true).create(true).truncate(false).open(path),
            Out::Stream(path) => open.append(true).open(path),
        }
        .map_err(ProgramError::file(self.path()))
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Out::File(path) | Out::Stream(path) => path,
        }
    }
}

/// Returns the path at which a new file appears. It differs if `path` is a link to a file that is not there.
fn new_file(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    // A chain of links that ends nowhere is finite, or the system would have called it a loop.
    while let Ok(target) = fs::read_link(&path) {
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }

    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = fs::canonicalize(folder.unwrap_or(Path::new(".")));
    match (folder, path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path,
    }
}

/// Returns the run to whose record a file belongs, if it belongs to one: the record itself, the recipe, the results,
/// and everything in checkpoints.
fn run_of(file: &Path) -> Option<PathBuf> {
    let folder = file.parent()?;
    let name = file.file_name()?.to_string_lossy().to_lowercase();

    let is_own = ["run.db", "skipped-"].iter().any(|begin| name.starts_with(begin))
        || ["recipe.toml", "summary.json", "metrics.jsonl", ".lock"].contains(&&*name);
    if is_own && RunFolder::is_run(folder) {
        return Some(folder.to_owned());
    }

    let in_checkpoints = file.ancestors().skip(1).filter(|above| above.ends_with("checkpoints"));
    in_checkpoints.filter_map(Path::parent).find(|run| RunFolder::is_run(run)).map(Path::to_owned)
}

#[cfg(all(test, unix))]
mod tests {
    use std::{io::Read as _, os::unix::fs::symlink, process::Command, thread};

    use super::*;

    #[test]
    fn a_command_writes_into_what_the_user_has_named() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let path = |name: &str| folder.join(name);
        let write = |name: &str| Out::at_path(&path(name)).and_then(|out| out.write(b"page"));

        fs::write(path("file"), "earlier").unwrap();
        for (link, to) in [("link", "file"), ("twice", "link"), ("new", "later"), ("far", "new")] {
            symlink(to, path(link)).unwrap();
        }

        for (name, file) in [("twice", "file"), ("far", "later"), ("plain", "plain")] {
            write(name).unwrap();
            assert_eq!(fs::read(path(file)).unwrap(), b"page", "{name}");
        }
        assert!(["link", "twice", "new", "far"].iter().all(|link| path(link).is_symlink()));

        assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
        let pipe = path("pipe");
        let reader = thread::spawn(move || {
            let mut text = String::new();
            File::open(pipe).unwrap().read_to_string(&mut text).unwrap();
            text
        });

        write("pipe").unwrap();
        assert_eq!(reader.join().unwrap(), "page");

        symlink("/dev/null", path("nothing")).unwrap();
        write("nothing").unwrap();
        assert!(path("nothing").is_symlink());

        let full = Out::at_path(Path::new("/dev/full")).and_then(|out| out.write(b"page"));
        assert!(full.unwrap_err().to_string().contains("/dev/full"));
    }

    #[test]
    fn no_command_writes_over_a_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("a/checkpoints/step-000001/trainer")).unwrap();
        for own in ["run.db", "recipe.toml", "checkpoints/step-000001/trainer/state.json"] {
            fs::write(path("a").join(own), "own").unwrap();
        }

        symlink("a/run.db", path("link")).unwrap();
        symlink("a", path("b")).unwrap();
        symlink("a/run.db-journal", path("new")).unwrap();

        for name in [
            "a/run.db",
            "a/run.db-wal",
            "a/summary.json",
            "a/checkpoints/../recipe.toml",
            "a/checkpoints/step-000001/trainer/state.json",
            "a/checkpoints/report.html",
            "b/run.db",
            "link",
            "new",
        ] {
            let refused = Out::at_path(&path(name)).unwrap_err();
            assert!(matches!(refused, ProgramError::OwnFile { .. }), "{name}: {refused}");
        }

        assert!(
            Out::at_path(&path("a/report.html")).is_ok() && Out::at_path(&path("run.db")).is_ok()
        );
        assert!(Out::at_path(&path("a")).unwrap_err().to_string().contains("it is a folder"));
    }
}
