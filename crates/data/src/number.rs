//! Numbers of data with all their digits.
//!
//! `serde_json` keeps a number as an i64, a u64 or an f64, so `10000000000000000000000000000031` becomes 1e31. Its
//! feature `arbitrary_precision` would keep the text, and would break every enum that `serde` reads through a
//! buffer, those of `tokenizer.json` among them. So a number that an f64 would change is an object here, with its
//! text under one key that no data has. Everything that reads a number or writes one goes through this module.

use std::{borrow::Cow, fmt, sync::Arc};

use minijinja::value::{Object, ObjectRepr, Value as TemplateValue};
use serde::de::DeserializeOwned;
use serde_json::{Number, Value};

/// Key of a number's text.
const KEY: &str = "$firebrick_data::number";

/// Limit on the zeros that a power of ten may become. A number with more is left as it is spelt.
const MOST_ZEROS: i64 = 64;

/// Parses JSON for [`ChatTemplate`](crate::ChatTemplate), with all the digits of its numbers.
///
/// # Errors
/// Fails if the text is not JSON.
pub fn parse_json(text: &str) -> serde_json::Result<Value> {
    parse(text.as_bytes())
}

/// Returns the answer under `key` in an object: a text, or a number as a person writes it. `None` if it is neither.
pub fn answer_in(object: &[u8], key: &str) -> Option<String> {
    answer(parse::<Value>(object).ok()?.get(key)?)
}

/// Returns an answer: a text, or a number as a person writes it. `None` if it is neither.
pub(crate) fn answer(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        _ => spelt(value).map(|spelt| plain(&spelt)),
    }
}

/// Parses JSON, with numbers of any length.
///
/// # Errors
/// Fails as `serde_json` does.
pub(crate) fn parse<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    let plain = serde_json::from_slice(json);

    // `serde_json` calls a number beyond f64 an error of syntax. What is one with texts for numbers too stays one, with
    // the column of the original.
    if plain.as_ref().is_err_and(|error| !error.is_syntax()) {
        return plain;
    }
    let texts = with_texts(json).map(|json| serde_json::from_slice(&json));

    match (plain, texts) {
        (plain, None) => plain,
        (Err(error), Some(Err(_))) => Err(error),
        (_, Some(texts)) => texts,
    }
}

/// Tells whether a text is a number as JSON spells it, of any size.
fn is_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let mantissa = mantissa.strip_prefix('-').unwrap_or(mantissa);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);

    let padded = whole.len() > 1 && whole.starts_with('0');
    digits(whole) && !padded && digits(fraction) && digits(exponent)
}

/// Writes JSON again, with the text of every number that `serde_json` would change. Returns `None` if there is
/// no such number.
fn with_texts(json: &[u8]) -> Option<Vec<u8>> {
    let mut output = Vec::new();
    let mut position = 0;
    let mut copied = 0;

    while position < json.len() {
        match json[position] {
            b'"' => position += text_length(&json[position..]),
            b'-' | b'0'..=b'9' => {
                let is_part =
                    |byte: &&u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                let number_end = position + json[position..].iter().take_while(is_part).count();
                // Only a number that `serde_json` would change is replaced. Everything between two of them is copied.
                if let Ok(text) = str::from_utf8(&json[position..number_end])
                    && is_number(text)
                    && !is_kept(text)
                {
                    output.extend_from_slice(&json[copied..position]);
                    output.extend_from_slice(of(text).to_string().as_bytes());
                    copied = number_end;
                }
                position = number_end;
            }
            _ => position += 1,
        }
    }

    output.extend_from_slice(&json[copied..]);
    (copied > 0).then_some(output)
}

/// Returns the length of the text in quotes that JSON begins with.
fn text_length(json: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = json.get(at) {
        at += match byte {
            b'"' => return at + 1,
            b'\\' => 2,
            _ => 1,
        };
    }
    json.len()
}

/// Tells whether `serde_json` writes a number as it is spelt.
fn is_kept(text: &str) -> bool {
    text.parse::<Number>().is_ok_and(|number| number.to_string() == text)
}

/// Returns a number as JSON, with all its digits.
pub(crate) fn of(text: &str) -> Value {
    match text.parse::<Number>() {
        Ok(number) if number.to_string() == text => number.into(),
        _ => serde_json::json!({ KEY: text }),
    }
}

/// Returns the text of a number as its file spells it, or `None` if the value is not a number.
pub(crate) fn spelt(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::Number(number) => Some(number.to_string().into()),
        Value::Object(object) if object.len() == 1 => {
            object.get(KEY)?.as_str().filter(|text| is_number(text)).map(Cow::from)
        }
        _ => None,
    }
}

/// Returns a number as a person writes it as an answer: 8 for `8.0`, `8.00` and `8e0`, 2.5 for `2.50`. The file's
/// spelling may follow its column: one missing value turns integers into floats, and a decimal has as many digits
/// after the point as its type.
pub(crate) fn plain(spelt: &str) -> String {
    let (sign, unsigned) = match spelt.strip_prefix('-') {
        Some(unsigned) => ("-", unsigned),
        None => ("", spelt.trim_start_matches('+')),
    };

    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{integer}{fraction}");

    // The index in `digits` before which the point stands, once the exponent has moved it.
    let point =
        exponent.parse::<i64>().ok().and_then(|shift| shift.checked_add(integer.len() as i64));
    let all_digits = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.is_empty();
    let Some(point) = point.filter(|_| all_digits) else { return spelt.to_owned() };

    // Leading zeros are removed, which moves the point, and trailing zeros are removed, which does not.
    let leading_zeros = digits.len() - digits.trim_start_matches('0').len();
    let digits = digits[leading_zeros..].trim_end_matches('0');
    let point = point - leading_zeros as i64;
    if digits.is_empty() {
        return "0".into();
    }

    // Zeros that the digits lack up to the point: after them in a large number, before them in a small one.
    let zeros = (point - digits.len() as i64).max(-point);
    if zeros > MOST_ZEROS && exponent != "0" {
        return spelt.to_owned();
    }
    let zeros = "0".repeat(zeros.max(0) as usize);

    match usize::try_from(point) {
        Err(_) | Ok(0) => format!("{sign}0.{zeros}{digits}"),
        Ok(point) if point >= digits.len() => format!("{sign}{digits}{zeros}"),
        Ok(point) => format!("{sign}{}.{}", &digits[..point], &digits[point..]),
    }
}

/// Writes a value as JSON, with its numbers as their file spells them.
pub(crate) fn to_json(value: &Value) -> String {
    let json = value.to_string();
    // Inside a text these quotes would be escaped, so nothing else in the JSON looks like this.
    let opening = format!("{{\"{KEY}\":\"");

    let mut parts = json.split(opening.as_str());
    let mut output = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once("\"}") {
            Some((number, rest)) if is_number(number) => {
                output.extend([number, rest]);
            }
            _ => output.extend([opening.as_str(), part]),
        }
    }

    output
}

/// Returns a value as templates see it: integers with all their digits, and other numbers as Python's floats.
pub(crate) fn to_template(value: &Value) -> TemplateValue {
    match value {
        Value::Null => TemplateValue::from(()),
        Value::Bool(value) => (*value).into(),
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => items.iter().map(to_template).collect(),
        Value::Number(number) => number_of(&number.to_string()),
        Value::Object(object) => match spelt(value) {
            Some(text) => number_of(&text),
            None => {
                let pairs = object.iter().map(|(key, item)| (key.as_str(), to_template(item)));
                TemplateValue::from_pairs(pairs)
            }
        },
    }
}

fn number_of(text: &str) -> TemplateValue {
    if let Ok(number) = text.parse::<i64>() {
        number.into()
    } else if let Ok(number) = text.parse::<u64>() {
        number.into()
    } else if let Ok(number) = text.parse::<i128>() {
        number.into()
    } else if text.contains(['.', 'e', 'E']) {
        text.parse::<f64>().unwrap_or(f64::NAN).into()
    } else {
        TemplateValue::from_object(Digits(text.into()))
    }
}

/// An integer that is too large for the templates' interpreter. It can be printed, and nothing else.
#[derive(Debug)]
pub(crate) struct Digits(Arc<str>);

impl Digits {
    /// Returns the digits of a value that is such a number.
    pub(crate) fn of(value: &TemplateValue) -> Option<&str> {
        value.downcast_object_ref::<Digits>().map(|digits| &*digits.0)
    }
}

impl Object for Digits {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_neither_a_point_nor_a_power_that_its_column_gave_it() {
        for (spelt, expected) in [
            ("8", "8"),
            ("8.0", "8"),
            ("8.00", "8"),
            ("-3.0", "-3"),
            ("-0.0", "0"),
            ("8e0", "8"),
            ("1.5E3", "1500"),
            ("1e+16", "10000000000000000"),
            ("2.50", "2.5"),
            ("0.10", "0.1"),
            ("1e-05", "0.00001"),
            ("120.0", "120"),
            ("31.", "31"),
            ("007.50", "7.5"),
            ("3.14159265358979323846", "3.14159265358979323846"),
            ("10000000000000000000000000000031", "10000000000000000000000000000031"),
            ("1e300", "1e300"),
            ("1e99999999999999999999", "1e99999999999999999999"),
        ] {
            assert_eq!(plain(spelt), expected, "{spelt}");
        }

        let long = format!("1{}", "0".repeat(300));
        assert_eq!(plain(&long), long);
    }

    #[test]
    fn json_keeps_every_number_and_every_text() {
        let json = "{\"a\":[1,-10000000000000000000000000000031,1.50,\"1.50 \\\" 2.50\"],\"b\":{\"c\":1E5}}";
        let value: Value = parse(json.as_bytes()).unwrap();
        assert_eq!(to_json(&value), json);
        assert_eq!(value["a"][0], 1);
        assert_eq!(value["a"][3], "1.50 \" 2.50");

        // A number too large for an f64 keeps its digits too.
        for spelt in [&"9".repeat(400), "-1e400", "1.5E+999999"] {
            let json = format!("[{spelt},1]");
            let value: Value = parse(json.as_bytes()).unwrap();
            assert_eq!(to_json(&value), json);
            assert_eq!(super::spelt(&value[0]).unwrap(), *spelt);
        }

        for broken in ["[1e400", "[1e]", "[01]", "[1e400,]"] {
            assert!(parse::<Value>(broken.as_bytes()).is_err(), "{broken}");
        }

        // Nobody can smuggle anything in under the key.
        for other in [
            "{\"$firebrick_data::number\":\"1}, {\"}",
            "[\"{\\\"$firebrick_data::number\\\":\\\"1\\\"}\"]",
        ] {
            let value: Value = parse(other.as_bytes()).unwrap();
            assert_eq!(to_json(&value), other);
            assert_eq!(spelt(&value), None);
        }
    }
}
