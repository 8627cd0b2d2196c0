//! Cases, and the folder where they run.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
};

use firebrick_stub::{Fault, GameOptions, Games, Options, Served, Stub, Tinker, TinkerOptions};
use serde_json::{Value, json};

use crate::{
    judge,
    made::Run,
    scratch::{Outcome, Scratch, repository},
};

/// A run that tries some options.
pub(crate) struct Case {
    /// Options in the form of `--set`. Each option and each choice in them counts as tried.
    pub(crate) tries: &'static [&'static str],
    /// Recipe that the options change.
    recipe: &'static str,
    /// Other settings that the run needs, in the same form.
    with: &'static [&'static str],
    /// A function that fails if the options did not do what they are for.
    shows: fn(&Run),
    /// True if the options have their default values, so that leaving them out changes nothing.
    default: bool,
}

pub(crate) const fn case(
    tries: &'static [&'static str],
    recipe: &'static str,
    with: &'static [&'static str],
    shows: fn(&Run),
) -> Case {
    Case { tries, recipe, with, shows, default: false }
}

/// Makes a case that tries default values.
pub(crate) const fn default(
    tries: &'static [&'static str],
    recipe: &'static str,
    with: &'static [&'static str],
    shows: fn(&Run),
) -> Case {
    Case { tries, recipe, with, shows, default: true }
}

/// A copy of `recipes/ci/tiny.toml`: sums of two digits for a new model, with SFT.
pub(crate) const TINY: &str = "tiny.toml";

/// A new model whose tokens are the letters a to h. A prompt is one letter. The model answers with up to four
/// letters, all equally likely at first, and is right if an `a` is among them. A step is one update.
pub(crate) const LETTERS: &str = "letters.toml";

/// A checkpoint with a chat template, in `base`, that answers sums in words. It is right if it says an `e`.
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

/// Like `CHECKPOINT`, but sampled by a server.
pub(crate) const SERVED: &str = "served.toml";

/// Like `CHECKPOINT`, but an adapter on a server that speaks Tinker's API.
pub(crate) const THERE: &str = "there.toml";

/// Like `CHECKPOINT`, with the same model as teacher, on a server.
pub(crate) const TAUGHT: &str = "taught.toml";

/// Like `LETTERS`, with a language model as the judge of whether an `a` is in a completion.
pub(crate) const JUDGED: &str = "judged.toml";

/// A new model that guesses digits. `game.jsonl` asks for each digit once.
pub(crate) const TALK: &str = "talk.toml";

const TALK_RECIPE: &str = r#"
[model.new]
hidden_size = 16
layers = 1
heads = 2
kv_heads = 1
intermediate_size = 16
max_position_embeddings = 96
alphabet = "0123456789<>=?Guesdigt .:"

[data]
ROWS

[environment]
kind = "openenv"
servers = ["SERVER"]
sessions = 8
max_turn_tokens = 1
max_observation_tokens = 16
observation = "{{ observation.message }}"

[rollout]
group_size = 8
max_completion_tokens = 6

[sampling]
prompts_per_step = 4

[train]
mini_batch = 32
"#;

/// A folder with recipes and the files that they name, and the runs that were made in it.
pub(crate) struct Bench {
    pub(crate) scratch: Scratch,
    /// Samples for [`SERVED`].
    pub(crate) server: Stub,
    /// Updates for [`THERE`].
    pub(crate) tinker: Tinker,
    /// Teaches for [`TAUGHT`].
    pub(crate) teacher: Stub,
    /// Judges for [`JUDGED`].
    pub(crate) judge: Stub,
    /// Plays for [`TALK`].
    pub(crate) games: Games,
    runs: RefCell<BTreeMap<Vec<String>, Made>>,
}

/// Name of a run, and its outcome.
type Made = (String, Rc<Outcome>);

impl Bench {
    pub(crate) fn new() -> Self {
        let scratch = Scratch::new();
        let server = Stub::start(Served::new(), Options::default());
        let engine = format!(
            "\n[rollout.engine]\nkind = \"vllm\"\nservers = [\"{}\"]\npatience = 1.0\n",
            server.base()
        );

        scratch.write(SERVED, [CHECKPOINT_RECIPE, &engine].concat());
        scratch.write(TINY, fs::read(repository("recipes/ci/tiny.toml")).unwrap());
        scratch.write(LETTERS, LETTERS_RECIPE);
        scratch.write(CHECKPOINT, CHECKPOINT_RECIPE);

        scratch.fixture("qwen2-f32", "base");
        scratch.fixture("qwen2-bf16", "half");
        let rows = repository("crates/cli/tests/data/gsm8k-style.jsonl");
        scratch.write("sums.jsonl", fs::read(&rows).unwrap());
        scratch.write("again.jsonl", fs::read(rows).unwrap());

        // Now and then it says that it is still at work.
        let busy = |asked: u64, path: &str| {
            let busy = path.ends_with("retrieve_future") && asked.is_multiple_of(40);
            busy.then_some(Fault::Status(408))
        };
        let busy = TinkerOptions { faults: Box::new(busy), ..TinkerOptions::default() };
        let tinker = Tinker::of(&scratch.path("base"), busy);
        let engine = format!(
            "\n[engine]\nkind = \"tinker\"\nurl = \"{}\"\nmodel = \"tiny\"\n",
            tinker.url()
        );
        let adapted =
            CHECKPOINT_RECIPE.replace("path = \"base\"", "path = \"base\"\nlora = { rank = 2 }");
        scratch.write(THERE, [&adapted, &*engine].concat());

        let teacher = Stub::start(Served::of(&scratch.path("base")), Options::default());
        let taught = format!("\n[teacher]\nkind = \"vllm\"\nservers = [\"{}\"]\n", teacher.base());
        scratch.write(TAUGHT, [CHECKPOINT_RECIPE, &taught].concat());

        let options = Options { chat: Box::new(judge::answer), ..Options::default() };
        let judge = Stub::start(Served::new(), options);
        let rule = "kind = \"regex\"\npattern = \"a\"\nmatches = true";
        let asks = format!(
            "kind = \"judge\"\nservers = [\"{}/v1\"]\nmodel = \"judge\"\n\
             rubric = \"has\\n{{{{ completion }}}}\"",
            judge.base()
        );
        scratch.write(JUDGED, LETTERS_RECIPE.replace(rule, &asks));

        let tasks = vec![("digits", 60), ("test", 30)];
        let games = Games::start(GameOptions { sessions: 8, tasks, ..GameOptions::default() });
        let talk =
            |data: &str| TALK_RECIPE.replace("ROWS", data).replace("SERVER", &games.address());
        let rows = "train = \"game.jsonl\"\nheldout_size = 2";
        let secret = "reset = '{\"secret\": {{ reference }}}'\nobservation";
        scratch.write(TALK, talk(rows).replace("observation =", &format!("{secret} =")));
        let opening = "opening = '{{ observation.message }}'\nobservation";
        let none = "train_size = 20\nheldout_size = 4";
        scratch
            .write("talk-alone.toml", talk(none).replace("observation =", &format!("{opening} =")));

        let bench =
            Bench { scratch, server, tinker, teacher, judge, games, runs: RefCell::default() };
        let letters = ["a", "b", "c", "d", "e", "f", "g", "h"];
        bench.tokenizer("letters", &letters);
        let digits = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
        bench.rows("game.jsonl", &digits.map(|digit| (digit, digit)));
        bench.rows("letters.jsonl", &letters.map(|letter| (letter, "a")));
        bench
    }

    /// Tries all `cases`, and names the cases that failed or show nothing. A case shows something only if it fails
    /// without its options.
    pub(crate) fn try_all(&self, cases: &[Case]) {
        let passes = |case: &Case, tries: &[&str]| {
            let tried = || (case.shows)(&self.run(case.recipe, case.with, tries));
            catch_unwind(AssertUnwindSafe(tried)).is_ok()
        };

        let mut wrong = String::new();
        for case in cases {
            eprintln!("\n{:?}:", case.tries);
            if !passes(case, case.tries) {
                wrong += &format!("\n{:?} failed, for the reason above", case.tries);
                continue;
            }

            eprintln!("this is as it should be, because it is without the options:");
            if !case.default && passes(case, &[]) {
                wrong += &format!("\n{:?} passes without these options", case.tries);
            }
        }
        assert!(wrong.is_empty(), "{wrong}");
    }

    /// Writes a tokenizer into a folder. Each of `phrases` is one token. One more token ends a text.
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

        self.scratch.write(&format!("{folder}/tokenizer.json"), tokenizer.to_string());
        self.scratch.write(&format!("{folder}/tokenizer_config.json"), r#"{"eos_token": "<end>"}"#);
    }

    /// Writes a file of questions and their reference answers.
    pub(crate) fn rows(&self, file: &str, rows: &[(&str, &str)]) {
        let line = |(question, answer): &(&str, &str)| {
            json!({"question": question, "answer": answer}).to_string()
        };
        self.scratch.write(file, rows.iter().map(line).collect::<Vec<_>>().join("\n"));
    }

    /// Trains. A run that was made before is not made again.
    pub(crate) fn run<'a>(
        &'a self,
        recipe: &'a str,
        with: &'a [&'a str],
        tries: &[&str],
    ) -> Run<'a> {
        let sets: Vec<String> =
            [recipe].iter().chain(with).chain(tries).map(|set| (*set).to_owned()).collect();

        // Many cases compare with the same run, which is made once.
        let known = self.runs.borrow().get(&sets).cloned();
        let (name, outcome) = known.unwrap_or_else(|| {
            let named = tries.iter().find_map(|set| set.strip_prefix("name="));
            let next = format!("run-{}", self.runs.borrow().len());
            let made = named.map_or(next, str::to_owned);
            let name = format!("name={made}");
            let mut arguments = vec!["train", recipe, "--set", &name];
            arguments.extend(sets[1..].iter().flat_map(|set| ["--set", set]));

            let mut command = self.scratch.command(&arguments);
            command.env("HF_HOME", self.scratch.path("hub")).env("HF_HUB_OFFLINE", "1");
            // Two threads ask two programs that judge at once.
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
