//! Overrides of a document that was not read from TOML, so that there is no TOML text to edit.
//!
//! Errors need a position in a text, so every override is shown as a separate line below the file's text.

use std::{borrow::Cow, ops::Range};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::Override;
use crate::error::RecipeError;

/// Stands in front of an override below the file's text.
const MARK: &str = "--set ";

/// Returns the file's text, with a line for every override below it.
pub(crate) fn below(text: &str, overrides: &[Override]) -> String {
    let mut shown = text.to_owned();
    for set in overrides {
        if !shown.is_empty() && !shown.ends_with('\n') {
            shown.push('\n');
        }
        shown.push_str(MARK);
        shown.push_str(&set.given);
    }
    shown
}

/// Applies every override, in their order. `shown` is the text that [`below`] made of them.
pub(crate) fn insert<'set>(
    document: &mut DeTable<'set>,
    overrides: &'set [Override],
    shown: &str,
) -> Result<(), RecipeError> {
    // The overrides are the end of the text, so their positions are counted from there.
    let mut line_end = shown.len();
    let mut starts = Vec::new();
    for set in overrides.iter().rev() {
        starts.push(line_end - set.given.len());
        line_end = line_end.saturating_sub(MARK.len() + set.given.len() + 1);
    }

    for (set, start) in overrides.iter().zip(starts.into_iter().rev()) {
        let (key, value) = set.given.split_once('=').unwrap_or((&set.given, ""));
        let span = start..start + key.len();

        let Some((last_key, tables)) = set.path.split_last() else { continue };
        if set.value.is_none() {
            remove(document, &set.path).ok_or_else(|| set.nothing_to_remove())?;
            continue;
        }

        let parent = descend(document, tables, &span).map_err(|key| set.inside_a_value(&key))?;
        // A value's own span counts from its first character.
        let blank = value.len() - value.trim_start().len();
        let value_start = span.end + 1 + blank;

        // As in `Override::parse`, a value that is not TOML is a string.
        let value = value.trim();
        let value = DeValue::parse(value)
            .unwrap_or_else(|_| Spanned::new(0..value.len(), DeValue::String(value.into())));

        put(parent, Spanned::new(span, Cow::Borrowed(last_key)), shifted(value, value_start));
    }
    Ok(())
}

/// Sets a key where it was, or else as the last one. An old key is replaced, because its span in the text is another
/// one.
fn put<'set>(
    table: &mut DeTable<'set>,
    key: Spanned<Cow<'set, str>>,
    value: Spanned<DeValue<'set>>,
) {
    // The table is built again, because its map can't replace a key, only the value of a key.
    let entries: Vec<_> = std::mem::take(table).into_iter().collect();
    let mut set = Some((key, value));

    for (old_key, old_value) in entries {
        match set.take_if(|(key, _)| *key.get_ref() == *old_key.get_ref()) {
            Some((key, value)) => table.insert(key, value),
            None => table.insert(old_key, old_value),
        };
    }

    if let Some((key, value)) = set {
        table.insert(key, value);
    }
}

/// Returns the table at `path`, and creates it if it is missing. If a key of the path is not a table, its
/// dotted name is the error.
fn descend<'doc, 'set>(
    root: &'doc mut DeTable<'set>,
    path: &'set [String],
    span: &Range<usize>,
) -> Result<&'doc mut DeTable<'set>, String> {
    let mut table = root;
    for (depth, key) in path.iter().enumerate() {
        if !table.contains_key(key.as_str()) {
            let new_table = Spanned::new(span.clone(), DeValue::Table(DeTable::new()));
            table.insert(Spanned::new(span.clone(), Cow::Borrowed(key)), new_table);
        }

        table = match table.get_mut(key.as_str()).map(Spanned::get_mut) {
            Some(DeValue::Table(inner)) => inner,
            _ => return Err(path[..=depth].join(".")),
        };
    }
    Ok(table)
}

/// Removes the value at `path`, if there is one.
fn remove<'set>(table: &mut DeTable<'set>, path: &[String]) -> Option<Spanned<DeValue<'set>>> {
    match path {
        [] => None,
        [key] => table.remove(key.as_str()),
        [key, rest @ ..] => match table.get_mut(key.as_str())?.get_mut() {
            DeValue::Table(inner) => remove(inner, rest),
            _ => None,
        },
    }
}

/// Returns the value with all its spans moved by `by` bytes.
fn shifted<'v>(value: Spanned<DeValue<'v>>, by: usize) -> Spanned<DeValue<'v>> {
    let moved = |span: Range<usize>| span.start + by..span.end + by;
    let span = moved(value.span());

    let value = match value.into_inner() {
        DeValue::Array(items) => {
            DeValue::Array(items.into_iter().map(|item| shifted(item, by)).collect())
        }
        DeValue::Table(table) => {
            let entries = table.into_iter().map(|(key, value)| {
                let span = moved(key.span());
                (Spanned::new(span, key.into_inner()), shifted(value, by))
            });
            DeValue::Table(entries.collect())
        }
        scalar => scalar,
    };

    Spanned::new(span, value)
}
