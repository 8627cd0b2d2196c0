use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

use super::{Mode, Options, Rule};

/// One gold answer and one response, with what is known of them.
#[derive(Clone, Debug, Deserialize)]
pub struct Row {
    /// What the row is called; a number is as good as a text.
    #[serde(default, deserialize_with = "id")]
    pub id: Option<String>,
    /// The set of rows it is counted with.
    #[serde(default)]
    pub suite: Option<String>,
    /// The gold answer, as the rule reads it; a number is as good as a text.
    #[serde(deserialize_with = "gold")]
    pub gold: String,
    /// What a model wrote.
    pub response: String,
    /// The rule and its options.
    #[serde(default)]
    pub config: Option<Options>,
    /// Whether the response is right, if somebody has said so.
    #[serde(default)]
    pub expected: Option<bool>,
    /// Whether that is in doubt.
    #[serde(default)]
    pub disputed: Option<bool>,
}

/// Why a line is no row.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub struct RowError {
    /// In bytes, counted from 1; 0 for the line as a whole.
    pub column: usize,
    /// What was found and what was expected.
    pub problem: String,
}

impl Row {
    /// Reads a line of a JSON Lines file. Keys that are not known are passed over.
    ///
    /// # Errors
    /// When it is not a JSON object, or a key is missing or of another kind.
    pub fn parse(line: &[u8]) -> Result<Row, RowError> {
        // Some editors put a byte-order mark before the first character of a file.
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
        // A struct may be read from an array as well, and a row is none.
        if !line.starts_with(b"{") {
            return Err(RowError {
                column: 0,
                problem: "every line is one JSON object".to_owned(),
            });
        }
        serde_json::from_slice(line).map_err(|error| {
            let message = error.to_string();
            // Every line is the first one of its own text.
            let problem = message.rsplit_once(" at line ").map_or(&*message, |(what, _)| what);
            // A value of the wrong kind has a message that says enough.
            let remedy = if error.is_data() { "" } else { "; every line is one JSON object" };
            RowError { column: error.column(), problem: format!("{problem}{remedy}") }
        })
    }

    /// The rule that judges this row: of `mode`, else of the row's own, else the mathematical one.
    /// None when the row tests what only another program can do.
    pub fn rule(&self, mode: Option<Mode>) -> Option<Rule> {
        let none = Options::default();
        let options = self.config.as_ref().unwrap_or(&none);
        Rule::new(mode.or(options.mode).unwrap_or(Mode::Math), options)
    }

    /// Whether the verdict can be right or wrong: not when it is disputed, nor when the row is only
    /// there to be survived.
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
    /// A longer decimal is not always the one that was written.
    const DIGITS: usize = 15;
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(text),
        Value::Number(number) => {
            let text = number.to_string();
            let digits = text.split('e').next().unwrap_or(&text).bytes();
            let exact = !number.is_f64() || digits.filter(u8::is_ascii_digit).count() <= DIGITS;
            exact.then_some(text).ok_or_else(|| {
                D::Error::custom(
                    "the gold answer has more digits than a JSON number keeps, write it in quotes",
                )
            })
        }
        _ => Err(D::Error::custom("the gold answer is neither a text nor a number")),
    }
}

/// As much of a text as belongs in a message.
pub(super) fn clip(text: &str) -> String {
    const LONGEST: usize = 300;
    let end = text.char_indices().nth(LONGEST).map(|(end, _)| end);
    plain(&text[..end.unwrap_or(text.len())]) + if end.is_some() { "…" } else { "" }
}

/// A text on one line, without what a terminal would obey.
pub(super) fn plain(text: &str) -> String {
    let c = |c: char| match c {
        '\n' => '⏎',
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().map(c).collect()
}
