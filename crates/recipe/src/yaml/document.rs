//! Turns a YAML tree into the document that TOML would give. All checks of a recipe walk that document.

use std::{borrow::Cow, ops::Range};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{Entry, Kind, Node, Problem, Scalar, problem};
use crate::{Recipe, schema_check::is_table_at};

/// Returns the tables of a recipe, with their spans in the YAML text.
///
/// A table without `{…}` has the span of its key, as a TOML table has the span of its header.
pub(crate) fn document(tree: Option<&Node>) -> Result<DeTable<'_>, Problem> {
    match tree {
        None => Ok(DeTable::new()),
        Some(Node { kind: Kind::Mapping(entries), .. }) => table(entries, &mut Vec::new()),
        Some(node) => Err(problem(
            node.span.clone(),
            "the file is one value, expected tables such as `model:` and `data:`",
            "not a table",
            "write `key: value`, with a space behind the colon",
        )),
    }
}

fn table<'tree>(
    entries: &'tree [Entry],
    path: &mut Vec<&'tree str>,
) -> Result<DeTable<'tree>, Problem> {
    entries
        .iter()
        .map(|entry| {
            path.push(&entry.key);
            let header = entry.span.clone();
            let value = value(&entry.value, Some(header.clone()), path)?;
            path.pop();
            Ok((Spanned::new(header, Cow::Borrowed(entry.key.as_str())), value))
        })
        .collect()
}

/// Converts a value. `header` is the span of its key, if it has a separate one.
fn value<'tree>(
    node: &'tree Node,
    header: Option<Range<usize>>,
    path: &mut Vec<&'tree str>,
) -> Result<Spanned<DeValue<'tree>>, Problem> {
    let span = node.span.clone();

    let refuse = |span: &Range<usize>, message: String, label: &str, help: &str| {
        let keys = vec![path.iter().map(|&key| key.to_owned()).collect()];
        Err(Problem { keys, ..problem(span.clone(), &message, label, help) })
    };

    Ok(match &node.kind {
        Kind::Scalar(Scalar::Null) => {
            let message = format!("{} has no value", path.join("."));
            let key = path.last().copied().unwrap_or_default();
            let help = if is_table_at(&Recipe::schema(), path) {
                format!("write `{key}: {{}}`, or keys below it")
            } else {
                format!("leave `{key}` out: it then has its default")
            };

            // A missing value has no span, so the error points at the key.
            let span = header.filter(|_| span.is_empty()).unwrap_or(span);
            return refuse(&span, message, "nothing here", &help);
        }
        Kind::Scalar(Scalar::Unclear { text, readings, remedy }) => {
            let message = format!("{} is {text}, which is {readings}", path.join("."));
            return refuse(&span, message, "means two things", remedy);
        }
        Kind::Scalar(Scalar::Bool(value)) => Spanned::new(span, DeValue::Boolean(*value)),
        Kind::Scalar(Scalar::Text(text)) => {
            Spanned::new(span, DeValue::String(Cow::Borrowed(text)))
        }
        Kind::Scalar(Scalar::Number(number)) => match DeValue::parse(number) {
            Ok(value) => Spanned::new(span, value.into_inner()),
            Err(error) => {
                let message = format!("{}: {}", path.join("."), error.message());
                return refuse(&span, message, "not a number", "correct it");
            }
        },
        Kind::Sequence(items) => {
            let items = items.iter().map(|item| value(item, None, path));
            Spanned::new(span, DeValue::Array(items.collect::<Result<_, _>>()?))
        }
        Kind::Mapping(entries) => {
            // A block has the bytes of its first key, so its header says better where it is.
            let is_block = entries.first().is_some_and(|first| first.span == span);
            let span = header.filter(|_| is_block).unwrap_or(span);
            Spanned::new(span, DeValue::Table(table(entries, path)?))
        }
    })
}
