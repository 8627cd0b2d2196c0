//! Layout of the cache: `models--owner--name/` with `blobs/` named by their hashes, `refs/` with
//! the commits of branches, and `snapshots/<commit>/` with links to blobs.

use std::{
    collections::BTreeMap,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{HubError, HubName, Kind, Progress};

/// All files of a repository at one commit, by their paths with `/`.
pub(super) type Listing = BTreeMap<String, Entry>;

/// What the Hub says about a file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Entry {
    pub(super) size: u64,
    /// Git's hash of the file, or of the pointer to it.
    pub(super) blob_id: String,
    /// SHA-256 of a large file's content.
    #[serde(default)]
    pub(super) lfs_sha256: Option<String>,
}

impl Entry {
    /// Makes an entry. Returns `None` if one of the hashes is invalid, because hashes become file names.
    #[cfg(feature = "hub")]
    pub(super) fn new(size: u64, blob_id: &str, lfs_sha256: Option<&str>) -> Option<Self> {
        let entry =
            Entry { size, blob_id: blob_id.into(), lfs_sha256: lfs_sha256.map(str::to_owned) };
        entry.is_valid().then_some(entry)
    }

    fn is_valid(&self) -> bool {
        is_hash(&self.blob_id) && self.lfs_sha256.as_deref().is_none_or(is_hash)
    }

    fn blob(&self) -> &str {
        self.lfs_sha256.as_deref().unwrap_or(&self.blob_id)
    }
}

/// Tells whether a text is a commit or another hash, because such texts become file names.
pub(super) fn is_hash(text: &str) -> bool {
    (8..=64).contains(&text.len()) && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
}

/// Tells whether a path of a listing stays inside the folder that it is put into, on every system.
pub(super) fn stays_inside(path: &str) -> bool {
    let forbidden = |c: char| c.is_control() || matches!(c, '\\' | ':');
    !path.chars().any(forbidden) && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Folders with lists of files: ours, and those of `huggingface_hub`, which have the same form. Ours are kept separate,
/// or Python would treat a snapshot that lacks a file of its list as incomplete: we download only the files of a model
/// that are read.
const LISTINGS: [&str; 2] = ["firebrick-trees", "trees"];

/// One commit of a repository in the cache.
#[derive(Clone, Debug)]
pub(super) struct Repo {
    folder: PathBuf,
    locks: PathBuf,
    commit: String,
}

impl Repo {
    pub(super) fn at(cache: &Path, kind: Kind, name: &HubName, commit: &str) -> Self {
        let kind = match kind {
            Kind::Model => "models",
            Kind::DataSet => "datasets",
        };

        let folder = format!("{kind}--{}", name.repo.replace('/', "--"));
        let locks = cache.join(".locks").join(&folder);
        Repo { folder: cache.join(folder), locks, commit: commit.into() }
    }

    /// Finds the commit that the name's revision pointed to when it was last downloaded.
    pub(super) fn find(cache: &Path, kind: Kind, name: &HubName) -> Option<Self> {
        let repo = Repo::at(cache, kind, name, &name.revision);
        let commit = match fs::read_to_string(repo.folder.join("refs").join(&name.revision)) {
            Ok(commit) => commit.trim().to_owned(),
            Err(_) => name.revision.clone(),
        };

        let repo = Repo { commit, ..repo };
        (is_hash(&repo.commit) && repo.snapshot().is_dir()).then_some(repo)
    }

    pub(super) fn snapshot(&self) -> PathBuf {
        self.folder.join("snapshots").join(&self.commit)
    }

    pub(super) fn file(&self, path: &str) -> PathBuf {
        self.snapshot().join(path)
    }

    /// Tells whether a file is there and complete, as far as its size shows.
    pub(super) fn has(&self, path: &str, size: u64) -> bool {
        fs::metadata(self.file(path)).is_ok_and(|file| file.is_file() && file.len() == size)
    }

    /// Lists the files of the snapshot, by their paths with `/`.
    pub(super) fn files(&self) -> Vec<String> {
        fn walk(folder: &Path, prefix: &str, depth: usize, files: &mut Vec<String>) {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let Ok(name) = entry.file_name().into_string() else { continue };
                // A link whose blob is gone is skipped.
                let Ok(kind) = fs::metadata(entry.path()) else { continue };
                if kind.is_file() {
                    files.push(format!("{prefix}{name}"));
                } else if depth > 0 {
                    walk(&entry.path(), &format!("{prefix}{name}/"), depth - 1, files);
                }
            }
        }

        let mut files = Vec::new();
        walk(&self.snapshot(), "", 8, &mut files);
        files
    }

    /// Reads the list of files that the Hub gave for this commit. Returns `None` if the Hub was never asked, or if the
    /// stored list can't be read.
    pub(super) fn listing(&self) -> Option<Listing> {
        #[derive(Deserialize)]
        struct StoredListing {
            format_version: u64,
            files: Listing,
        }

        LISTINGS.iter().find_map(|folder| {
            let text = fs::read(self.folder.join(folder).join(format!("{}.json", self.commit)));
            let stored: StoredListing = serde_json::from_slice(&text.ok()?).ok()?;
            let valid =
                stored.files.iter().all(|(path, file)| stays_inside(path) && file.is_valid());
            (stored.format_version == 1 && valid).then_some(stored.files)
        })
    }

    pub(super) fn save_listing(&self, listing: &Listing) -> Result<(), HubError> {
        let file = |(path, entry): (&String, &Entry)| {
            let mut value = json!({"size": entry.size, "blob_id": entry.blob_id});
            if let Some(sha256) = &entry.lfs_sha256 {
                value["lfs_sha256"] = sha256.as_str().into();
                value["lfs_size"] = entry.size.into();
            }
            (path.clone(), value)
        };

        let files: serde_json::Map<String, Value> = listing.iter().map(file).collect();
        let text = json!({"format_version": 1, "files": files}).to_string();
        write(&self.folder.join(LISTINGS[0]).join(format!("{}.json", self.commit)), &text)
    }

    pub(super) fn save_revision(&self, revision: &str) -> Result<(), HubError> {
        if revision == self.commit {
            return Ok(());
        }
        write(&self.folder.join("refs").join(revision), &self.commit)
    }

    /// Puts a file into the snapshot. `download` fills the file at the path that it is given, where an earlier attempt
    /// may have left a partial download.
    pub(super) fn add(
        &self,
        path: &str,
        entry: &Entry,
        progress: &mut dyn FnMut(Progress<'_>),
        download: impl FnOnce(&Path, &mut dyn FnMut(Progress<'_>)) -> Result<(), HubError>,
    ) -> Result<(), HubError> {
        let blob = self.folder.join("blobs").join(entry.blob());
        make_parent(&blob)?;
        let _lock = self.lock(entry.blob(), progress)?;

        // Another process may have downloaded the file meanwhile, or another commit earlier.
        if fs::metadata(&blob).map(|file| file.len()).ok() != Some(entry.size) {
            let partial = blob.with_extension("incomplete");
            download(&partial, progress)?;
            fs::rename(&partial, &blob).map_err(|source| io_error(&blob, source))?;
        }

        let link = self.file(path);
        make_parent(&link)?;
        match fs::remove_file(&link) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(io_error(&link, source));
            }
            _ => {}
        }

        // The link leads from a file's folder up to the repository's: out of the commit, and out of `snapshots`.
        let up = "../".repeat(path.split('/').count() + 1);
        let target = PathBuf::from(format!("{up}blobs/{}", entry.blob()));

        // Some systems and disks have no symbolic links, or forbid them to some users.
        symlink(&target, &link)
            .or_else(|_| fs::hard_link(&blob, &link))
            .or_else(|_| fs::copy(&blob, &link).map(|_| ()))
            .map_err(|source| io_error(&link, source))
    }

    /// Keeps other processes, Python's too, from downloading the same file. The lock holds until it is dropped.
    fn lock(
        &self,
        blob: &str,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Option<File>, HubError> {
        let path = self.locks.join(format!("{blob}.lock"));
        make_parent(&path)?;

        let open = File::options().create(true).write(true).truncate(false).open(&path);
        let file = open.map_err(|source| io_error(&path, source))?;

        // The first try does not wait, to tell the user why the second one does.
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::WouldBlock) => {
                progress(Progress::Note(
                    "another process is downloading the same file: waiting for it",
                ));
            }
            // Some disks have no locks, such as some network file systems. The download continues there.
            Err(TryLockError::Error(_)) => return Ok(None),
        }

        file.lock().map_err(|source| io_error(&path, source))?;
        Ok(Some(file))
    }
}

#[cfg(unix)]
fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(windows)]
fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target, link)
}

#[cfg(not(any(unix, windows)))]
fn symlink(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

fn make_parent(path: &Path) -> Result<(), HubError> {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent).map_err(|source| io_error(parent, source))
}

/// Writes a small file, either all of it or nothing.
fn write(path: &Path, text: &str) -> Result<(), HubError> {
    make_parent(path)?;
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    // A rename replaces the file atomically, so nobody reads half of it.
    fs::write(&temporary, text)
        .and_then(|()| fs::rename(&temporary, path))
        .map_err(|source| io_error(path, source))
}

pub(super) fn io_error(path: &Path, source: io::Error) -> HubError {
    HubError::Disk { path: path.to_owned(), source }
}
