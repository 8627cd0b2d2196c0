//! Prompts for training and evaluation: from JSON Lines, CSV, Parquet, the Hugging Face Hub or a
//! task generator, through a chat template and a tokenizer, to the token ids that a policy reads.
//!
//! ```text
//! Hub ──▶ data_set_files ──▶ read_problems ─┐
//!                                           ├─▶ Problem ──Preparation──▶ Prompt ──▶ Prompts, a PromptSource
//! Task ─────────────────────────────────────┘            (PromptFormat,        └──▶ evaluation
//!                    read_sft_rows ──▶ SftRow ─────────── Tokenizer)      └──▶ SftExample, for SFT
//! ```
//!
//! This task needs nothing but a seed:
//!
//! ```
//! use firebrick_core::{PromptSource, Seed};
//! use firebrick_data::{Preparation, PromptFormat, Prompts, Task, Tokenizer};
//!
//! let task = Task::Addition { digits: 2, worked: true, second_look: 0.0 };
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

mod csv;
mod dataset;
mod error;
mod folder;
mod format;
mod hint;
mod hub;
mod jsonl;
mod number;
mod parquet;
mod part;
mod prepare;
mod problem;
mod prompts;
mod python_json;
mod report;
mod row;
mod sft_row;
mod task;
mod template;
mod tokenizer;
mod unique;

pub use dataset::{data_set_files, read_problems};
pub use error::DataError;
pub use format::PromptFormat;
pub use hint::Hint;
pub use hub::{Hub, HubError, HubName, Progress};
pub use number::{answer_in, parse_json};
pub use part::Part;
pub use prepare::Preparation;
pub use problem::{ColumnNames, Columns, Problem, Question, reference};
pub use prompts::Prompts;
pub use report::{PromptReport, SftReport};
pub use row::{Origin, Position, Row};
pub use sft_row::{SftColumns, SftRow, read_sft_rows};
pub use task::Task;
pub use template::{ChatTemplate, TextTemplate};
pub use tokenizer::{Streamer, Tokenizer, TokenizerFacts, tokens_up_to};
pub use unique::{ProblemSet, shared_questions};

/// Clock reading that a chat template may print, re-exported from `jiff`.
pub use jiff::civil::DateTime;
