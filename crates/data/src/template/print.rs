use minijinja::{Value, value::ValueKind};

use crate::python_json::float;

/// A value as Python prints it: the interpreter's own words, but for floats, which it writes as Rust
/// does (`1e-7` for `1e-07`).
///
/// The value has to be weighed: this recurses.
pub(super) fn print(value: &Value) -> String {
    match value.kind() {
        ValueKind::Number if !value.is_integer() => {
            match f64::try_from(value.clone()).unwrap_or(f64::NAN) {
                number if number.is_nan() => "nan".into(),
                number if number.is_infinite() => number.to_string(),
                number => float(number),
            }
        }
        ValueKind::Seq if !value.is_tuple() => format!("[{}]", items(value).join(", ")),
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

/// A value inside another: texts are in quotes.
fn quoted(value: &Value) -> String {
    if value.as_str().is_none() {
        return print(value);
    }
    // The interpreter quotes texts only inside lists.
    let list = Value::from(vec![value.clone()]).to_string();
    list[1..list.len() - 1].to_owned()
}
