//! Choices that belong to a `kind`, as recipes write them: a table may go without it and have the options
//! of the first, and a kind whose options are left out may be its name alone.

use schemars::Schema;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeOwned, Error as _},
    ser::Error as _,
};
use serde_json::{Value, json};

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

/// A kind by its name, or by a table with its options.
pub(super) fn named<'de, D, K>(deserializer: D) -> Result<K, D::Error>
where
    D: Deserializer<'de>,
    K: DeserializeOwned,
{
    from_value(toml::Value::deserialize(deserializer)?)
}

/// The same from a value that was read.
pub(super) fn from_value<K: DeserializeOwned, E: serde::de::Error>(
    value: toml::Value,
) -> Result<K, E> {
    let table = match value {
        toml::Value::String(name) => toml::Table::from_iter([(KIND.into(), name.into())]).into(),
        other => other,
    };
    table.try_into().map_err(E::custom)
}

/// The name alone of a kind without options, and a table of any other.
pub(super) fn by_name<K: Serialize, S: Serializer>(
    kind: &K,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let table = toml::Table::try_from(kind).map_err(S::Error::custom)?;
    match (table.len(), table.get(KIND).and_then(toml::Value::as_str)) {
        (1, Some(name)) => serializer.serialize_str(name),
        _ => table.serialize(serializer),
    }
}

/// Makes the schema of a tagged enum that of [`named`]: of every kind its name, and its table if it has
/// options.
pub(super) fn name_or_table(schema: &mut Schema) {
    let Some(Value::Array(variants)) = schema.get_mut("oneOf") else { return };
    let name = |variant: &Value| {
        let name = &variant["properties"][KIND]["const"];
        json!({"type": "string", "const": name, "description": variant["description"]})
    };
    let names: Vec<Value> = variants.iter().map(name).collect();
    let has_options = |variant: &Value| {
        variant["properties"].as_object().is_some_and(|properties| properties.len() > 1)
    };
    variants.retain(has_options);
    variants.splice(0..0, names);
}
