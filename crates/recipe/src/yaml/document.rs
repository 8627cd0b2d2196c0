//! Turns a YAML tree into the document that TOML gives. All checks of a recipe walk that document.

use std::{borrow::Cow, ops::Range};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{Entry, Kind, Node, Problem, Scalar, problem};
use crate::{Recipe, schema_check::is_table_at};

/// Returns the tables of a recipe, with their places in the YAML text.
///
/// A table without `{…}` has the place of its key, as a TOML table has the place of its header.
pub(crate) fn document(tree: Option<&Node>) -> Result<DeTable<'_>, Problem> {
    match tree {
        None => Ok(DeTable::new()),
        Some(Node { kind: Kind::Mapping(entries), .. }) => table(entries, &mut Vec::new()),
        Some(node) => Err(problem(
            node.span.clone(),
            "the file is one value, expected tables such as `model:` and `data:`",
            "no table",
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

/// Converts a value. `header` is the place of its key, if it has one of its own.
fn value<'tree>(
    node: &'tree Node,
    header: Option<Range<usize>>,
    path: &mut Vec<&'tree str>,
) -> Result<Spanned<DeValue<'tree>>, Problem> {
    let place = node.span.clone();
    let refuse = |place: &Range<usize>, message: String, label: &str, help: &str| {
        let keys = vec![path.iter().map(|&key| key.to_owned()).collect()];
        Err(Problem { keys, ..problem(place.clone(), &message, label, help) })
    };
    Ok(match &node.kind {
        Kind::Scalar(Scalar::Null) => {
            let message = format!("{} has no value", path.join("."));
            let key = path.last().copied().unwrap_or_default();
            let help = match is_table_at(&Recipe::schema(), path) {
                true => format!("write `{key}: {{}}`, or keys below it"),
                false => format!("leave `{key}` out: it then has its default"),
            };
            // A missing value has no place, so the error points at the key.
            let place = header.filter(|_| place.is_empty()).unwrap_or(place);
            return refuse(&place, message, "nothing here", &help);
        }
        Kind::Scalar(Scalar::Unclear { text, readings, remedy }) => {
            let message = format!("{} is {text}, which is {readings}", path.join("."));
            return refuse(&place, message, "means two things", remedy);
        }
        Kind::Scalar(Scalar::Bool(value)) => Spanned::new(place, DeValue::Boolean(*value)),
        Kind::Scalar(Scalar::Text(text)) => {
            Spanned::new(place, DeValue::String(Cow::Borrowed(text)))
        }
        Kind::Scalar(Scalar::Number(number)) => match DeValue::parse(number) {
            Ok(value) => Spanned::new(place, value.into_inner()),
            Err(error) => {
                let message = format!("{}: {}", path.join("."), error.message());
                return refuse(&place, message, "no number", "correct it");
            }
        },
        Kind::Sequence(items) => {
            let items = items.iter().map(|item| value(item, None, path));
            Spanned::new(place, DeValue::Array(items.collect::<Result<_, _>>()?))
        }
        Kind::Mapping(entries) => {
            let is_block = entries.first().is_some_and(|first| first.span == place);
            let place = header.filter(|_| is_block).unwrap_or(place);
            Spanned::new(place, DeValue::Table(table(entries, path)?))
        }
    })
}
