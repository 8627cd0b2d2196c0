//! Checksums of a complete folder, which later show whether a file has changed.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::Path,
};

use sha2::{Digest, Sha256};

use crate::{RunError, write_atomically};

/// The file of a checkpoint with the SHA-256 of all its other files, in the form that `sha256sum --check`
/// reads. It lies in `trainer`, because a person who gives the model away has no use for it.
pub const SUMS: &str = "trainer/SHA256SUMS";

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
    sums += &end(sums.lines().count());
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

/// Compares a folder's files with its [`SUMS`]. Returns the first file that is missing or has changed, and what
/// is wrong with it. A folder without sums passes, because it is from before there were any. Files that were
/// added don't matter.
pub fn find_damage(folder: &Path) -> Option<(String, String)> {
    let path = folder.join(SUMS);
    if !path.exists() {
        return None;
    }
    let damaged = |problem: String| Some((SUMS.to_owned(), problem));
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => return damaged(format!("can't be read: {error}")),
    };
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let lines: Option<BTreeMap<&str, &str>> =
        lines.map(|line| line.split_once("  ").map(|(sum, name)| (name, sum))).collect();
    let Some(lines) = lines.filter(|lines| text.ends_with(&end(lines.len()))) else {
        return damaged("is not whole".into());
    };
    lines.into_iter().find_map(|(name, expected)| match sum(&folder.join(name)) {
        Ok(found) if found == expected => None,
        Ok(_) => Some((name.to_owned(), "differs from the file that was saved".to_owned())),
        Err(error) => Some((name.to_owned(), format!("can't be read: {error}"))),
    })
}

/// Returns the last line of the file, which `sha256sum` takes for a comment. Without it a file that lost whole
/// lines would look whole.
fn end(count: usize) -> String {
    format!("# {count} files\n")
}

fn sum(path: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
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
    let mut all = Vec::new();
    for (name, is_folder) in entries {
        match is_folder {
            true => all.extend(files(folder, &format!("{name}/"))?),
            false if name == SUMS => {}
            false => all.push(name),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_changed_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("trainer")).unwrap();
        let files = ["model.safetensors", "trainer/state.json"];
        files.iter().for_each(|name| fs::write(path(name), name.repeat(100)).unwrap());
        assert_eq!(find_damage(folder.path()), None);
        write_sums(folder.path()).unwrap();
        fs::write(path("notes.txt"), "added later").unwrap();
        assert_eq!(find_damage(folder.path()), None);
        for name in files.into_iter().chain([SUMS]) {
            let whole = fs::read(path(name)).unwrap();
            let mut flipped = whole.clone();
            flipped[whole.len() / 2] ^= 1;
            let cut = |length: usize| whole[..length].to_vec();
            for bytes in [cut(0), cut(1), cut(whole.len() / 2), cut(whole.len() - 1), flipped] {
                fs::write(path(name), bytes).unwrap();
                assert!(find_damage(folder.path()).is_some(), "{name}");
            }
            fs::remove_file(path(name)).unwrap();
            // Without sums there is nothing to compare with.
            assert!(name == SUMS || find_damage(folder.path()).is_some(), "{name}");
            fs::write(path(name), whole).unwrap();
            assert_eq!(find_damage(folder.path()), None);
        }
    }
}
