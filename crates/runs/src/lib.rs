//! A run on disk and on the terminal.

mod error;
mod folder;

pub use error::RunError;
pub use folder::check_name;
