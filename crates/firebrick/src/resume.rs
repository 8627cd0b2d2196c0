//! What a run may change when it is resumed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde_json::Value;

use crate::recipe::Recipe;

/// A key whose value is another than when the run was last started.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Such as `optim.lr`.
    pub key: String,
    /// As in the run's folder; none where the key was left out.
    pub before: Option<Value>,
    /// As given now.
    pub now: Option<Value>,
}

impl Change {
    /// Whether the checkpoints of a run can't follow the change: weights, tokenizer and critic have
    /// their sizes, and the place in the data is a number that means other prompts in other data.
    ///
    /// Where things are is free, because folders are moved, and of a model only what an adapter is for
    /// is read again. The format of products is free as the device is.
    pub fn refused(&self) -> bool {
        let free = FREE.contains(&self.key.as_str());
        let held = ["model.", "data."].iter().any(|table| self.key.starts_with(table));
        let sized = ["seed", "critic.kind"].contains(&self.key.as_str());
        sized || (held && !free)
    }
}

/// Keys of the model and the data that may change.
const FREE: [&str; 6] = [
    "model.path",
    "model.revision",
    "model.dtype",
    "model.new.tokenizer",
    "data.train",
    "data.heldout",
];

/// The key with both values: `optim.lr = 1e-7 (was 1e-6)`.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<Value>| {
            value.as_ref().map_or_else(|| "nothing".into(), Value::to_string)
        };
        write!(f, "{} = {} (was {})", self.key, shown(&self.now), shown(&self.before))
    }
}

/// Every key whose value differs, defaults included. The name is not compared: it is what the run
/// was found by.
pub fn changes(before: &Recipe, now: &Recipe) -> Vec<Change> {
    let (mut before, mut now) = (values(before), values(now));
    let keys: BTreeSet<String> = before.keys().chain(now.keys()).cloned().collect();
    let change = |key: String| {
        let (before, now) = (before.remove(&key), now.remove(&key));
        (key != "name" && before != now).then_some(Change { key, before, now })
    };
    keys.into_iter().filter_map(change).collect()
}

/// The values of a recipe by dotted key, defaults included.
pub(crate) fn values(recipe: &Recipe) -> BTreeMap<String, Value> {
    fn collect(key: String, value: Value, into: &mut BTreeMap<String, Value>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let key = if key.is_empty() { name } else { format!("{key}.{name}") };
                    collect(key, value, into);
                }
            }
            value => {
                into.insert(key, value);
            }
        }
    }
    let mut values = BTreeMap::new();
    collect(String::new(), serde_json::to_value(recipe).unwrap_or_default(), &mut values);
    values
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_lies_elsewhere_may_change_and_what_is_trained_may_not() {
        let recipe = |model: &str, data: &str| {
            let text = format!("[model]\n{model}\n[data]\n{data}\n");
            Recipe::parse(Path::new("a.toml"), &text, &[]).unwrap().recipe
        };
        let before = recipe("path = 'a/b'\nlora = {rank = 4}", "train = 't.jsonl'");
        let refused = |model: &str, data: &str| -> Vec<String> {
            let changes = changes(&before, &recipe(model, data));
            assert!(!changes.is_empty());
            changes.into_iter().filter(Change::refused).map(|change| change.key).collect()
        };
        let moved = "path = '/b'\nrevision = 'v1'\ndtype = 'bfloat16'\nlora = {rank = 4}";
        assert_eq!(refused(moved, "train = '/t.jsonl'"), [""; 0]);
        assert_eq!(
            refused("path = 'a/b'\nlora = {rank = 8, rslora = true}", "train = 't.jsonl'"),
            ["model.lora.rank", "model.lora.rslora"]
        );
        assert!(!refused("path = 'a/b'", "train = 't.jsonl'").is_empty());
        assert_eq!(
            refused("path = 'a/b'\nlora = {rank = 4}", "train = 't.jsonl'\nsplit = 'test'"),
            ["data.split"]
        );
    }
}
