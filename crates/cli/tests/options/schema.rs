//! The names of a recipe's options, from its schema.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Returns every option and every choice, such as `train.steps` and `loss.kind=gspo`. The options of one verifier
/// or task stand behind its kind, as in `reward(math).precision`.
pub(crate) fn all(schema: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    Walk { schema, names: &mut names }.node(schema, "", None);
    names
}

/// Returns the options and choices that `sets`, in the form of `--set`, names.
pub(crate) fn named(schema: &Value, sets: &[&str]) -> BTreeSet<String> {
    let mut recipe = Value::Object(Map::new());
    for set in sets {
        let (path, value) = set.split_once('=').unwrap();
        let slot = path.split('.').fold(&mut recipe, |table, key| &mut table[key]);
        *slot = self::value(value);
    }

    let mut names = BTreeSet::new();
    Walk { schema, names: &mut names }.node(schema, "", Some(&recipe));
    names
}

/// Reads the value of a `--set` as the program does: as TOML, or else as a text.
fn value(text: &str) -> Value {
    let table: Option<Map<String, Value>> = toml::from_str(&format!("value = {text}")).ok();
    table.map_or_else(|| text.into(), |mut table| table["value"].take())
}

struct Walk<'a> {
    schema: &'a Value,
    names: &'a mut BTreeSet<String>,
}

impl Walk<'_> {
    /// Names what is at `path` and below it: all of it, or what is `given`.
    fn node(&mut self, node: &Value, path: &str, given: Option<&Value>) {
        let node = self.resolved(node).clone();
        let items = self.resolved(&node["items"]).clone();

        if items.get("oneOf").is_some() || items.get("properties").is_some() {
            return match given.and_then(Value::as_array) {
                Some(list) => list.iter().for_each(|given| self.node(&items, path, Some(given))),
                None => self.node(&items, path, None),
            };
        }

        self.properties(&node, path, given);
        let choices: Vec<&Value> =
            ["oneOf", "anyOf"].iter().filter_map(|key| node[*key].as_array()).flatten().collect();
        for choice in &choices {
            self.choice(choice, path, given);
        }

        for word in node["enum"].as_array().into_iter().flatten() {
            self.word(word, path, given);
        }

        let has_parts = ["properties", "enum"].iter().any(|key| node.get(*key).is_some());
        if !has_parts && choices.is_empty() {
            self.names.insert(path.to_owned());
        }
    }

    /// Names the keys of a table, except the key that has its kind.
    fn properties(&mut self, table: &Value, path: &str, given: Option<&Value>) {
        for (key, property) in table["properties"].as_object().into_iter().flatten() {
            let value = given.map(|given| &given[key]);
            if property.get("const").is_none() && value.is_none_or(|value| !value.is_null()) {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                self.node(property, &path, value);
            }
        }
    }

    fn choice(&mut self, choice: &Value, path: &str, given: Option<&Value>) {
        let kind = &choice["properties"]["kind"]["const"];
        if let Some(word) = choice.get("const") {
            self.word(word, path, given);
        } else if let Some(kind) = kind.as_str() {
            // A part of a weighted reward is one of the verifiers, each of which is tried alone, and so is the reward of
            // one data set of several.
            let is_named = given.is_none_or(|given| given["kind"] == kind);
            let required = choice["required"].as_array().is_some_and(|keys| !keys.is_empty());
            let is_default = given.is_some_and(|given| given["kind"].is_null()) && !required;

            if path != "reward(weighted).parts" && path != "data.train.reward" {
                if is_named {
                    self.names.insert(format!("{path}.kind={kind}"));
                }
                if is_named || is_default {
                    self.properties(choice, &format!("{path}({kind})"), given);
                }
            }
        } else if choice.get("not").is_none() {
            self.node(choice, path, given);
        }
    }

    fn word(&mut self, word: &Value, path: &str, given: Option<&Value>) {
        if given.is_none_or(|given| given == word) {
            let word = word.as_str().map_or_else(|| word.to_string(), str::to_owned);
            self.names.insert(format!("{path}={word}"));
        }
    }

    fn resolved<'n>(&'n self, node: &'n Value) -> &'n Value {
        let reference = node["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
        reference.map_or(node, |pointer| self.schema.pointer(pointer).unwrap())
    }
}
