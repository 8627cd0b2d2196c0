use std::{fmt, path::Path, sync::Arc};

use serde_json::{Map, Value};

/// One row of a data set, and where it stood.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The file it is from.
    pub file: Arc<Path>,
    /// Its place in that file.
    pub place: Place,
    /// Its columns.
    pub fields: Map<String, Value>,
}

impl Row {
    /// The value of a column; a dotted path such as `reward_model.ground_truth` leads into nested
    /// objects. `None` when there is no such column, or when it is null.
    pub fn get(&self, column: &str) -> Option<&Value> {
        let value = self.fields.get(column).or_else(|| {
            let mut names = column.split('.');
            let first = self.fields.get(names.next()?)?;
            names.try_fold(first, |value, name| value.get(name))
        });
        value.filter(|value| !value.is_null())
    }

    /// The columns that [`Row::get`] can be asked for, down to one dot.
    pub fn columns(&self) -> Vec<String> {
        let mut columns = Vec::new();
        for (name, value) in &self.fields {
            match value {
                Value::Object(inner) => {
                    columns.extend(inner.keys().map(|key| format!("{name}.{key}")));
                }
                _ => columns.push(name.clone()),
            }
        }
        columns
    }
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
