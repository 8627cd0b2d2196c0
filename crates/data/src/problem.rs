//! Problems, questions and reference answers, and the columns of a data set that hold them.

use std::borrow::Cow;

use firebrick_core::{guard, is_unseen};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokenizers::NormalizedString;

use crate::{DataError, Origin, Row, csv, number};

/// A question with its reference answer, before any template or tokenizer.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Id of the problem, stable within its source: the row's index, or a hash of the question.
    pub id: u64,
    /// Question, before any template.
    pub question: Question,
    /// Answer that the verifier compares against.
    pub reference: String,
    /// True if the answer is an object or a list, whose JSON is then `reference`.
    pub json_reference: bool,
    /// A completion that answers the question, if it is not the reference itself. In GSM8K it is the solution that
    /// ends in the reference.
    pub worked: Option<String>,
    /// Difficulty in the data's own words, or an empty text if the data does not say.
    pub difficulty: String,
    /// Name of the problem's data set, if there are several; else empty.
    pub data_source: String,
    /// Row that the problem is from, for messages.
    pub origin: Option<Origin>,
}

impl Problem {
    /// Makes a problem of its question alone, without a reference.
    pub fn new(id: u64, question: Question) -> Self {
        Problem {
            id,
            question,
            reference: String::new(),
            json_reference: false,
            worked: None,
            difficulty: String::new(),
            data_source: String::new(),
            origin: None,
        }
    }

    /// Makes the problem of one row. `id` is the row's index among the rows of its source.
    ///
    /// # Errors
    /// Fails if the row lacks a column, or the column holds something else than it should.
    pub fn from_row(row: &Row, id: u64, columns: &Columns) -> Result<Self, DataError> {
        let question = question(row, &columns.prompt)?;
        if question.is_blank() {
            return Err(no_value(row, &columns.prompt, "asks nothing"));
        }

        let json = if columns.json_reference { json(row, &columns.reference) } else { None };
        let json_reference = json.is_some();
        let reference = json.map_or_else(|| answer(row, &columns.reference), Ok)?;
        let difficulty = difficulty(row, &columns.difficulty)?;

        // A solution in the manner of GSM8K ends in its answer, which is what the verifier compares.
        let (reference, worked) = match final_answer(&reference) {
            Some(answer) => (answer, Some(reference)),
            None => (reference, None),
        };
        let origin = Some(row.origin());
        Ok(Problem {
            reference,
            json_reference,
            worked,
            difficulty,
            origin,
            ..Problem::new(id, question)
        })
    }

    /// Returns a completion to imitate: the worked completion, else the reference.
    pub fn solution(&self) -> &str {
        self.worked.as_deref().unwrap_or(&self.reference)
    }
}

impl AsRef<Problem> for Problem {
    fn as_ref(&self) -> &Problem {
        self
    }
}

/// A question: a text, or the messages of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// Plain text. With a chat template, it is the user's message.
    Text(String),
    /// A list of messages, each an object with `role` and `content`.
    Messages(Value),
}

impl Question {
    /// Returns the text of the question. In a conversation it is the text of the last message that is not the policy's
    /// own.
    pub(crate) fn words(&self) -> &str {
        match self {
            Question::Text(text) => text,
            Question::Messages(messages) => {
                let mut messages = messages.as_array().into_iter().flatten().rev();
                let last = messages.find(|message| message["role"] != "assistant");
                last.and_then(|message| message.get("content")?.as_str()).unwrap_or_default()
            }
        }
    }

    /// Tells whether nothing is asked: the text, or the message that the policy is to answer, has no visible character.
    /// A tool may say nothing.
    pub fn is_blank(&self) -> bool {
        let blank = |text: &str| text.chars().all(|c| c.is_whitespace() || is_unseen(c));
        match self {
            Question::Text(text) => blank(text),
            Question::Messages(messages) => {
                let messages = messages.as_array().map(Vec::as_slice).unwrap_or_default();
                let asked = messages.iter().rfind(|message| message["role"] != "assistant");
                asked.is_some_and(|message| {
                    let is_words =
                        message["role"].as_str().is_some_and(|role| WORDS.contains(&role));
                    is_words && message["content"].as_str().is_some_and(blank)
                })
            }
        }
    }

    /// Returns what is asked in one spelling, for comparison with questions of other sets. White space and the Unicode
    /// form don't count, nor do a system message, the beginning of an answer, and whether the question is a
    /// conversation.
    pub(crate) fn asked(&self) -> String {
        let Question::Messages(messages) = self else { return one_spelling(&self.text()) };
        let role = |message: &Value, roles: &[&str]| {
            message["role"].as_str().is_some_and(|role| roles.contains(&role))
        };

        let mut asked: Vec<&Value> = messages.as_array().into_iter().flatten().collect();
        asked.retain(|message| !role(message, &["system", "developer"]));
        if let Some(last) = asked.iter().rposition(|message| !role(message, &["assistant"])) {
            asked.truncate(last + 1);
        }

        let contents = asked.iter().map(|message| match &message["content"] {
            Value::String(text) => text.clone(),
            other => number::to_json(other),
        });
        let text = contents.collect::<Vec<_>>().join("\n");
        // A conversation of nothing else is compared as it stands.
        if text.trim().is_empty() { one_spelling(&self.text()) } else { one_spelling(&text) }
    }

    /// Returns the texts that the question is made of, one for each message.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        let (text, messages) = match self {
            Question::Text(text) => (Some(text.as_str()), None),
            Question::Messages(messages) => (None, messages.as_array()),
        };
        let contents =
            messages.into_iter().flatten().filter_map(|message| message["content"].as_str());
        text.into_iter().chain(contents)
    }

    /// Returns the question as one text, for comparison with other questions.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match self {
            Question::Text(text) => Cow::Borrowed(text),
            Question::Messages(messages) => Cow::Owned(number::to_json(messages)),
        }
    }
}

/// Returns a text in Unicode's form NFC, with one space for all white space between two words.
fn one_spelling(text: &str) -> String {
    let mut spelling = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !spelling.is_empty() {
            spelling.push(' ');
        }

        // The library keeps the position of each byte, and a word of a megabyte is none.
        let composed = (!word.is_ascii() && word.len() <= 1 << 20)
            .then(|| guard(|| NormalizedString::from(word).nfc().get().to_owned()).ok())
            .flatten();
        spelling.push_str(composed.as_deref().unwrap_or(word));
    }
    spelling
}

/// Columns of a data set that hold the prompt and the reference answer.
///
/// A dotted path such as `reward_model.ground_truth` leads into nested objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Columns {
    /// Column of the prompt, which is a text or a list of messages.
    pub prompt: String,
    /// Column of the reference, which is a text or a number. It is empty if there is no such column.
    pub reference: String,
    /// True if a reference may also be an object or a list.
    #[serde(default)]
    pub json_reference: bool,
    /// Column of the difficulty, which is a text or a number. It is empty if there is no such column.
    #[serde(default)]
    pub difficulty: String,
}

/// Names of a data set's columns, as far as they are known before its first row is seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnNames {
    /// Column of the prompt. `None` if its layout is to be recognised.
    pub prompt: Option<String>,
    /// Column of the reference answer. `None` if its layout is to be recognised.
    pub reference: Option<String>,
    /// True if a reference may be an object or a list, because the verifier takes JSON. Otherwise it is a text or a
    /// number, or a list of one.
    pub json_reference: bool,
    /// Column of the difficulty. `None` if nobody asks for it.
    pub difficulty: Option<String>,
}

impl ColumnNames {
    /// Finds the columns of a data set with rows like this one.
    ///
    /// If no name is given, the prompt is the first of `prompt`, `question` and `problem` that the row has. The
    /// reference is the first of `reward_model.ground_truth`, `ground_truth`, `answer`, `solution` and
    /// `reference`. These names cover the layouts of TRL, verl and GSM8K. A column that is null is taken if the row
    /// has no other.
    ///
    /// # Errors
    /// Fails if the prompt or the reference is not there.
    pub fn find(&self, row: &Row) -> Result<Columns, DataError> {
        let choose = |given: &Option<String>, names: &[&str], what: &str, none: &str| {
            let wanted = format!("no column for the {what} ({}{none})", names.join(", "));
            choose_column(row, given.as_deref(), names, wanted, COLUMNS)
        };

        let no_reference = "; if the verifier needs none, set it to \"\"";
        Ok(Columns {
            prompt: choose(&self.prompt, &PROMPTS, "prompt", "")?,
            reference: choose(&self.reference, &REFERENCES, "reference", no_reference)?,
            json_reference: self.json_reference,
            difficulty: self.difficulty.clone().unwrap_or_default(),
        })
    }

    /// Returns the columns that come before those of `columns` and are null in `row`. A value there in a later row
    /// would be ignored silently.
    pub(crate) fn passed_over(&self, row: &Row, columns: &Columns) -> Vec<&'static str> {
        let mut passed_over = Vec::new();
        if self.prompt.is_none() {
            passed_over.extend(null_before(row, &PROMPTS, &columns.prompt));
        }
        if self.reference.is_none() {
            passed_over.extend(null_before(row, &REFERENCES, &columns.reference));
        }
        passed_over
    }
}

/// Returns the column that is `given`, else the first of `names` that the row has. A column with a value comes before
/// an earlier one that is null. `wanted` says what is missing if the row has none, and `setting` what would name one.
pub(crate) fn choose_column(
    row: &Row,
    given: Option<&str>,
    names: &[&str],
    wanted: String,
    setting: &'static str,
) -> Result<String, DataError> {
    if let Some(name) = given {
        return if name.is_empty() || row.has(name) {
            Ok(name.to_owned())
        } else {
            Err(missing(row, format!("no column `{name}`"), setting))
        };
    }

    let found = names.iter().find(|name| row.get(name).is_some());
    let found = found.or_else(|| names.iter().find(|name| row.has(name)));
    found.map(|name| (*name).to_owned()).ok_or_else(|| missing(row, wanted, setting))
}

/// Returns the columns of the row that stand before `taken` in `names`, all of them null.
pub(crate) fn null_before<'n>(
    row: &'n Row,
    names: &'n [&'static str],
    taken: &'n str,
) -> impl Iterator<Item = &'static str> + 'n {
    names.iter().copied().take_while(move |&name| name != taken).filter(|name| row.has(name))
}

/// How the columns of problems are named in a recipe, for messages.
pub(crate) const COLUMNS: &str = "data.columns = { prompt = \"…\", reference = \"…\" }";

/// Known columns of a prompt, and those of a reference.
pub(crate) const PROMPTS: [&str; 3] = ["prompt", "question", "problem"];
const REFERENCES: [&str; 5] =
    ["reward_model.ground_truth", "ground_truth", "answer", "solution", "reference"];

pub(crate) fn question(row: &Row, column: &str) -> Result<Question, DataError> {
    let value = value(row, column)?;
    let read = match value {
        Value::String(text) => match conversation(text) {
            Some(read) => read.map_err(|expected| unexpected(row, column, expected, value))?,
            None => return Ok(Question::Text(text.clone())),
        },
        _ => Value::Null,
    };

    match if read.is_null() { value } else { &read } {
        Value::Array(messages)
            if !messages.is_empty()
                && messages.iter().all(|message| message["role"].is_string()) =>
        {
            let messages = messages.iter().map(|message| spoken(row, column, message));
            Ok(Question::Messages(messages.collect::<Result<_, _>>()?))
        }
        other => Err(unexpected(row, column, "a text or a list of {role, content}", other)),
    }
}

/// Reads a text that is a list of messages, as some programs store one. Returns `None` for any other text, and an error
/// with the expected form if the text is almost such a list.
fn conversation(text: &str) -> Option<Result<Value, &'static str>> {
    let text = text.trim();
    let first_object = text.strip_prefix('[').unwrap_or(text).trim_start().strip_prefix('{')?;
    let has = |value: &Value, key: &str| value.get(key).is_some();
    // Some data sets name the fields `from` and `value`. They count as messages here, to be refused with a reason.
    let is_message =
        |value: &Value| has(value, "role") || has(value, "from") && has(value, "value");

    match number::parse(text.as_bytes()) {
        Ok(Value::Array(list)) if list.iter().all(is_message) => Some(Ok(list.into())),
        Ok(object) if is_message(&object) => Some(Ok(object)),
        Ok(_) => None,
        // Python writes a list with its own quotes, and a text may have been cut off.
        Err(_)
            if ["'role'", "\"role\"", "'content'", "\"content\""]
                .iter()
                .any(|key| first_object.trim_start().starts_with(key)) =>
        {
            Some(Err("a list of {role, content}, or its JSON as Python's json.dumps writes it"))
        }
        Err(_) => None,
    }
}

/// Returns a message with its content as one text. Content in parts is joined, because only some templates know
/// parts, while the others print them with brackets and quotes.
fn spoken(row: &Row, column: &str, message: &Value) -> Result<Value, DataError> {
    let mut message = message.clone();
    let is_words = message["role"].as_str().is_some_and(|role| WORDS.contains(&role));

    let text = match &message["content"] {
        // The result of a tool may be of any form, and templates expect that.
        _ if !is_words => return Ok(message),
        Value::String(_) => return Ok(message),
        // A call of a tool may be all that the policy says.
        Value::Null if message["role"] == "assistant" => return Ok(message),
        Value::Array(parts) if !parts.is_empty() => {
            parts.iter().map(part).collect::<Option<String>>()
        }
        _ => None,
    };

    match text {
        Some(text) => message["content"] = text.into(),
        None => {
            let expected = "messages whose content is a text, or parts of type text";
            return Err(unexpected(row, column, expected, &message));
        }
    }
    Ok(message)
}

/// Roles whose messages are text.
const WORDS: [&str; 4] = ["system", "developer", "user", "assistant"];

/// Returns the text of a part of a message, if it has one.
fn part(part: &Value) -> Option<&str> {
    let is_text =
        matches!(part["type"].as_str().unwrap_or("text"), "text" | "input_text" | "output_text");
    part.as_str().or_else(|| part["text"].as_str().filter(|_| is_text))
}

/// Returns the text or number of a column. It is empty if the column has no name.
fn answer(row: &Row, column: &str) -> Result<String, DataError> {
    if column.is_empty() {
        return Ok(String::new());
    }

    let value = value(row, column)?;
    text_of(value).ok_or_else(|| {
        let remedy = if is_json(value) { TAKE_JSON } else { CORRECT };
        refused(row, column, "a text or a number", value, remedy)
    })
}

/// Reads a reference answer as a run reads it from a row: a text, a number as a person writes it, or the answer of a
/// solution in the manner of GSM8K. Returns it, and whether it is the JSON of an object or a list, which only a verifier
/// that takes JSON gets. `None` if it is none of these.
pub fn reference(value: &Value, takes_json: bool) -> Option<(String, bool)> {
    if takes_json && is_json(value) {
        return Some((number::to_json(value), true));
    }
    let text = text_of(value)?;
    Some((final_answer(&text).unwrap_or(text), false))
}

/// Returns a text, or a number as a person writes it. Some data sets wrap the one accepted answer in a list.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Array(list) if list.len() == 1 => number::answer(&list[0]),
        value => number::answer(value),
    }
}

/// Returns the JSON of an object or a list in a column, with its keys in their order. `None` for any other value.
fn json(row: &Row, column: &str) -> Option<String> {
    row.get(column).filter(|value| is_json(value)).map(number::to_json)
}

/// Tells whether a value is an object or a list. A number with all its digits is an object of our own.
fn is_json(value: &Value) -> bool {
    (value.is_array() || value.is_object()) && number::spelt(value).is_none()
}

/// Limit on the letters of a difficulty, which becomes part of a metric's name.
const DIFFICULTY: usize = 64;

/// Returns the difficulty's word or number. It becomes part of a name, so it has to be short and on one line.
fn difficulty(row: &Row, column: &str) -> Result<String, DataError> {
    let difficulty = answer(row, column)?;
    let difficulty = difficulty.trim();

    if difficulty.chars().count() > DIFFICULTY || difficulty.contains(char::is_control) {
        let expected = "a difficulty: a number, or a text of one line with at most 64 letters";
        return Err(unexpected(row, column, expected, &difficulty.into()));
    }
    Ok(difficulty.to_owned())
}

/// Returns the answer of a solution in the manner of GSM8K, whose last line is `#### 72`. Commas in a number are
/// dropped, as they are when verl prepares that data set.
fn final_answer(solution: &str) -> Option<String> {
    let last_line = solution.trim_end().lines().next_back()?;
    let answer = last_line.strip_prefix("#### ")?.trim();
    let is_number = answer.chars().all(|c| matches!(c, '0'..='9' | '-' | '.' | ','));
    let answer = if is_number { answer.replace(',', "") } else { answer.to_owned() };
    (!answer.is_empty()).then_some(answer)
}

pub(crate) fn value<'row>(row: &'row Row, column: &str) -> Result<&'row Value, DataError> {
    row.get(column).ok_or_else(|| {
        no_value(row, column, if row.has(column) { "is null" } else { "is not there" })
    })
}

pub(crate) fn no_value(row: &Row, column: &str, state: &str) -> DataError {
    let problem = format!(
        "column `{column}` {state}, and was expected to have a value; write it into the row, or \
         remove the row"
    );
    DataError::Row { path: row.file.to_path_buf(), position: row.position, problem }
}

pub(crate) fn missing(row: &Row, mut wanted: String, setting: &'static str) -> DataError {
    // A file without a header has its first row for one, which may be long.
    let columns = row.columns();
    let mut found: Vec<String> = columns.iter().take(SHOWN).map(|name| excerpt(name)).collect();
    if columns.len() > SHOWN {
        found.push("…".into());
    }
    if csv::separator(&row.file).is_some() {
        wanted.push_str(" in the first line, which names the columns");
    }

    let path = row.file.to_path_buf();
    let position = row.position;
    DataError::Column { path, position, wanted, found, setting }
}

/// How many columns of a row are named if the right one is missing.
const SHOWN: usize = 32;

pub(crate) fn unexpected(
    row: &Row,
    column: &str,
    expected: &'static str,
    found: &Value,
) -> DataError {
    refused(row, column, expected, found, CORRECT)
}

const CORRECT: &str = "correct the row, or choose another column";

/// Advice for a reference that is an object or a list, and whose verifier reads texts.
const TAKE_JSON: &str = "choose another column, or a judge that takes lists and objects: a function or program of yours \
                         (reward.kind = \"python\" or \"command\")";

fn refused(
    row: &Row,
    column: &str,
    expected: &'static str,
    found: &Value,
    remedy: &'static str,
) -> DataError {
    let path = row.file.to_path_buf();
    let position = row.position;
    let column = column.to_owned();
    let found = excerpt(&number::to_json(found)).into();
    DataError::Value { path, position, column, expected, found, remedy }
}

fn excerpt(text: &str) -> String {
    let mut excerpt: String = text.chars().take(60).collect();
    if excerpt.len() < text.len() {
        excerpt.push('…');
    }
    excerpt
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::Position;

    fn row(value: Value) -> Row {
        let Value::Object(fields) = value else { panic!("not an object") };
        Row { file: Path::new("set.jsonl").into(), position: Position::Line(3), fields }
    }

    fn problem(value: Value, columns: &ColumnNames) -> Result<Problem, DataError> {
        let row = row(value);
        Problem::from_row(&row, 0, &columns.find(&row)?)
    }

    #[test]
    fn known_layouts_need_no_mapping() {
        let messages = json!([{"role": "user", "content": "2+2?"}]);

        for (layout, question, reference) in [
            (json!({"prompt": "2+2?", "answer": 4}), json!("2+2?"), "4"),
            (json!({"prompt": messages, "solution": "4"}), messages.clone(), "4"),
            (json!({"question": "2+2?", "answer": "2+2=4\n#### 4"}), json!("2+2?"), "4"),
            (
                json!({"problem": "2+2?", "solution": "Adding, 4.", "answer": "4"}),
                json!("2+2?"),
                "4",
            ),
            (
                json!({"prompt": messages, "answer": null, "reward_model": {"ground_truth": "4"}}),
                messages.clone(),
                "4",
            ),
        ] {
            let problem = problem(layout, &ColumnNames::default()).unwrap();
            let asked = match problem.question {
                Question::Text(text) => json!(text),
                Question::Messages(messages) => messages,
            };

            assert_eq!((asked, problem.reference.as_str()), (question, reference));
        }
    }

    #[test]
    fn the_reference_of_a_solution_is_its_answer() {
        for (solution, answer) in [
            ("2+2=4\n#### 4", Some("4")),
            ("#### 3\nno, 4\n####  -1,234.5 \n", Some("-1234.5")),
            ("So it is.\r\n#### (1, 2)\r\n", Some("(1, 2)")),
            ("#### Step 1\nThe answer is 4.", None),
            ("2+2=4 #### 4", None),
            ("####4", None),
            ("#### ,", None),
            ("#### ", None),
            ("", None),
        ] {
            let layout = json!({"question": "2+2?", "answer": solution});
            let problem = problem(layout, &ColumnNames::default()).unwrap();

            assert_eq!(problem.reference, answer.unwrap_or(solution), "{solution:?}");
            assert_eq!(problem.worked.is_some(), answer.is_some(), "{solution:?}");
            assert_eq!(problem.solution(), solution);
        }
    }

    /// Reads a row from its text, because a number may have more digits than `json!` keeps.
    fn read(line: &str) -> Result<Problem, DataError> {
        problem(number::parse(line.as_bytes()).unwrap(), &ColumnNames::default())
    }

    #[test]
    fn a_number_is_an_answer_with_its_own_digits() {
        let long = "10000000000000000000000000000031";

        for (answer, expected) in [
            ("8", "8"),
            ("8.0", "8"),
            ("[8.0]", "8"),
            ("-3.50", "-3.5"),
            ("1e3", "1000"),
            ("0.1", "0.1"),
            (long, long),
            ("3.14159265358979323846", "3.14159265358979323846"),
            // A text is its own answer, whatever it looks like.
            ("\"8.0\"", "8.0"),
            ("[\"8.0\"]", "8.0"),
        ] {
            let line =
                format!("{{\"prompt\": \"?\", \"reward_model\": {{\"ground_truth\": {answer}}}}}");
            assert_eq!(read(&line).unwrap().reference, expected, "{answer}");
        }

        let list = read("{\"prompt\": \"?\", \"answer\": [1, 20000000000000000000]}").unwrap_err();
        assert!(list.to_string().contains("but holds [1,20000000000000000000];"), "{list}");
    }

    #[test]
    fn a_conversation_is_one_in_every_notation() {
        let message = |role: &str, content: &str| json!({"role": role, "content": content});
        let expected = json!([message("system", "Be brief."), message("user", "2+2?")]);

        let text = |text: &str| json!({"type": "text", "text": text});
        for prompt in [
            expected.clone(),
            json!(expected.to_string()),
            json!(format!("\n {expected:#} ")),
            json!([
                {"role": "system", "content": [text("Be "), text("brief.")]},
                {"role": "user", "content": ["2+", {"text": "2?", "image": null}]},
            ]),
        ] {
            let problem = problem(json!({"prompt": prompt, "answer": 4}), &ColumnNames::default());
            let question = problem.unwrap().question;
            assert_eq!(question, Question::Messages(expected.clone()), "{prompt}");
            assert_eq!(question.words(), "2+2?");
        }

        // A question may look like JSON, or be some.
        for text in [
            "[1, 2, 3]",
            "[]",
            "{",
            "[{",
            "[{\"x\": 1}]",
            "{\"x\": 1}",
            "[{role}]",
            "[{'a': 'role'}]",
        ] {
            let problem = problem(json!({"prompt": text, "answer": 4}), &ColumnNames::default());
            assert_eq!(problem.unwrap().question, Question::Text(text.into()));
        }

        // Questions to a tool and its answers are left as they are.
        let call =
            json!({"role": "assistant", "content": null, "tool_calls": [{"arguments": {"n": 1}}]});
        let result = json!({"role": "tool", "content": {"sum": [4]}});
        let talk = json!([message("user", "2+2?"), call, result]);
        let problem = problem(json!({"prompt": talk, "answer": 4}), &ColumnNames::default());
        assert_eq!(problem.unwrap().question, Question::Messages(talk));
    }

    #[test]
    fn what_is_no_conversation_is_refused() {
        for (prompt, expected) in [
            (json!("[{'role': 'user', 'content': '2+2?'}]"), "as Python's json.dumps writes it"),
            (json!("[{\"role\": \"user\", \"content\": \"2+"), "as Python's json.dumps writes it"),
            (json!("{\"role\": \"user\", \"content\": \"2+2?\"}"), "a list of {role, content}"),
            (json!("[{\"from\": \"human\", \"value\": \"2+2?\"}]"), "a list of {role, content}"),
            (
                json!([{"role": "user", "content": [{"type": "image", "text": "x"}]}]),
                "parts of type text",
            ),
            (json!([{"role": "user", "content": null}]), "content is a text"),
            (json!([{"role": "user", "content": []}]), "content is a text"),
            (json!([{"role": "user"}]), "content is a text"),
            (json!([{"role": "system", "content": {"text": "x"}}]), "content is a text"),
        ] {
            let problem = problem(json!({"prompt": prompt, "answer": 4}), &ColumnNames::default());
            let message = problem.unwrap_err().to_string();

            assert!(
                message.contains("set.jsonl, line 3: column `prompt` should hold"),
                "{message}"
            );
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn a_row_that_asks_nothing_is_named() {
        let message = |role: &str, content: &str| json!({"role": role, "content": content});
        let read = |prompt: &Value| {
            problem(json!({"prompt": prompt, "answer": 4}), &ColumnNames::default())
        };

        for prompt in [
            json!(""),
            json!(" \r\n\t"),
            json!("\u{200b}\u{feff}\u{a0}"),
            json!([message("user", "")]),
            json!([message("system", "Be brief."), message("user", " \n")]),
            json!([message("user", "\u{200b}"), message("assistant", "The answer is")]),
            json!([{"role": "user", "content": [{"type": "text", "text": " "}]}]),
            json!("[{\"role\": \"user\", \"content\": \"\"}]"),
        ] {
            let error = read(&prompt).unwrap_err().to_string();
            let expected =
                "set.jsonl, line 3: column `prompt` asks nothing, and was expected to have";
            assert!(error.starts_with(expected), "{prompt}: {error}");
        }

        // A tool's result may be empty, and what matters is the last word.
        for prompt in [
            json!("?"),
            json!([message("system", "Write a poem.")]),
            json!([message("user", ""), message("assistant", "Yes?"), message("user", "2+2?")]),
            json!([message("user", "Look."), message("tool", "")]),
            json!([message("user", "Look."), {"role": "tool", "content": {"found": []}}]),
        ] {
            assert!(read(&prompt).is_ok(), "{prompt}");
        }
    }

    #[test]
    fn a_row_without_an_answer_says_so() {
        let null = "set.jsonl, line 3: column `answer` is null, and was expected to have a value; write it into \
                    the row, or remove the row";
        assert_eq!(read("{\"prompt\": \"?\", \"answer\": null}").unwrap_err().to_string(), null);

        for (row, expected) in [
            (json!({"prompt": "?"}), "column `answer` is not there"),
            (json!({"prompt": null, "answer": 4}), "column `prompt` is null"),
            (json!({"prompt": "?", "answer": []}), "should hold a text or a number, but holds []"),
            (
                json!({"prompt": "?", "answer": [null]}),
                "should hold a text or a number, but holds [null]",
            ),
        ] {
            let columns = Columns {
                prompt: "prompt".into(),
                reference: "answer".into(),
                json_reference: false,
                difficulty: "".into(),
            };

            let error = Problem::from_row(&self::row(row), 0, &columns).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }

        let nested = json!({"prompt": "?", "reward_model": null});
        let error = problem(nested, &ColumnNames::default()).unwrap_err().to_string();
        assert!(error.contains("`reward_model.ground_truth` is null"), "{error}");
    }

    /// Only a verifier that takes JSON gets a list of one as a list: the others want its answer.
    #[test]
    fn a_reference_is_json_if_the_verifier_takes_it() {
        let read = |answer: &str, json_reference: bool| {
            let row = row(number::parse(
                format!("{{\"prompt\": \"?\", \"answer\": {answer}}}").as_bytes(),
            )
            .unwrap());
            let names = ColumnNames { json_reference, ..ColumnNames::default() };
            let problem = Problem::from_row(&row, 0, &names.find(&row)?)?;
            Ok::<_, DataError>((problem.reference, problem.json_reference))
        };

        let digits = "10000000000000000000000000000031";
        for (answer, as_json, as_text) in [
            (
                "{\"z\": 1.50, \"a\": [null, \"\\n\"]}",
                Some("{\"z\":1.50,\"a\":[null,\"\\n\"]}"),
                None,
            ),
            ("[]", Some("[]"), None),
            ("[\"4\", 5]", Some("[\"4\",5]"), None),
            ("[\"4\"]", Some("[\"4\"]"), Some("4")),
            (&format!("[{digits}]"), Some(&*format!("[{digits}]")), Some(digits)),
            // Neither a text nor a number becomes JSON, whatever it looks like.
            ("\"[1, 2]\"", None, Some("[1, 2]")),
            (digits, None, Some(digits)),
            ("8.0", None, Some("8")),
        ] {
            let (text, is_json) = read(answer, true).unwrap();
            assert_eq!((text.as_str(), is_json), (as_json.or(as_text).unwrap(), as_json.is_some()));

            match as_text {
                Some(text) => assert_eq!(read(answer, false).unwrap(), (text.to_owned(), false)),
                None => {
                    let error = read(answer, false).unwrap_err().to_string();
                    assert!(
                        error.contains(
                            "line 3: column `answer` should hold a text or a number, but"
                        ),
                        "{error}"
                    );
                    assert!(
                        error.ends_with(
                            "a function or program of yours (reward.kind = \"python\" or \"command\")"
                        ),
                        "{error}"
                    );
                }
            }
        }

        for neither in ["true", "null"] {
            assert!(read(neither, true).unwrap_err().to_string().contains("column `answer`"));
        }
    }

    #[test]
    fn what_is_missing_or_odd_is_named() {
        let message = |value, columns| problem(value, columns).unwrap_err().to_string();
        let unknown = ColumnNames::default();
        assert_eq!(
            message(json!({"text": "2+2?", "meta": {"a": 1, "b": 2}}), &unknown),
            "set.jsonl, line 3: no column for the prompt (prompt, question, problem); the row has \
             the columns text, meta.a, meta.b: set `data.columns = { prompt = \"…\", reference = \"…\" }` \
             to two of them"
        );

        let columns = ColumnNames { prompt: Some("text".into()), ..Default::default() };
        assert!(message(json!({"text": "2+2?"}), &columns).contains("no column for the reference"));
        let without = ColumnNames { reference: Some(String::new()), ..columns.clone() };
        let problem = problem(json!({"text": "2+2?"}), &without).unwrap();
        assert_eq!((problem.reference.as_str(), problem.worked), ("", None));

        let columns = ColumnNames { reference: Some("meta".into()), ..columns.clone() };
        assert_eq!(
            message(json!({"text": "2+2?", "meta": {"a": 1}}), &columns),
            "set.jsonl, line 3: column `meta` should hold a text or a number, but holds {\"a\":1}; choose another \
             column, or a judge that takes lists and objects: a function or program of yours \
             (reward.kind = \"python\" or \"command\")"
        );
        assert!(message(json!({"prompt": [], "answer": 4}), &unknown).contains("list of {role"));

        let columns = ColumnNames { difficulty: Some("level".into()), ..Default::default() };
        let of_level = |level: &str| json!({"prompt": "2+2?", "answer": 4, "level": level});
        for level in ["x".repeat(65), "hard\u{1b}[2J".into(), "a\nb".into()] {
            assert!(
                message(of_level(&level), &columns)
                    .contains("column `level` should hold a difficulty")
            );
        }
        assert_eq!(self::problem(of_level(" Level 5 "), &columns).unwrap().difficulty, "Level 5");
    }
}
