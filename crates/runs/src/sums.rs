//! Checksums of a complete folder, which later show whether a file has changed.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _},
    path::Path,
};

use sha2::{Digest, Sha256};

use crate::{RunError, own::open_own, write_atomically};

/// File of a checkpoint with the SHA-256 of all its other files, in the form that `sha256sum --check` reads. It is in
/// `trainer`, because a person who gives the model away has no use for it.
pub const SUMS: &str = "trainer/SHA256SUMS";

/// Limit on [`SUMS`], in bytes.
const BYTES: u64 = 16 << 20;

/// Writes [`SUMS`] into `folder`, which has a folder `trainer` and is complete: no file of the checkpoint is
/// added later.
///
/// # Errors
/// When a file can't be read or written.
pub fn write_sums(folder: &Path) -> Result<(), RunError> {
    let mut sums = String::new();
    for (name, sum) in sums_of(folder)? {
        sums += &format!("{sum}  {name}\n");
    }
    sums += &closing_line(sums.lines().count());
    write_atomically(&folder.join(SUMS), sums.as_bytes())
}

/// Returns the SHA-256 of each file below `folder`, by its path from there.
///
/// # Errors
/// When a file can't be read.
pub fn sums_of(folder: &Path) -> Result<Vec<(String, String)>, RunError> {
    let sum_of = |name: String| {
        let path = folder.join(&name);
        match sum(&path) {
            Ok(sum) => Ok((name, sum)),
            Err(error) => Err(RunError::File { action: "read", path, error }),
        }
    };
    files(folder, "")?.into_iter().map(sum_of).collect()
}

/// Compares a folder's files with its [`SUMS`]. Returns the first file that is missing or has changed, and the
/// problem in words. A folder without sums passes, because it is older than they are. Files that were added don't
/// matter.
///
/// # Errors
/// When a file is there and can't be read. That says nothing about its bytes: another user's checkpoint, or one on
/// a disk that is away for a moment, may be intact.
pub fn find_damage(folder: &Path) -> Result<Option<(String, String)>, RunError> {
    let damaged = |name: &str, problem: &str| Ok(Some((name.to_owned(), problem.to_owned())));
    let lines = match read_sums(folder)? {
        Sums::Absent => return Ok(None),
        Sums::Incomplete => return damaged(SUMS, "is incomplete"),
        Sums::Complete(lines) => lines,
    };

    for (name, expected) in lines {
        let path = folder.join(&name);
        match sum(&path) {
            Ok(found) if found == expected => {}
            Ok(_) => return damaged(&name, "differs from the file that was saved"),
            Err(error) if is_absent(&error) => return damaged(&name, "is missing"),
            Err(error) => return Err(RunError::File { action: "read", path, error }),
        }
    }
    Ok(None)
}

/// Returns the first file of a checkpoint's model that is missing. It reads no weights, and asks for nothing that only
/// a resumed run needs.
pub(crate) fn find_missing(folder: &Path) -> Result<Option<String>, RunError> {
    let lines = match read_sums(folder)? {
        Sums::Absent => return Ok(None),
        Sums::Incomplete => return Ok(Some(SUMS.to_owned())),
        Sums::Complete(lines) => lines,
    };

    let mut names = lines.into_keys().filter(|name| !name.starts_with("trainer/"));
    Ok(names.find(|name| !folder.join(name).is_file()))
}

/// What a folder says about its files.
enum Sums {
    /// No file of sums is there.
    Absent,
    /// The file was cut off or changed.
    Incomplete,
    /// The sum of each file, by its path.
    Complete(BTreeMap<String, String>),
}

fn read_sums(folder: &Path) -> Result<Sums, RunError> {
    let path = folder.join(SUMS);
    let read = || {
        let mut bytes = Vec::new();
        open_own(&path)?.take(BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let text = match read() {
        Ok(bytes) => String::from_utf8(bytes).unwrap_or_default(),
        Err(error) if is_absent(&error) => return Ok(Sums::Absent),
        Err(error) => return Err(RunError::File { action: "read", path, error }),
    };

    // A line of another form means that the file was cut off or changed.
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let named = |(sum, name): (&str, &str)| (name.to_owned(), sum.to_owned());
    let lines: Option<BTreeMap<String, String>> =
        lines.map(|line| line.split_once("  ").map(named)).collect();
    Ok(match lines.filter(|lines| text.ends_with(&closing_line(lines.len()))) {
        Some(lines) => Sums::Complete(lines),
        None => Sums::Incomplete,
    })
}

/// Tells whether a file could not be read because no file is there: nothing at all, or a folder.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | IsADirectory)
}

/// Returns the last line of the file, which `sha256sum` takes for a comment. Without it, a file that lost lines at its
/// end would look complete.
fn closing_line(count: usize) -> String {
    format!("# {count} files\n")
}

fn sum(path: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    // Opening a pipe would wait until somebody writes to it. A link is as good as the file that it leads to.
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
        return Err(io::Error::other("it is not an ordinary file"));
    }

    io::copy(&mut File::open(path)?, &mut hash)?;
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Lists the files below `folder`, with their paths from there, sorted.
fn files(folder: &Path, within: &str) -> Result<Vec<String>, RunError> {
    let list = || -> io::Result<Vec<(String, bool)>> {
        fs::read_dir(folder.join(within))?
            .map(|entry| {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                Ok((format!("{within}{name}"), entry.path().is_dir()))
            })
            .collect()
    };
    let mut entries = list().map_err(|error| RunError::File {
        action: "list",
        path: folder.join(within),
        error,
    })?;
    entries.sort();

    let mut names = Vec::new();
    for (name, is_folder) in entries {
        if is_folder {
            names.extend(files(folder, &format!("{name}/"))?);
        } else if name != SUMS {
            names.push(name);
        }
    }

    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_changed_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let damage = || find_damage(folder.path()).unwrap();

        fs::create_dir(path("trainer")).unwrap();
        let files = ["model.safetensors", "trainer/state.json"];
        files.iter().for_each(|name| fs::write(path(name), name.repeat(100)).unwrap());
        assert_eq!(damage(), None);

        write_sums(folder.path()).unwrap();
        fs::write(path("notes.txt"), "added later").unwrap();
        assert_eq!(damage(), None);

        for name in files.into_iter().chain([SUMS]) {
            let whole = fs::read(path(name)).unwrap();
            let mut flipped = whole.clone();
            flipped[whole.len() / 2] ^= 1;

            let cut = |length: usize| whole[..length].to_vec();
            for bytes in [cut(0), cut(1), cut(whole.len() / 2), cut(whole.len() - 1), flipped] {
                fs::write(path(name), bytes).unwrap();
                assert!(damage().is_some(), "{name}");
            }

            fs::remove_file(path(name)).unwrap();
            // Without sums there is nothing to compare with.
            assert!(name == SUMS || damage().is_some(), "{name}");

            fs::write(path(name), whole).unwrap();
            assert_eq!(damage(), None);
        }
    }

    /// Checks that a checkpoint that may not be read doesn't count as damaged, because a damaged one is renamed.
    #[cfg(unix)]
    #[test]
    fn a_file_that_cannot_be_opened_is_not_damaged() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};

        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("trainer")).unwrap();
        fs::write(path("trainer/state.json"), "{}").unwrap();
        write_sums(folder.path()).unwrap();
        let refused = |what: &Path| {
            let error = find_damage(folder.path()).unwrap_err();
            let RunError::File { action: "read", path, .. } = &error else { panic!("{error}") };
            assert_eq!(path, what);
        };

        // A link to itself can't be opened by anybody; the rights of a file don't bind root.
        for name in ["trainer/state.json", SUMS] {
            fs::rename(path(name), path("aside")).unwrap();
            symlink(path(name), path(name)).unwrap();
            refused(&path(name));
            fs::remove_file(path(name)).unwrap();
            fs::rename(path("aside"), path(name)).unwrap();
        }
        let rights = |name: &str, mode| {
            fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        for (name, mode) in [("trainer/state.json", 0o644), (SUMS, 0o644), ("trainer", 0o755)] {
            rights(name, 0);
            let is_bound = fs::metadata(path(SUMS)).is_err() || File::open(path(name)).is_err();
            if is_bound {
                refused(&path(if name == "trainer" { SUMS } else { name }));
            }
            rights(name, mode);
        }

        fs::remove_file(path("trainer/state.json")).unwrap();
        let missing = find_damage(folder.path()).unwrap();
        assert_eq!(missing, Some(("trainer/state.json".into(), "is missing".into())));
    }
}
