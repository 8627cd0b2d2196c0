//! The rows of data sets, each with its place in its file.

use std::{fmt, path::Path, sync::Arc};

use serde_json::{Map, Value};

use crate::number;

/// One row of a data set, and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The file that the row is from.
    pub file: Arc<Path>,
    /// The row's place in that file.
    pub place: Place,
    /// The row's columns.
    pub fields: Map<String, Value>,
}

impl Row {
    /// Returns the value of a column. A dotted path such as `reward_model.ground_truth` leads into nested objects.
    /// Returns `None` if there is no such column, or if it is null.
    pub fn get(&self, column: &str) -> Option<&Value> {
        self.find(column).filter(|value| !value.is_null())
    }

    /// Tells whether the row has a column, be it null.
    pub(crate) fn has(&self, column: &str) -> bool {
        self.find(column).is_some()
    }

    fn find(&self, column: &str) -> Option<&Value> {
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

    /// Returns the row's place in its file.
    pub fn origin(&self) -> Origin {
        Origin { file: self.file.clone(), place: self.place }
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

/// The place that a problem is from.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// The file.
    pub file: Arc<Path>,
    /// The place in the file.
    pub place: Place,
}

/// A place in a file, as a person finds it there: `line 3`, `row 17`. Both are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line of a text file; blank lines count.
    Line(u64),
    /// A row of a table.
    Row(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(line) => write!(f, "line {line}"),
            Place::Row(row) => write!(f, "row {row}"),
        }
    }
}
