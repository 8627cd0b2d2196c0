//! A recipe in the making: keys with their values, and the keys that these came from.

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Write as _,
};

use firebrick_recipe::{Invalid, Recipe, TrainSource};
use serde_json::Value as Json;

use super::{Notes, Settings, settings::Value};

/// Kinds whose options have their own defaults.
const KINDS: [&str; 3] = ["advantage.kind", "critic.kind", "loss.kind"];

/// A recipe that rows write to.
pub(super) struct Draft<'a> {
    settings: &'a Settings,
    /// Entries in the order in which they were last set; `None` where a later entry replaced one.
    entries: Vec<Option<Entry>>,
    positions: HashMap<String, usize>,
    pub(super) notes: &'a mut Notes,
}

struct Entry {
    /// Our key, dotted.
    here: String,
    value: toml_edit::Value,
    /// The other program's key.
    from: String,
}

impl<'a> Draft<'a> {
    pub(super) fn new(settings: &'a Settings, notes: &'a mut Notes) -> Self {
        Draft { settings, entries: Vec::new(), positions: HashMap::new(), notes }
    }

    /// Writes the value of `from` under `here`, unchanged. Writes nothing for `null`.
    pub(super) fn take(&mut self, here: &str, from: &str) {
        let value = match self.settings.get(from) {
            Value::Null => return,
            value if value.is_open() => {
                let why =
                    "only the other program knows the rest of this value; set the key yourself";
                return self.notes.lacks(from, &value.to_string(), &format!("`{here}`: {why}"));
            }
            value => toml(&value),
        };
        self.set(here, value, from);
    }

    /// Writes a path, or a name on the Hub, unchanged, so that the user sees the parts that are still to be filled in.
    pub(super) fn take_path(&mut self, here: &str, from: &str) {
        let value = self.settings.get(from);
        let path = match &value {
            Value::List(paths) if here == "data.train" && paths.len() > 1 => {
                return self.take_paths(paths, from);
            }
            Value::List(paths) => {
                if paths.len() > 1 {
                    let says = format!(
                        "`{here}` is one path: put the files into a folder and name the folder; the \
                         recipe has the first file"
                    );
                    self.notes.differs(from, &value.to_string(), &says);
                }
                paths.first().cloned().unwrap_or(Value::Null)
            }
            one => one.clone(),
        };

        let path = match path {
            Value::Null => String::new(),
            Value::Text(path) => path,
            other => other.to_string(),
        };

        // No recipe has a path with a line break in it.
        if path.is_empty() || path.contains(char::is_control) {
            if matches!(here, "model.path" | "data.train") {
                let says = format!("`{here}` is not a path there: replace PATH with one");
                self.notes.differs(from, &value.to_string(), &says);
                self.set(here, "PATH", from);
            } else if !path.is_empty() {
                self.lacks(from, &format!("`{here}` is not a path there: set it yourself"));
            }
            return;
        }

        // Only a shell would fill these parts in.
        if Value::Text(path.clone()).is_open() || path.starts_with('~') {
            let says = format!("`{here}` is taken as it stands: write the path out");
            self.notes.differs(from, &path, &says);
        } else if !self.settings.is_given(from) {
            let says =
                "the key is left out, and this is its default there; write the path that you want";
            self.notes.differs(from, &path, says);
        }

        self.set(here, path, from);
    }

    /// Writes several paths under `data.train`, each as a data set without a weight.
    fn take_paths(&mut self, paths: &[Value], from: &str) {
        let mut list = toml_edit::Array::new();
        let mut names = BTreeSet::new();
        for path in paths {
            let text = match path {
                Value::Text(text) => text.clone(),
                other => other.to_string(),
            };
            if text.is_empty() || text.contains(char::is_control) {
                let says = "one of the paths of `data.train` is none, and is left out";
                self.notes.differs(from, &path.to_string(), says);
                continue;
            }
            let path = &text;
            if Value::Text(text.clone()).is_open() || path.starts_with('~') {
                self.notes.differs(
                    from,
                    path,
                    "`data.train` is taken as it stands: write the path out",
                );
            }

            let mut source = toml_edit::InlineTable::from_iter([("path", path.as_str())]);
            let name = TrainSource { path: path.into(), ..TrainSource::default() }.name();
            // Files of one name in several folders are told apart by their number.
            if !names.insert(name.clone()) {
                source.insert("name", format!("{name}-{}", list.len() + 1).into());
            }
            list.push(source);
        }

        if list.is_empty() {
            let says = "`data.train` is not a path there: replace PATH with one";
            self.notes.differs(from, &Value::List(paths.to_vec()).to_string(), says);
            return self.set("data.train", "PATH", from);
        }
        self.set("data.train", list, from);
    }

    /// Writes a value under `here`; it comes from the key `from`. A later value wins, although a default never
    /// replaces a value that was given.
    pub(super) fn set(&mut self, here: &str, value: impl Into<toml_edit::Value>, from: &str) {
        if let Some(&position) = self.positions.get(here) {
            let was_given = |entry: &Entry| self.settings.is_given(&entry.from);
            if !self.settings.is_given(from)
                && self.entries[position].as_ref().is_some_and(was_given)
            {
                return;
            }
            self.entries[position] = None;
        }

        self.positions.insert(here.to_owned(), self.entries.len());
        let entry = Entry { here: here.into(), value: value.into(), from: from.into() };
        self.entries.push(Some(entry));
    }

    /// Notes that `from` could not be translated, and why.
    pub(super) fn lacks(&mut self, from: &str, says: &str) {
        let value = self.settings.get(from);
        self.notes.lacks(from, &value.to_string(), says);
    }

    /// Removes the value that `fault` blames from the recipe, with a remark. Returns false if it blames none.
    pub(super) fn leave_out(&mut self, fault: &Invalid) -> bool {
        let Some(at) = fault.label.as_ref().map(|label| label.span.start) else { return false };

        let before = fault.text.get(..at).unwrap_or_default();
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        let line = fault.text[start..].lines().next().unwrap_or_default();

        // An entry's line is `key = value  # from`, as `text` writes it.
        let is_blamed = |entry: &Entry| {
            let key = entry.here.split_once('.').map_or(entry.here.as_str(), |(_, key)| key);
            line.strip_prefix(key).is_some_and(|rest| rest.starts_with(" = "))
                && line.ends_with(&format!(" {}", entry.from))
        };
        let blamed = self.entries.iter_mut().find(|entry| entry.as_ref().is_some_and(is_blamed));
        let Some(Entry { here, from, .. }) = blamed.and_then(Option::take) else { return false };

        self.positions.remove(&here);
        let value = self.settings.get(&from).to_string();
        let says = format!("the recipe leaves `{here}` at its default, because {}", fault.message);
        self.notes.lacks(&from, &value, &says);
        true
    }

    /// Returns the lines that choose kinds.
    fn kinds(&self) -> String {
        let entries = self.entries.iter().flatten();
        let kinds = entries.filter(|entry| KINDS.contains(&entry.here.as_str()));
        kinds.map(|entry| format!("{} = {}\n", entry.here, entry.value)).collect()
    }

    /// Returns the tables in the order of the schema, without the other program's defaults that are also ours.
    pub(super) fn text(&self) -> String {
        let of_kinds = defaults(&self.kinds());
        let defaults = defaults("");
        // Tables are in the order of the schema, which is that of the book.
        let schema = Recipe::schema();
        let tables = schema.get("properties").and_then(Json::as_object);
        let mut text = String::new();

        for (table, _) in tables.into_iter().flatten() {
            let mut lines = String::new();
            let mut is_table_key = false;
            for entry in self.entries.iter().flatten() {
                let (key, is_key) = match entry.here.split_once('.') {
                    Some((of, key)) if of == table => (key, true),
                    None if entry.here == *table => (entry.here.as_str(), false),
                    _ => continue,
                };

                let is_given = self.settings.is_given(&entry.from);
                // A kind has one default. Other keys have the defaults of the kinds that the recipe chooses.
                let is_default = || {
                    let pointer = format!("/{}", entry.here.replace('.', "/"));
                    let is_kind = KINDS.contains(&entry.here.as_str());
                    let defaults = if is_kind { &defaults } else { &of_kinds };
                    defaults.pointer(&pointer).is_some_and(|ours| equal(ours, &entry.value))
                };
                if !is_given && is_default() {
                    continue;
                }
                let whose = if is_given { "" } else { "default of " };
                let _ = writeln!(lines, "{key} = {}  # {whose}{}", entry.value, entry.from);
                is_table_key |= !is_key;
            }

            if !lines.is_empty() {
                let header = if is_table_key { String::new() } else { format!("\n[{table}]\n") };
                let _ = write!(text, "{header}{lines}");
            }
        }

        text.trim_start().to_owned()
    }
}

/// Returns our own defaults, by table and key, for a recipe with `kinds`.
fn defaults(kinds: &str) -> Json {
    let least = format!("model.path = \"m\"\ndata.train = \"d\"\n{kinds}");
    let recipe = Recipe::parse("least.toml".as_ref(), &least, &[]);
    recipe.ok().and_then(|loaded| serde_json::to_value(loaded.recipe).ok()).unwrap_or_default()
}

fn toml(value: &Value) -> toml_edit::Value {
    match value {
        Value::Null => "".into(),
        Value::Bool(value) => (*value).into(),
        Value::Number(number) => number.parse().unwrap_or_else(|_| number.as_str().into()),
        Value::Text(text) => text.as_str().into(),
        Value::List(items) => items.iter().map(toml).collect::<toml_edit::Array>().into(),
    }
}

fn equal(ours: &Json, value: &toml_edit::Value) -> bool {
    match ours {
        Json::Bool(ours) => value.as_bool() == Some(*ours),
        Json::String(ours) => value.as_str() == Some(ours),
        Json::Number(ours) => {
            let value = value.as_float().or_else(|| value.as_integer().map(|value| value as f64));
            ours.as_f64() == value
        }
        _ => false,
    }
}
