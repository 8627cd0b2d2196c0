//! Decides what a run may change when it is resumed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde_json::Value;

use crate::recipe::Recipe;

/// A key whose value has changed since the run was last started.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Dotted key, such as `optim.lr`.
    pub key: String,
    /// Value in the run's folder; `None` if the key was left out.
    pub before: Option<Value>,
    /// New value; `None` if the key is left out.
    pub now: Option<Value>,
}

impl Change {
    /// Tells whether the checkpoints of a run can't follow the change. Weights, tokenizer and critic have their sizes,
    /// and the position in the data is an index, which refers to other prompts in other data.
    ///
    /// Paths may change, because folders are moved. Only the weights under an adapter are read again from a model. The
    /// matmul precision may change, as the device may.
    pub fn refused(&self) -> bool {
        // Of a list of data sets, the paths, the judges and the teachers may change.
        let in_list = self.key.strip_prefix("data.train[").and_then(|rest| rest.split_once("]."));
        let free = match in_list {
            Some((_, key)) => {
                key == "path" || ["reward.", "teacher."].iter().any(|table| key.starts_with(table))
            }
            None => FREE.contains(&self.key.as_str()),
        };
        let held = ["model.", "data."].iter().any(|table| self.key.starts_with(table));
        let sides = [&self.before, &self.now];
        match self.key.as_str() {
            // Each optimizer has different state, and weights on a server stay there.
            "seed" | "optim.kind" | "engine.kind" | "engine.model" => true,
            // This is a change from or to a critic, so the refused key is not the critic's kind.
            "advantage.kind" => sides.iter().any(|side| **side == Some("gae".into())),
            "critic.kind" => sides.iter().all(|side| side.is_some()),
            _ => held && !free,
        }
    }

    /// Tells whether the device may now have room for an update that it had no room for.
    pub fn makes_room(&self) -> bool {
        ROOM.iter().any(|key| self.key.starts_with(key))
    }
}

/// Keys that decide how much memory an update takes, and on which device.
const ROOM: [&str; 9] = [
    "device",
    "teacher",
    "rollout.max_completion_tokens",
    "environment.max_observation_tokens",
    "optim.moments",
    "train.micro_batch_tokens",
    "train.recompute",
    "train.offload",
    "train.share_prompts",
];

/// Keys of the model and the data that may change.
const FREE: [&str; 6] = [
    "model.path",
    "model.revision",
    "model.dtype",
    "model.new.tokenizer",
    "data.train",
    "data.heldout",
];

/// Writes the key with both values: `optim.lr = 1e-7 (was 1e-6)`.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<Value>| {
            value.as_ref().map_or_else(|| "nothing".into(), Value::to_string)
        };
        write!(f, "{} = {} (was {})", self.key, shown(&self.now), shown(&self.before))
    }
}

/// Lists every key whose value differs, defaults included. The name is not compared, because the run was found
/// by it. Paths are compared as absolute ones.
pub fn changes(before: &Recipe, now: &Recipe) -> Vec<Change> {
    let values = |recipe: &Recipe| values(&recipe.with_absolute_paths());
    let mut before = values(before);
    let mut now = values(now);

    let keys: BTreeSet<String> = before.keys().chain(now.keys()).cloned().collect();
    let change = |key: String| {
        let before = before.remove(&key);
        let now = now.remove(&key);
        (key != "name" && before != now).then_some(Change { key, before, now })
    };

    keys.into_iter().filter_map(change).collect()
}

/// Returns the values of a recipe by dotted key, defaults included. Without a critic, a critic's values are left
/// out.
pub fn values(recipe: &Recipe) -> BTreeMap<String, Value> {
    fn collect(key: String, value: Value, into: &mut BTreeMap<String, Value>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let key = if key.is_empty() { name } else { format!("{key}.{name}") };
                    collect(key, value, into);
                }
            }
            // Each data set of a list has a path and a reward, which may change, and a weight, which may not.
            Value::Array(items) if key == "data.train" => {
                for (index, item) in items.into_iter().enumerate() {
                    collect(format!("{key}[{index}]"), item, into);
                }
            }
            value => {
                into.insert(key, value);
            }
        }
    }

    let mut values = BTreeMap::new();
    collect(String::new(), serde_json::to_value(recipe).unwrap_or_default(), &mut values);

    if !recipe.has_critic() {
        values.retain(|key, _| !key.starts_with("critic."));
    }
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

    #[test]
    fn a_critic_comes_and_goes_with_its_advantages() {
        let recipe = |tables: &str| {
            let text = format!("[model]\npath = 'a'\n[data]\ntrain = 't.jsonl'\n{tables}\n");
            Recipe::parse(Path::new("a.toml"), &text, &[]).unwrap().recipe
        };

        let refused = |before: &str, now: &str| -> Vec<String> {
            let changes = changes(&recipe(before), &recipe(now));
            changes.iter().filter(|change| change.refused()).map(Change::to_string).collect()
        };

        let head = "[advantage]\nkind = 'gae'";
        let separate = "[advantage]\nkind = 'gae'\n[critic]\nkind = 'separate'";
        let gone = "advantage.kind = \"group_norm\" (was \"gae\")";
        assert_eq!(refused(head, ""), [gone]);
        assert_eq!(refused(separate, ""), [gone]);
        assert_eq!(refused("", separate), ["advantage.kind = \"gae\" (was \"group_norm\")"]);
        assert_eq!(refused(head, separate), ["critic.kind = \"separate\" (was \"head\")"]);
        assert_eq!(refused("", "[advantage]\nkind = 'mean_only'"), [""; 0]);
        assert!(!values(&recipe("")).contains_key("critic.kind"));

        let muon = "[optim]\nkind = 'muon'";
        assert_eq!(refused("", muon), ["optim.kind = \"muon\" (was \"adamw\")"]);
        assert_eq!(refused("", "[optim]\nschedule = 'cosine'"), [""; 0]);

        let here = "[model.lora]\nrank = 4";
        let there =
            |url: &str| format!("{here}\n[engine]\nkind = 'tinker'\nurl = '{url}'\nmodel = 'a'");
        let moved =
            ["engine.kind = \"tinker\" (was nothing)", "engine.model = \"a\" (was nothing)"];
        assert_eq!(refused(here, &there("http://a")), moved);
        assert_eq!(refused(&there("http://a"), &there("http://b")), [""; 0]);
    }
}
