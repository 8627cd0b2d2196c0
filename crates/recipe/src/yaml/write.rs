//! Writes a document as TOML text, in which the run folder keeps a recipe in YAML.

use toml::de::{DeTable, DeValue};
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value};

/// Levels of tables with their own headers: `[data]` and `[data.columns]`. In TOML such a table comes after the values
/// next to it, wherever it was, while the keys of a tool have to keep their order. So deeper tables are written on one
/// line.
const HEADERS: usize = 2;

/// Returns the document as TOML, with its keys in their order.
pub(crate) fn to_toml(document: &DeTable<'_>) -> String {
    let mut text = DocumentMut::new();
    *text.as_table_mut() = table(document, HEADERS);
    text.to_string()
}

fn table(entries: &DeTable<'_>, headers: usize) -> Table {
    let mut table = Table::new();
    table.set_implicit(true); // It gets a header only if it has keys.

    for (key, value) in entries {
        table.insert(key.get_ref(), item(value.get_ref(), headers));
    }

    // An empty table is written by its header alone.
    if table.is_empty() {
        table.set_implicit(false);
    }
    table
}

fn item(value: &DeValue<'_>, headers: usize) -> Item {
    match value {
        value if headers == 0 => Item::Value(inline(value)),
        DeValue::Table(entries) => Item::Table(table(entries, headers - 1)),
        DeValue::Array(items)
            if !items.is_empty() && items.iter().all(|item| item.get_ref().is_table()) =>
        {
            let tables = items.iter().filter_map(|item| item.get_ref().as_table());
            let tables = tables.map(|entries| table(entries, headers - 1));
            Item::ArrayOfTables(tables.collect::<ArrayOfTables>())
        }
        value => Item::Value(inline(value)),
    }
}

fn inline(value: &DeValue<'_>) -> Value {
    // A number stays as it was written: 1e-6 is not 0.000001 to its reader.
    let number = |text: String| text.parse().unwrap_or_else(|_| Value::from(text));

    match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(integer) => number(integer.to_string()),
        DeValue::Float(float) => number(float.to_string()),
        DeValue::Boolean(value) => Value::from(*value),
        DeValue::Datetime(datetime) => Value::from(*datetime),
        DeValue::Array(items) => {
            items.iter().map(|item| inline(item.get_ref())).collect::<Array>().into()
        }
        DeValue::Table(entries) => {
            let entries = entries
                .iter()
                .map(|(key, value)| (key.get_ref().as_ref(), inline(value.get_ref())));
            entries.collect::<InlineTable>().into()
        }
    }
}
