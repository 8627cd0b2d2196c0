//! A run on disk: its folder, its database and its summary.
//!
//! ```text
//! runs/<name>/   recipe.toml  run.db  metrics.jsonl  summary.json
//!                checkpoints/step-000200/
//! ```
//!
//! [`RunFolder`] knows the paths and writes nothing by halves. [`Store`] is the SQLite database that everything
//! else is made from, and a [`Writer`] writes it while the run is in progress. [`Summary`] is the result in a few
//! numbers. Nothing here knows the algorithm.

mod answers;
mod command;
mod error;
mod folder;
mod newest;
mod own;
mod prompt_frame;
mod store;
mod summary;
mod sums;
mod writer;

pub use answers::AnswerLog;
pub use command::{RUNS, path_word, resume_command, shell_word};
pub use error::RunError;
pub use folder::{RunFolder, checkpoints, publish_file, publish_folder, write_atomically};
pub use newest::{Newest, newest_checkpoint};
pub use own::{RECIPE_BYTES, open_own, read_own, recipe_text};
pub use prompt_frame::PromptFrame;
pub use store::{
    Given, HELDOUT, Judged, Listed, ListedGroup, Looked, Outcome, Store, TRAIN, Told, Which,
    Written, json_line, json_object,
};
pub use summary::{Completions, Heldout, Seconds, Summary, TokensPerSecond, peak_rss_bytes};
pub use sums::{SUMS, find_damage, sums_of, write_sums};
pub use writer::Writer;
