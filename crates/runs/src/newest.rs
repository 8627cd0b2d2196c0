//! Finds the checkpoint that a run's name stands for.

use std::path::{Path, PathBuf};

use crate::{RunError, folder::checkpoints, sums::find_missing};

/// Newest checkpoint of a run that has all files of its model.
#[derive(Clone, Debug, PartialEq)]
pub struct Newest {
    /// Folder of the checkpoint.
    pub path: PathBuf,
    /// Newer checkpoint that lacks a file, if there is one.
    pub passed_over: Option<PathBuf>,
}

/// Finds the newest whole checkpoint of the run in `folder`, which may be under way. The contents of its files are not
/// compared with their sums, as they are when the run is resumed: that would read far more than the model.
///
/// # Errors
/// When the run has no whole checkpoint, or its folder can't be read.
pub fn newest_checkpoint(folder: &Path) -> Result<Newest, RunError> {
    let has_any = folder.join("checkpoints").is_dir();
    let all = if has_any { checkpoints(folder)? } else { Vec::new() };

    let mut first_missing = None;
    for (_, path) in all.into_iter().rev() {
        match find_missing(&path)? {
            None => {
                let passed_over = first_missing.map(|(newer, _)| newer);
                return Ok(Newest { path, passed_over });
            }
            Some(file) => _ = first_missing.get_or_insert((path, file)),
        }
    }

    let run = folder.to_owned();
    Err(match first_missing {
        Some((checkpoint, file)) => RunError::NoWhole { run, checkpoint, file },
        None => RunError::NoCheckpoint { run },
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::write_sums;

    #[test]
    fn the_newest_whole_checkpoint_is_found() {
        let runs = tempfile::tempdir().unwrap();
        let run = runs.path();
        let none = newest_checkpoint(run).unwrap_err().to_string();
        assert!(none.contains("has no checkpoint yet") && none.contains("--resume"), "{none}");

        let save = |step: &str| {
            let checkpoint = run.join("checkpoints").join(step);
            fs::create_dir_all(checkpoint.join("trainer")).unwrap();
            fs::write(checkpoint.join("config.json"), "{}").unwrap();
            fs::write(checkpoint.join("trainer/state.json"), "{}").unwrap();
            write_sums(&checkpoint).unwrap();
            checkpoint
        };
        let (older, newer) = (save("step-000002"), save("step-000010"));
        fs::create_dir(run.join("checkpoints/.tmp-step-000011")).unwrap();
        fs::create_dir(run.join("checkpoints/damaged-step-000012")).unwrap();

        // What only a resumed run needs may be gone.
        fs::remove_file(newer.join("trainer/state.json")).unwrap();
        let found = newest_checkpoint(run).unwrap();
        assert_eq!(found, Newest { path: newer.clone(), passed_over: None });

        fs::remove_file(newer.join("config.json")).unwrap();
        let found = newest_checkpoint(run).unwrap();
        assert_eq!(found, Newest { path: older.clone(), passed_over: Some(newer) });

        fs::remove_file(older.join("config.json")).unwrap();
        let refused = newest_checkpoint(run).unwrap_err().to_string();
        assert!(refused.contains("step-000010 lacks config.json"), "{refused}");
    }
}
