//! What recipes mean: that those here are valid, in either notation, and that the schema is current. How
//! errors look is tested with the program.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

use std::{fs, path::Path};

use firebrick_recipe::{Aggregation, Dynamic, Loaded, Recipe, RecipeError};
use serde_json::Value;

const FILES: &str = r#"[model]
path = "model"

[data]
train = "train.jsonl"
"#;

fn with_files(tables: &str) -> String {
    format!("{FILES}\n{tables}\n")
}

#[test]
fn the_options_of_a_verifier_stand_beside_its_kind() {
    use firebrick_recipe::{Extraction, Part, RewardKind};
    let text = with_files(
        r#"
[reward]
wrong = 0.0
kind = "weighted"
stop.scale = 0.5

[[reward.parts]]
name = "answer"
weight = 0.9
kind = "math"
extraction = "boxed"

[[reward.parts]]
name = "program"
weight = 1
kind = "command"
program = ["python3", "judge.py"]
"#,
    );
    let loaded = Recipe::parse(Path::new("recipe.toml"), &text, &[]).unwrap();
    let reward = &loaded.recipe.reward;
    let math = RewardKind::Math {
        precision: 6,
        extraction: Extraction::Boxed,
        reduced_fractions: false,
        budget: 2_000_000,
    };
    let command = RewardKind::Command {
        program: vec!["python3".into(), "judge.py".into()],
        time_limit: 10.0,
        restarts: 10,
        processes: 1,
    };
    let part = |name: &str, weight, kind| Part { name: name.into(), weight, kind };
    let parts = vec![part("answer", 0.9, math), part("program", 1.0, command)];
    assert_eq!(reward.kind, Some(RewardKind::Weighted { parts }));
    assert_eq!((reward.right, reward.wrong), (1.0, 0.0));
    // What a resumed run is compared by, and a checkpoint keeps, says it in the same way.
    let written = loaded.recipe.to_toml();
    let again = Recipe::parse(Path::new("recipe.toml"), &written, &[]).unwrap();
    assert_eq!(again.recipe, loaded.recipe);
}

#[test]
fn an_override_keeps_the_comments() {
    let text = r#"#:schema ./recipe.schema.json
# Learns to add.

[model]
path = "model" # small

[data]
task = { kind = "addition", digits = 2 } # sums

[rollout]
# More is slower.
group_size = 16 # per prompt
"#;
    let overrides = [
        "seed=3",
        "rollout.group_size=8",
        "data.task.digits=4",
        "device.kind=cuda",
        "reward.overlong.filter=true",
    ];
    let loaded = Recipe::parse(Path::new("runs/add.toml"), text, &overrides.map(String::from));
    let loaded = loaded.unwrap();
    assert_eq!((loaded.name.as_str(), loaded.recipe.seed), ("add", 3));
    insta::assert_snapshot!(loaded.text, @r#"
    #:schema ./recipe.schema.json
    # Learns to add.

    seed = 3
    [model]
    path = "model" # small

    [data]
    task = { kind = "addition", digits = 4 } # sums

    [rollout]
    # More is slower.
    group_size = 8 # per prompt

    [device]
    kind = "cuda"

    [reward.overlong]
    filter = true
    "#);
    // What the run folder keeps is a recipe that means the same.
    let again = Recipe::parse(Path::new("recipe.toml"), &loaded.text, &[]).unwrap();
    assert_eq!(again.recipe, loaded.recipe);
}

#[test]
fn a_recipe_that_is_not_there() {
    let error = Recipe::load(Path::new("recipes/none.toml"), &[]).unwrap_err();
    assert!(matches!(error, RecipeError::Read { .. }));
    let help = error.help().unwrap();
    assert!(error.to_string().starts_with("can't read the recipe recipes/none.toml: "), "{error}");
    assert!(help.contains("relative to the current directory"), "{help}");
}

#[test]
fn a_program_may_leave_out_what_a_file_may_not() {
    let made = Recipe { seed: 3, ..Recipe::default() };
    let loaded = Loaded::from(made.clone());
    assert_eq!((loaded.name.as_str(), &loaded.recipe), ("run", &made));
    assert_eq!(toml::from_str::<Recipe>(&loaded.text).unwrap(), made);
    let error = Recipe::parse(Path::new("run.toml"), &loaded.text, &[]).unwrap_err().to_string();
    assert!(error.contains("[data] has neither `train` nor `task`"), "{error}");
    let named = Recipe { name: Some("mine".into()), ..made };
    assert_eq!(Loaded::from(named).name, "mine");
}

/// A number without a bound ends the process where a list of so many entries is made.
#[test]
fn every_whole_number_has_a_bound() {
    fn walk(schema: &Value, at: &str, unbounded: &mut Vec<String>) {
        let is_whole = schema["type"] == "integer";
        if is_whole && schema.get("maximum").is_none() {
            unbounded.push(at.to_owned());
        }
        match schema {
            Value::Object(fields) => {
                fields.iter().for_each(|(name, inner)| walk(inner, name, unbounded));
            }
            Value::Array(items) => items.iter().for_each(|inner| walk(inner, at, unbounded)),
            _ => {}
        }
    }
    let mut unbounded = Vec::new();
    walk(&Recipe::schema(), "", &mut unbounded);
    assert_eq!(unbounded, ["seed"]);
}

#[test]
fn what_no_memory_holds_is_refused_with_the_bound() {
    const NEW: &str = "model.new={hidden_size=64,layers=2,heads=4,kv_heads=2,intermediate_size=128";
    let new = |more: &str| format!("{NEW}{more}}}");
    for (set, problem) in [
        (
            &["rollout.group_size=1000000000"][..],
            "group_size is 1000000000, expected at least 1 and at most 65536",
        ),
        (&["sampling.prompts_per_step=100000000"], "at most 16777216"),
        (
            &["rollout.group_size=65536", "sampling.prompts_per_step=257"],
            "sampling.prompts_per_step × rollout.group_size is 257 × 65536 = 16842752, expected at \
             most 16777216 completions in a step",
        ),
        (
            &["eval.samples=65536"],
            "eval.prompts × eval.samples is 500 × 65536 = 32768000, expected at most 16777216 \
             completions in an evaluation",
        ),
        (
            &["eval.samples=65536", "eval.prompts=0"],
            "data.heldout_size × eval.samples is 500 × 65536",
        ),
        (
            &["eval.samples=60000", "data.heldout_size=280"],
            "data.heldout_size × eval.samples is 280",
        ),
        (
            &[&new(",vocab_size=40000000")],
            "vocab_size is 40000000, expected at least 1 and at most 16777216",
        ),
        (
            &[&new(",vocab_size=16000000"), "model.new.hidden_size=400"],
            "a matrix of 6400000000 values",
        ),
        (
            &[&new(""), "model.new.layers=65536", "model.new.hidden_size=16384"],
            "values, expected at most 1099511627776",
        ),
        (
            &[&new(""), "model.new.layers=1000000000000"],
            "layers is 1000000000000, expected at least 1 and at most 65536",
        ),
        (&["train.mini_batch=9000000000000000000"], "at most 16777216"),
        (&["data.train_size=9000000000000000000"], "at most 16777216"),
        (&["warmup.batch=1000000000000"], "at most 65536"),
    ] {
        let set: Vec<String> = set.iter().map(|&set| set.to_owned()).collect();
        let text = match set[0].starts_with("model.new") {
            true => "data.train = \"train.jsonl\"\nrollout.max_completion_tokens = 8\n".into(),
            false => with_files(""),
        };
        let error = Recipe::parse(Path::new("recipe.toml"), &text, &set).unwrap_err().to_string();
        assert!(error.contains(problem), "{set:?}: {error}");
    }
    // The largest that are taken.
    let most = ["rollout.group_size=65536", "sampling.prompts_per_step=256", "eval.samples=33554"];
    let most = most.map(str::to_owned);
    assert!(Recipe::parse(Path::new("recipe.toml"), &with_files(""), &most).is_ok());
}

#[test]
fn the_plain_message_says_where() {
    let text = with_files("[rollout]\ngroup_siz = 8");
    let error = Recipe::parse(Path::new("recipe.toml"), &text, &[]).unwrap_err();
    assert_eq!(error.to_string(), "recipe.toml:8:1: unknown key `group_siz` in [rollout]");
}

/// A recipe is an untrusted file: whatever stands in it, it is read or refused.
#[test]
fn no_text_makes_the_reader_panic() {
    let text = r#"name = "ä"
[model]
new = { hidden_size = 64, layers = 2, heads = 4, kv_heads = 2, intermediate_size = 128 }
[data]
task = { kind = "countdown", numbers = 3 }
[reward]
overlong.buffer = 0x10
kind = "weighted"
parts = [{ name = "a", weight = 1, kind = "regex", pattern = "(ä)", group = 1 }]
"#;
    const YAML: &str =
        "name: ä\nmodel:\n  new: {hidden_size: 64, layers: 2}\ndata:\n- task: >\n    ä\n";
    let read_as = |path: &str, text: &str| {
        for overrides in [&[][..], &["model.new.heads=0".into(), "data.task='ü'".into()]] {
            if let Err(error) = Recipe::parse(Path::new(path), text, overrides) {
                assert!(!error.to_string().is_empty());
                if let RecipeError::Invalid(fault) = &error
                    && let Some(label) = &fault.label
                {
                    assert!(fault.text.get(label.span.clone()).is_some(), "{error}");
                }
            }
        }
    };
    let read = |text: &str| read_as("recipe.toml", text);
    let read_yaml = |text: &str| read_as("recipe.yaml", text);
    let depth = 100_000;
    for (at, _) in YAML.char_indices() {
        read_yaml(&YAML[..at]);
        for noise in
            ["\0", ":", "{", "]", "\"", "&a", "*a", "ü", "\n", "\t", "- ", "? ", "!x ", "|", "#"]
        {
            read_yaml(&format!("{}{noise}{}", &YAML[..at], &YAML[at..]));
        }
    }
    for deep in ["[", "{a=", "a.", "[a]\na={b=["] {
        read(&format!("a = {}", deep.repeat(depth)));
        read(&format!("{}a = 1", deep.repeat(depth)));
    }
    for (at, _) in text.char_indices() {
        read(&text[..at]);
        for noise in ["\0", "=", "{", "]", "\"", "-9e99", "ü", "\n", "."] {
            read(&format!("{}{noise}{}", &text[..at], &text[at..]));
        }
    }
}

#[test]
fn every_recipe_here_is_valid_and_means_the_same_in_yaml() {
    let overrides = [
        "seed=3",
        "eval={ samples = 8, top_p = 0.9 }",
        "loss.kl.kind=k3",
        "loss.kl.coef=1e-3",
        "name=run",
    ];
    for path in every_recipe() {
        let text = fs::read_to_string(&path).unwrap();
        let table: toml::Table = toml::from_str(&text).unwrap();
        let as_yaml = yaml(&serde_json::to_value(&table).unwrap(), 0);
        let as_json = serde_json::to_string_pretty(&table).unwrap(); // Which is YAML too.
        for overrides in [&[][..], &overrides.map(String::from)] {
            let read = |path: &Path, text: &str| {
                Recipe::parse(path, text, overrides).unwrap_or_else(|error| {
                    panic!("{error}\n{text}");
                })
            };
            let loaded = read(&path, &text);
            for text in [&as_yaml, &as_json] {
                let other = read(&path.with_extension("yaml"), text);
                assert_eq!(other.recipe, loaded.recipe, "{}", path.display());
                assert_eq!(other.name, loaded.name);
                // What the run folder keeps is TOML and means the same.
                let kept = Recipe::parse(Path::new("recipe.toml"), &other.text, &[]).unwrap();
                assert_eq!(kept.recipe, loaded.recipe, "{}", other.text);
            }
        }
    }
}

fn every_recipe() -> Vec<std::path::PathBuf> {
    let (mut folders, mut found) = (vec![recipes()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "toml") {
                found.push(path);
            }
        }
    }
    found
}

/// A value in YAML's block style, as people write it.
fn yaml(value: &serde_json::Value, depth: usize) -> String {
    use serde_json::Value;
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            let lines = entries.iter().map(|(key, value)| {
                let gap = if value.is_object() || value.is_array() { "\n" } else { " " };
                format!("{indent}{key}:{gap}{}", yaml(value, depth + 1))
            });
            lines.collect()
        }
        Value::Array(items) if !items.is_empty() => {
            let lines = items.iter().map(|item| {
                let item = yaml(item, depth + 1);
                format!("{indent}- {}", item.trim_start())
            });
            lines.collect()
        }
        Value::String(text) if text.chars().all(|c| c.is_ascii_alphabetic()) => format!("{text}\n"),
        Value::Number(_) | Value::Bool(_) => format!("{value}\n"),
        _ => format!("{indent}{value}\n"),
    }
}

#[test]
fn a_recipe_in_yaml_with_overrides() {
    let text = "\
# Learns to add.
model:
  path: model
data: {task: {kind: addition, digits: 2}}
reward:
  kind: weighted
  parts:
  - name: answer # right or wrong
    weight: .5
    kind: integer
  - {name: form, weight: 1e-1, kind: format, boxed: true}
rollout:
  group_size: 16
  temperature: 1.";
    let overrides = [
        "seed=3",
        "rollout.group_size=8",
        "data.task.digits=4",
        "device.kind=cuda",
        "reward.overlong={ filter = true, buffer = 8 }",
    ];
    let loaded = Recipe::parse(Path::new("runs/add.yml"), text, &overrides.map(String::from));
    let loaded = loaded.unwrap();
    assert_eq!((loaded.name.as_str(), loaded.recipe.seed), ("add", 3));
    insta::assert_snapshot!(loaded.text, @r#"
    # From a recipe in YAML, whose comments are not kept.

    seed = 3

    [model]
    path = "model"

    [data.task]
    kind = "addition"
    digits = 4

    [reward]
    kind = "weighted"

    [[reward.parts]]
    name = "answer"
    weight = 0.5
    kind = "integer"

    [[reward.parts]]
    name = "form"
    weight = 1e-1
    kind = "format"
    boxed = true

    [reward.overlong]
    filter = true
    buffer = 8

    [rollout]
    temperature = 1.0
    group_size = 8

    [device]
    kind = "cuda"
    "#);
    let again = Recipe::parse(Path::new("recipe.toml"), &loaded.text, &[]).unwrap();
    assert_eq!(again.recipe, loaded.recipe);
}

/// Section 4.1 of Yu et al. 2025, number by number.
#[test]
fn the_paper_s_run_has_the_paper_s_numbers() {
    let path = recipes().join("paper/dapo-qwen2.5-32b.toml");
    let recipe = Recipe::load(&path, &[]).unwrap().recipe;
    let Recipe { rollout, sampling, reward, loss, optim, train, eval, .. } = &recipe;
    assert_eq!((sampling.prompts_per_step, rollout.group_size), (512, 16));
    assert_eq!((train.mini_batch, 512 * 16 / train.mini_batch), (512, 16));
    assert_eq!((optim.lr, optim.warmup_steps), (1e-6, 20));
    assert_eq!(rollout.max_completion_tokens, 16_384 + 4096);
    assert_eq!((reward.overlong.buffer, reward.overlong.penalty), (4096, 1.0));
    assert!(!reward.overlong.filter);
    assert_eq!((reward.right, reward.wrong), (1.0, -1.0));
    assert_eq!((loss.clip_ratio_low, loss.clip_ratio_high), (0.2, 0.28));
    assert_eq!(loss.aggregation, Aggregation::TokenMean);
    assert_eq!((loss.entropy_coef, loss.kl.is_none()), (0.0, true));
    assert!(sampling.dynamic == Dynamic::Filter && sampling.max_rounds == 0);
    assert_eq!((rollout.temperature, rollout.top_p), (1.0, 1.0));
    assert_eq!((eval.samples, eval.temperature, eval.top_p), (32, 1.0, 0.7));
    // Those that it has been scaled down to: the same but for sizes.
    for card in ["24gb", "80gb"] {
        let path = recipes().join(format!("paper/dapo-{card}.toml"));
        let scaled = Recipe::load(&path, &[]).unwrap().recipe;
        let updates = scaled.sampling.prompts_per_step * 16 / scaled.train.mini_batch;
        assert_eq!((scaled.rollout.group_size, updates), (16, 16));
        assert_eq!(scaled.loss, recipe.loss);
        assert_eq!(scaled.eval.samples, 32);
        assert_eq!(scaled.sampling.surplus, recipe.sampling.surplus);
    }
}

#[test]
fn schema_is_current() {
    let path = recipes().join("recipe.schema.json");
    let schema = serde_json::to_string_pretty(&Recipe::schema()).unwrap() + "\n";
    if std::env::var_os("FIREBRICK_UPDATE").is_some() {
        fs::write(&path, &schema).unwrap();
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored.replace("\r\n", "\n") == schema,
        "recipes/recipe.schema.json is not the schema of the recipe's types; regenerate it with\n\
         FIREBRICK_UPDATE=1 cargo test -p firebrick-recipe schema"
    );
}

fn recipes() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes")
}
