//! The tests of a program, read from a reference.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

/// The tests of a program.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tests {
    /// What the program reads, and what it has to write then.
    Streams(Vec<Stream>),
    /// Tests in Python, as the text of the job that `harness.py` reads.
    Python(String),
}

/// One input of a program, with the output that belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stream {
    pub(super) input: String,
    pub(super) output: String,
}

/// How tests in Python are run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comparison {
    /// True if every test is run, and not only those up to the first that fails.
    pub(super) all: bool,
    /// How far decimal numbers may be apart.
    pub(super) tolerance: f64,
}

impl Tests {
    /// Reads the tests of a reference, whose forms the documentation of [`Code`](super::Code) has.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(super) fn read(reference: &str, comparison: Comparison) -> Result<Self, String> {
        let text = reference.trim();
        if !text.starts_with(['{', '[']) {
            return statements(&[text.to_owned()], None, comparison);
        }

        let no_form = |_| {
            "expected tests: {\"inputs\": […], \"outputs\": […]}, a list of {\"input\": …, \"output\": …}, a list of \
             asserts, or {\"test\": \"…\"}"
        };
        if text.starts_with('[') {
            if let Ok(asserts) = serde_json::from_str::<Vec<String>>(text) {
                return statements(&asserts, None, comparison);
            }
            let rows: Vec<Row<'_>> = serde_json::from_str(text).map_err(no_form)?;
            let is_call = |row: &Row<'_>| row.testtype.as_deref() == Some("functional");
            if rows.iter().any(|row| is_call(row) && row.fn_name.is_none()) {
                return Err("tests of a function need its name as `fn_name`".into());
            }
            let name = rows.first().and_then(|row| row.fn_name.clone());
            if rows.iter().any(|row| row.fn_name != name) {
                return Err("its tests are of several functions, expected one".into());
            }
            let pairs = rows.into_iter().map(|row| (row.input, row.output)).collect();
            return of_pairs(pairs, name.as_deref(), comparison);
        }

        match serde_json::from_str(text).map_err(no_form)? {
            Object { test: Some(OneOrMany::One(text)), entry_point, .. } => {
                statements(&[text], entry_point.as_deref(), comparison)
            }
            Object { test: Some(OneOrMany::Many(texts)), entry_point, .. } => {
                statements(&texts, entry_point.as_deref(), comparison)
            }
            Object { inputs, outputs, fn_name, .. } if inputs.len() == outputs.len() => {
                of_pairs(inputs.into_iter().zip(outputs).collect(), fn_name.as_deref(), comparison)
            }
            Object { inputs, outputs, .. } => {
                Err(format!("there are {} inputs and {} outputs", inputs.len(), outputs.len()))
            }
        }
    }
}

/// A reference that is an object: the tests' inputs and outputs, or tests in Python.
#[derive(Deserialize)]
struct Object<'text> {
    #[serde(borrow, default)]
    inputs: Vec<&'text RawValue>,
    #[serde(borrow, default)]
    outputs: Vec<&'text RawValue>,
    #[serde(default)]
    fn_name: Option<String>,
    #[serde(default)]
    test: Option<OneOrMany>,
    #[serde(default)]
    entry_point: Option<String>,
}

/// One test of a list.
#[derive(Deserialize)]
struct Row<'text> {
    #[serde(default)]
    testtype: Option<String>,
    #[serde(borrow)]
    input: &'text RawValue,
    #[serde(borrow)]
    output: &'text RawValue,
    #[serde(default)]
    fn_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

fn of_pairs(
    pairs: Vec<(&RawValue, &RawValue)>,
    function: Option<&str>,
    comparison: Comparison,
) -> Result<Tests, String> {
    if pairs.is_empty() {
        return Err("there is no test".into());
    }

    let Some(function) = function.filter(|name| !name.is_empty()) else {
        let stream = |(input, output)| Ok(Stream { input: text(input)?, output: text(output)? });
        return Ok(Tests::Streams(pairs.into_iter().map(stream).collect::<Result<_, String>>()?));
    };

    // The values are copied as they are written, because their numbers may have any size.
    let calls: Result<Vec<String>, String> =
        pairs.into_iter().map(|(input, output)| call(input, output)).collect();
    let Comparison { all, tolerance } = comparison;
    Ok(Tests::Python(format!(
        "{{\"function\":{},\"all\":{all},\"tolerance\":{tolerance},\"calls\":[{}]}}",
        json!(function),
        calls?.join(",")
    )))
}

/// Returns the text of a stream: a text, a list of its lines, or a number.
fn text(raw: &RawValue) -> Result<String, String> {
    match serde_json::from_str(raw.get()) {
        Ok(Value::String(text)) => Ok(text),
        Ok(Value::Number(_)) => Ok(raw.get().to_owned()),
        Ok(Value::Array(lines)) => {
            let line = |line: &Value| line.as_str().map(str::to_owned);
            let lines: Option<Vec<String>> = lines.iter().map(line).collect();
            lines.map(|lines| lines.join("\n")).ok_or_else(|| wrong_stream(raw))
        }
        _ => Err(wrong_stream(raw)),
    }
}

fn wrong_stream(raw: &RawValue) -> String {
    let start: String = raw.get().chars().take(40).collect();
    format!(
        "expected a text as input and output, got `{start}`; tests of a function need `fn_name`"
    )
}

/// Makes a call: arguments as a list, or as a text with one in each line, and the wanted value, as it is or as a text.
fn call(input: &RawValue, output: &RawValue) -> Result<String, String> {
    let line = |line: &str| match serde_json::from_str::<&RawValue>(line) {
        Ok(_) => Ok(line.to_owned()),
        Err(_) => Err(format!("expected a value of JSON, got `{line}`")),
    };

    let input = input.get();
    let (arguments, value): (Cow<'_, str>, Cow<'_, str>) = match serde_json::from_str(input) {
        Ok(Value::String(text)) => {
            let arguments: Result<Vec<String>, String> =
                text.lines().filter(|text| !text.trim().is_empty()).map(line).collect();
            let value = match serde_json::from_str(output.get()) {
                Ok(Value::String(text)) => line(&text)?.into(),
                _ => output.get().into(),
            };
            (format!("[{}]", arguments?.join(",")).into(), value)
        }
        Ok(Value::Array(_)) => (input.into(), output.get().into()),
        _ => return Err(format!("expected a list of arguments, got `{input}`")),
    };

    Ok(format!("{{\"arguments\":{arguments},\"value\":{value}}}"))
}

fn statements(
    texts: &[String],
    entry: Option<&str>,
    comparison: Comparison,
) -> Result<Tests, String> {
    if texts.iter().all(|text| text.trim().is_empty()) {
        return Err("there is no test".into());
    }

    Ok(Tests::Python(
        json!({ "asserts": texts, "entry": entry, "all": comparison.all }).to_string(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPARISON: Comparison = Comparison { all: true, tolerance: 0.0 };

    fn read(reference: &str) -> Result<Tests, String> {
        Tests::read(reference, COMPARISON)
    }

    #[test]
    fn the_forms_of_published_data_are_read() {
        let streams = |pairs: &[(&str, &str)]| {
            let stream = |&(input, output): &(&str, &str)| Stream {
                input: input.into(),
                output: output.into(),
            };
            Ok(Tests::Streams(pairs.iter().map(stream).collect()))
        };
        let one = streams(&[("1\n2\n", "3\n")]);
        assert_eq!(read(r#"{"inputs": ["1\n2\n"], "outputs": ["3\n"]}"#), one);
        assert_eq!(read(r#"{"inputs": ["1\n2\n"], "outputs": ["3\n"], "fn_name": null}"#), one);
        assert_eq!(read(r#"[{"input": "1\n2\n", "output": "3\n", "testtype": "stdin"}]"#), one);
        let lines = read(r#"{"inputs": [["1", "2"], 5], "outputs": [["3", ""], 7]}"#);
        assert_eq!(lines, streams(&[("1\n2", "3\n"), ("5", "7")]));

        let calls = |calls: &str| {
            let head = r#"{"function":"add","all":true,"tolerance":0,"calls":"#;
            Ok(Tests::Python(format!("{head}{calls}}}")))
        };
        let big = "123456789012345678901234567890";
        let of_big = format!(r#"[{{"arguments":[{big}, 1],"value":{big}}}]"#);
        let columns = format!(r#"{{"inputs":[[{big}, 1]],"outputs":[{big}],"fn_name":"add"}}"#);
        assert_eq!(read(&columns), calls(&of_big));
        let rows = r#"[{"fn_name": "add", "input": "[1,2]\n\"a\"\n", "output": "3"}]"#;
        assert_eq!(read(rows), calls(r#"[{"arguments":[[1,2],"a"],"value":3}]"#));

        let asserts = r#"{"asserts":["assert f(1) == 2"],"entry":null,"all":true}"#;
        assert_eq!(read("assert f(1) == 2"), Ok(Tests::Python(asserts.into())));
        assert_eq!(read(r#"["assert f(1) == 2"]"#), Ok(Tests::Python(asserts.into())));
        let check = r#"{"asserts":["def check(f): …"],"entry":"add","all":true}"#;
        let human_eval = r#"{"test": "def check(f): …", "entry_point": "add"}"#;
        assert_eq!(read(human_eval), Ok(Tests::Python(check.into())));
    }

    #[test]
    fn what_is_no_test_is_refused() {
        for (reference, why) in [
            ("", "there is no test"),
            ("[]", "there is no test"),
            (r#"{"inputs": [], "outputs": []}"#, "there is no test"),
            (r#"{"inputs": ["1"], "outputs": []}"#, "1 inputs and 0 outputs"),
            (r#"{"inputs": [[1, 2]], "outputs": ["3"]}"#, "need `fn_name`"),
            (r#"{"inputs": [1], "outputs": [3], "fn_name": "f"}"#, "a list of arguments, got `1`"),
            (r#"[{"input": "x y", "output": "3", "fn_name": "f"}]"#, "got `x y`"),
            (r#"{"tests": 3}"#, "there is no test"),
            (r#"{"test": 3}"#, "expected tests"),
            ("[1, 2", "expected tests"),
            (r#"[{"input": "1", "output": "1", "testtype": "functional"}]"#, "need its name"),
        ] {
            let refused = read(reference).unwrap_err();
            assert!(refused.contains(why), "{reference}: {refused}");
        }
    }
}
