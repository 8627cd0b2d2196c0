//! A configuration as a flat list of keys, whatever its notation.

use std::{collections::HashMap, fmt, path::Path};

use firebrick_recipe::{
    Problem, RecipeError,
    yaml::{self, Kind, Node, Scalar},
};

use super::{
    budget::Budget,
    notes::Notes,
    rows::Row,
    shell::{self, is_override},
};

/// Dotted keys of a configuration with their values, in order.
pub(super) struct Settings {
    given: Vec<(String, Value)>,
    positions: HashMap<String, usize>,
    /// Values of the keys that are left out.
    defaults: HashMap<&'static str, Value>,
    budget: Budget,
}

/// A value, of one of the few types that configurations have.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    /// A number as TOML writes it.
    Number(String),
    Text(String),
    List(Vec<Value>),
}

impl Settings {
    /// Reads a script, lines of `key=value`, or YAML. A script's name ends in `.sh`, or its text begins with `#!`.
    /// The text is lines of `key=value` if its first line that is neither empty nor a comment is one.
    pub(super) fn read(path: &Path, text: &str, notes: &mut Notes) -> Result<Self, Problem> {
        let mut settings = Settings {
            given: Vec::new(),
            positions: HashMap::new(),
            defaults: HashMap::new(),
            budget: Budget::default(),
        };

        let first = text
            .lines()
            .map(str::trim)
            .find(|line| !line.is_empty() && !line.starts_with('#'))
            .unwrap_or_default();
        let is_script = path.extension().is_some_and(|end| end == "sh")
            || text.starts_with("#!")
            || is_override(first);

        if is_script {
            for (key, value) in shell::overrides(text, notes, &mut settings.budget)? {
                settings.put(&key, &value);
            }
            return Ok(settings);
        }

        match yaml::parse(text)? {
            Some(Node { kind: Kind::Mapping(entries), .. }) => {
                for entry in entries {
                    settings.flatten(entry.key, &entry.value)?;
                }
            }
            None => {}
            Some(node) => {
                return Err(Problem {
                    span: node.span,
                    keys: Vec::new(),
                    message: "the file is one value, expected a configuration".into(),
                    label: "not a table".into(),
                    help: Some(
                        "give a YAML file, a shell script (.sh), or lines of key=value".into(),
                    ),
                });
            }
        }

        Ok(settings)
    }

    /// Applies overrides from the command line.
    pub(super) fn set_all(&mut self, overrides: &[String]) -> Result<(), RecipeError> {
        for given in overrides {
            let Some((key, value)) = given.split_once('=') else {
                return Err(RecipeError::Override {
                    given: given.clone(),
                    message: "expected a `=` and a value".into(),
                    help: "write each setting as the other program takes it: a.b=value".into(),
                });
            };
            self.put(key, value);
        }
        Ok(())
    }

    /// Follows references such as `${data.max_prompt_length}`, and learns the defaults of keys that are left out.
    pub(super) fn resolve(&mut self, rows: &'static [Row]) -> Result<(), Problem> {
        let own = rows.iter().filter(|row| !row.default.is_empty());
        self.defaults = own.map(|row| (row.name, Value::parse(row.default))).collect();

        // By index, because following a reference reads the other values.
        for index in 0..self.given.len() {
            let value = self.given[index].1.clone();
            self.given[index].1 = self.followed(value)?;
        }
        Ok(())
    }

    /// Lists the keys that the configuration has.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.given.iter().map(|(key, _)| key.as_str())
    }

    pub(super) fn is_given(&self, key: &str) -> bool {
        self.positions.contains_key(key)
    }

    /// Returns the value, or the other program's default.
    pub(super) fn get(&self, key: &str) -> Value {
        let given = self.positions.get(key).and_then(|&position| self.given.get(position));
        given
            .map(|(_, value)| value)
            .or_else(|| self.defaults.get(key))
            .cloned()
            .unwrap_or(Value::Null)
    }

    /// Returns the first of several names of one thing that is given, or else the first name.
    pub(super) fn first_of<'k>(&self, keys: &[&'k str]) -> &'k str {
        let given = keys.iter().copied().find(|key| self.is_given(key));
        given.or_else(|| keys.first().copied()).unwrap_or_default()
    }

    pub(super) fn truth(&self, key: &str) -> bool {
        match self.get(key) {
            Value::Bool(value) => value,
            Value::Text(text) => matches!(text.to_lowercase().as_str(), "true" | "yes" | "on"),
            _ => false,
        }
    }

    pub(super) fn number(&self, key: &str) -> Option<f64> {
        match self.get(key) {
            Value::Number(number) => number.parse().ok(),
            _ => None,
        }
    }

    /// Returns a whole number, such as 32 or 32.0.
    pub(super) fn whole(&self, key: &str) -> Option<i64> {
        let number = self.number(key)?;
        (number.fract() == 0.0 && number.abs() < 1e15).then_some(number as i64)
    }

    pub(super) fn text(&self, key: &str) -> Option<String> {
        match self.get(key) {
            Value::Text(text) => Some(text),
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    fn put(&mut self, key: &str, value: &str) {
        // Hydra's signs for adding a key do not affect its value.
        let key = key.trim().trim_start_matches('+');
        match key.strip_prefix('~') {
            Some(removed) => {
                if let Some(&position) = self.positions.get(removed) {
                    self.given[position].1 = Value::Null;
                }
            }
            None => self.insert(key.to_owned(), Value::parse(value.trim())),
        }
    }

    fn insert(&mut self, key: String, value: Value) {
        match self.positions.get(&key) {
            Some(&position) => self.given[position].1 = value,
            None => {
                self.positions.insert(key.clone(), self.given.len());
                self.given.push((key, value));
            }
        }
    }

    fn flatten(&mut self, key: String, node: &Node) -> Result<(), Problem> {
        match &node.kind {
            Kind::Mapping(entries) if !entries.is_empty() => {
                // `_target_` is the Python class that a table fills. It does not affect the table's values.
                for entry in entries.iter().filter(|entry| entry.key != "_target_") {
                    self.budget.spend(key.len())?;
                    self.flatten(format!("{key}.{}", entry.key), &entry.value)?;
                }
            }
            _ => self.insert(key, Value::of(node)),
        }
        Ok(())
    }

    /// Follows the references in a value. A reference to nothing is not changed.
    fn followed(&mut self, value: Value) -> Result<Value, Problem> {
        Ok(match value {
            Value::Text(text) => {
                let mut value = Value::Text(text);

                // A longer chain of references is a cycle.
                for _ in 0..8 {
                    let Value::Text(text) = &value else { break };
                    match self.follow_once(text)? {
                        Some(next) => value = next,
                        None => break,
                    }
                }
                value
            }

            Value::List(items) => {
                let items = items.into_iter().map(|item| self.followed(item));
                Value::List(items.collect::<Result<_, _>>()?)
            }
            other => other,
        })
    }

    fn follow_once(&mut self, text: &str) -> Result<Option<Value>, Problem> {
        let mut from = 0;

        while let Some(start) = text[from..].find("${").map(|at| from + at) {
            let Some(end) = text[start..].find('}').map(|at| start + at) else { break };
            let key = &text[start + 2..end];
            if let Some(&position) = self.positions.get(key) {
                let value = &self.given[position].1;
                self.budget.spend(value.size() + text.len())?;
                // A reference alone keeps the type of its value. Within a text it becomes text.
                if start == 0 && end + 1 == text.len() {
                    return Ok(Some(value.clone()));
                }
                let whole = format!("{}{value}{}", &text[..start], &text[end + 1..]);
                return Ok(Some(Value::Text(whole)));
            }

            from = end;
        }

        Ok(None)
    }
}

impl Value {
    /// Reads a value on a command line as one line of YAML, or else as a text.
    pub(super) fn parse(text: &str) -> Self {
        match yaml::parse(text) {
            Ok(Some(node)) if !matches!(node.kind, Kind::Mapping(_)) => Value::of(&node),
            Ok(None) => Value::Null,
            _ => Value::Text(text.to_owned()),
        }
    }

    fn of(node: &Node) -> Self {
        match &node.kind {
            Kind::Scalar(Scalar::Null) => Value::Null,
            Kind::Scalar(Scalar::Bool(value)) => Value::Bool(*value),
            Kind::Scalar(Scalar::Number(number)) => Value::Number(number.clone()),
            Kind::Scalar(Scalar::Text(text) | Scalar::Unclear { text, .. }) => {
                Value::Text(text.clone())
            }
            Kind::Sequence(items) => Value::List(items.iter().map(Value::of).collect()),
            Kind::Mapping(entries) if entries.is_empty() => Value::Null,
            // Tables with entries only reach here inside lists, and no row asks for the keys of those.
            Kind::Mapping(_) => Value::Text("{…}".into()),
        }
    }

    /// Returns the approximate number of bytes that a copy takes.
    fn size(&self) -> usize {
        let inside = match self {
            Value::Text(text) | Value::Number(text) => text.len(),
            Value::List(items) => items.iter().map(Value::size).sum(),
            Value::Null | Value::Bool(_) => 0,
        };
        size_of::<Value>() + inside
    }

    /// Tells whether a part of the value is known only where the other program runs, such as `${HOME}`.
    pub(super) fn is_open(&self) -> bool {
        match self {
            Value::Text(text) => text.contains("${") || text.contains("$("),
            Value::List(items) => items.iter().any(Value::is_open),
            _ => false,
        }
    }
}

/// Writes the value as it could be written in YAML, on one line.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Number(number) => f.write_str(number),
            Value::Text(text) => f.write_str(
                &text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>(),
            ),
            Value::List(items) => {
                let items: Vec<String> = items.iter().map(Value::to_string).collect();
                write!(f, "[{}]", items.join(", "))
            }
        }
    }
}
