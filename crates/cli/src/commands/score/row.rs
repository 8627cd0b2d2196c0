//! Rows of `firebrick score`: a gold answer, a response, and what is known about them.

use firebrick_core::without_bom;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

use super::{Mode, Options, Rule};

/// One gold answer and one response, with the known facts about them.
#[derive(Clone, Debug, Deserialize)]
pub struct Row {
    /// Name of the row, a text or a number.
    #[serde(default, deserialize_with = "id")]
    pub id: Option<String>,
    /// Set of rows that this one is counted with.
    #[serde(default)]
    pub suite: Option<String>,
    /// Gold answer in the form that the rule reads, a text or a number.
    #[serde(deserialize_with = "gold")]
    pub gold: String,
    /// Text that a model wrote.
    pub response: String,
    /// Rule and options.
    #[serde(default)]
    pub config: Option<Options>,
    /// True if the response is right, false if it is not; `None` if nobody has said.
    #[serde(default)]
    pub expected: Option<bool>,
    /// True if `expected` is in doubt.
    #[serde(default)]
    pub disputed: Option<bool>,
}

/// Why a line is not a row.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub struct RowError {
    /// Column in bytes, counted from 1; 0 for the entire line.
    pub column: usize,
    /// What was found and what was expected.
    pub problem: String,
}

impl Row {
    /// Reads a line of a JSON Lines file. Unknown keys are ignored.
    ///
    /// # Errors
    /// Fails if the line is not a JSON object, or if a key is missing or its value is of another kind.
    pub fn parse(line: &[u8]) -> Result<Row, RowError> {
        let line = without_bom(line)
            .map_err(|error| RowError { column: 0, problem: error.to_string() })?
            .trim_ascii();

        // serde reads a struct from an array as well, but an array is not a row.
        if !line.starts_with(b"{") {
            return Err(RowError {
                column: 0,
                problem: "expected one JSON object per line".to_owned(),
            });
        }

        let row = serde_json::from_slice::<Row>(line).map_err(|error| {
            let message = error.to_string();
            // The message always names line 1, because every line is parsed on its own.
            let problem = message.rsplit_once(" at line ").map_or(&*message, |(what, _)| what);
            // The message about a value of the wrong kind says enough.
            let remedy = if error.is_data() { "" } else { "; expected one JSON object per line" };
            RowError { column: error.column(), problem: format!("{problem}{remedy}") }
        })?;

        Ok(Row { gold: firebrick_data::answer_in(line, "gold").unwrap_or(row.gold), ..row })
    }

    /// Returns the rule that judges this row: the rule of `mode`, else that of the row's own mode, else the
    /// mathematical one. `None` if the row tests something that only another program can do.
    pub fn rule(&self, mode: Option<Mode>) -> Option<Rule> {
        let none = Options::default();
        let options = self.config.as_ref().unwrap_or(&none);
        Rule::new(mode.or(options.mode).unwrap_or(Mode::Math), options)
    }

    /// Returns whether the row's verdict counts. It does not if it is disputed, or if judging only has to survive
    /// the row.
    pub fn counts(&self) -> bool {
        let either = self.config.as_ref().and_then(|options| options.any_verdict);
        self.disputed != Some(true) && either != Some(true)
    }
}

fn id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        Value::Number(number) => Ok(Some(number.to_string())),
        _ => Err(D::Error::custom("the id is neither a text nor a number")),
    }
}

fn gold<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(text),
        // `Row::parse` takes the number from the line, with all its digits.
        Value::Number(number) => Ok(number.to_string()),
        _ => Err(D::Error::custom("the gold answer is neither a text nor a number")),
    }
}

/// Returns as much of a text as belongs in a message.
pub(super) fn clip(text: &str) -> String {
    const LONGEST: usize = 300;
    // Characters are counted rather than bytes, so that none is cut in two.
    let end = text.char_indices().nth(LONGEST).map(|(end, _)| end);
    plain(&text[..end.unwrap_or(text.len())]) + if end.is_some() { "…" } else { "" }
}

/// Returns a text on one line, without characters that a terminal would interpret.
pub(super) fn plain(text: &str) -> String {
    let c = |c: char| match c {
        '\n' => '⏎',
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().map(c).collect()
}
