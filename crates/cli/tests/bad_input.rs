//! Errors about every kind of bad input. Each error names the file, the position and the remedy,
//! and nothing panics.
//!
//! This command writes the snapshots again:
//! `INSTA_UPDATE=always cargo test --release -p firebrick-cli --test bad_input`.

// The messages contain the system's own words, and other systems have other words.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod scratch;

use std::{fmt::Write as _, fs};

use scratch::{Scratch, repository};
use serde_json::{Map, Value, json};

/// A scratch folder with a recipe and a model, and the program's messages in it so far.
struct Page {
    scratch: Scratch,
    text: String,
}

const TINY: &str = "tiny.toml";

/// A recipe that trains the model in `qwen2` on `train.jsonl`.
const FILES: &str = r#"[model]
path = "qwen2"

[data]
train = "train.jsonl"
heldout_size = 2

[rollout]
group_size = 2
max_completion_tokens = 4

[sampling]
prompts_per_step = 1
max_rounds = 1

[train]
steps = 1
mini_batch = 2
"#;

impl Page {
    fn new() -> Self {
        let scratch = Scratch::new();
        scratch.write(TINY, fs::read(repository("recipes/ci/tiny.toml")).unwrap());
        scratch.write("files.toml", FILES);
        let rows = fs::read(repository("crates/cli/tests/data/gsm8k-style.jsonl")).unwrap();
        scratch.write("train.jsonl", rows);

        let page = Page { scratch, text: String::new() };
        page.whole_model();
        page
    }

    /// Restores the model's folder.
    fn whole_model(&self) {
        let _ = fs::remove_dir_all(self.scratch.path("qwen2"));
        self.scratch.fixture("qwen2-f32", "qwen2");
    }

    /// Runs the program, which has to fail with `code`.
    fn case(&mut self, title: &str, code: i32, arguments: &[&str]) {
        let outcome = self.scratch.run(arguments);
        assert_eq!(outcome.code, Some(code), "{title}: {}", outcome.stderr);
        assert!(!outcome.stderr.contains("panicked"), "{title}: {}", outcome.stderr);
        assert_eq!(outcome.stdout, "", "{title}");

        // Editors strip spaces at the ends of a snapshot's lines.
        let lines: Vec<&str> = outcome.stderr.lines().map(str::trim_end).collect();
        let said = lines.join("\n");
        writeln!(self.text, "{title}: exit {code}\n{}\n", said.trim_end()).unwrap();
    }

    /// Trains the model in `qwen2` after `break_it`.
    fn model(&mut self, title: &str, break_it: impl FnOnce(&Scratch)) {
        self.whole_model();
        break_it(&self.scratch);
        self.case(title, 1, &["train", "files.toml"]);
    }

    #[track_caller]
    fn check(self, name: &str) {
        insta::with_settings!({ prepend_module_to_snapshot => true, omit_expression => true }, {
            insta::assert_snapshot!(name, self.text.trim_end());
        });
    }
}

#[test]
fn recipes() {
    let mut page = Page::new();
    let train = |page: &mut Page, title: &str, sets: &[&str]| {
        let mut arguments = vec!["train", "files.toml"];
        arguments.extend(sets.iter().flat_map(|set| ["--set", set]));
        page.case(title, 2, &arguments);
    };

    page.case("no recipe", 2, &["train", "none.toml"]);
    train(&mut page, "misspelt key", &["rollout.group_siz=8"]);
    train(&mut page, "wrong type", &["optim.lr=fast"]);
    train(&mut page, "group of one", &["rollout.group_size=1"]);
    train(&mut page, "mini-batch larger than the step", &["train.mini_batch=64"]);
    train(&mut page, "device that is not compiled in", &["device.kind=vulkan"]);
    train(&mut page, "completion as long as the context", &["rollout.max_completion_tokens=32768"]);

    let template = "{% if think %}{{ tools }}{% endif %}{{ messages }}{{ bos_token }}";
    page.scratch.write("qwen2/chat_template.jinja", template);
    train(&mut page, "no such template option", &["data.template_options.thinking=true"]);
    std::fs::remove_file(page.scratch.path("qwen2/chat_template.jinja")).unwrap();
    page.scratch.write("qwen2/tokenizer_config.json", r#"{"eos_token": "<|im_end|>"}"#);
    train(&mut page, "template option without a template", &["data.template_options.think=true"]);
    train(&mut page, "no chat template", &["data.template=chat"]);

    page.check("recipes");
}

/// Without the check, a list of so many entries would end the process with a backtrace.
#[test]
fn a_number_that_no_memory_holds_is_refused() {
    let scratch = Scratch::new();
    scratch.write(TINY, fs::read(repository("recipes/ci/tiny.toml")).unwrap());
    for (set, words) in [
        ("model.new.layers=1000000000000", "expected at least 1 and at most 65536"),
        ("rollout.group_size=1000000000", "expected at least 1 and at most 65536"),
        ("eval.samples=10000000000", "expected at least 1 and at most 65536"),
    ] {
        let outcome = scratch.run(&["train", TINY, "--set", set]);
        assert_eq!(outcome.code, Some(2), "{set}: {}", outcome.stderr);
        assert!(outcome.said().contains(words), "{set}: {}", outcome.stderr);
    }
}

/// Checks that the recipe works in YAML, and that faults that only YAML can have are reported.
#[test]
fn yaml() {
    const YAML: &str = "\
# A recipe in YAML.
model:
  path: qwen2
data:
  train: train.jsonl
  heldout_size: 2
rollout:
  group_size: 2
  max_completion_tokens: 4
sampling: {prompts_per_step: 1, max_rounds: 1}
train:
  steps: 1
  mini_batch: 2
";
    let mut page = Page::new();
    let mut train = |title: &str, from: &str, to: &str, sets: &[&str]| {
        assert!(YAML.contains(from), "{title}");
        page.scratch.write("files.yaml", YAML.replace(from, to));
        let mut arguments = vec!["train", "files.yaml"];
        arguments.extend(sets.iter().flat_map(|set| ["--set", set]));
        page.case(title, 2, &arguments);
    };

    train("misspelt key", "group_size", "group_siz", &[]);
    train("misspelt table", "sampling:", "samplings:", &[]);
    train("wrong type", "steps: 1", "steps: many", &[]);
    train("number in quotes", "steps: 1", "steps: '1'", &[]);
    train("out of range", "group_size: 2", "group_size: 1", &[]);
    train("keys that do not agree", "mini_batch: 2", "mini_batch: 64", &[]);
    train("missing table", "data:\n  train: train.jsonl\n  heldout_size: 2\n", "", &[]);
    train("missing key", "  train: train.jsonl\n", "", &[]);
    train("override of no key", "", "", &["rollout.group_siz=8"]);
    train("override out of range", "", "", &["seed=3", "sampling={ prompts_per_step = 0 }"]);
    train("override inside a value", "", "", &["model.path.folder=8"]);
    train("fault next to an override", "steps: 1", "steps: 0", &["seed=3"]);
    train("duplicate key", "  group_size: 2\n", "  group_size: 2\n  group_size: 4\n", &[]);
    train("duplicate table", "train:\n", "model:\n", &[]);

    let bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nmodel:\n";
    train("aliases of aliases", "model:\n", bomb, &[]);
    train("merge key", "rollout:\n", "rollout:\n  <<: *defaults\n", &[]);
    train("tab", "  group_size", "\tgroup_size", &[]);
    train("two documents", "train:\n  steps", "---\ntrain:\n  steps", &[]);
    train("tag", "steps: 1", "steps: !!int 1", &[]);
    train("yes", "heldout_size: 2", "deduplicate: yes", &[]);
    train("zero in front", "steps: 1", "steps: 010", &[]);
    train("no value", "path: qwen2", "path:", &[]);
    train("not a table", "  steps: 1\n", "  steps: 1\n  adaptive:\n", &[]);
    train("truth for a table", "", "", &["train.adaptive=true"]);
    train("text for a table", "", "", &["sampling.curriculum=posterior"]);
    train("tab below a text", "  mini_batch", "\tmini_batch", &[]);
    train("list for a table", "train:\n  steps: 1\n  mini_batch: 2", "train:\n- steps: 1", &[]);
    train("no colon", "model:", "model", &[]);
    train("bracket that is open", "max_rounds: 1}", "max_rounds: 1", &[]);
    train("a text", YAML, "just text", &[]);
    train("nothing", YAML, "", &[]);

    page.scratch.write("files.toml", YAML);
    page.case("YAML for TOML", 2, &["train", "files.toml"]);
    page.scratch.write("files.yml", FILES);
    page.case("TOML for YAML", 2, &["train", "files.yml"]);

    page.check("yaml");
}

#[test]
fn rewards() {
    let mut page = Page::new();
    for (title, sets) in [
        ("misspelt kind", &["reward.kind=maths"][..]),
        ("no such kind", &["reward.kind=rubric"]),
        ("misspelt option", &["reward.kind=math", "reward.precison=3"]),
        ("option of another kind", &["reward.kind=gsm8k", "reward.precision=3"]),
        ("option without a kind", &["reward.marker='='"]),
        ("option that no kind has", &["reward.kind=exact", "reward.embedding=bert"]),
        ("option out of range", &["reward.kind=math", "reward.budget=0"]),
        ("missing option", &["reward.kind=regex"]),
        ("broken pattern", &["reward.kind=regex", r"reward.pattern='answer (\d+'"]),
        ("empty pattern", &["reward.kind=regex", "reward.pattern=''"]),
        ("missing group", &["reward.kind=regex", r"reward.pattern='(\d+)'", "reward.group=2"]),
        ("empty choice", &["reward.kind=choice", "reward.letters=['A', '']"]),
        ("form of nothing", &["reward.kind=format", "reward.think=false", "reward.boxed=false"]),
        ("no program", &["reward.kind=command", "reward.program=[]"]),
        ("empty program", &["reward.kind=command", "reward.program=['', '-v']"]),
        ("program in one text", &["reward.kind=command", "reward.program=python3 judge.py"]),
        ("no time", &["reward.kind=command", "reward.program=['true']", "reward.time_limit=0"]),
        ("missing program", &["reward.kind=command", "reward.program=['./no-judge', '-v']"]),
        ("no parts", &["reward.kind=weighted", "reward.parts=[]"]),
        ("part without a kind", &["reward.kind=weighted", "reward.parts=[{name='a', weight=1}]"]),
        (
            "part without weight",
            &["reward.kind=weighted", "reward.parts=[{name='a', weight=0, kind='math'}]"],
        ),
        (
            "sum in a sum",
            &["reward.kind=weighted", "reward.parts=[{name='a', weight=1, kind='weighted'}]"],
        ),
        (
            "option of another kind in a part",
            &[
                "reward.kind=weighted",
                "reward.parts=[{name='a', weight=1, kind='math', after=':'}]",
            ],
        ),
        (
            "broken pattern in a part",
            &[
                "reward.kind=weighted",
                "reward.parts=[{name='a', weight=1, kind='regex', pattern='['}]",
            ],
        ),
        (
            "two parts of a name",
            &[
                "reward.kind=weighted",
                "reward.parts=[{name='a', weight=1, kind='math'}, {name='a', weight=2, kind='dapo'}]",
            ],
        ),
        (
            "part of a part",
            &[
                "reward.kind=weighted",
                "reward.parts=[{name='style/think', weight=1, kind='format'}]",
            ],
        ),
        ("no penalty for not stopping", &["reward.stop.form=as_written"]),
        ("two penalties for not stopping", &["reward.stop={scale=0.5, replace=-1}"]),
        ("bonus for not stopping", &["reward.stop.scale=1.5"]),
        ("length that none exceeds", &["reward.length.target=3"]),
        ("right below wrong", &["reward.right=-2"]),
        (
            "variance that none exceeds",
            &["sampling.curriculum.kind=variance", "reward.right=0.1", "reward.wrong=0"],
        ),
    ] {
        let mut arguments = vec!["train", "files.toml"];
        arguments.extend(sets.iter().flat_map(|set| ["--set", set]));
        page.case(title, 2, &arguments);
    }

    page.check("rewards");
}

#[test]
fn data() {
    let mut page = Page::new();
    let train = |page: &mut Page, title: &str, sets: &[&str]| {
        let mut arguments = vec!["train", "files.toml"];
        arguments.extend(sets.iter().flat_map(|set| ["--set", set]));
        page.case(title, 1, &arguments);
    };

    train(&mut page, "no file", &["data.train=none.jsonl"]);
    train(&mut page, "a folder", &["data.train=qwen2"]);
    page.scratch.write("empty.jsonl", "\n");
    train(&mut page, "empty file", &["data.train=empty.jsonl"]);

    let rows = fs::read_to_string(page.scratch.path("train.jsonl")).unwrap();
    let mut lines: Vec<&str> = rows.lines().collect();
    lines[6] = r#"{"question": "What is 2+2?", "answer": "4}"#;
    page.scratch.write("broken.jsonl", lines.join("\n"));
    train(&mut page, "broken line", &["data.train=broken.jsonl"]);
    train(&mut page, "no such column", &["data.columns={prompt=\"text\",reference=\"answer\"}"]);

    page.scratch.write("columns.jsonl", "{\"text\": \"What is 2+2?\", \"label\": 4}\n");
    train(&mut page, "no known column", &["data.train=columns.jsonl"]);
    page.scratch.write("value.jsonl", "{\"question\": 5, \"answer\": 4}\n");
    train(&mut page, "wrong value", &["data.train=value.jsonl"]);
    train(&mut page, "prompts too long", &["data.max_prompt_tokens=9"]);
    train(&mut page, "no room for prompts", &["rollout.max_completion_tokens=32759"]);
    let short = "{\"question\": \"1+1?\", \"answer\": \"#### 2\"}\n";
    page.scratch.write("short.jsonl", short);
    let data = "data={max_prompt_tokens=64, train='short.jsonl', heldout='train.jsonl'}";
    train(&mut page, "held-out prompts too long", &[data]);

    page.check("data");
}

#[test]
fn models() {
    fn config(scratch: &Scratch, key: &str, value: impl Into<Value>) {
        let mut config = scratch.json("qwen2/config.json");
        config[key] = value.into();
        scratch.write("qwen2/config.json", config.to_string());
    }

    /// Rewrites the header of the weights, which is JSON behind its length.
    fn header(scratch: &Scratch, edit: impl FnOnce(&mut Map<String, Value>)) {
        let bytes = fs::read(scratch.path("qwen2/model.safetensors")).unwrap();
        let (length, rest) = bytes.split_first_chunk::<8>().unwrap();
        let (header, values) = rest.split_at(u64::from_le_bytes(*length) as usize);
        let mut header: Map<String, Value> = serde_json::from_slice(header).unwrap();
        edit(&mut header);

        let header = serde_json::to_vec(&header).unwrap();
        let length = (header.len() as u64).to_le_bytes();
        scratch.write("qwen2/model.safetensors", [&length[..], &header, values].concat());
    }

    let mut page = Page::new();
    page.model("no folder", |scratch| fs::remove_dir_all(scratch.path("qwen2")).unwrap());
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        page.model(&format!("no {name}"), |scratch| {
            fs::remove_file(scratch.path(&format!("qwen2/{name}"))).unwrap();
        });
    }

    page.model("config.json is not JSON", |scratch| {
        scratch.write("qwen2/config.json", "{\"a\": 1,}")
    });
    page.model("another family", |scratch| {
        config(scratch, "model_type", "mamba");
        config(scratch, "architectures", json!(["MambaForCausalLM"]));
    });
    page.model("a size is missing", |scratch| config(scratch, "hidden_size", Value::Null));
    page.model("heads that do not divide", |scratch| config(scratch, "num_key_value_heads", 3));
    page.model("stretched positions", |scratch| {
        config(scratch, "rope_scaling", json!({"type": "axial", "factor": 4.0}));
    });
    page.model("more layers than weights", |scratch| config(scratch, "num_hidden_layers", 3));
    page.model("fewer layers than weights", |scratch| config(scratch, "num_hidden_layers", 1));

    page.model("missing tensor", |scratch| {
        header(scratch, |header| {
            let norm = header.remove("model.norm.weight").unwrap();
            header.insert("model.norm.wait".into(), norm);
        });
    });
    page.model("wrong shape", |scratch| {
        header(scratch, |header| {
            header["model.layers.1.mlp.up_proj.weight"]["shape"] = json!([64, 160]);
        });
    });

    page.model("truncated weights", |scratch| {
        let bytes = fs::read(scratch.path("qwen2/model.safetensors")).unwrap();
        scratch.write("qwen2/model.safetensors", &bytes[..bytes.len() / 2]);
    });
    page.model("weights of no bytes", |scratch| scratch.write("qwen2/model.safetensors", ""));
    page.model("more tokens than the embedding has rows", |scratch| {
        config(scratch, "vocab_size", 100)
    });

    page.model("broken tokenizer", |scratch| {
        let text = fs::read_to_string(scratch.path("qwen2/tokenizer.json")).unwrap();
        scratch.write("qwen2/tokenizer.json", &text[..text.len() / 2]);
    });
    page.model("broken chat template", |scratch| {
        scratch.write("qwen2/chat_template.jinja", "{% for message in messages %}{{ message }");
    });
    page.model("chat template that refuses", |scratch| {
        let template = "{{ raise_exception('only system messages') }}";
        scratch.write("qwen2/chat_template.jinja", template);
    });

    page.check("models");
}

#[test]
fn runs() {
    let mut page = Page::new();
    let tiny = ["train", TINY, "--set", "sft.steps=2", "--set", "train.steps=2"];
    let resume = [&tiny[..], &["--resume"]].concat();

    page.case("nothing to resume", 2, &resume);
    page.scratch.succeed(&tiny);
    page.case("a run that is there", 2, &tiny);
    let changed = ["--set", "seed=3", "--set", "model.new.layers=3"];
    page.case("another model on resume", 2, &[&resume[..], &changed].concat());

    page.case("eval of nothing", 2, &["eval", "none"]);
    page.case("eval of a folder without a run", 2, &["eval", "qwen2"]);
    page.case("metrics of nothing", 2, &["metrics", "none"]);

    let checkpoint = "runs/tiny/checkpoints/step-000002";
    // With sums the program would pass over a damaged checkpoint.
    fs::remove_file(page.scratch.path(&format!("{checkpoint}/trainer/SHA256SUMS"))).unwrap();
    for name in [
        "trainer/optimizer.safetensors",
        "trainer/state.json",
        "trainer/progress.json",
        "model.safetensors",
        "tokenizer.json",
    ] {
        let path = format!("{checkpoint}/{name}");
        let bytes = fs::read(page.scratch.path(&path)).unwrap();
        // The file is cut before the numbers that a clock gives begin.
        page.scratch.write(&path, &bytes[..15]);
        page.case(&format!("damaged {name}"), 1, &resume);
        page.scratch.write(&path, bytes);
    }

    let other = ["--set", "name=other", "--set", "model.new.hidden_size=16"];
    page.scratch.succeed(&[&tiny[..], &other].concat());
    let name = "trainer/optimizer.safetensors";
    let of_other = page.scratch.path(&format!("runs/other/checkpoints/step-000002/{name}"));
    fs::copy(of_other, page.scratch.path(&format!("{checkpoint}/{name}"))).unwrap();
    page.case("optimizer state of another model", 1, &resume);

    // The remedy that all these errors name works.
    fs::remove_dir_all(page.scratch.path(checkpoint)).unwrap();
    let outcome = page.scratch.succeed(&resume);
    assert!(outcome.stderr.contains("resumed from runs/tiny/checkpoints/step-000000"));

    page.scratch.write("runs/tiny/run.db", "not a database, and longer than a page's header is");
    page.case("damaged record", 1, &resume);
    page.check("runs");
}
