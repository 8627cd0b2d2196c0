//! Helpers that the targets share: texts that are almost maths, and one folder of files.

mod formulas;

use std::{
    cell::RefCell,
    fs, panic,
    path::{Path, PathBuf},
    sync::Once,
};

pub use formulas::{formula, pieces};

thread_local! {
    /// One folder for all inputs, in memory if the system has a place for that.
    static FOLDER: RefCell<Option<tempfile::TempDir>> = const { RefCell::new(None) };
}

/// Calls `read` with the path of a file of that name that holds `bytes`, in a folder that stays between calls.
pub fn with_file<T>(name: &str, bytes: &[u8], read: impl FnOnce(&Path) -> T) -> T {
    FOLDER.with_borrow_mut(|folder| {
        let folder = folder.get_or_insert_with(|| {
            let memory = PathBuf::from("/dev/shm");
            let place = if memory.is_dir() { memory } else { std::env::temp_dir() };
            tempfile::tempdir_in(place).expect("a folder")
        });
        let path = folder.path().join(name);
        fs::write(&path, bytes).expect("a file");
        read(&path)
    })
}

/// Gives a folder or file of this project, by its path from the root.
pub fn of_project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Lets a reader catch the panics of a library that it is built on. A panic that nobody catches is still a
/// finding.
pub fn let_panics_be_caught() {
    static ONCE: Once = Once::new();
    // The fuzzer's own hook ends the process before anyone can catch anything.
    ONCE.call_once(|| panic::set_hook(Box::new(|_| ())));
}
