//! What a case is, and where it runs.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
};

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::place::{Outcome, Place, assert_same, repository};

/// A run of the options that it tries.
pub(crate) struct Case {
    /// In the form of `--set`: each option and each choice in them counts as tried.
    pub(crate) tries: &'static [&'static str],
    /// The recipe that they change.
    recipe: &'static str,
    /// What else the run needs, in that form too.
    with: &'static [&'static str],
    /// Fails when the options did not do what they are for.
    shows: fn(&Run),
}

pub(crate) const fn case(
    tries: &'static [&'static str],
    recipe: &'static str,
    with: &'static [&'static str],
    shows: fn(&Run),
) -> Case {
    Case { tries, recipe, with, shows }
}

/// Sums of two digits for a new model, with a warm-up: `recipes/ci/tiny.toml`.
pub(crate) const TINY: &str = "tiny.toml";

/// A new model whose tokens are the letters a to h. It is asked with one of them, says up to four,
/// all equally likely at first, and is right if an `a` is among them. A step is one update.
pub(crate) const LETTERS: &str = "letters.toml";

/// A checkpoint with a chat template, in `base`, on sums in words. It is right if it says an `e`.
pub(crate) const CHECKPOINT: &str = "checkpoint.toml";

const LETTERS_RECIPE: &str = r#"
[model.new]
hidden_size = 16
layers = 1
heads = 2
kv_heads = 1
intermediate_size = 16
max_position_embeddings = 64
tokenizer = "letters"

[data]
train = "letters.jsonl"
heldout_size = 2

[rollout]
group_size = 4
max_completion_tokens = 4

[sampling]
prompts_per_step = 4

[reward]
kind = "regex"
pattern = "a"
matches = true

[optim]
lr = 1e-2
warmup_steps = 0

[train]
steps = 2
mini_batch = 16
"#;

const CHECKPOINT_RECIPE: &str = r#"
[model]
path = "base"

[data]
train = "sums.jsonl"
heldout_size = 4

[rollout]
group_size = 4
max_completion_tokens = 8

[sampling]
prompts_per_step = 4
max_rounds = 1

[reward]
kind = "regex"
pattern = "e"
matches = true

[optim]
lr = 1e-3
warmup_steps = 0

[train]
steps = 1
mini_batch = 16
"#;

/// A folder with recipes and what they name, and the runs that were made in it.
pub(crate) struct Bench {
    pub(crate) place: Place,
    runs: RefCell<BTreeMap<Vec<String>, (String, Rc<Outcome>)>>,
}

/// A run that was made: how it ended, and what it wrote down.
pub(crate) struct Run<'a> {
    pub(crate) bench: &'a Bench,
    recipe: &'a str,
    with: &'a [&'a str],
    name: String,
    outcome: Rc<Outcome>,
}

/// A row of the run's record.
pub(crate) struct Completion {
    pub(crate) step: u64,
    pub(crate) draw: u64,
    pub(crate) prompt: String,
    pub(crate) reference: String,
    pub(crate) text: String,
    pub(crate) tokens: usize,
    /// Whether it was cut off.
    pub(crate) cut: bool,
    pub(crate) verdict: String,
    pub(crate) credit: f64,
    pub(crate) accuracy: f64,
    pub(crate) shaped: f64,
    /// Whether it counts in the loss.
    pub(crate) live: bool,
}

/// A tensor of a checkpoint.
pub(crate) struct Weights {
    pub(crate) dtype: String,
    pub(crate) shape: Vec<usize>,
    /// As far as they are float32.
    pub(crate) values: Vec<f32>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let place = Place::new();
        place.write(TINY, fs::read(repository("recipes/ci/tiny.toml")).unwrap());
        place.write(LETTERS, LETTERS_RECIPE);
        place.write(CHECKPOINT, CHECKPOINT_RECIPE);
        place.fixture("qwen2-f32", "base");
        place.fixture("qwen2-bf16", "half");
        let rows = repository("crates/firebrick/tests/data/gsm8k-style.jsonl");
        place.write("sums.jsonl", fs::read(rows).unwrap());
        let bench = Bench { place, runs: RefCell::default() };
        let letters = ["a", "b", "c", "d", "e", "f", "g", "h"];
        bench.tokenizer("letters", &letters);
        bench.rows("letters.jsonl", &letters.map(|letter| (letter, "a")));
        bench
    }

    /// Tries all `cases`, and names those that failed.
    pub(crate) fn try_all(&self, cases: &[Case]) {
        let fails = |case: &&Case| {
            let tried = || (case.shows)(&self.run(case.recipe, case.with, case.tries));
            catch_unwind(AssertUnwindSafe(tried)).is_err()
        };
        let failed: Vec<_> = cases.iter().filter(fails).map(|case| case.tries).collect();
        assert!(failed.is_empty(), "these failed, for the reasons above: {failed:#?}");
    }

    /// A tokenizer for which each of `phrases` is one token, in a folder. There is one more, which
    /// ends a text.
    pub(crate) fn tokenizer(&self, folder: &str, phrases: &[&str]) {
        let words = std::iter::once("<end>").chain(phrases.iter().copied());
        let vocabulary: serde_json::Map<String, Value> =
            words.zip(0..).map(|(word, id)| (word.to_owned(), json!(id))).collect();
        let end = json!({
            "id": 0, "content": "<end>", "special": true, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false,
        });
        let tokenizer = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [end],
            "normalizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
            "pre_tokenizer": null,
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<end>"},
        });
        self.place.write(&format!("{folder}/tokenizer.json"), tokenizer.to_string());
        self.place.write(&format!("{folder}/tokenizer_config.json"), r#"{"eos_token": "<end>"}"#);
    }

    /// A file of questions and their reference answers.
    pub(crate) fn rows(&self, file: &str, rows: &[(&str, &str)]) {
        let line = |(question, answer): &(&str, &str)| {
            json!({"question": question, "answer": answer}).to_string()
        };
        self.place.write(file, rows.iter().map(line).collect::<Vec<_>>().join("\n"));
    }

    /// Trains; what was trained before is not trained again.
    pub(crate) fn run<'a>(
        &'a self,
        recipe: &'a str,
        with: &'a [&'a str],
        tries: &[&str],
    ) -> Run<'a> {
        let sets: Vec<String> =
            [recipe].iter().chain(with).chain(tries).map(|set| (*set).to_owned()).collect();
        let known = self.runs.borrow().get(&sets).cloned();
        let (name, outcome) = known.unwrap_or_else(|| {
            let named = tries.iter().find_map(|set| set.strip_prefix("name="));
            let next = format!("run-{}", self.runs.borrow().len());
            let made = named.map_or(next, str::to_owned);
            let name = format!("name={made}");
            let mut arguments = vec!["train", recipe, "--set", &name];
            arguments.extend(sets[1..].iter().flat_map(|set| ["--set", set]));
            let mut command = self.place.command(&arguments);
            command.env("HF_HOME", self.place.path("hub")).env("HF_HUB_OFFLINE", "1");
            // Two programs that judge at once are asked by two threads.
            command.env("RAYON_NUM_THREADS", "2");
            command.env_remove("HF_HUB_CACHE");
            let outcome = Rc::new(Outcome::of(command.output().unwrap()));
            assert!(!outcome.stderr.contains("panicked"), "{sets:?}: {}", outcome.stderr);
            self.runs.borrow_mut().insert(sets, (made.clone(), outcome.clone()));
            (made, outcome)
        });
        Run { bench: self, recipe, with, name, outcome }
    }
}

impl Run<'_> {
    /// The run without what is tried.
    pub(crate) fn without(&self) -> Run<'_> {
        self.instead(&[])
    }

    /// The run with something else in place of what is tried.
    pub(crate) fn instead(&self, sets: &[&str]) -> Run<'_> {
        self.bench.run(self.recipe, self.with, sets)
    }

    /// What the program said, all of which goes to stderr.
    pub(crate) fn said(&self) -> &str {
        assert_eq!(self.outcome.code, Some(0), "{}", self.outcome.stderr);
        &self.outcome.stderr
    }

    #[track_caller]
    pub(crate) fn says(&self, words: &str) {
        assert!(self.said().contains(words), "{words:?} is not in: {}", self.said());
    }

    /// The run was refused, or ended with an error.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, words: &str) {
        let Outcome { stderr, .. } = &*self.outcome;
        assert_eq!(self.outcome.code, Some(code), "{stderr}");
        // Long lines are wrapped.
        let flat = |text: &str| text.replace('│', " ").split_whitespace().collect::<String>();
        assert!(flat(stderr).contains(&flat(words)), "{words:?} is not in: {stderr}");
    }

    /// A file of the run's folder.
    pub(crate) fn path(&self, file: &str) -> String {
        self.said();
        format!("runs/{}/{file}", self.name)
    }

    /// Of every step, but for what a clock measured.
    pub(crate) fn metrics(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.bench.place.path(&self.path("metrics.jsonl"))).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// What a metric was, at the steps that have it.
    pub(crate) fn values(&self, metric: &str) -> Vec<f64> {
        self.metrics().iter().filter_map(|step| step[metric].as_f64()).collect()
    }

    /// What a metric was at the first step.
    #[track_caller]
    pub(crate) fn first(&self, metric: &str) -> f64 {
        self.metrics()[0][metric].as_f64().unwrap()
    }

    pub(crate) fn summary(&self) -> Value {
        self.bench.place.json(&self.path("summary.json"))
    }

    /// The steps of the checkpoints that are there.
    pub(crate) fn checkpoints(&self) -> Vec<u64> {
        let folder = self.bench.place.path(&self.path("checkpoints"));
        let mut steps: Vec<u64> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .map(|name| name.strip_prefix("step-").unwrap().parse().unwrap())
            .collect();
        steps.sort_unstable();
        steps
    }

    /// A JSON file of the last checkpoint.
    pub(crate) fn json(&self, file: &str) -> Value {
        self.bench.place.json(&self.in_checkpoint(*self.checkpoints().last().unwrap(), file))
    }

    /// What the last checkpoint says of itself.
    pub(crate) fn card(&self) -> String {
        let file = self.in_checkpoint(*self.checkpoints().last().unwrap(), "README.md");
        fs::read_to_string(self.bench.place.path(&file)).unwrap()
    }

    /// The tensors in a file of the last checkpoint.
    pub(crate) fn tensors(&self, file: &str) -> BTreeMap<String, Weights> {
        self.tensors_at(*self.checkpoints().last().unwrap(), file)
    }

    /// The same of the checkpoint of a step.
    pub(crate) fn tensors_at(&self, step: u64, file: &str) -> BTreeMap<String, Weights> {
        let bytes = fs::read(self.bench.place.path(&self.in_checkpoint(step, file))).unwrap();
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

    /// Everything that was sampled for training, in the order of sampling.
    pub(crate) fn completions(&self) -> Vec<Completion> {
        let store = Connection::open(self.bench.place.path(&self.path("run.db"))).unwrap();
        let sql = "SELECT step, draw, prompt, reference, text, tokens, finish, verdict, credit, \
                   accuracy, shaped, live FROM completions JOIN groups USING (step, draw) \
                   ORDER BY step, draw, completion";
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
                accuracy: row.get(9)?,
                shaped: row.get(10)?,
                live: row.get(11)?,
            })
        });
        rows.unwrap().map(Result::unwrap).collect()
    }

    /// Those of the first step.
    pub(crate) fn first_completions(&self) -> Vec<Completion> {
        self.completions().into_iter().filter(|completion| completion.step == 1).collect()
    }

    /// What was asked, without repetition.
    pub(crate) fn prompts(&self) -> std::collections::BTreeSet<String> {
        self.completions().into_iter().map(|completion| completion.prompt).collect()
    }

    /// Whether the two runs did the same, bit for bit.
    pub(crate) fn is(&self, other: &Run) -> bool {
        self.result() == other.result()
    }

    #[track_caller]
    pub(crate) fn assert_is(&self, other: &Run) {
        assert_same(&self.result(), &other.result());
    }

    fn result(&self) -> Vec<(String, Vec<u8>)> {
        self.said();
        self.bench.place.result(&self.name)
    }
}

/// Whether two numbers are the same but for rounding.
pub(crate) fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 + 1e-3 * a.abs().max(b.abs())
}

#[track_caller]
pub(crate) fn assert_near(a: f64, b: f64) {
    assert!(near(a, b), "{a} is not {b}");
}
