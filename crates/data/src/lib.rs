//! Prompts for training and evaluation: from JSON Lines or a task generator, through a chat
//! template and a tokenizer, to the token ids that a policy reads.
//!
//! ```text
//! read_jsonl, Columns ─┐
//!                      ├─▶ Problem ──Preparation──▶ Prompt ──▶ Prompts, a PromptSource
//! Task ────────────────┘            (PromptFormat,        └──▶ evaluation
//!                                    Tokenizer)      └──▶ WorkedExample, for the warm-up
//! ```
//!
//! A task from nothing but a seed:
//!
//! ```
//! use firebrick_core::{PromptSource, Seed};
//! use firebrick_data::{Preparation, PromptFormat, Prompts, Task, Tokenizer};
//!
//! let task = Task::Addition { digits: 2, worked: true };
//! let tokenizer = Tokenizer::characters(task.alphabet())?;
//! let format = PromptFormat::default();
//! let preparation = Preparation::new(&tokenizer, &format);
//!
//! let seed = Seed::run(17);
//! let (train, report) = preparation.prompts(&task.train(seed, 1000)?)?;
//! assert_eq!(report.kept, 1000);
//! let mut source = Prompts::new(train, seed)?;
//! assert!(source.draw().text.ends_with('='));
//! # Ok::<(), firebrick_data::DataError>(())
//! ```

mod error;
mod folder;
mod format;
mod jsonl;
mod prepare;
mod problem;
mod prompts;
mod python_json;
mod task;
mod template;
mod tokenizer;

pub use error::DataError;
pub use format::PromptFormat;
pub use jsonl::{JsonlRows, Row, read_jsonl};
pub use prepare::{Preparation, PromptReport};
pub use problem::{Columns, Problem, Question, problems_from_rows};
pub use prompts::Prompts;
pub use task::Task;
pub use template::ChatTemplate;
pub use tokenizer::{Streamer, Tokenizer, TokenizerFacts};

/// The clock reading that a chat template may print, re-exported from `jiff`.
pub use jiff::civil::DateTime;
