use std::{io, path::PathBuf};

use crate::{HubError, Place, PromptReport};

/// What can be wrong with data, and what to do about it.
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
        "{}{} is larger than the {limit} bytes that are read at most; is this the right file?",
        path.display(),
        line.map_or(String::new(), |line| format!(", line {line},"))
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1, when the file is read by lines.
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
        /// The column, in bytes, counted from 1; 0 for the line as a whole.
        column: u64,
        /// What was found.
        problem: String,
        /// What the file should hold.
        remedy: &'static str,
    },
    /// A Parquet file that can't be read.
    #[error("{}{}: {problem}", path.display(), row.map_or(String::new(), |row| format!(", row {row}")))]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The row, counted from 1; none for the file as a whole.
        row: Option<u64>,
        /// What is wrong with it.
        problem: String,
    },
    /// A file of another kind than those that are read.
    #[error(
        "{} is a .{extension} file; expected JSON Lines (.jsonl, .json) or Parquet (.parquet): \
         convert it, such as with the Python library datasets",
        path.display()
    )]
    Kind {
        /// The file.
        path: PathBuf,
        /// The end of its name.
        extension: String,
    },
    /// A folder whose files are no data set, or more than one.
    #[error("{}: {problem}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What was expected, and what there is.
        problem: String,
    },
    /// A data file without rows.
    #[error("{} has no rows; is this the right file?", path.display())]
    NoRows {
        /// The file.
        path: PathBuf,
    },
    /// A row without the column that was asked for, or one without any that is known.
    #[error(
        "{}, {place}: {wanted}; it has the columns {}: set `data.columns = {{ prompt = \"…\", \
         reference = \"…\" }}` to two of them",
        path.display(),
        found.join(", ")
    )]
    Column {
        /// The file.
        path: PathBuf,
        /// Where in it.
        place: Place,
        /// What was looked for.
        wanted: String,
        /// The columns of that row, dotted where nested.
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
        /// Where in it.
        place: Place,
        /// The column.
        column: String,
        /// What was expected.
        expected: &'static str,
        /// What came.
        found: String,
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
        /// The file or folder, or what was to be made.
        place: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// A text that the tokenizer cannot write as tokens.
    #[error(
        "the tokenizer has no token for {character:?}, in {text:?}; add it to the alphabet, or take \
         it out of the text"
    )]
    Character {
        /// The first character that it does not know.
        character: char,
        /// The text around it, cut to a readable length.
        text: String,
    },
    /// A chat template that could not be read or applied.
    #[error("{place}: {problem}")]
    Template {
        /// The file the template is from.
        place: String,
        /// What went wrong, and where in the template.
        problem: String,
    },
    /// A prompt that does not fit the format that was asked for.
    #[error("{problem}")]
    Format {
        /// What was expected, what came, and what to do.
        problem: String,
    },
    /// A task whose settings make no problems.
    #[error("task {task}: {problem}")]
    Task {
        /// The kind of task.
        task: &'static str,
        /// What is out of range, and what is allowed.
        problem: String,
    },
    /// A data set of which nothing was left.
    #[error(
        "no prompt is left to train on ({report}); raise `max_prompt_tokens`, now {max_prompt_tokens}, \
         or check the data"
    )]
    NoPrompts {
        /// How many were read and why they were dropped.
        report: PromptReport,
        /// The limit that was applied.
        max_prompt_tokens: usize,
    },
    /// A prompt source without prompts.
    #[error("a prompt source was given no prompts; it needs at least one to draw")]
    EmptySource,
}
