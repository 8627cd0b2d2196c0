//! A run on disk and on the terminal.
//!
//! ```text
//! runs/<name>/   recipe.toml  run.db  metrics.jsonl  summary.json
//!                checkpoints/step-000200/
//! ```
//!
//! [`RunFolder`] knows the paths and writes nothing by halves; [`Store`] is the SQLite database
//! that everything else is made from; [`Summary`] is the result in a few numbers; [`Terminal`] and
//! its [`Bars`] are what a person sees while it runs. Nothing here knows the algorithm.

mod bars;
mod closing;
mod error;
mod folder;
mod store;
mod summary;
mod terminal;

pub use bars::{Bars, Phase};
pub use error::RunError;
pub use folder::{RunFolder, publish_folder, write_atomically};
pub use indicatif::ProgressDrawTarget;
pub use store::Store;
pub use summary::{Completions, Heldout, Seconds, Summary, TokensPerSecond, peak_rss_bytes};
pub use terminal::Terminal;
