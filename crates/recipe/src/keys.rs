//! The keys that a recipe may have.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use crate::Recipe;

impl Recipe {
    /// Lists the keys that a recipe may have, dotted, as `--set` takes them. A table is not among them, and neither are
    /// the keys of a list's tables.
    pub fn keys() -> BTreeSet<String> {
        let schema = Recipe::schema();
        let mut keys = BTreeSet::new();
        add_keys(&schema, &schema, "", &mut keys);
        keys
    }
}

/// Adds the keys of a table. Returns whether the schema is that of a table.
fn add_keys(root: &Json, schema: &Json, path: &str, keys: &mut BTreeSet<String>) -> bool {
    let schema = resolved(root, schema);
    let choices = ["oneOf", "anyOf"].iter().filter_map(|name| schema.get(name)?.as_array());
    let shapes = choices.flatten().map(|shape| resolved(root, shape));

    let mut is_table = false;
    for shape in std::iter::once(schema).chain(shapes) {
        for (name, property) in
            shape.get("properties").and_then(Json::as_object).into_iter().flatten()
        {
            is_table = true;
            let key = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            if !add_keys(root, property, &key, keys) {
                keys.insert(key);
            }
        }
    }
    is_table
}

fn resolved<'a>(root: &'a Json, schema: &'a Json) -> &'a Json {
    let pointer = schema.get("$ref").and_then(Json::as_str);
    let target = pointer.and_then(|pointer| root.pointer(pointer.strip_prefix('#')?));
    target.unwrap_or(schema)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_key_is_known_and_no_table_is_among_them() {
        let keys = Recipe::keys();
        for key in ["seed", "train.steps", "model.lora.rank", "optim.schedule.kind", "eval.sets"] {
            assert!(keys.contains(key), "{key}");
        }
        assert!(!keys.contains("model.lora") && !keys.contains("train"));

        // A key that is unknown is refused as such, whatever its value is.
        for key in keys {
            let set = [format!("{key}=1")];
            let text = "[model]\npath = 'a'\n[data]\ntrain = 'b'\n";
            if let Err(error) = Recipe::parse(Path::new("a.toml"), text, &set) {
                let error = format!("{error:?}");
                assert!(!error.contains("unknown key") || error.contains("of kind ="), "{error}");
            }
        }
    }
}
