//! A run that was made, and its records.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    rc::Rc,
};

use rusqlite::Connection;
use serde_json::Value;

use crate::{
    bench::Bench,
    scratch::{Outcome, assert_same},
};

/// A run that was made, with its outcome and its records.
pub(crate) struct Run<'a> {
    pub(crate) bench: &'a Bench,
    pub(crate) recipe: &'a str,
    pub(crate) with: &'a [&'a str],
    pub(crate) name: String,
    pub(crate) outcome: Rc<Outcome>,
}

/// A completion in the run's record.
pub(crate) struct Completion {
    pub(crate) step: u64,
    pub(crate) draw: u64,
    pub(crate) prompt: String,
    pub(crate) reference: String,
    pub(crate) text: String,
    pub(crate) tokens: usize,
    /// True if the completion was cut off.
    pub(crate) cut: bool,
    pub(crate) verdict: String,
    pub(crate) credit: f64,
    pub(crate) base_reward: f64,
    pub(crate) reward: f64,
    /// True if the completion counts in the loss.
    pub(crate) in_loss: bool,
}

/// A tensor of a checkpoint.
#[derive(Debug, PartialEq)]
pub(crate) struct Weights {
    pub(crate) dtype: String,
    pub(crate) shape: Vec<usize>,
    /// Right only if the tensor is float32.
    pub(crate) values: Vec<f32>,
}

impl Run<'_> {
    /// Returns the run without the options that are tried.
    pub(crate) fn without(&self) -> Run<'_> {
        self.instead(&[])
    }

    /// Returns the run with `sets` instead of the options that are tried.
    pub(crate) fn instead(&self, sets: &[&str]) -> Run<'_> {
        self.bench.run(self.recipe, self.with, sets)
    }

    /// Returns the program's output, all of which goes to stderr. The run has to have succeeded.
    pub(crate) fn said(&self) -> &str {
        assert_eq!(self.outcome.code, Some(0), "{}", self.outcome.stderr);
        &self.outcome.stderr
    }

    #[track_caller]
    pub(crate) fn says(&self, words: &str) {
        assert!(self.said().contains(words), "{words:?} is not in: {}", self.said());
    }

    /// Checks that the run was refused, or ended with an error.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, words: &str) {
        let Outcome { stderr, .. } = &*self.outcome;
        assert_eq!(self.outcome.code, Some(code), "{stderr}");
        // Long lines are wrapped.
        let flat = |text: &str| text.replace('│', " ").split_whitespace().collect::<String>();
        assert!(flat(stderr).contains(&flat(words)), "{words:?} is not in: {stderr}");
    }

    /// Returns the path of a file in the run's folder.
    pub(crate) fn path(&self, file: &str) -> String {
        self.said();
        format!("runs/{}/{file}", self.name)
    }

    /// Returns the report of `firebrick eval` on the newest checkpoint.
    pub(crate) fn evaluated(&self) -> Value {
        let step = self.checkpoints().into_iter().max().unwrap();
        let checkpoint = self.path(&format!("checkpoints/step-{step:06}"));
        let said = self.bench.scratch.succeed(&["eval", &checkpoint, "--json"]).stdout;
        serde_json::from_str(&said).unwrap()
    }

    /// Returns the metrics of every step.
    pub(crate) fn metrics(&self) -> Vec<Value> {
        let text =
            fs::read_to_string(self.bench.scratch.path(&self.path("metrics.jsonl"))).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns a metric's values at the steps that have it.
    pub(crate) fn values(&self, metric: &str) -> Vec<f64> {
        self.metrics().iter().filter_map(|step| step[metric].as_f64()).collect()
    }

    /// Returns a metric's value at the first step.
    #[track_caller]
    pub(crate) fn first(&self, metric: &str) -> f64 {
        self.metrics()[0][metric].as_f64().unwrap()
    }

    /// Returns the number that a query on the run's database yields.
    pub(crate) fn asked(&self, sql: &str) -> i64 {
        let store = Connection::open(self.bench.scratch.path(&self.path("run.db"))).unwrap();
        store.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    pub(crate) fn summary(&self) -> Value {
        self.bench.scratch.json(&self.path("summary.json"))
    }

    /// Returns the steps of the checkpoints that are there.
    pub(crate) fn checkpoints(&self) -> Vec<u64> {
        let folder = self.bench.scratch.path(&self.path("checkpoints"));
        let mut steps: Vec<u64> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .map(|name| name.strip_prefix("step-").unwrap().parse().unwrap())
            .collect();
        steps.sort_unstable();
        steps
    }

    /// Reads a JSON file of the last checkpoint.
    pub(crate) fn json(&self, file: &str) -> Value {
        self.bench.scratch.json(&self.in_checkpoint(*self.checkpoints().last().unwrap(), file))
    }

    /// Reads the model card of the last checkpoint.
    pub(crate) fn card(&self) -> String {
        let file = self.in_checkpoint(*self.checkpoints().last().unwrap(), "README.md");
        fs::read_to_string(self.bench.scratch.path(&file)).unwrap()
    }

    /// Reads the tensors in a file of the last checkpoint.
    pub(crate) fn tensors(&self, file: &str) -> BTreeMap<String, Weights> {
        self.tensors_at(*self.checkpoints().last().unwrap(), file)
    }

    /// Reads the tensors in a file of the checkpoint of a step.
    pub(crate) fn tensors_at(&self, step: u64, file: &str) -> BTreeMap<String, Weights> {
        let bytes = fs::read(self.bench.scratch.path(&self.in_checkpoint(step, file))).unwrap();
        // A safetensors file begins with the length of its header, which is JSON.
        let (length, rest) = bytes.split_first_chunk::<8>().unwrap();
        let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
        let mut header: BTreeMap<String, Value> = serde_json::from_slice(header).unwrap();
        header.remove("__metadata__");

        let weights = |tensor: Value| {
            let numbers = |key: &str| -> Vec<usize> {
                let list = tensor[key].as_array().unwrap().iter();
                list.map(|number| number.as_u64().unwrap() as usize).collect()
            };
            let at = numbers("data_offsets");
            let words = data[at[0]..at[1]].as_chunks::<4>().0.iter();
            Weights {
                dtype: tensor["dtype"].as_str().unwrap().to_owned(),
                shape: numbers("shape"),
                values: words.map(|word| f32::from_le_bytes(*word)).collect(),
            }
        };

        header.into_iter().map(|(name, tensor)| (name, weights(tensor))).collect()
    }

    fn in_checkpoint(&self, step: u64, file: &str) -> String {
        self.path(&format!("checkpoints/step-{step:06}/{file}"))
    }

    /// Returns all completions that were sampled for training, in the order of sampling.
    pub(crate) fn completions(&self) -> Vec<Completion> {
        let store = Connection::open(self.bench.scratch.path(&self.path("run.db"))).unwrap();
        let sql = "SELECT step, draw, prompt, reference, text, tokens, finish, verdict, credit, \
                   base_reward, reward, in_loss FROM completions JOIN groups USING (group_id) \
                   WHERE source = 'train' ORDER BY step, draw, completion";

        let mut query = store.prepare(sql).unwrap();
        let rows = query.query_map([], |row| {
            Ok(Completion {
                step: row.get::<_, i64>(0)? as u64,
                draw: row.get::<_, i64>(1)? as u64,
                prompt: row.get(2)?,
                reference: row.get(3)?,
                text: row.get(4)?,
                tokens: row.get::<_, i64>(5)? as usize,
                cut: row.get::<_, String>(6)? == "length",
                verdict: row.get(7)?,
                credit: row.get(8)?,
                base_reward: row.get(9)?,
                reward: row.get(10)?,
                in_loss: row.get(11)?,
            })
        });
        rows.unwrap().map(Result::unwrap).collect()
    }

    /// Returns the completions of the first step.
    pub(crate) fn first_completions(&self) -> Vec<Completion> {
        self.completions().into_iter().filter(|completion| completion.step == 1).collect()
    }

    /// Returns the prompts, without repetition.
    pub(crate) fn prompts(&self) -> BTreeSet<String> {
        self.completions().into_iter().map(|completion| completion.prompt).collect()
    }

    /// Returns whether the two runs did the same, bit for bit.
    pub(crate) fn is(&self, other: &Run) -> bool {
        self.result() == other.result()
    }

    #[track_caller]
    pub(crate) fn assert_is(&self, other: &Run) {
        assert_same(&self.result(), &other.result());
    }

    fn result(&self) -> Vec<(String, Vec<u8>)> {
        self.said();
        self.bench.scratch.result(&self.name)
    }
}

/// Returns whether two numbers are the same except for rounding.
pub(crate) fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 + 1e-3 * a.abs().max(b.abs())
}

#[track_caller]
pub(crate) fn assert_near(a: f64, b: f64) {
    assert!(near(a, b), "{a} is not {b}");
}
