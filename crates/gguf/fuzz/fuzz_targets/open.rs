//! A file of any bytes is read or refused.
#![no_main]

use std::{cell::RefCell, fs, path::PathBuf};

use libfuzzer_sys::fuzz_target;

thread_local! {
    /// One file for all inputs, in memory where the system has a place for that.
    static FILE: RefCell<Option<(tempfile::TempDir, PathBuf)>> = const { RefCell::new(None) };
}

fuzz_target!(|bytes: &[u8]| {
    FILE.with_borrow_mut(|file| {
        let (_, path) = file.get_or_insert_with(|| {
            let memory = PathBuf::from("/dev/shm");
            let place = if memory.is_dir() { memory } else { std::env::temp_dir() };
            let folder = tempfile::tempdir_in(place).expect("a folder");
            let path = folder.path().join("model.gguf");
            (folder, path)
        });
        fs::write(&path, bytes).expect("a file");
        firebrick_gguf::fuzzing::open(path);
    });
});
