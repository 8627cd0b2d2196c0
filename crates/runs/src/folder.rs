//! Folder of a run: its paths, its lock, and files that appear completely or not at all.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
};

use firebrick_core::{Step, check_run_name};

use crate::{
    RunError,
    own::{check_ordinary, open_own},
    store::files,
};

/// Folder of one run. While the value lives, no other process may write the folder.
///
/// A checkpoint is written under a hidden name, synced, and renamed, so a folder with the name of a checkpoint is
/// complete, wherever the run was killed.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// File that has the lock. The system releases the lock when the process ends, however it ends.
    held: File,
    /// Files of the record, as they were when it was opened.
    record: Vec<(PathBuf, Identity)>,
}

/// Numbers that identify a file among all others of the machine.
type Identity = (u64, u64);

impl RunFolder {
    /// Makes the folder `name` in `runs` for a new run.
    ///
    /// # Errors
    /// When the name can't be a folder's, the folder already holds a run, another process has it, or it can't be made.
    pub fn create(runs: &Path, name: &str) -> Result<Self, RunError> {
        RunFolder::check_free(runs, name)?;
        let path = runs.join(name);

        let checkpoints = path.join("checkpoints");
        fs::create_dir_all(&checkpoints).map_err(file_error("make the folder", &checkpoints))?;
        // Whatever is swept or found after this point belongs to nobody else, because the lock is held.
        let folder = RunFolder { held: lock(&path)?, path, record: Vec::new() };
        folder.sweep()?;

        if !folder.checkpoints()?.is_empty() {
            return Err(RunError::Exists { path: folder.path });
        }
        Ok(folder)
    }

    /// Tells whether a run was begun in `folder`. It may have lost its database, or have been killed before it had
    /// one.
    pub fn is_run(folder: &Path) -> bool {
        folder.join("run.db").is_file() || folder.join(LOCK).is_file()
    }

    /// Tells whether no process writes the run in `folder` any more, as far as the file system has locks.
    pub fn is_left(folder: &Path) -> bool {
        let unlocked = |file: File| file.try_lock_shared().is_ok();
        open_own(&folder.join(LOCK)).is_ok_and(unlocked)
    }

    /// Checks that [`RunFolder::create`] would find no run of that name, without making anything, so that you learn of
    /// a taken name before a large model is loaded.
    ///
    /// # Errors
    /// When the name can't be a folder's, or the folder already holds a run.
    pub fn check_free(runs: &Path, name: &str) -> Result<(), RunError> {
        check_run_name(name)?;
        let path = runs.join(name);

        let traces = [path.join("recipe.toml"), path.join("run.db")];
        if traces.iter().any(|trace| trace.exists()) {
            return Err(RunError::Exists { path });
        }
        Ok(())
    }

    /// Opens the folder `name` in `runs` to continue its run, and clears away whatever an interrupted process
    /// left half done.
    ///
    /// # Errors
    /// When there is no run, another process has it, or it can't be read.
    pub fn resume(runs: &Path, name: &str) -> Result<Self, RunError> {
        check_run_name(name)?;
        let path = runs.join(name);
        let recipe = path.join("recipe.toml");
        match fs::metadata(&recipe) {
            Ok(metadata) if metadata.is_file() => {}
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(file_error("examine", &recipe)(error));
            }
            _ => return Err(RunError::NothingToResume { path }),
        }

        let checkpoints = path.join("checkpoints");
        fs::create_dir_all(&checkpoints).map_err(file_error("make the folder", &checkpoints))?;

        let folder = RunFolder { held: lock(&path)?, path, record: Vec::new() };
        folder.sweep()?;
        Ok(folder)
    }

    /// Opens the folder `name` in `runs` for a new run, in place of one that did nothing worth keeping, as `is_idle`
    /// says once nobody else can write there. Its checkpoints are removed; its groups stay in the record, where only the
    /// same request finds them.
    ///
    /// # Errors
    /// As for [`RunFolder::resume`], when the run did something, and when a checkpoint can't be removed.
    pub fn take_over(
        runs: &Path,
        name: &str,
        is_idle: impl FnOnce(&Path) -> bool,
    ) -> Result<Self, RunError> {
        let folder = RunFolder::resume(runs, name)?;
        if !is_idle(folder.path()) {
            return Err(RunError::Exists { path: folder.path.clone() });
        }
        for (_, path) in folder.checkpoints()? {
            remove_checkpoint(&path)?;
        }
        Ok(folder)
    }

    /// Makes [`RunFolder::check`] cover the record too. The [`Store`](crate::Store) has to be open already. It keeps
    /// the same files open until it is dropped.
    pub fn guard_record(&mut self) {
        let there = |path: PathBuf| Some((path.clone(), identity(fs::symlink_metadata(path))?));
        self.record = files(&self.database()).into_iter().filter_map(there).collect();
    }

    /// Checks that the folder and the record are still those that this process began to write, as far as the system
    /// can tell.
    ///
    /// # Errors
    /// When one was removed, moved away or replaced. Everything that is written afterwards would be lost.
    pub fn check(&self) -> Result<(), RunError> {
        if identity(fs::metadata(self.path.join(LOCK))) != identity(self.held.metadata()) {
            return Err(RunError::Gone { path: self.path.clone() });
        }

        let is_gone = |(path, known): &&(PathBuf, Identity)| {
            identity(fs::symlink_metadata(path)) != Some(*known)
        };
        match self.record.iter().find(is_gone) {
            Some((path, _)) => Err(RunError::Gone { path: path.clone() }),
            None => Ok(()),
        }
    }

    /// Returns the folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the effective recipe.
    pub fn recipe(&self) -> PathBuf {
        self.path.join("recipe.toml")
    }

    /// Returns the path of the [`Store`](crate::Store).
    pub fn database(&self) -> PathBuf {
        self.path.join("run.db")
    }

    /// Returns the path to which the metrics are exported at the end.
    pub fn metrics(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    /// Returns the path of the [`Summary`](crate::Summary).
    pub fn summary(&self) -> PathBuf {
        self.path.join("summary.json")
    }

    /// Returns the path of the checkpoint of `step`, whether it is there or not.
    pub fn checkpoint(&self, step: Step) -> PathBuf {
        self.path.join("checkpoints").join(format!("step-{step:06}"))
    }

    /// Returns the path of the `index`-th batch of `step` whose update was skipped, whether it is there or not.
    pub fn skipped(&self, step: Step, index: usize) -> PathBuf {
        self.path.join(format!("skipped-step-{step:06}-{index}.json"))
    }

    /// Makes an empty hidden folder for the files of the checkpoint of `step`. When all of them are there,
    /// [`publish_folder`] gives the folder its name.
    ///
    /// # Errors
    /// When it can't be made, or a stale one can't be removed.
    pub fn begin_checkpoint(&self, step: Step) -> Result<PathBuf, RunError> {
        let temporary = hidden(&self.checkpoint(step), TEMPORARY);
        remove(&temporary)?;
        fs::create_dir_all(&temporary).map_err(file_error("make the folder", &temporary))?;
        Ok(temporary)
    }

    /// Lists the complete checkpoints, oldest first.
    ///
    /// # Errors
    /// When the folder can't be read.
    pub fn checkpoints(&self) -> Result<Vec<(Step, PathBuf)>, RunError> {
        checkpoints(&self.path)
    }

    /// Renames the damaged checkpoint of `step`, so that it no longer counts as a checkpoint. Returns the new
    /// path.
    ///
    /// # Errors
    /// When it can't be renamed.
    pub fn set_aside(&self, step: Step) -> Result<PathBuf, RunError> {
        let path = self.checkpoint(step);
        let aside = hidden(&path, DAMAGED);
        remove(&aside)?;
        fs::rename(&path, &aside).map_err(file_error("rename", &path))?;
        Ok(aside)
    }

    /// Removes all checkpoints except the newest `keep` ones and the one of step `best`. If `keep` is 0, it
    /// removes none.
    ///
    /// # Errors
    /// When one can't be removed.
    pub fn prune(&self, keep: usize, best: Option<Step>) -> Result<(), RunError> {
        let checkpoints = self.checkpoints()?;
        let surplus = if keep == 0 { 0 } else { checkpoints.len().saturating_sub(keep) };

        for (step, path) in checkpoints.into_iter().take(surplus) {
            if best != Some(step) {
                remove_checkpoint(&path)?;
            }
        }
        Ok(())
    }

    /// Clears away temporary files and folders, and puts back a checkpoint whose replacement was
    /// interrupted between its two renames.
    fn sweep(&self) -> Result<(), RunError> {
        for folder in [self.path.clone(), self.path.join("checkpoints")] {
            for (name, path) in entries(&folder)? {
                if name.starts_with(TEMPORARY) {
                    remove(&path)?;
                } else if let Some(original) = name.strip_prefix(REPLACED) {
                    let original = folder.join(original);
                    if original.exists() {
                        remove(&path)?;
                    } else {
                        fs::rename(&path, &original).map_err(file_error("put back", &original))?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Lists the complete checkpoints of the run in `folder`, oldest first. The run may be under way.
///
/// # Errors
/// When the folder can't be read.
pub fn checkpoints(folder: &Path) -> Result<Vec<(Step, PathBuf)>, RunError> {
    let mut checkpoints: Vec<(Step, PathBuf)> = entries(&folder.join("checkpoints"))?
        .into_iter()
        .filter_map(|(name, path)| Some((step_of(&name)?, path)))
        // One that can't be examined exists too, and is not a reason to continue from an older one.
        .filter(|(_, path)| fs::metadata(path).map_or(true, |metadata| metadata.is_dir()))
        .collect();
    checkpoints.sort();
    Ok(checkpoints)
}

fn remove_checkpoint(path: &Path) -> Result<(), RunError> {
    // The folder is hidden first, because a process that is killed while it removes files must not leave half a
    // checkpoint.
    let doomed = hidden(path, TEMPORARY);
    remove(&doomed)?;
    fs::rename(path, &doomed).map_err(file_error("rename", path))?;
    remove(&doomed)
}

/// Writes a file so that a reader finds the old bytes or the new ones, never a part, even after a
/// power cut.
///
/// # Errors
/// When it can't be written; the old file is then as it was.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    let temporary = hidden(path, TEMPORARY);
    // Writing to a link of that name would change another file.
    remove(&temporary)?;

    let written = File::create_new(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(file_error("write", &temporary))?;
    fs::rename(&temporary, path).map_err(file_error("replace", path))?;
    sync_parent(path)
}

/// Renames the complete folder `temporary` to `published`, in the same parent folder, after everything in it has
/// reached the disk. A folder that has the name already is replaced.
///
/// # Errors
/// When it can't be synced or renamed.
pub fn publish_folder(temporary: &Path, published: &Path) -> Result<(), RunError> {
    sync_files(temporary)?;

    // A process that is killed between the two renames leaves the old folder to be put back.
    let replaced = hidden(published, REPLACED);
    if published.exists() {
        remove(&replaced)?;
        fs::rename(published, &replaced).map_err(file_error("make room at", published))?;
    }

    fs::rename(temporary, published).map_err(file_error("rename to", published))?;
    sync_parent(published)?;
    remove(&replaced)
}

/// Renames the complete file `temporary` to `published`, in the same folder, after all of it has reached the disk.
///
/// # Errors
/// When it can't be synced or renamed.
pub fn publish_file(temporary: &Path, published: &Path) -> Result<(), RunError> {
    sync(temporary)?;
    fs::rename(temporary, published).map_err(file_error("rename to", published))?;
    sync_parent(published)
}

/// Prefix of files and folders that are not complete yet, or no longer.
const TEMPORARY: &str = ".tmp-";

/// Prefix of a checkpoint whose files are not those that were saved.
const DAMAGED: &str = "damaged-";

/// Prefix of a checkpoint that is making room for another one of the same step.
const REPLACED: &str = ".old-";

/// Returns the path next to `path` whose name begins with `mark`.
fn hidden(path: &Path, mark: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{mark}{name}"))
}

fn step_of(name: &str) -> Option<Step> {
    let digits = name.strip_prefix("step-")?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Returns the numbers of a file; `None` if there is no file, or the system has no such numbers.
fn identity(metadata: io::Result<fs::Metadata>) -> Option<Identity> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        metadata.ok().map(|metadata| (metadata.dev(), metadata.ino()))
    }
    #[cfg(not(unix))]
    {
        let _ = metadata;
        None
    }
}

/// File that a process holds while it writes the run.
const LOCK: &str = ".lock";

fn lock(folder: &Path) -> Result<File, RunError> {
    let path = folder.join(LOCK);
    check_ordinary(&path)?;
    let file = File::create(&path).map_err(file_error("make", &path))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(RunError::Busy { path: folder.to_owned() }),
        // Some network file systems have no locks. Being able to run there is worth more than the check.
        Err(TryLockError::Error(_)) | Ok(()) => Ok(file),
    }
}

fn entries(folder: &Path) -> Result<Vec<(String, PathBuf)>, RunError> {
    let list = || -> io::Result<_> {
        fs::read_dir(folder)?
            .map(|entry| entry.map(|entry| (lossy_name(&entry), entry.path())))
            .collect()
    };
    list().map_err(file_error("list", folder))
}

fn lossy_name(entry: &fs::DirEntry) -> String {
    entry.file_name().to_string_lossy().into_owned()
}

/// Removes a file or a folder. It is not an error if there is none.
fn remove(path: &Path) -> Result<(), RunError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };

    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(file_error("remove", path)(error))
        }
        _ => Ok(()),
    }
}

fn sync_files(folder: &Path) -> Result<(), RunError> {
    for (_, path) in entries(folder)? {
        let metadata = fs::symlink_metadata(&path).map_err(file_error("examine", &path))?;
        if metadata.is_dir() {
            sync_files(&path)?;
        } else if metadata.is_file() {
            sync(&path)?;
        }
    }
    sync_folder(folder)
}

fn sync_parent(path: &Path) -> Result<(), RunError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    sync_folder(parent.unwrap_or(Path::new(".")))
}

fn sync_folder(folder: &Path) -> Result<(), RunError> {
    // Only Unix opens folders as files. Elsewhere a rename is as durable as the system makes it.
    if cfg!(unix) { sync(folder) } else { Ok(()) }
}

fn sync(path: &Path) -> Result<(), RunError> {
    // Windows syncs only files that are open for writing. Elsewhere reading is enough, and a copied
    // tokenizer.json may be read-only.
    let open =
        if cfg!(windows) { File::options().append(true).open(path) } else { File::open(path) };
    open.and_then(|file| file.sync_all()).map_err(file_error("sync", path))
}

fn file_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RunError {
    let path = path.to_owned();
    move |error| RunError::File { action, path, error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;

    #[test]
    fn a_run_is_not_started_twice() {
        let runs = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(runs.path(), "a").unwrap();
        assert!(matches!(
            RunFolder::resume(runs.path(), "a"),
            Err(RunError::NothingToResume { .. })
        ));
        write_atomically(&folder.recipe(), b"seed = 1").unwrap();
        assert!(matches!(RunFolder::resume(runs.path(), "a"), Err(RunError::Busy { .. })));
        assert!(!RunFolder::is_left(folder.path()));
        drop(folder);
        assert!(RunFolder::is_left(&runs.path().join("a")));

        let error = RunFolder::create(runs.path(), "a").unwrap_err().to_string();
        assert!(error.contains("--resume") && error.contains("another name"), "{error}");
        let folder = RunFolder::resume(runs.path(), "a").unwrap();
        assert_eq!(fs::read(folder.recipe()).unwrap(), b"seed = 1");
    }

    /// Uses a link to itself, which nobody can examine.
    #[cfg(unix)]
    #[test]
    fn what_cannot_be_looked_at_is_there() {
        use std::os::unix::fs::symlink;

        let runs = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(runs.path(), "a").unwrap();
        symlink(folder.checkpoint(7), folder.checkpoint(7)).unwrap();
        assert_eq!(folder.checkpoints().unwrap(), [(7, folder.checkpoint(7))]);
        symlink(folder.recipe(), folder.recipe()).unwrap();

        drop(folder);
        let error = RunFolder::resume(runs.path(), "a").unwrap_err();
        assert!(matches!(error, RunError::File { action: "examine", .. }), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_record_that_is_taken_away_is_missed() {
        let runs = tempfile::tempdir().unwrap();
        let mut folder = RunFolder::create(runs.path(), "a").unwrap();
        let path = folder.database();
        let store = Store::open(&path).unwrap();

        folder.guard_record();
        store.set_info("device", "cpu").unwrap();
        folder.check().unwrap();

        for ending in ["", "-wal", "-shm"] {
            let file = folder.path().join(format!("run.db{ending}"));
            let aside = folder.path().join("aside");
            let gone = |folder: &RunFolder| match folder.check() {
                Err(RunError::Gone { path }) => assert_eq!(path, file),
                other => panic!("{ending}: {other:?}"),
            };

            // Removed or moved, replaced by a copy, and replaced by a link to itself.
            fs::rename(&file, &aside).unwrap();
            gone(&folder);
            fs::copy(&aside, &file).unwrap();
            gone(&folder);
            fs::remove_file(&file).unwrap();
            std::os::unix::fs::symlink(&aside, &file).unwrap();
            gone(&folder);
            fs::rename(&aside, &file).unwrap();
            folder.check().unwrap();
        }
    }

    #[test]
    fn only_complete_checkpoints_are_seen_and_the_newest_kept() {
        let runs = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(runs.path(), "a").unwrap();
        write_atomically(&folder.recipe(), b"").unwrap();
        for step in [1_000_000, 50, 100, 100] {
            let temporary = folder.begin_checkpoint(step).unwrap();
            fs::create_dir(temporary.join("trainer")).unwrap();
            fs::write(temporary.join("trainer/state"), step.to_string()).unwrap();
            publish_folder(&temporary, &folder.checkpoint(step)).unwrap();
        }
        fs::write(folder.begin_checkpoint(150).unwrap().join("half"), "").unwrap();
        fs::create_dir(folder.path().join("checkpoints/step-7x")).unwrap();

        let steps = |folder: &RunFolder| -> Vec<Step> {
            folder.checkpoints().unwrap().into_iter().map(|(step, _)| step).collect()
        };
        assert_eq!(steps(&folder), [50, 100, 1_000_000]);
        folder.prune(0, None).unwrap();
        assert_eq!(steps(&folder).len(), 3);
        folder.prune(2, None).unwrap();
        assert_eq!(steps(&folder), [100, 1_000_000]);

        // The run was killed between the two renames of a replacement: the old checkpoint comes back.
        let replaced = folder.path().join("checkpoints/.old-step-000100");
        fs::rename(folder.checkpoint(100), &replaced).unwrap();

        drop(folder);
        let folder = RunFolder::resume(runs.path(), "a").unwrap();
        assert_eq!(steps(&folder), [100, 1_000_000]);
        assert!(!folder.path().join("checkpoints/.tmp-step-000150").exists());
    }
}
