//! Errors of data sets, templates and tokenizers.

use std::{io, path::PathBuf};

use crate::{HubError, Place, PromptReport};

/// A problem with data, and the way out of it.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A file or folder that could not be read.
    #[error("cannot read {}: {source}; check the path and that you may read it", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file that could not be written.
    #[error("cannot write {}: {source}; check the space left and that you may write there", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file, or a line of one, past the size that is read.
    #[error(
        "{}{} is larger than the limit of {limit} bytes; is this the right file?",
        path.display(),
        line.map_or(String::new(), |line| format!(", line {line},"))
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1, if the file is read by lines.
        line: Option<u64>,
        /// The limit in bytes.
        limit: u64,
    },
    /// Text that is not the JSON it should be.
    #[error("{}, line {line}, column {column}: {problem}; {remedy}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// The column, in bytes, counted from 1. It is 0 for the line as a whole.
        column: u64,
        /// The problem, in words.
        problem: String,
        /// The content that the file should have, in words.
        remedy: &'static str,
    },
    /// A Parquet file that can't be read.
    #[error("{}{}: {problem}", path.display(), row.map_or(String::new(), |row| format!(", row {row}")))]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The row, counted from 1. `None` for the file as a whole.
        row: Option<u64>,
        /// The problem, in words.
        problem: String,
    },
    /// A file of a kind that is not read.
    #[error(
        "{} is a .{extension} file; expected JSON Lines (.jsonl, .json) or Parquet (.parquet): \
         convert it, for example with the Python library datasets",
        path.display()
    )]
    Kind {
        /// The file.
        path: PathBuf,
        /// The ending of its name.
        extension: String,
    },
    /// A folder whose files are no data set, or more than one.
    #[error("{}: {problem}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The files that were expected, and the files that there are.
        problem: String,
    },
    /// A data file without rows.
    #[error("{} has no rows; is this the right file?", path.display())]
    NoRows {
        /// The file.
        path: PathBuf,
    },
    /// A row without the column that was asked for, or without any column that is known.
    #[error(
        "{}, {place}: {wanted}; the row has the columns {}: set `data.columns = {{ prompt = \"…\", \
         reference = \"…\" }}` to two of them",
        path.display(),
        found.join(", ")
    )]
    Column {
        /// The file.
        path: PathBuf,
        /// The place in the file.
        place: Place,
        /// The column that was looked for.
        wanted: String,
        /// The columns of that row, dotted if nested.
        found: Vec<String>,
    },
    /// A column that holds another kind of value than it should.
    #[error(
        "{}, {place}: column `{column}` should hold {expected}, but holds {found}; correct the \
         row, or choose another column",
        path.display()
    )]
    Value {
        /// The file.
        path: PathBuf,
        /// The place in the file.
        place: Place,
        /// The column.
        column: String,
        /// The kind of value that was expected.
        expected: &'static str,
        /// The value that came.
        found: String,
    },
    /// A row that makes no problem, or no prompt.
    #[error("{}, {place}: {problem}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The place in the file.
        place: Place,
        /// The problem, and the way out of it.
        problem: String,
    },
    /// The Hugging Face Hub, or its cache, does not give what was asked for.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// A GGUF file, where a model folder was expected, could not be read.
    #[error(transparent)]
    Gguf(#[from] firebrick_gguf::GgufError),
    /// A tokenizer that could not be loaded or made.
    #[error("{place}: {problem}")]
    Tokenizer {
        /// The file or folder, or the tokenizer that was to be made.
        place: String,
        /// The problem, and the way out of it.
        problem: String,
    },
    /// A text that the tokenizer cannot write as tokens.
    #[error(
        "the tokenizer has no token for {character:?}, in {text:?}; add the character to the \
         alphabet, or take it out of the text"
    )]
    Character {
        /// The first character that the tokenizer does not know.
        character: char,
        /// The text around it, cut to a readable length.
        text: String,
    },
    /// A chat template that could not be read or applied.
    #[error("{place}: {problem}")]
    Template {
        /// The file that the template is from.
        place: String,
        /// The problem, and its place in the template.
        problem: String,
    },
    /// A prompt that does not fit the format that was asked for.
    #[error("{problem}")]
    Format {
        /// The problem, with the expected and the actual form, and the way out.
        problem: String,
    },
    /// A task whose settings make no problems.
    #[error("task {task}: {problem}")]
    Task {
        /// The kind of task.
        task: &'static str,
        /// The setting that is out of range, and the range that is allowed.
        problem: String,
    },
    /// A data set that has no prompt left.
    #[error(
        "no prompt is left to train on ({report}); raise `max_prompt_tokens`, now {max_prompt_tokens}, \
         or check the data"
    )]
    NoPrompts {
        /// The number of prompts that were read, and the reasons why they were dropped.
        report: PromptReport,
        /// The limit that was applied.
        max_prompt_tokens: usize,
    },
    /// A prompt source without prompts.
    #[error("a prompt source was given no prompts; it needs at least one to draw")]
    EmptySource,
}
