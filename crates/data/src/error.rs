//! Errors of data sets, templates and tokenizers.

use std::{io, path::PathBuf};

use crate::{
    hub::HubError,
    report::{PromptReport, SftReport},
    row::Position,
};

/// Problem with data, and the way out of it.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A file or folder that could not be read.
    #[error("cannot read {}: {source}{}", path.display(), advice(source))]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Reason that the system gives.
        source: io::Error,
    },
    /// A file that could not be written.
    #[error("cannot write {}: {source}; check the space left and that you may write there", path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Reason that the system gives.
        source: io::Error,
    },
    /// A file, or a line of one, past the size that is read.
    #[error(
        "{}{} is larger than the limit of {limit} bytes; is this the right file?",
        path.display(),
        line.map_or(String::new(), |line| format!(", line {line},"))
    )]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
        /// Line, counted from 1, if the file is read by lines.
        line: Option<u64>,
        /// Limit in bytes.
        limit: u64,
    },
    /// Text that is not the JSON it should be.
    #[error("{}, line {line}, column {column}: {problem}; {remedy}", path.display())]
    Json {
        /// Path of the file.
        path: PathBuf,
        /// Line, counted from 1.
        line: u64,
        /// Column, in bytes, counted from 1. It is 0 if the problem is not at one byte of the line.
        column: u64,
        /// Problem, in words.
        problem: String,
        /// Content that the file should have, in words.
        remedy: &'static str,
    },
    /// A Parquet file that can't be read.
    #[error("{}{}: {problem}", path.display(), row.map_or(String::new(), |row| format!(", row {row}")))]
    Parquet {
        /// Path of the file.
        path: PathBuf,
        /// Row, counted from 1. `None` if the problem is not in one row.
        row: Option<u64>,
        /// Problem, in words.
        problem: String,
    },
    /// A file of a kind that is not read.
    #[error(
        "{} is a .{extension} file; expected JSON Lines (.jsonl, .json), CSV (.csv, .tsv) or Parquet \
         (.parquet): convert it, for example with the Python library datasets",
        path.display()
    )]
    Kind {
        /// Path of the file.
        path: PathBuf,
        /// Ending of its name.
        extension: String,
    },
    /// A folder whose files are not a data set, or more than one.
    #[error("{}: {problem}", path.display())]
    Folder {
        /// Path of the folder.
        path: PathBuf,
        /// Files that were expected, and files that there are.
        problem: String,
    },
    /// A data file without rows.
    #[error("{} has no rows; is this the right file?", path.display())]
    NoRows {
        /// Path of the file.
        path: PathBuf,
    },
    /// A row without the column that was asked for, or without any column that is known.
    #[error(
        "{}, {position}: {wanted}; the row has the columns {}: set `{setting}` to two of them",
        path.display(),
        found.join(", ")
    )]
    Column {
        /// Path of the file.
        path: PathBuf,
        /// Position in the file.
        position: Position,
        /// Column that was looked for.
        wanted: String,
        /// Columns of that row, dotted if nested.
        found: Vec<String>,
        /// Setting of a recipe that names the columns.
        setting: &'static str,
    },
    /// A column that holds another kind of value than it should.
    #[error(
        "{}, {position}: column `{column}` should hold {expected}, but holds {found}; {remedy}",
        path.display()
    )]
    Value {
        /// Path of the file.
        path: PathBuf,
        /// Position in the file.
        position: Position,
        /// Column.
        column: String,
        /// Kind of value that was expected.
        expected: &'static str,
        /// Actual value.
        found: Box<str>,
        /// Way out of it.
        remedy: &'static str,
    },
    /// A row that makes no problem, or no prompt.
    #[error("{}, {position}: {problem}", path.display())]
    Row {
        /// Path of the file.
        path: PathBuf,
        /// Position in the file.
        position: Position,
        /// Problem, and the way out of it.
        problem: String,
    },
    /// Something that the Hugging Face Hub, or its cache, does not have.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// A GGUF file, where a model folder was expected, could not be read.
    #[error(transparent)]
    Gguf(#[from] firebrick_gguf::GgufError),
    /// A tokenizer that could not be loaded or made.
    #[error("{origin}: {problem}")]
    Tokenizer {
        /// File or folder that it is from, or the tokenizer that was to be made.
        origin: String,
        /// Problem, and the way out of it.
        problem: String,
    },
    /// A text that the tokenizer cannot write as tokens.
    #[error(
        "the tokenizer has no token for {character:?}, in {text:?}; add the character to the \
         alphabet, or take it out of the text"
    )]
    Character {
        /// First character that the tokenizer does not know.
        character: char,
        /// Text that the character is in, cut to a readable length.
        text: String,
    },
    /// A chat template that could not be read or applied.
    #[error("{origin}: {problem}")]
    Template {
        /// File that the template is from.
        origin: String,
        /// Problem, and the line of the template if it is known.
        problem: String,
    },
    /// A prompt that does not fit the format that was asked for.
    #[error("{problem}")]
    Format {
        /// Problem, with the expected and the actual form, and the way out.
        problem: String,
    },
    /// A task whose settings make no problems.
    #[error("task {task}: {problem}")]
    Task {
        /// Kind of task.
        task: &'static str,
        /// Setting that is out of range, and the range that is allowed.
        problem: String,
    },
    /// A data set that has no prompt left.
    #[error(
        "no prompt is left to train on ({report}); raise `max_prompt_tokens`, now {max_prompt_tokens}, \
         or check the data"
    )]
    NoPrompts {
        /// How many prompts were read, and why they were dropped.
        report: PromptReport,
        /// Limit that was applied.
        max_prompt_tokens: usize,
    },
    /// Rows of supervised examples of which none is left.
    #[error("no example is left to imitate ({report})")]
    NoSftExamples {
        /// How many rows were read, and why they were left out.
        report: SftReport,
    },
    /// A prompt source without prompts.
    #[error("a prompt source was given no prompts; it needs at least one to draw")]
    EmptySource,
}

/// Returns the advice for a file that can't be read. If its content is to blame, the reason says what to do.
fn advice(reason: &io::Error) -> &'static str {
    match reason.kind() {
        io::ErrorKind::InvalidData => "",
        _ => "; check the path and that you may read it",
    }
}
