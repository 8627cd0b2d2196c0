//! Options that belong to a `kind`, as recipes write them. A table without a `kind` has the options of the
//! first kind. A kind whose options are left out may be written as its name alone.

use schemars::Schema;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeOwned, Error as _},
    ser::Error as _,
};
use serde_json::{Value, json};

const KIND: &str = "kind";

/// Reads a kind with its options. They have their own table, or are in a table next to keys that every kind has. A
/// table that names no kind has the default kind.
///
/// Serde asks a tagged enum for its tag, and would refuse options without a tag.
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

/// Makes the first variant the one of a table without a kind. `schema_check` and the book recognise it by
/// this, and editors complete its options.
pub(super) fn first_by_default(schema: &mut Schema) {
    let first = schema.get_mut("oneOf").and_then(|variants| variants.get_mut(0));
    if let Some(Value::Object(first)) = first {
        first.remove("required"); // Only the kind was required: every option has a default.
    }
    if schema.get("properties").is_some() {
        schema.insert("unevaluatedProperties".into(), false.into());
    }
}

/// Reads a kind from its name, or from a table with its options.
pub(super) fn named<'de, D, K>(deserializer: D) -> Result<K, D::Error>
where
    D: Deserializer<'de>,
    K: DeserializeOwned,
{
    from_value(toml::Value::deserialize(deserializer)?)
}

/// Makes a kind of a value: its name, or a table with its options.
pub(super) fn from_value<K: DeserializeOwned, E: serde::de::Error>(
    value: toml::Value,
) -> Result<K, E> {
    let table = match value {
        toml::Value::String(name) => toml::Table::from_iter([(KIND.into(), name.into())]).into(),
        other => other,
    };
    table.try_into().map_err(E::custom)
}

/// Writes a kind without options as its name, and any other kind as a table.
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

/// Turns the schema of a tagged enum into that of [`named`]. It then has the name of every kind, and the
/// table of each kind with options.
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
    // Kinds without options are now names alone.
    variants.splice(0..0, names);
}
