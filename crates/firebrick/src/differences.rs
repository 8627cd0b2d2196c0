//! Lists the keys in which recipes differ, which are the subject of an ablation.

use std::collections::BTreeSet;

use firebrick_recipe::Recipe;
use serde::Serialize;
use serde_json::Value;

use crate::resume::values;

/// A key whose value is not the same in all recipes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Dotted key, such as `loss.clip_ratio_high`.
    pub key: String,
    /// Value in each recipe, in their order; `None` if the key was left out and has no default.
    pub values: Vec<Option<Value>>,
}

/// Lists every key in which the recipes differ, defaults included. Their names are not compared.
pub fn differences(recipes: &[Recipe]) -> Vec<Difference> {
    let all: Vec<_> = recipes.iter().map(values).collect();
    let keys: BTreeSet<&String> = all.iter().flat_map(|values| values.keys()).collect();
    let difference = |key: &String| {
        let values: Vec<Option<Value>> = all.iter().map(|all| all.get(key).cloned()).collect();
        let differ = values.windows(2).any(|pair| pair[0] != pair[1]);
        (key != "name" && differ).then(|| Difference { key: key.clone(), values })
    };
    keys.into_iter().filter_map(difference).collect()
}

impl Difference {
    /// Returns the values as a recipe would write them, with a dash for a missing one.
    pub fn cells(&self) -> impl Iterator<Item = String> {
        self.values.iter().map(|value| value.as_ref().map_or_else(|| "–".into(), Value::to_string))
    }
}
