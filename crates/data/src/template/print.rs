//! Prints values in templates as Python would.

use std::fmt::Write;

use minijinja::{Value, value::ValueKind};

use crate::python_json::float;

/// Writes a value as Python prints it. So does the interpreter with most values, but it writes floats as Rust does
/// (`1e-7` for `1e-07`), and quotes texts inside lists and objects as Rust does.
///
/// The value has to be weighed before, because this function recurses.
pub(super) fn print(value: &Value) -> String {
    match value.kind() {
        ValueKind::Number if !value.is_integer() => {
            match f64::try_from(value.clone()).unwrap_or(f64::NAN) {
                number if number.is_nan() => "nan".into(),
                number if number.is_infinite() => number.to_string(),
                number => float(number),
            }
        }

        ValueKind::Seq => match (value.is_tuple(), items(value).as_slice()) {
            (true, [one]) => format!("({one},)"),
            (true, items) => format!("({})", items.join(", ")),
            (false, items) => format!("[{}]", items.join(", ")),
        },

        ValueKind::Map => {
            let pair = |key: Value| {
                let item = value.get_item(&key).unwrap_or_default();
                format!("{}: {}", quoted(&key), quoted(&item))
            };
            let pairs: Vec<String> = value.try_iter().into_iter().flatten().map(pair).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        _ => value.to_string(),
    }
}

fn items(list: &Value) -> Vec<String> {
    list.try_iter().into_iter().flatten().map(|item| quoted(&item)).collect()
}

/// Writes a value inside another value. Texts are in quotes.
fn quoted(value: &Value) -> String {
    let Some(text) = value.as_str() else {
        return if value.is_undefined() { "Undefined".to_owned() } else { print(value) };
    };

    // Python takes double quotes only where single ones would need a backslash and double ones none.
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut quoted = String::from(quote);
    for c in text.chars() {
        match c {
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\\' => quoted.push_str("\\\\"),
            _ if c == quote => quoted.extend(['\\', c]),
            _ if is_printable(c) => quoted.push(c),
            _ => {
                // Writing to a text cannot fail.
                let _ = match u32::from(c) {
                    code @ ..=0xff => write!(quoted, "\\x{code:02x}"),
                    code @ ..=0xffff => write!(quoted, "\\u{code:04x}"),
                    code => write!(quoted, "\\U{code:08x}"),
                };
            }
        }
    }

    quoted.push(quote);
    quoted
}

/// Tells whether Python shows a character as it is. Rust escapes the same characters, and two kinds more: quotes,
/// and marks that have nothing before them to be joined to.
fn is_printable(c: char) -> bool {
    matches!(c, '"' | '\'') || String::from_iter(['a', c]).escape_debug().nth(1) == Some(c)
}
