//! Overrides of a recipe's keys, given as `--set table.key=value`.

mod tree;

use toml_edit::{DocumentMut, Item, Key, TableLike, Value};

use super::error::{BACKSLASH, RecipeError};

pub(super) use tree::{below, insert};

/// One `--set table.key=value`, or one `--set table.key=`, which removes the key from the recipe.
#[derive(Debug)]
pub(super) struct Override {
    /// Argument as it was given.
    pub(super) given: String,
    /// Path of the key from the root.
    pub(super) path: Vec<String>,
    /// What the key is set to; `None` if it is removed.
    value: Option<Value>,
}

impl Override {
    /// Reads all `--set` arguments.
    pub(super) fn all(given: &[String]) -> Result<Vec<Self>, RecipeError> {
        given.iter().map(|given| Override::parse(given)).collect()
    }

    /// Reads one `--set` argument. Its value is read as TOML, or as a string if it is not TOML:
    /// `device.kind=cuda` needs no quotes.
    pub(super) fn parse(given: &str) -> Result<Self, RecipeError> {
        let error = |message: String| RecipeError::Override {
            given: given.to_owned(),
            message,
            help: "write --set table.key=value, such as --set loss.clip_ratio_high=0.3".into(),
        };

        let (path, value) =
            given.split_once('=').ok_or_else(|| error("expected a `=` and a value".into()))?;
        let path = Key::parse(path)
            .map_err(|_| error(format!("expected a key before the `=`, found `{path}`")))?;

        let value = value.trim();
        let value = match value.parse() {
            _ if value.is_empty() => None,
            Ok(value) => Some(value),
            Err(_) if is_too_large(value) => {
                return Err(RecipeError::Override {
                    given: given.to_owned(),
                    message: format!("`{value}` is a number that a recipe can't hold"),
                    help: "a whole number has at most 64 bits, any other number is below 1.8e308"
                        .into(),
                });
            }
            Err(_) if value.starts_with('"') && value.contains('\\') => {
                return Err(RecipeError::Override {
                    given: given.to_owned(),
                    message: format!("{value} is not a valid string"),
                    help: format!("{BACKSLASH}; without any quotes it is taken literally"),
                });
            }
            Err(_) => Some(Value::from(value)),
        };

        // The key is kept as its parts: quotes and dots are already parsed.
        let path = path.iter().map(|key| key.get().to_owned()).collect();
        Ok(Override { given: given.to_owned(), path, value })
    }

    /// Returns the error for a `key` on the path of the override that is not a table.
    fn inside_a_value(&self, key: &str) -> RecipeError {
        RecipeError::Override {
            given: self.given.clone(),
            message: format!("`{key}` is a value and not a table"),
            help: format!("set it as a whole: --set {key}=value"),
        }
    }

    /// Returns the error for a key to remove that the recipe does not have.
    fn nothing_to_remove(&self) -> RecipeError {
        RecipeError::Override {
            given: self.given.clone(),
            message: format!("the recipe does not set `{}`", self.path.join(".")),
            help: "a `=` with nothing after it removes the key from the recipe; an empty text is \
                   \"\""
                .into(),
        }
    }
}

/// Returns true if a text is a number that TOML can't hold. Such a number would otherwise be taken for a
/// string.
fn is_too_large(text: &str) -> bool {
    // `inf` and `1e400` are both infinite as Rust reads them, although only the second is too large.
    let digits = text.ends_with(|last: char| last.is_ascii_digit());
    let overflows = text.parse::<f64>().is_ok_and(f64::is_infinite);
    digits && (overflows || (text.parse::<i64>().is_err() && text.parse::<i128>().is_ok()))
}

/// Returns the recipe's text with the overrides applied in their order, and with its comments.
pub(super) fn apply(text: &str, overrides: &[Override]) -> Result<String, RecipeError> {
    let Some(first) = overrides.first() else { return Ok(text.to_owned()) };

    // toml_edit would put a new top-level key above the opening comment, which belongs to the file.
    let (opening, body) = text.split_at(opening_comment(text));
    let mut document: DocumentMut =
        body.parse().map_err(|error: toml_edit::TomlError| RecipeError::Override {
            given: first.given.clone(),
            message: format!("the recipe can't be edited: {}", error.message()),
            help: "correct the recipe, or set the key in the file itself".into(),
        })?;

    for set in overrides {
        let Some((last_key, tables)) = set.path.split_last() else { continue };
        let Some(value) = &set.value else {
            remove(document.as_table_mut(), &set.path).ok_or_else(|| set.nothing_to_remove())?;
            continue;
        };

        let parent =
            descend(document.as_table_mut(), tables).map_err(|key| set.inside_a_value(&key))?;
        put(parent, last_key, value.clone());
    }

    // The document begins on a separate line.
    let gap = if opening.is_empty() || opening.ends_with('\n') { "" } else { "\n" };
    Ok(format!("{opening}{gap}{document}"))
}

/// Returns the length of the comments and empty lines at the beginning.
fn opening_comment(text: &str) -> usize {
    let lines = text.split_inclusive('\n');
    lines
        .take_while(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
        .map(str::len)
        .sum()
}

/// Returns the table at `path`, and creates it if it is missing. If a key of the path is not a table, its
/// dotted name is the error.
fn descend<'a>(
    root: &'a mut dyn TableLike,
    path: &[String],
) -> Result<&'a mut dyn TableLike, String> {
    let mut table = root;
    let mut inline = false;
    for (depth, key) in path.iter().enumerate() {
        // Inside `{ … }` a `[header]` is not possible.
        let missing = || {
            if inline {
                Item::Value(toml_edit::InlineTable::new().into())
            } else {
                let mut table = toml_edit::Table::new();
                table.set_implicit(true); // It gets a header only once it has keys.
                Item::Table(table)
            }
        };

        let entry = table.entry(key).or_insert_with(missing);
        inline = entry.is_inline_table();
        table = entry.as_table_like_mut().ok_or_else(|| path[..=depth].join("."))?;
    }

    Ok(table)
}

/// Removes the value at `path`, if there is one.
fn remove(table: &mut dyn TableLike, path: &[String]) -> Option<Item> {
    match path {
        [] => None,
        [key] => table.remove(key),
        [key, rest @ ..] => remove(table.get_mut(key)?.as_table_like_mut()?, rest),
    }
}

/// Sets `key`, and leaves the comments above and after an old value where they were.
fn put(table: &mut dyn TableLike, key: &str, mut value: Value) {
    match table.get_mut(key) {
        Some(item) => {
            // Comments and white space belong to the value being replaced.
            if let Some(old) = item.as_value() {
                *value.decor_mut() = old.decor().clone();
            }
            *item = Item::Value(value);
        }
        None => {
            table.insert(key, Item::Value(value));
        }
    }
}
