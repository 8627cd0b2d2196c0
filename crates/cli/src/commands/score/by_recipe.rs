//! `firebrick score --recipe`: judges answers by a recipe's own reward.

use std::{fmt::Write as _, path::Path};

use firebrick::build::{self, Judge};
use firebrick_core::{
    Completion, FinishReason, Prompt, Score, Verdict, VerifierFailed, counted, printable,
};
use firebrick_train::TrainError;
use serde::Deserialize;
use serde_json::json;

use super::lines::{Line, Lines};
use crate::{ProgramError, commands};

/// An answer, with the keys of `firebrick eval --completions` and of a judge's requests.
#[derive(Deserialize)]
struct Row {
    #[serde(default)]
    id: Option<serde_json::Value>,
    #[serde(default, alias = "prompt")]
    question: String,
    #[serde(default, alias = "answer", alias = "gold")]
    reference: Option<serde_json::Value>,
    #[serde(alias = "response", alias = "text")]
    completion: String,
    #[serde(default)]
    finish: Option<FinishReason>,
}

/// Judges all rows, in batches. With `rows`, prints a line of JSON for each, and the summary to standard error.
/// Returns exit code 1 if a line is not a row.
pub(super) fn score(recipe: &Path, mut lines: Lines, rows: bool) -> Result<u8, ProgramError> {
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
            match read(line) {
                Ok(row) => pairs.push((line.name(row.id.as_ref()), row.into_pair())),
                Err(problem) => {
                    totals.bad_lines += 1;
                    super::complain(&problem);
                }
            }
        }

        let asked: Vec<_> = pairs.iter().map(|(_, (prompt, answer))| (prompt, answer)).collect();
        let scores = verifier.score_all(&asked).map_err(judge_failed)?;
        for ((id, _), score) in pairs.iter().zip(&scores) {
            totals.count(score);
            if rows {
                commands::print(&line_of(id, score))?;
            }
        }
    }

    notes.try_iter().for_each(commands::warn);
    let summary = totals.in_words(&recipe.reward_kind().name());
    if rows {
        commands::print_note(&summary)
    } else {
        commands::print(&summary)?
    }
    Ok(u8::from(totals.bad_lines > 0))
}

fn judge_failed(error: VerifierFailed) -> ProgramError {
    firebrick::Error::from(TrainError::from(error)).into()
}

fn read(line: &Line) -> Result<Row, String> {
    let problem = |problem: String| format!("{}: {problem}", line.position());
    let Some(bytes) = line.bytes() else { return Err(problem("the line is too long".into())) };
    serde_json::from_slice(bytes).map_err(|error| {
        let text = error.to_string();
        // Every line is parsed on its own, so its number is always 1.
        let text = text.split(" at line ").next().unwrap_or_default();
        problem(format!("{text}; expected \"question\", \"reference\" and \"completion\""))
    })
}

impl Row {
    fn into_pair(self) -> (Prompt, Completion) {
        let messages = json!([{ "role": "user", "content": self.question }]).to_string();
        let reference = match self.reference {
            None | Some(serde_json::Value::Null) => String::new(),
            Some(serde_json::Value::String(text)) => text,
            Some(other) => other.to_string(),
        };
        let prompt = Prompt {
            text: self.question.clone(),
            question: self.question,
            reference,
            messages,
            ..Prompt::default()
        };
        let mut completion = Completion::of_text(self.completion);
        completion.finish = self.finish.unwrap_or(FinishReason::Stop);
        (prompt, completion)
    }
}

fn line_of(id: &str, score: &Score) -> String {
    let line = json!({
        "id": id, "score": score.credit, "verdict": score.verdict.name(), "extracted": score.extracted,
    });
    format!("{}\n", printable(&line.to_string()))
}

#[derive(Default)]
struct Totals {
    credit: f64,
    judged: u64,
    verdicts: [u64; Verdict::ALL.len()],
    bad_lines: u64,
}

impl Totals {
    fn count(&mut self, score: &Score) {
        self.verdicts[score.verdict as usize] += 1;
        if score.verdict != Verdict::Error {
            self.judged += 1;
            self.credit += f64::from(score.credit);
        }
    }

    fn in_words(&self, kind: &str) -> String {
        let answers: u64 = self.verdicts.iter().sum();
        let mut text =
            format!("{}, judged by reward.kind = {kind:?}\n", counted(answers, "answer"));
        if self.judged > 0 {
            let _ = writeln!(text, "score     {:.4} on average", self.credit / self.judged as f64);
        }
        let verdicts = Verdict::ALL.iter().zip(self.verdicts).filter(|(_, count)| *count > 0);
        let verdicts: Vec<String> =
            verdicts.map(|(verdict, count)| format!("{count} {}", verdict.name())).collect();
        if !verdicts.is_empty() {
            let _ = writeln!(text, "verdicts  {}", verdicts.join(", "));
        }
        text
    }
}
