//! Template filter `tojson`, which writes JSON as Python does.

use std::fmt::Write;

use minijinja::{
    Error, ErrorKind, Value,
    value::{Kwargs, ValueKind},
};

use crate::number::Digits;

/// Limit on the nesting of JSON. Deeper JSON is refused, which bounds the recursion.
const MAX_DEPTH: usize = 128;
/// Limit on the text, in bytes. Longer texts are refused; no prompt comes near.
const MAX_LENGTH: usize = 4 << 20;

/// Applies the `tojson` filter of `transformers`: Python's `json.dumps(value, ensure_ascii=False)`.
///
/// Unlike Jinja's own filter, it leaves `<`, `>`, `&` and `'` as they are. Unlike `serde_json`, it writes the spaces of
/// `", "` and `": "`. It honours `ensure_ascii`, `indent`, `separators` and `sort_keys`.
pub(crate) fn tojson(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent = match options.get::<Option<Value>>("indent")? {
        None => None,
        Some(indent) if indent.is_none() => None,
        Some(indent) => Some(indentation(&indent)?),
    };

    let (item, key) = match options.get::<Option<Vec<String>>>("separators")?.as_deref() {
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(invalid("tojson: separators should be two texts")),
    };

    let mut writer = Writer {
        text: String::new(),
        ensure_ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        indent,
        item,
        key,
    };

    options.assert_all_used()?;
    writer.value(value, 0)?;
    Ok(writer.text)
}

fn indentation(indent: &Value) -> Result<String, Error> {
    match (indent.as_str(), indent.as_i64()) {
        (Some(text), _) if text.len() <= 64 => Ok(text.to_owned()),
        (None, Some(width)) if width <= 64 => Ok(" ".repeat(width.max(0) as usize)),
        _ => Err(invalid("tojson: indent should be a number or a text of at most 64")),
    }
}

struct Writer {
    text: String,
    ensure_ascii: bool,
    sort_keys: bool,
    /// Indentation of one level. `None` puts everything on one line.
    indent: Option<String>,
    item: String,
    key: String,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid("tojson: the value is nested too deep"));
        }
        if self.text.len() > MAX_LENGTH {
            return Err(invalid("tojson: the value is too large"));
        }
        if let Some(digits) = Digits::of(value) {
            self.text.push_str(digits);
            return Ok(());
        }

        match value.kind() {
            ValueKind::None => self.text.push_str("null"),
            ValueKind::Bool => self.text.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => self.text.push_str(&value.to_string()),
            ValueKind::Number => self.text.push_str(&float(f64::try_from(value.clone())?)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.list(value, depth)?,
            ValueKind::Map => self.object(value, depth)?,
            kind => return Err(invalid(format!("tojson: {kind} cannot be written as JSON"))),
        }
        Ok(())
    }

    fn list(&mut self, list: &Value, depth: usize) -> Result<(), Error> {
        self.text.push('[');
        let mut empty = true;
        for value in list.try_iter()? {
            self.before_item(empty, depth + 1);
            empty = false;
            self.value(&value, depth + 1)?;
        }
        self.close(']', empty, depth);
        Ok(())
    }

    fn object(&mut self, object: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = object.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }

        self.text.push('{');
        for (index, key) in keys.iter().enumerate() {
            self.before_item(index == 0, depth + 1);
            // A key that is not a text is written as JSON, and then put into quotes.
            match key.as_str() {
                Some(text) => self.string(text),
                None => {
                    self.text.push('"');
                    self.value(key, depth + 1)?;
                    self.text.push('"');
                }
            }

            self.text.push_str(&self.key);
            self.value(&object.get_item(key)?, depth + 1)?;
        }
        self.close('}', keys.is_empty(), depth);
        Ok(())
    }

    fn before_item(&mut self, first: bool, depth: usize) {
        if !first {
            self.text.push_str(&self.item);
        }
        self.line(depth);
    }

    fn close(&mut self, bracket: char, empty: bool, depth: usize) {
        if !empty {
            self.line(depth);
        }
        self.text.push(bracket);
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.text.push('\n');
            self.text.extend(std::iter::repeat_n(indent.as_str(), depth));
        }
    }

    fn string(&mut self, text: &str) {
        self.text.push('"');
        for c in text.chars() {
            match c {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                '\r' => self.text.push_str("\\r"),
                '\t' => self.text.push_str("\\t"),
                '\u{8}' => self.text.push_str("\\b"),
                '\u{c}' => self.text.push_str("\\f"),
                '\0'..='\u{1f}' => self.escape(u16::try_from(u32::from(c)).unwrap_or_default()),
                '\u{7f}'.. if self.ensure_ascii => {
                    // A character beyond 16 bits is written as two surrogates.
                    for &mut unit in c.encode_utf16(&mut [0; 2]) {
                        self.escape(unit);
                    }
                }
                _ => self.text.push(c),
            }
        }

        self.text.push('"');
    }

    fn escape(&mut self, unit: u16) {
        // Writing to a string cannot fail.
        let _ = write!(self.text, "\\u{unit:04x}");
    }
}

/// Writes a float as Python's `repr` does: `1.0`, `1e-05`, `1e+16`.
pub(crate) fn float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }

    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(power) if !(-4..16).contains(&power) => {
            let sign = if power < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", power.unsigned_abs())
        }
        _ if number.fract() == 0.0 => format!("{number:.1}"),
        _ => number.to_string(),
    }
}

fn invalid(problem: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, problem)
}

#[cfg(test)]
mod tests {
    use minijinja::{Environment, value::Serde};
    use serde_json::json;

    use super::*;

    fn render(expression: &str, value: serde_json::Value) -> String {
        let mut environment = Environment::new();
        environment.add_filter("tojson", tojson);
        let context = Value::from_pairs([("v", Value::from(Serde(&value)))]);
        environment.render_str(&format!("{{{{ {expression} }}}}"), context).unwrap()
    }

    // CPython 3's json.dumps prints the expected texts for the same value and options.
    #[test]
    fn json_is_written_as_python_does() {
        let value = json!({"b": [1, -2.5, true, null], "a": {"<é>": "\"\\\n\u{1}\u{7f}", "e": []}});
        assert_eq!(
            render("v|tojson", value.clone()),
            "{\"b\": [1, -2.5, true, null], \"a\": {\"<é>\": \"\\\"\\\\\\n\\u0001\u{7f}\", \"e\": []}}"
        );

        assert_eq!(
            render("v|tojson(indent=2, sort_keys=true)", value),
            "{\n  \"a\": {\n    \"<é>\": \"\\\"\\\\\\n\\u0001\u{7f}\",\n    \"e\": []\n  },\n  \
             \"b\": [\n    1,\n    -2.5,\n    true,\n    null\n  ]\n}"
        );

        assert_eq!(
            render("v|tojson(separators=(',', ':'))", json!({"a": [1, 2]})),
            "{\"a\":[1,2]}"
        );

        assert_eq!(
            render("v|tojson(ensure_ascii=true)", json!("é😀")),
            "\"\\u00e9\\ud83d\\ude00\""
        );

        assert_eq!(
            render("v|tojson", json!([1.0, 1e15, 1e16, 1.5e-5, 0.0001, -0.0, 1e300])),
            "[1.0, 1000000000000000.0, 1e+16, 1.5e-05, 0.0001, -0.0, 1e+300]"
        );
    }
}
