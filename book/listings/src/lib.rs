//! The Rust of the book.
//!
//! Programs are in `examples/`, and the chapters show parts of them. Short blocks stand in the chapters
//! themselves; the modules here make documentation tests of them. `tests/` compares the generated pages and the
//! tables with the program.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Makes modules of chapters for the tests alone, because their links are the book's and not rustdoc's.
macro_rules! chapters {
    ($($name:ident = $file:literal;)*) => {
        $(
            #[cfg(doctest)]
            #[doc = include_str!(concat!("../../src/", $file))]
            mod $name {}
        )*
    };
}

chapters! {
    rewards = "rewards.md";
    own = "rewards/own.md";
}

/// Returns the book's pages, sorted by their paths.
///
/// # Panics
/// When a folder of the book can't be read.
#[must_use]
pub fn pages() -> Vec<PathBuf> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../src")];
    let mut pages = Vec::new();

    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for path in entries.iter().map(fs::DirEntry::path) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                pages.push(path);
            }
        }
    }

    pages.sort();
    pages
}

/// Compares a file of the book with what the program makes of it now. With `FIREBRICK_UPDATE` it first writes the
/// file again.
///
/// # Panics
/// When the file is another text, or can't be written.
pub fn assert_current(path: &Path, made: &str) {
    if std::env::var_os("FIREBRICK_UPDATE").is_some() {
        let written = fs::write(path, made);
        assert!(written.is_ok(), "{}: {written:?}", path.display());
    }

    let stored = fs::read_to_string(path).unwrap_or_default();
    assert!(
        stored.replace("\r\n", "\n") == made,
        "{} is not what the program makes now; make it again with\n\
         FIREBRICK_UPDATE=1 cargo test --release --workspace --test pages --test names",
        path.display()
    );
}
