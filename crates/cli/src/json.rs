//! JSON lines for a program to read: of a run, of the suite, of a bench.

use std::io::Write;

use firebrick::{Example, Stage, Watcher, runs::json_object};
use firebrick_core::{Metrics, Prompt, Step, printable};
use firebrick_device::Name;
use firebrick_runs::Summary;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::version::{commit, features};

/// Writes `rest` as one line: a JSON object whose first field, `event`, says what the line is.
pub(crate) fn line(event: &str, rest: impl Serialize) -> String {
    let mut object = Map::from_iter([("event".to_owned(), event.into())]);
    if let Ok(Value::Object(rest)) = serde_json::to_value(rest) {
        object.extend(rest);
    }
    format!("{}\n", printable(&Value::Object(object).to_string()))
}

/// Returns a prompt's reference: the object or the list that the data has, or a text.
pub(crate) fn reference(prompt: &Prompt) -> Value {
    let value = prompt.json_reference.then(|| serde_json::from_str(&prompt.reference).ok());
    value.flatten().unwrap_or_else(|| prompt.reference.as_str().into())
}

/// A fact about a device.
#[derive(Serialize)]
pub(crate) struct Of<'a, T> {
    pub(crate) device: Name,
    #[serde(flatten)]
    pub(crate) fact: &'a T,
}

/// Describes this program, which computes with `kernels`.
pub(crate) fn program(kernels: &str) -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "commit": commit(),
        "features": features(),
        "kernels": kernels,
    })
}

/// A watcher that writes one JSON object per line, each with an `event`: `begin` and `end` of a stage, `note`,
/// `metrics`, `example`, and `finished`. A closed pipe is not a reason to end a run.
pub(crate) struct JsonLines {
    out: Box<dyn Write + Send>,
    stages: Vec<Stage>,
}

impl JsonLines {
    pub(crate) fn new(out: Box<dyn Write + Send>) -> Self {
        JsonLines { out, stages: Vec::new() }
    }

    fn say(&mut self, event: &str, rest: Value) {
        let _ = self.out.write_all(line(event, rest).as_bytes());
        let _ = self.out.flush();
    }
}

impl Watcher for JsonLines {
    fn begin(&mut self, stage: Stage, total: u64) {
        self.stages.push(stage);
        self.say("begin", json!({ "stage": stage.name(), "total": total }));
    }

    fn end(&mut self) {
        if let Some(stage) = self.stages.pop() {
            self.say("end", json!({ "stage": stage.name() }));
        }
    }

    fn note(&mut self, text: &str) {
        self.say("note", json!({ "text": text }));
    }

    fn metrics(&mut self, step: Step, metrics: &Metrics) {
        self.say("metrics", Value::Object(json_object(step, metrics.0.clone())));
    }

    fn example(&mut self, example: &Example) {
        let Example { prompt, completion, score, .. } = example;
        let example = json!({
            "prompt": prompt.question_text(), "reference": reference(prompt), "text": completion.text,
            "verdict": score.verdict.name(), "extracted": score.extracted,
        });
        self.say("example", example);
    }

    fn finished(&mut self, summary: &Summary) {
        let mut summary_json = serde_json::to_value(summary).unwrap_or_default();
        // The summary's own JSON leaves the checkpoint out.
        if let (Some(checkpoint), Value::Object(fields)) = (&summary.checkpoint, &mut summary_json)
        {
            fields.insert("checkpoint".to_owned(), checkpoint.display().to_string().into());
        }
        self.say("finished", summary_json);
    }
}
