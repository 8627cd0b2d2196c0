//! A document as TOML text. The run folder keeps a recipe in YAML in this form.

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value};

/// Returns the document as TOML, with its keys in the order of their places.
pub(crate) fn to_toml(document: &DeTable<'_>) -> String {
    let mut text = DocumentMut::new();
    *text.as_table_mut() = table(document);
    text.to_string()
}

fn table(entries: &DeTable<'_>) -> Table {
    let mut table = Table::new();
    table.set_implicit(true); // It gets a header only if it has keys.
    for (key, value) in in_order(entries) {
        table.insert(key, item(value));
    }
    if table.is_empty() {
        table.set_implicit(false);
    }
    table
}

fn item(value: &DeValue<'_>) -> Item {
    match value {
        DeValue::Table(entries) => Item::Table(table(entries)),
        DeValue::Array(items)
            if !items.is_empty() && items.iter().all(|item| item.get_ref().is_table()) =>
        {
            let tables = items.iter().filter_map(|item| item.get_ref().as_table());
            Item::ArrayOfTables(tables.map(table).collect::<ArrayOfTables>())
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
            let entries = in_order(entries).map(|(key, value)| (key, inline(value)));
            entries.collect::<InlineTable>().into()
        }
    }
}

fn in_order<'table>(
    entries: &'table DeTable<'_>,
) -> impl Iterator<Item = (&'table str, &'table DeValue<'table>)> {
    let mut entries: Vec<_> = entries.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries.into_iter().map(|(key, value)| (key.get_ref().as_ref(), Spanned::get_ref(value)))
}
