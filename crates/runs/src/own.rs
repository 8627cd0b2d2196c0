//! Reads files of a run's folder with a bound, and never follows a link out of the folder.
//!
//! A run may be untrusted. A link among its files may lead to a private file, which would end up in a page that is
//! passed on. Opening a pipe waits until somebody writes to it, and a device may never end.

use std::{
    fs::{self, File, Metadata},
    io::{self, Read as _},
    path::Path,
};

use firebrick_core::text_from;

use crate::RunError;

/// Limit on a run's `recipe.toml`, as on any recipe, in bytes.
pub const RECIPE_BYTES: u64 = 1 << 20;

/// Opens a file that a run has written.
///
/// # Errors
/// When it can't be opened, or is a link, a folder, a pipe or a device.
pub fn open_own(path: &Path) -> io::Result<File> {
    let metadata = fs::symlink_metadata(path)?;
    match other_kind(&metadata) {
        None => File::open(path),
        Some("a folder") => {
            Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder, expected a file"))
        }
        Some(other) => Err(not_ordinary(other)),
    }
}

/// Reads the text of a file that a run has written, of at most `max_bytes` bytes.
///
/// # Errors
/// As for [`open_own`], and when the file is longer or is not UTF-8.
pub fn read_own(path: &Path, max_bytes: u64) -> Result<String, RunError> {
    let read = || {
        let mut bytes = Vec::new();
        // The file may grow while it is read, so its length is not asked for beforehand.
        let length = open_own(path)?.take(max_bytes + 1).read_to_end(&mut bytes)?;
        if length as u64 > max_bytes {
            Err(io::Error::other(format!("it is larger than {max_bytes} bytes")))
        } else {
            text_from(&bytes)
        }
    };
    read().map_err(|error| RunError::File { action: "read", path: path.to_owned(), error })
}

/// Reads the `recipe.toml` in the folder of a run.
///
/// # Errors
/// As for [`read_own`].
pub fn recipe_text(run: &Path) -> Result<String, RunError> {
    read_own(&run.join("recipe.toml"), RECIPE_BYTES)
}

/// Checks that what is at `path`, if anything, is an ordinary file.
pub(crate) fn check_ordinary(path: &Path) -> Result<(), RunError> {
    let error = match fs::symlink_metadata(path) {
        Ok(metadata) => match other_kind(&metadata) {
            None => return Ok(()),
            Some(other) => not_ordinary(other),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => error,
    };
    Err(RunError::File { action: "open", path: path.to_owned(), error })
}

/// Names the kind of what is not an ordinary file. Returns `None` for an ordinary file.
fn other_kind(metadata: &Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt as _;
        if kind.is_fifo() {
            return Some("a pipe");
        }
        if kind.is_char_device() || kind.is_block_device() {
            return Some("a device");
        }
        if kind.is_socket() {
            return Some("a socket");
        }
    }

    if kind.is_file() {
        None
    } else if kind.is_symlink() {
        Some("a link")
    } else if kind.is_dir() {
        Some("a folder")
    } else {
        Some("no file")
    }
}

fn not_ordinary(kind: &str) -> io::Error {
    let advice = match kind {
        "a link" => "; links in a run's folder are not followed: put the file itself there",
        _ => "",
    };
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("it is {kind}, expected an ordinary file{advice}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("summary.json");
        fs::write(&path, "four").unwrap();
        assert_eq!(read_own(&path, 4).unwrap(), "four");
        let error = read_own(&path, 3).unwrap_err().to_string();
        assert!(error.contains("it is larger than 3 bytes"), "{error}");
        assert!(read_own(folder.path(), 3).unwrap_err().to_string().contains("it is a folder"));
    }

    #[cfg(unix)]
    #[test]
    fn no_file_of_a_run_leads_out_of_it_or_waits() {
        use std::{os::unix::fs::symlink, process::Command};

        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("private"), "a secret").unwrap();
        symlink(path("private"), path("link")).unwrap();
        symlink("/dev/zero", path("endless")).unwrap();
        symlink(path("nowhere"), path("dangling")).unwrap();
        assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();

        for (name, kind) in [
            ("link", "a link"),
            ("endless", "a link"),
            ("dangling", "a link"),
            ("pipe", "a pipe"),
            ("socket", "a socket"),
        ] {
            let error = read_own(&path(name), 10).unwrap_err().to_string();
            assert!(error.contains(&format!("it is {kind}")), "{error}");
            assert!(check_ordinary(&path(name)).is_err(), "{name}");
        }

        assert!(read_own(Path::new("/dev/zero"), 10).unwrap_err().to_string().contains("a device"));
        assert!(check_ordinary(&path("absent")).is_ok());
    }
}
