//! The commands of the book's pages, of README and of CONTRIBUTING.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]
#![allow(clippy::print_stderr, reason = "what is not tried is said")]

mod arguments;
#[path = "../place/mod.rs"]
mod place;
#[cfg(unix)]
mod walk;

use std::path::PathBuf;

/// Returns the pages that have commands.
fn pages() -> Vec<PathBuf> {
    let own = ["README.md", "CONTRIBUTING.md"].map(place::repository).map(PathBuf::from);
    own.into_iter().chain(firebrick_book::pages()).collect()
}
