//! `firebrick score --recipe`: judges answers by a recipe's own reward.

use std::{fmt::Write as _, path::Path};

use firebrick::{
    Recipe,
    build::{self, Judge},
    recipe::TrainSource,
};
use firebrick_core::{
    Completion, FinishReason, Prompt, Score, Verdict, VerifierFailed, counted, printable,
};
use firebrick_data::{parse_json, reference};
use firebrick_train::TrainError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Shown,
    lines::{Line, Lines},
};
use crate::{ProgramError, commands};

/// An answer, with the keys of `firebrick eval --completions` and of a judge's requests.
struct Row {
    id: Option<Value>,
    question: String,
    reference: Value,
    completion: String,
    finish: FinishReason,
    /// Name of a data set of the recipe that has its own reward.
    data_source: String,
    expected: Option<Expected>,
}

/// What a row says its judgement should be.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Expected {
    /// Whether the answer is right.
    Right(bool),
    Score(f64),
}

/// Judges all rows, in batches. Prints a line of JSON for each that is shown, and then the summary to standard error.
/// Returns exit code 1 if a line is not a row, or the judge failed on one.
pub(super) fn score(recipe: &Path, mut lines: Lines, shown: Shown) -> Result<u8, ProgramError> {
    let recipe = commands::recipes::load(recipe, &[])?.recipe;
    let sources = commands::sources::alone();
    let Judge { verifier, notes } = build::judge(&recipe, &sources, build::now())?;
    let mut totals = Totals::default();

    loop {
        let batch = lines.batch()?;
        if batch.is_empty() {
            break;
        }

        let mut pairs = Vec::new();
        for line in &batch {
            let pair = read(line).and_then(|row| {
                let (name, expected) = (line.name(row.id.as_ref()), row.expected);
                let pair = row.into_pair(&recipe, verifier.takes_json());
                let pair = pair.map_err(|problem| format!("{}: {problem}", line.position()))?;
                Ok((name, expected, pair))
            });
            match pair {
                Ok(pair) => pairs.push(pair),
                Err(problem) => {
                    totals.bad_lines += 1;
                    super::complain(&problem);
                }
            }
        }

        let asked: Vec<_> = pairs.iter().map(|(_, _, (prompt, answer))| (prompt, answer)).collect();
        let scores = verifier.score_all(&asked).map_err(judge_failed)?;
        for ((id, expected, (prompt, _)), score) in pairs.iter().zip(&scores) {
            let agrees = expected.map(|expected| expected.is_met_by(score));
            totals.count(prompt, score, agrees);
            if shown.shows(agrees) {
                commands::print(&line_of(id, score, agrees))?;
            }
        }
    }

    notes.try_iter().for_each(commands::warn);
    let summary = totals.in_words(&kinds(&recipe));
    if shown == Shown::None {
        commands::print(&summary)?
    } else {
        commands::print_note(&summary)
    }
    let errors = totals.verdicts[Verdict::Error as usize];
    Ok(u8::from(totals.bad_lines > 0 || errors > 0))
}

/// Names the recipe's judges, each once.
fn kinds(recipe: &Recipe) -> String {
    let mut kinds: Vec<String> =
        recipe.reward_kinds().iter().map(|kind| format!("{:?}", kind.name())).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds.join(" or ")
}

fn judge_failed(error: VerifierFailed) -> ProgramError {
    firebrick::Error::from(TrainError::from(error)).into()
}

fn read(line: &Line) -> Result<Row, String> {
    let problem = |problem: &str| format!("{}: {problem}", line.position());
    let Some(bytes) = line.bytes() else { return Err(problem("the line is too long")) };
    let text = std::str::from_utf8(bytes).map_err(|_| problem("the line is not UTF-8"))?;
    let row = parse_json(text).map_err(|error| {
        let text = error.to_string();
        // Every line is parsed on its own, so its number is always 1.
        problem(text.split(" at line ").next().unwrap_or_default())
    })?;

    // The first of several names counts, as `question` does in a judge's request, which has the `prompt` too.
    let given = |key: &&str| row.get(*key).filter(|value| !value.is_null());
    let value = |keys: &[&str]| keys.iter().find_map(given);
    let text = |keys: &[&str]| match value(keys) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(problem(&format!("\"{}\" is not a text", keys[0]))),
    };

    let completion = text(&["completion", "response", "text"])?;
    let finish = value(&["finish"]).map(|finish| serde_json::from_value(finish.clone()));
    let expected = value(&["expected"]).map(|expected| {
        serde_json::from_value(expected.clone()).map_err(|_| {
            problem(&format!("\"expected\" is {expected}, expected true, false or a score"))
        })
    });
    Ok(Row {
        id: value(&["id"]).cloned(),
        question: text(&["question", "prompt"])?.unwrap_or_default(),
        reference: value(&["reference", "answer", "gold"]).cloned().unwrap_or_default(),
        completion: completion.ok_or_else(|| {
            problem("no \"completion\"; expected \"question\", \"reference\" and \"completion\"")
        })?,
        finish: finish
            .unwrap_or(Ok(FinishReason::Stop))
            .map_err(|error| problem(&format!("\"finish\": {error}")))?,
        data_source: text(&["data_source"])?.unwrap_or_default(),
        expected: expected.transpose()?,
    })
}

impl Expected {
    fn is_met_by(self, score: &Score) -> bool {
        match self {
            Expected::Right(right) => right == (score.verdict == Verdict::Right),
            // A score has single precision.
            Expected::Score(expected) => (expected - f64::from(score.credit)).abs() < 1e-6,
        }
    }
}

impl Row {
    /// Makes the prompt and the completion that a run of the recipe would judge.
    fn into_pair(self, recipe: &Recipe, takes_json: bool) -> Result<(Prompt, Completion), String> {
        // Other programs have names of their own for data sets, which matter only to a recipe with several.
        let sources = recipe.train_sources();
        let names: Vec<String> = sources.iter().map(TrainSource::name).collect();
        let data_source = if names.is_empty() { String::new() } else { self.data_source };
        let has_own = |source: &TrainSource| source.reward.is_some();
        let is_known = names.contains(&data_source)
            || data_source.is_empty()
                && (recipe.reward.kind.is_some() || !sources.iter().all(has_own));
        if !names.is_empty() && !is_known {
            let names = names.join(", ");
            return Err(format!("\"data_source\" is {data_source:?}, expected one of {names}"));
        }

        let (reference, json_reference) = match &self.reference {
            Value::Null => (String::new(), false),
            value => reference(value, takes_json).ok_or_else(|| {
                format!("\"reference\" is {value}, expected a text or a number for this verifier")
            })?,
        };
        let messages = json!([{ "role": "user", "content": self.question }]).to_string();
        let prompt = Prompt {
            text: self.question.clone(),
            question: self.question,
            reference,
            json_reference,
            messages,
            data_source,
            ..Prompt::default()
        };
        let mut completion = Completion::of_text(self.completion);
        completion.finish = self.finish;
        Ok((prompt, completion))
    }
}

fn line_of(id: &str, score: &Score, agrees: Option<bool>) -> String {
    let mut line = json!({
        "id": id, "score": (f64::from(score.credit) * 1e6).round() / 1e6, "verdict": score.verdict.name(), "extracted": score.extracted,
    });
    if let Some(agrees) = agrees {
        line["agrees"] = agrees.into();
    }
    format!("{}\n", printable(&line.to_string()))
}

#[derive(Default)]
struct Totals {
    credit: f64,
    judged: u64,
    verdicts: [u64; Verdict::ALL.len()],
    /// Answers without a reference.
    unreferenced: u64,
    /// Answers with an expected judgement.
    expected: u64,
    agree: u64,
    bad_lines: u64,
}

impl Totals {
    fn count(&mut self, prompt: &Prompt, score: &Score, agrees: Option<bool>) {
        self.unreferenced += u64::from(prompt.reference.is_empty());
        self.expected += u64::from(agrees.is_some());
        self.agree += u64::from(agrees == Some(true));
        self.verdicts[score.verdict as usize] += 1;
        if score.verdict != Verdict::Error {
            self.judged += 1;
            self.credit += f64::from(score.credit);
        }
    }

    fn in_words(&self, kind: &str) -> String {
        let answers: u64 = self.verdicts.iter().sum();
        let mut text = format!("{}, judged by reward.kind = {kind}\n", counted(answers, "answer"));
        if self.judged > 0 {
            let _ = writeln!(text, "score     {:.4} on average", self.credit / self.judged as f64);
        }
        let verdicts = Verdict::ALL.iter().zip(self.verdicts).filter(|(_, count)| *count > 0);
        let verdicts: Vec<String> =
            verdicts.map(|(verdict, count)| format!("{count} {}", verdict.name())).collect();
        if !verdicts.is_empty() {
            let _ = writeln!(text, "verdicts  {}", verdicts.join(", "));
        }
        if self.expected > 0 {
            let _ = writeln!(text, "expected  {} of {} agree", self.agree, self.expected);
        }
        if self.unreferenced > 0 {
            let without = counted(self.unreferenced, "answer");
            let _ = writeln!(text, "{without} had no reference, and the judge got an empty text");
        }
        text
    }
}
