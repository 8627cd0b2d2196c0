//! What a recipe's author gets to read, and that recipes and their schema agree with the program.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

use std::{fs, path::Path};

use firebrick::{
    Message,
    compare::differences,
    recipe::{Aggregation, Dynamic, Recipe, RecipeError},
};
use miette::{GraphicalReportHandler, GraphicalTheme};

const FILES: &str = r#"[model]
path = "model"

[data]
train = "train.jsonl"
"#;

fn with_files(tables: &str) -> String {
    format!("{FILES}\n{tables}\n")
}

/// The error as the program shows it on a narrow terminal without colour.
fn error(text: &str, overrides: &[&str]) -> String {
    let overrides: Vec<String> = overrides.iter().map(|&set| set.to_owned()).collect();
    let error = Recipe::parse(Path::new("recipe.toml"), text, &overrides).unwrap_err();
    let mut page = String::new();
    GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor())
        .with_width(80)
        .render_report(&mut page, &Message::from(&error.into()))
        .unwrap();
    let lines: Vec<&str> = page.lines().map(str::trim_end).collect();
    lines.join("\n")
}

#[test]
fn a_misspelt_key() {
    insta::assert_snapshot!(error(&with_files("[rollout]\ngroup_siz = 8"), &[]), @r#"
      × recipe.toml:8:1: unknown key `group_siz` in [rollout]
       ╭─[recipe.toml:8:1]
     7 │ [rollout]
     8 │ group_siz = 8
       · ────┬────
       ·     ╰── unknown key
       ╰────
      help: did you mean `group_size`?
    "#);
}

#[test]
fn a_key_of_another_table() {
    insta::assert_snapshot!(error(&with_files("[rollout]\nprompts_per_step = 8"), &[]), @r#"
      × recipe.toml:8:1: unknown key `prompts_per_step` in [rollout]
       ╭─[recipe.toml:8:1]
     7 │ [rollout]
     8 │ prompts_per_step = 8
       · ────────┬───────
       ·         ╰── unknown key
       ╰────
      help: `prompts_per_step` is a key of [sampling]
    "#);
}

#[test]
fn a_misspelt_choice() {
    insta::assert_snapshot!(error(&with_files("[loss]\naggregation = \"token-mean\""), &[]), @r#"
      × recipe.toml:8:15: loss.aggregation is "token-mean", expected "token_mean",
      │ "prompt_mean", "sequence_mean", "sequence_sum" or "constant"
       ╭─[recipe.toml:8:15]
     7 │ [loss]
     8 │ aggregation = "token-mean"
       ·               ──────┬─────
       ·                     ╰── no such choice
       ╰────
      help: did you mean "token_mean"?
    "#);
}

#[test]
fn a_number_in_quotes() {
    insta::assert_snapshot!(error(&with_files("[optim]\nlr = \"1e-6\""), &[]), @r#"
      × recipe.toml:8:6: optim.lr is a string, expected a number
       ╭─[recipe.toml:8:6]
     7 │ [optim]
     8 │ lr = "1e-6"
       ·      ───┬──
       ·         ╰── this is a string
       ╰────
      help: write it without quotes
    "#);
}

#[test]
fn a_value_out_of_range() {
    insta::assert_snapshot!(error(&with_files("[rollout]\ntop_p = 1.5"), &[]), @r#"
      × recipe.toml:8:9: rollout.top_p is 1.5, expected above 0 and at most 1
       ╭─[recipe.toml:8:9]
     7 │ [rollout]
     8 │ top_p = 1.5
       ·         ─┬─
       ·          ╰── out of range
       ╰────
      help: `top_p`: sample among the most likely tokens that together have this
            probability, in (0, 1]
    "#);
}

#[test]
fn a_group_of_one() {
    insta::assert_snapshot!(error(&with_files("[rollout]\ngroup_size = 1 # greedy"), &[]), @r#"
      × recipe.toml:8:14: rollout.group_size is 1, expected at least 2
       ╭─[recipe.toml:8:14]
     7 │ [rollout]
     8 │ group_size = 1 # greedy
       ·              ┬
       ·              ╰── a group of one has no advantage
       ╰────
      help: only a critic gives a lone completion an advantage: advantage.kind =
            "gae"
    "#);
}

#[test]
fn a_mini_batch_larger_than_the_step() {
    insta::assert_snapshot!(error(&with_files("[sampling]\nprompts_per_step = 4"), &[]), @r#"
      × recipe.toml:8:20: train.mini_batch is 256 by default, expected at most
      │ prompts_per_step × group_size = 4 × 16 = 64
       ╭─[recipe.toml:8:20]
     7 │ [sampling]
     8 │ prompts_per_step = 4
       ·                    ┬
       ·                    ╰── a step has fewer completions
       ╰────
      help: `mini_batch = 64` under [train] makes one update of a step
    "#);
}

#[test]
fn bounds_of_updates_and_phrases() {
    let many = format!("[observe]\nphrases = [{}]", "\"a\", ".repeat(101));
    let long = format!("[observe]\nphrases = [\"{}\"]", "a".repeat(101));
    for (tables, problem) in [
        ("[train.adaptive]\nn_max = 4", "train.adaptive.n_min is 5, expected at most n_max = 4"),
        ("[train.adaptive]\nn_min = 0", "train.adaptive.n_min is 0, expected at least 1"),
        ("[train.adaptive]\nkl_stop = 0.0", "train.adaptive.kl_stop is 0.0, expected above 0"),
        ("[observe]\nphrases = [\"wait\", \"Wait\"]", "observe.phrases has \"Wait\" twice"),
        ("[observe]\nphrases = [\"\"]", "observe.phrases is empty, expected a text that is not"),
        (&many, "observe.phrases has 101 entries, expected at most 100"),
        (&long, "observe.phrases has 101 characters, expected at most 100"),
    ] {
        let error = error(&with_files(tables), &[]);
        let words = error.replace("\n  │ ", " ").replace("\n      │ ", " ");
        assert!(words.contains(problem), "{error}");
    }
}

#[test]
fn an_overlong_buffer_longer_than_a_completion() {
    insta::assert_snapshot!(error(&with_files("[reward]\noverlong = { buffer = 2048, penalty = 1.0 }"), &[]), @r#"
      × recipe.toml:8:23: reward.overlong.buffer is 2048, expected at most
      │ rollout.max_completion_tokens = 1024
       ╭─[recipe.toml:8:23]
     7 │ [reward]
     8 │ overlong = { buffer = 2048, penalty = 1.0 }
       ·                       ──┬─
       ·                         ╰── longer than a completion
       ╰────
      help: the punishment grows over a completion's last `buffer` tokens: a
            quarter is usual
    "#);
}

#[test]
fn an_option_of_another_verifier() {
    let reward = "[reward]\nkind = \"gsm8k\"\nprecision = 4";
    insta::assert_snapshot!(error(&with_files(reward), &[]), @r#"
     × recipe.toml:9:1: unknown key `precision` in [reward] of kind "gsm8k"
      ╭─[recipe.toml:9:1]
    8 │ kind = "gsm8k"
    9 │ precision = 4
      · ────┬────
      ·     ╰── unknown key
      ╰────
     help: `precision` is an option of kind = "math"
    "#);
}

#[test]
fn a_misspelt_option_of_a_part() {
    let reward = r#"
[reward]
kind = "weighted"

[[reward.parts]]
name = "answer"
weight = 0.9
kind = "math"

[[reward.parts]]
name = "form"
weight = 0.1
kind = "format"
box = true
"#;
    insta::assert_snapshot!(error(&with_files(reward), &[]), @r#"
     × recipe.toml:20:1: unknown key `box` in [[reward.parts]] of kind "format"
       ╭─[recipe.toml:20:1]
    19 │ kind = "format"
    20 │ box = true
       · ─┬─
       ·  ╰── unknown key
    21 │
       ╰────
     help: did you mean `boxed`?
    "#);
}

#[test]
fn a_pattern_that_is_none() {
    let reward = "[reward]\nkind = \"regex\"\npattern = 'answer (\\d+'";
    insta::assert_snapshot!(error(&with_files(reward), &[]), @r#"
     × recipe.toml:9:11: reward.pattern is no regular expression: unclosed group
      ╭─[recipe.toml:9:11]
    8 │ kind = "regex"
    9 │ pattern = 'answer (\d+'
      ·           ──────┬──────
      ·                 ╰── can't be used
      ╰────
     help: 'single quotes' keep backslashes as they are
    "#);
}

#[test]
fn the_options_of_a_verifier_stand_beside_its_kind() {
    use firebrick::recipe::{Extraction, Part, RewardKind};
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
fn two_models() {
    let recipe = r#"
[model]
path = "model"

[model.new]
hidden_size = 64
layers = 2
heads = 4
kv_heads = 2
intermediate_size = 128

[data]
train = "train.jsonl"
"#;
    insta::assert_snapshot!(error(recipe, &[]), @r#"
      × recipe.toml:5:1: [model] has both `path` and `new`, expected one of them
       ╭─[recipe.toml:5:1]
     4 │
     5 │ [model.new]
       · ─────┬─────
       ·      ╰── one too many
     6 │ hidden_size = 64
       ╰────
      help: `path` starts from a checkpoint, `new` from random weights
    "#);
}

#[test]
fn heads_that_do_not_divide() {
    let recipe = r#"
[model.new]
max_position_embeddings = 2048
hidden_size = 64
layers = 2
heads = 3
kv_heads = 1
intermediate_size = 128

[data]
train = "train.jsonl"
"#;
    insta::assert_snapshot!(error(recipe, &[]), @r#"
      × recipe.toml:4:15: model.new.hidden_size is 64, expected a multiple of
      │ heads = 3
       ╭─[recipe.toml:4:15]
     3 │ max_position_embeddings = 2048
     4 │ hidden_size = 64
       ·               ─┬
       ·                ╰── every head gets hidden_size / heads
     5 │ layers = 2
       ╰────
      help: the next multiple is 66
    "#);
}

#[test]
fn no_prompts() {
    let recipe = r#"
[model]
path = "model"

[data]
heldout_size = 100
"#;
    insta::assert_snapshot!(error(recipe, &[]), @r#"
      × recipe.toml:5:1: [data] has neither `train` nor `task`, expected one of
      │ them
       ╭─[recipe.toml:5:1]
     4 │
     5 │ [data]
       · ───┬──
       ·    ╰── no prompts
     6 │ heldout_size = 100
       ╰────
      help: add `train = "prompts.jsonl"`, or `task = { kind = "addition", digits
            = 3 }`
    "#);
}

#[test]
fn a_misspelt_key_of_a_task() {
    let recipe = r#"
[model]
path = "model"

[data]
task = { kind = "addition", digit = 3 }
"#;
    insta::assert_snapshot!(error(recipe, &[]), @r#"
      × recipe.toml:6:29: unknown key `digit` in [data.task] of kind "addition"
       ╭─[recipe.toml:6:29]
     5 │ [data]
     6 │ task = { kind = "addition", digit = 3 }
       ·                             ──┬──
       ·                               ╰── unknown key
       ╰────
      help: did you mean `digits`?
    "#);
}

#[test]
fn no_model() {
    let recipe = r#"
seed = 17

[data]
train = "train.jsonl"
"#;
    insta::assert_snapshot!(error(recipe, &[]), @r#"
      × recipe.toml: the recipe has no [model]
      help: add [model]: the policy to start from
    "#);
}

#[test]
fn broken_toml() {
    let recipe = r#"
[model]
path = "model
"#;
    insta::assert_snapshot!(error(recipe, &[]), @r#"
      × recipe.toml:3:14: invalid basic string, expected `"`
       ╭─[recipe.toml:3:14]
     2 │ [model]
     3 │ path = "model
       ·              ▲
       ·              ╰── here
       ╰────
    "#);
}

#[test]
fn a_misspelt_override() {
    insta::assert_snapshot!(error(FILES, &["rollout.group_siz=8"]), @r#"
      × recipe.toml (with --set):8:1: unknown key `group_siz` in [rollout] (set by
      │ --set rollout.group_siz=8)
       ╭─[recipe.toml (with --set):8:1]
     7 │ [rollout]
     8 │ group_siz = 8
       · ────┬────
       ·     ╰── unknown key
       ╰────
      help: did you mean `group_size`?
    "#);
}

#[test]
fn an_override_without_a_value() {
    insta::assert_snapshot!(error(FILES, &["seed"]), @r#"
      × --set seed: expected a `=` and a value
      help: write --set table.key=value, such as --set loss.clip_ratio_high=0.3
    "#);
}

#[test]
fn an_override_inside_a_value() {
    let recipe = r#"
seed = 17
[model]
path = "model"

[data]
train = "train.jsonl"
"#;
    insta::assert_snapshot!(error(recipe, &["seed.high=1"]), @r#"
      × --set seed.high=1: `seed` is a value and not a table
      help: set it as a whole: --set seed=value
    "#);
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
                let shown = miette::Report::new(Message::from(&error.into()));
                assert!(!format!("{shown:?}").is_empty());
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

/// An ablation says something only if one thing differs at a time.
#[test]
fn each_rung_of_the_ladder_changes_one_setting() {
    let rung = |name: &str| {
        let path = recipes().join(format!("ablation/{name}.toml"));
        Recipe::load(&path, &[]).unwrap().recipe
    };
    let ladder = [
        ("0-grpo", ""),
        ("1-overlong-filtering", "reward.overlong.filter"),
        ("2-clip-higher", "loss.clip_ratio_high"),
        ("3-soft-overlong-punishment", "reward.overlong.penalty"),
        ("4-token-level-loss", "loss.aggregation"),
        ("5-dapo", "sampling.dynamic"),
    ];
    for pair in ladder.windows(2) {
        let differences = differences(&[rung(pair[0].0), rung(pair[1].0)]);
        let keys: Vec<&str> = differences.iter().map(|difference| &*difference.key).collect();
        assert_eq!(keys, [pair[1].1], "{} and {}", pair[0].0, pair[1].0);
    }
    // GRPO as it was: one clip for both sides, a mean of means, every group, nothing about length.
    let grpo = rung("0-grpo");
    assert_eq!((grpo.loss.clip_ratio_low, grpo.loss.clip_ratio_high), (0.2, 0.2));
    assert_eq!(grpo.loss.aggregation, Aggregation::SequenceMean);
    assert!(
        grpo.sampling.dynamic == Dynamic::Off
            && !grpo.reward.overlong.filter
            && grpo.loss.kl.is_none()
    );
    assert_eq!(grpo.reward.overlong.penalty, 0.0);
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
         cargo run --release -- schema > recipes/recipe.schema.json"
    );
}

fn recipes() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes")
}
