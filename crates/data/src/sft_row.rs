//! Rows of supervised examples: a prompt with its completion, or a conversation that ends with the assistant's turn.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::{
    dataset::{refuse_passed_over, rows},
    error::DataError,
    number,
    problem::{
        PROMPTS, Problem, Question, choose_column, no_value, null_before, question, unexpected,
        value,
    },
    row::Row,
};

/// A prompt with the completion that SFT imitates, before any template or tokenizer.
#[derive(Clone, Debug, PartialEq)]
pub struct SftRow {
    /// The question, with an empty reference: nobody judges an example.
    pub problem: Problem,
    /// The assistant's message that answers it: an object with `role` and `content`.
    pub answer: Value,
}

/// Reads the rows of supervised examples from JSON Lines and Parquet files. Two rows may have the same question, because
/// a question may have several good answers.
///
/// Columns that are not named are found by the layout of the first row.
///
/// # Errors
/// Fails if a file can't be read, a row does not hold what it should, or there are no rows.
pub fn read_sft_rows(files: &[PathBuf], names: &SftColumns) -> Result<Vec<SftRow>, DataError> {
    let mut examples = Vec::new();
    let mut columns = None;

    for (id, row) in (0..).zip(files.iter().flat_map(|file| rows(file))) {
        let row = row?;
        // The first row decides the columns. Later rows have to have them.
        let (columns, passed_over) = match &columns {
            Some(known) => known,
            None => {
                let found = names.find(&row)?;
                let passed_over = names.passed_over(&row, &found);
                columns.insert((found, passed_over))
            }
        };

        refuse_passed_over(&row, passed_over, COLUMNS)?;
        examples.push(SftRow::from_row(&row, id, columns)?);
    }

    match files.first() {
        Some(path) if examples.is_empty() => Err(DataError::NoRows { path: path.clone() }),
        _ => Ok(examples),
    }
}

impl SftRow {
    /// Makes the example of one row. `id` is the row's index among the rows of its source.
    fn from_row(row: &Row, id: u64, columns: &Found) -> Result<Self, DataError> {
        let (question, answer) = match &columns.completion {
            Some(completion) => (question(row, &columns.prompt)?, answer(row, completion)?),
            None => last_turn(row, &columns.prompt)?,
        };
        if question.is_blank() {
            return Err(no_value(row, &columns.prompt, "asks nothing"));
        }

        let words = answer["content"].as_str().unwrap_or_default();
        if words.trim().is_empty() && answer["tool_calls"].is_null() {
            let column = columns.completion.as_ref().unwrap_or(&columns.prompt);
            return Err(no_value(row, column, "answers nothing"));
        }

        let problem = Problem { origin: Some(row.origin()), ..Problem::new(id, question) };
        Ok(SftRow { problem, answer })
    }
}

impl AsRef<Problem> for SftRow {
    fn as_ref(&self) -> &Problem {
        &self.problem
    }
}

/// Names of the columns of supervised examples, as far as they are known before the first row is seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SftColumns {
    /// Column of the prompt, a text or a list of messages. `None` if its layout is to be recognised.
    pub prompt: Option<String>,
    /// Column of the completion. It is empty if the prompt's column is a conversation that ends with it, and `None` if
    /// its layout is to be recognised.
    pub completion: Option<String>,
}

impl SftColumns {
    /// Finds the columns of rows like this one. A column `messages` is the whole conversation, and comes before others.
    fn find(&self, row: &Row) -> Result<Found, DataError> {
        let choose = |given: &Option<String>, names: &[&str], what: &str| {
            let wanted = format!("no column for the {what} ({})", names.join(", "));
            choose_column(row, given.as_deref(), names, wanted, COLUMNS)
        };

        let prompt = choose(&self.prompt, self.prompts(), "prompt")?;
        let is_whole = match &self.completion {
            Some(name) => name.is_empty(),
            None => prompt == MESSAGES,
        };
        let completion = if is_whole {
            None
        } else {
            Some(choose(&self.completion, &COMPLETIONS, "completion")?)
        };
        Ok(Found { prompt, completion })
    }

    /// Returns the columns that come before those that were found and are null in `row`. A value there in a later row
    /// would be ignored silently.
    fn passed_over(&self, row: &Row, found: &Found) -> Vec<&'static str> {
        let mut passed_over = Vec::new();
        if self.prompt.is_none() {
            passed_over.extend(null_before(row, self.prompts(), &found.prompt));
        }
        if let (None, Some(completion)) = (&self.completion, &found.completion) {
            passed_over.extend(null_before(row, &COMPLETIONS, completion));
        }
        passed_over
    }

    /// Returns the known columns of a prompt. If a column for the completion is named, `messages` is none of them,
    /// because it holds a completion itself.
    fn prompts(&self) -> &'static [&'static str] {
        if self.completion.as_ref().is_some_and(|name| !name.is_empty()) {
            &PROMPTS
        } else {
            &WITH_MESSAGES
        }
    }
}

/// Columns that were found.
struct Found {
    prompt: String,
    /// `None` if the last turn of the prompt's column is the completion.
    completion: Option<String>,
}

/// Known columns of a completion.
const COMPLETIONS: [&str; 4] = ["completion", "response", "solution", "answer"];

/// Known column of a whole conversation.
const MESSAGES: &str = "messages";

/// Known columns of a prompt, if a conversation may be one.
const WITH_MESSAGES: [&str; 4] = [MESSAGES, PROMPTS[0], PROMPTS[1], PROMPTS[2]];

/// How the columns of examples are named in a recipe, for messages.
const COLUMNS: &str = "sft.columns = { prompt = \"…\", completion = \"…\" }";

/// Returns the assistant's message of a column: a text, a number, or a list of that one message.
fn answer(row: &Row, column: &str) -> Result<Value, DataError> {
    let found = value(row, column)?;
    if let Some(number) = number::spelt(found).and_then(|_| number::answer(found)) {
        return Ok(said(&number));
    }

    match question(row, column)? {
        Question::Text(text) => Ok(said(&text)),
        Question::Messages(messages) => match messages.as_array().map(Vec::as_slice) {
            Some([message]) if message["role"] == "assistant" => Ok(message.clone()),
            _ => {
                Err(unexpected(row, column, "a text, or a list of one assistant's message", found))
            }
        },
    }
}

/// Parts a conversation from its last turn, which has to be the assistant's. Earlier turns of the assistant are read and
/// not imitated.
fn last_turn(row: &Row, column: &str) -> Result<(Question, Value), DataError> {
    let expected = "a conversation that ends with the assistant's answer";
    let refused =
        || value(row, column).map_or_else(|e| e, |v| unexpected(row, column, expected, v));

    let Question::Messages(Value::Array(mut messages)) = question(row, column)? else {
        return Err(refused());
    };
    match messages.pop() {
        Some(last) if last["role"] == "assistant" && !messages.is_empty() => {
            Ok((Question::Messages(messages.into()), last))
        }
        _ => Err(refused()),
    }
}

fn said(words: &str) -> Value {
    json!({"role": "assistant", "content": words})
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(lines: &[Value], names: &SftColumns) -> Result<Vec<(Question, Value)>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.jsonl");
        let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
        fs::write(&path, lines.join("\n")).unwrap();

        let rows = read_sft_rows(&[path], names).map_err(|error| error.to_string())?;
        Ok(rows.into_iter().map(|row| (row.problem.question, row.answer)).collect())
    }

    fn user(words: &str) -> Value {
        json!({"role": "user", "content": words})
    }

    #[test]
    fn known_layouts_need_no_mapping() {
        let asked = Question::Text("2+2?".into());
        let talk = |messages: &[Value]| Question::Messages(messages.to_vec().into());
        let list = [user("2+2?")];
        let turns = [user("1+1?"), said("2"), user("2+2?"), said("4")];

        for (row, expected) in [
            (
                json!({"prompt": "2+2?", "completion": "It is 4."}),
                (asked.clone(), said("It is 4.")),
            ),
            (json!({"question": "2+2?", "response": "4"}), (asked.clone(), said("4"))),
            // A worked solution teaches more than the answer alone.
            (
                json!({"problem": "2+2?", "solution": "Adding, 4.", "answer": "4"}),
                (asked.clone(), said("Adding, 4.")),
            ),
            (json!({"question": "2+2?", "answer": 4.0}), (asked.clone(), said("4"))),
            (json!({"prompt": list, "completion": [said("4")]}), (talk(&list), said("4"))),
            // Only the last turn is the answer, and a conversation comes before single columns.
            (json!({"messages": turns, "answer": "no"}), (talk(&turns[..3]), said("4"))),
            (json!({"messages": json!(turns).to_string()}), (talk(&turns[..3]), said("4"))),
        ] {
            assert_eq!(
                read(std::slice::from_ref(&row), &SftColumns::default()),
                Ok(vec![expected]),
                "{row}"
            );
        }
    }

    #[test]
    fn columns_are_taken_by_their_names() {
        let row = json!({"messages": [user("no"), said("no")], "ask": "2+2?", "say": "4", "talk": [user("2+2?"), said("4")]});
        let names = |prompt: &str, completion: Option<&str>| SftColumns {
            prompt: Some(prompt.into()),
            completion: completion.map(str::to_owned),
        };
        let read = |names: &SftColumns| read(std::slice::from_ref(&row), names);

        let text = (Question::Text("2+2?".into()), said("4"));
        assert_eq!(read(&names("ask", Some("say"))), Ok(vec![text]));
        let whole = (Question::Messages(json!([user("2+2?")])), said("4"));
        assert_eq!(read(&names("talk", Some(""))), Ok(vec![whole]));

        let error = read(&names("ask", None)).unwrap_err();
        assert!(
            error.contains("no column for the completion (completion, response, solution, answer)"),
            "{error}"
        );
        assert!(error.contains("set `sft.columns = { prompt"), "{error}");
        let error = read(&names("back", Some("say"))).unwrap_err();
        assert!(error.contains("line 1: no column `back`"), "{error}");
    }

    #[test]
    fn a_row_that_is_no_example_is_named() {
        let good = json!({"prompt": "2+2?", "completion": "4", "messages": null});
        for (row, expected) in [
            (json!({"prompt": "2+2?"}), "column `completion` is not there"),
            (json!({"prompt": "2+2?", "completion": null}), "column `completion` is null"),
            (json!({"prompt": "2+2?", "completion": " \n"}), "column `completion` answers nothing"),
            (json!({"prompt": " ", "completion": "4"}), "column `prompt` asks nothing"),
            (
                json!({"prompt": "2+2?", "completion": [user("4")]}),
                "a list of one assistant's message",
            ),
            (
                json!({"prompt": "2+2?", "completion": [said("4"), said("5")]}),
                "a list of one assistant's",
            ),
            (json!({"prompt": "2+2?", "completion": {"a": 4}}), "column `completion` should hold"),
        ] {
            let error = read(&[good.clone(), row], &SftColumns::default()).unwrap_err();
            assert!(error.contains("rows.jsonl, line 2: ") && error.contains(expected), "{error}");
        }

        for talk in [json!([user("2+2?")]), json!([said("4")]), json!("2+2?"), json!([])] {
            let error = read(&[json!({"messages": talk})], &SftColumns::default()).unwrap_err();
            assert!(error.contains("line 1: column `messages` should hold a"), "{error}");
        }

        let error = read(&[], &SftColumns::default()).unwrap_err();
        assert!(error.ends_with("has no rows; is this the right file?"), "{error}");

        let rows = [
            json!({"prompt": "?", "solution": null, "answer": "4"}),
            json!({"prompt": "?", "solution": "So 4.", "answer": "4"}),
        ];
        let error = read(&rows, &SftColumns::default()).unwrap_err();
        assert!(
            error.contains("line 2: column `solution` has a value, and is null in the first row"),
            "{error}"
        );
    }
}
