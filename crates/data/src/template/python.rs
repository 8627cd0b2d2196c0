//! Filters, methods and comparisons as Python has them, where the template interpreter differs.

use minijinja::{
    Environment, Error, ErrorKind, State, Value, filters,
    value::{Tuple, ValueKind},
};
use minijinja_contrib::pycompat;

use super::print::print;

/// Filters that make a text of their input.
const OF_TEXTS: [&str; 5] = ["upper", "lower", "title", "capitalize", "replace"];
/// Filters that iterate over their input.
const OF_LISTS: [&str; 8] = ["join", "list", "max", "min", "reverse", "sort", "sum", "unique"];

/// Adds the filters and tests that differ.
pub(super) fn add_words(environment: &mut Environment<'static>) {
    // Whatever is undefined counts as empty, as in Jinja.
    for name in ["length", "count"] {
        environment.add_filter(name, |value: &Value| {
            if value.is_undefined() { Ok(0) } else { filters::length(value) }
        });
    }
    environment.add_filter("items", |value: &Value| {
        if value.is_undefined() {
            Ok(Value::from(Vec::<Value>::new()))
        } else {
            filters::items(value)
        }
    });
    environment.add_filter("first", |value: Value| {
        if value.is_undefined() { Ok(value) } else { filters::first(&value) }
    });
    environment.add_filter("last", |value: Value| {
        if value.is_undefined() { Ok(value) } else { filters::last(value) }
    });

    environment.add_filter("string", |value: Value| match value.as_str() {
        Some(_) => value,
        None => print(&value).into(),
    });
    environment.add_filter("trim", |value: Value, characters: Option<String>| {
        let is_trimmed = |c: char| match &characters {
            Some(characters) => characters.contains(c),
            None => is_space(c),
        };
        print(&value).trim_matches(is_trimmed).to_owned()
    });

    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    environment.add_test("sequence", |value: &Value| {
        let indexed = matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String);
        indexed || value.is_undefined()
    });
}

/// Returns the value that the filter `name` gets for `value`. `is_alone` is true if no argument has a name.
pub(super) fn received(name: &str, value: &Value, is_alone: bool) -> Result<Value, Error> {
    Ok(match (name, value.as_str()) {
        (_, None) if value.is_none() && OF_LISTS.contains(&name) => return Err(not_iterable()),
        (_, None) if OF_TEXTS.contains(&name) => print(value).into(),
        ("join", None) if is_alone => {
            value.try_iter()?.map(|item| Value::from(print(&item))).collect()
        }
        // The interpreter takes away a line's end that Python keeps.
        ("indent", Some(text)) if text.ends_with('\n') => format!("{text}\n").into(),
        _ => value.clone(),
    })
}

/// Calls a method of Python's on a text, a list or an object.
pub(super) fn method(
    state: &mut State,
    value: &Value,
    name: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    Ok(match (value.as_str(), name, arguments) {
        (Some(text), "strip", []) => text.trim_matches(is_space).into(),
        (Some(text), "lstrip", []) => text.trim_start_matches(is_space).into(),
        (Some(text), "rstrip", []) => text.trim_end_matches(is_space).into(),
        (Some(text), "title", []) => title(text).into(),
        _ => return pycompat::unknown_method_callback(state, value, name, arguments),
    })
}

/// Computes `left < right` and its like, for values that Python can compare, and `left in right`.
pub(super) fn compare(state: &mut State, operator: &str, sides: &[Value]) -> Result<Value, Error> {
    let [left, right] = sides else { return Err(refused(operator)) };
    let kinds = (left.kind(), right.kind());
    if operator == "in" {
        return match kinds.1 {
            ValueKind::String if kinds.0 != ValueKind::String => Err(refused(operator)),
            ValueKind::Number | ValueKind::Bool | ValueKind::None => Err(refused(operator)),
            _ => state.perform_test("in", sides).map(Value::from),
        };
    }

    // Python counts True and False as numbers.
    let number = |kind| matches!(kind, ValueKind::Number | ValueKind::Bool);
    let alike = kinds.0 == kinds.1 && matches!(kinds.0, ValueKind::String | ValueKind::Seq);
    if !(alike || number(kinds.0) && number(kinds.1)) {
        return Err(refused(operator));
    }

    Ok(Value::from(match operator {
        "<" => left < right,
        "<=" => left <= right,
        ">" => left > right,
        _ => left >= right,
    }))
}

/// Computes `value[start:stop:step]`.
pub(super) fn slice(
    value: &Value,
    start: &Value,
    stop: &Value,
    step: &Value,
) -> Result<Value, Error> {
    let index = |value: &Value, absent: i64| match value.as_i64() {
        _ if value.is_none() => Ok(absent),
        Some(number) => Ok(number),
        None => Err(refused("a slice")),
    };
    let step = match index(step, 1)? {
        0 => return Err(refused("a step of 0")),
        step => step,
    };

    // The indices that the slice takes of that many items, as Python's `slice.indices` has them.
    let indices = |length: usize| {
        let length = length as i64;
        // A backward slice may end before the first item, at −1.
        let (lowest, highest) = if step > 0 { (0, length) } else { (-1, length - 1) };
        let (first, last) = if step > 0 { (lowest, highest) } else { (highest, lowest) };
        let clamped = |bound: &Value, absent: i64| -> Result<i64, Error> {
            let mut at = index(bound, absent)?;
            if at < 0 && !bound.is_none() {
                at = at.saturating_add(length);
            }
            Ok(at.clamp(lowest, highest))
        };

        let first = clamped(start, first)?;
        let end = clamped(stop, last)?;
        let distance = if step > 0 { end - first } else { first - end };
        let count = (distance.max(0) as u64).div_ceil(step.unsigned_abs());
        Ok::<_, Error>((0..count as i64).map(move |item| (first + item * step) as usize))
    };

    // Python counts characters, while Rust would count bytes.
    if let Some(text) = value.as_str() {
        let characters: Vec<char> = text.chars().collect();
        let sliced: String = indices(characters.len())?.map(|index| characters[index]).collect();
        return Ok(sliced.into());
    }

    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            let items: Vec<Value> =
                indices(items.len())?.map(|index| items[index].clone()).collect();
            Ok(if value.is_tuple() { Tuple::from(items).into() } else { items.into() })
        }
        _ => Err(refused("a slice")),
    }
}

/// Tells whether a character is white space in Python.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\x1c'..='\x1f')
}

pub(super) fn not_iterable() -> Error {
    Error::new(ErrorKind::InvalidOperation, "`none` has no items to go over")
}

fn title(text: &str) -> String {
    let mut title = String::new();
    let mut in_word = false;
    for c in text.chars() {
        if in_word {
            title.extend(c.to_lowercase());
        } else {
            title.extend(c.to_uppercase());
        }
        in_word = c.is_lowercase() || c.is_uppercase();
    }
    title
}

fn refused(what: &str) -> Error {
    let problem = format!("Python refuses {what} for such values");
    Error::new(ErrorKind::InvalidOperation, problem)
}
