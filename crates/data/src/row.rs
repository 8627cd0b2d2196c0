//! Rows of data sets, each with its position in its file.

use std::{fmt, path::Path, sync::Arc};

use serde_json::{Map, Value};

use crate::number;

/// One row of a data set, and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// File that the row is from.
    pub file: Arc<Path>,
    /// Position in that file.
    pub position: Position,
    /// Columns of the row.
    pub fields: Map<String, Value>,
}

impl Row {
    /// Returns the value of a column. A dotted path such as `reward_model.ground_truth` leads into nested objects.
    /// Returns `None` if there is no such column, or if it is null.
    pub fn get(&self, column: &str) -> Option<&Value> {
        self.find(column).filter(|value| !value.is_null())
    }

    /// Tells whether the row has a column, even if it is null.
    pub(crate) fn has(&self, column: &str) -> bool {
        self.find(column).is_some()
    }

    fn find(&self, column: &str) -> Option<&Value> {
        // A column whose own name has dots comes before a path.
        self.fields.get(column).or_else(|| {
            let mut names = column.split('.');
            let first = self.fields.get(names.next()?)?;
            // A field of null is null too.
            names.try_fold(
                first,
                |value, name| if value.is_null() { Some(value) } else { value.get(name) },
            )
        })
    }

    /// Returns the file that the row is from, and its position there.
    pub fn origin(&self) -> Origin {
        Origin { file: self.file.clone(), position: self.position }
    }

    /// Returns the columns that [`Row::get`] can be asked for, down to one dot.
    pub fn columns(&self) -> Vec<String> {
        let mut columns = Vec::new();
        for (name, value) in &self.fields {
            match value {
                Value::Object(inner) if number::spelt(value).is_none() => {
                    columns.extend(inner.keys().map(|key| format!("{name}.{key}")));
                }
                _ => columns.push(name.clone()),
            }
        }
        columns
    }
}

/// File and position that a problem is from.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// Path of the file.
    pub file: Arc<Path>,
    /// Position in the file.
    pub position: Position,
}

/// Position in a file, as a person finds it there: `line 3`, `row 17`. Both are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// A line of a text file; blank lines count.
    Line(u64),
    /// A row of a table.
    Row(u64),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Line(line) => write!(f, "line {line}"),
            Position::Row(row) => write!(f, "row {row}"),
        }
    }
}
