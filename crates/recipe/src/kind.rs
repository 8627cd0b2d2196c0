//! Tables with a `kind` that may be left out: they then have the options of the first.

use schemars::Schema;
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned, de::Error as _};
use serde_json::Value;

const KIND: &str = "kind";

/// A kind with its options, from a table or from what stands in one beside the keys of every kind; the
/// default one where the table names none.
///
/// Serde asks a tagged enum for its tag, and would take options without one for a fault.
pub(super) fn or_default<'de, D, K>(deserializer: D) -> Result<K, D::Error>
where
    D: Deserializer<'de>,
    K: Default + Serialize + DeserializeOwned,
{
    let mut table = toml::Table::deserialize(deserializer)?;
    if !table.contains_key(KIND) {
        let default = toml::Table::try_from(K::default()).map_err(D::Error::custom)?;
        table.extend(default.into_iter().filter(|(key, _)| key == KIND));
    }
    table.try_into().map_err(D::Error::custom)
}

/// Makes the first variant the one of a table without a kind. `shape` and the book know it by this, and
/// editors complete its options.
pub(super) fn first_by_default(schema: &mut Schema) {
    let first = schema.get_mut("oneOf").and_then(|variants| variants.get_mut(0));
    if let Some(Value::Object(first)) = first {
        first.remove("required"); // It was the kind; every option has a default.
    }
    if schema.get("properties").is_some() {
        schema.insert("unevaluatedProperties".into(), false.into());
    }
}
