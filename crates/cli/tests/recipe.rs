//! Messages to a recipe's author, and whether recipes and their schema agree with the program.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use firebrick::{
    Error,
    recipe::{Aggregation, Dynamic, Recipe},
};
use firebrick_cli::{Message, compare::differences};
use miette::{GraphicalReportHandler, GraphicalTheme};

const FILES: &str = r#"[model]
path = "model"

[data]
train = "train.jsonl"
"#;

fn with_files(tables: &str) -> String {
    format!("{FILES}\n{tables}\n")
}

/// Returns the error as the program shows it on a narrow terminal without colour.
fn error(text: &str, overrides: &[&str]) -> String {
    let overrides: Vec<String> = overrides.iter().map(|&set| set.to_owned()).collect();
    let error = Recipe::parse(Path::new("recipe.toml"), text, &overrides).unwrap_err();

    let mut page = String::new();
    GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor())
        .with_width(80)
        .render_report(&mut page, &Message::from(&Error::from(error).into()))
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
     × recipe.toml:9:11: reward.pattern is not a regular expression: unclosed
     │ group
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

/// A fault may be anywhere in the text, even next to letters of several bytes.
#[test]
fn every_fault_can_be_drawn() {
    let text = "name = \"ä\"\n[model]\npath = \"ü\"\n[data]\ntrain = \"検査\"\n[rollout]\nä = 1\n";
    for (at, _) in text.char_indices() {
        // Each of these may break TOML in its own way.
        for noise in ["", "\0", "=", "{", "]", "\"", "ü", "\n", "."] {
            let text = format!("{}{noise}{}", &text[..at], &text[at..]);
            assert!(error(&text, &[]).contains("recipe.toml"), "{text}");
        }
    }
}

/// An ablation says something only if one thing differs at a time.
#[test]
fn each_rung_of_the_ladder_changes_one_setting() {
    let rung = |name: &str| {
        let path = recipes().join(format!("ablation/{name}.toml"));
        Recipe::load(&path, &[]).unwrap().recipe
    };

    let ladder = [
        ("0-grpo", &[][..]),
        ("1-overlong-filtering", &["reward.overlong.filter"]),
        ("2-clip-higher", &["loss.clip_ratio_high"]),
        // A punishment and the tokens that it grows over are one setting of two keys.
        ("3-soft-overlong-punishment", &["reward.overlong.buffer", "reward.overlong.penalty"]),
        ("4-token-level-loss", &["loss.aggregation"]),
        ("5-dapo", &["sampling.dynamic"]),
    ];

    for pair in ladder.windows(2) {
        let differences = differences(&[rung(pair[0].0), rung(pair[1].0)]);
        let keys: Vec<&str> = differences.iter().map(|difference| &*difference.key).collect();
        assert_eq!(keys, pair[1].1, "{} and {}", pair[0].0, pair[1].0);
    }

    // The original GRPO has one clip for both sides, a mean of means, every group, and nothing about length.
    let grpo = rung("0-grpo");
    assert_eq!(grpo.loss.kind.clip_ratios(), Some((0.2, 0.2)));
    assert_eq!(grpo.loss.aggregation, Aggregation::SequenceMean);
    assert!(
        grpo.sampling.dynamic == Dynamic::Off
            && !grpo.reward.overlong.filter
            && grpo.loss.kl.is_none()
    );
    assert_eq!(grpo.reward.overlong.penalty, 0.0);
}

/// Each variant of a failure names the settings that it changes against the recipe without the part, which is the first
/// in its folder.
#[test]
fn a_variant_of_a_failure_names_what_it_changes() {
    let toml_files = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<PathBuf> =
            entries.filter(|path| path.extension().is_some_and(|it| it == "toml")).collect();
        files.sort();
        files
    };
    let load = |path: &Path| Recipe::load(path, &[]).unwrap().recipe;

    let mut variants = 0;
    for entry in fs::read_dir(recipes().join("failures")).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.is_dir() {
            continue;
        }

        let files = toml_files(&folder);
        for path in files.iter().skip(1) {
            let text = fs::read_to_string(path).unwrap();
            let named = text.lines().find_map(|line| line.strip_prefix("# Changes: "));
            let named: Vec<&str> = named.unwrap_or_default().split(", ").collect();

            // A table stands for all of its keys.
            let covers = |name: &str, key: &str| {
                key.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            let differences = differences(&[load(&files[0]), load(path)]);
            let keys: Vec<&str> = differences.iter().map(|difference| &*difference.key).collect();
            assert!(
                keys.iter().all(|key| named.iter().any(|name| covers(name, key)))
                    && named.iter().all(|name| keys.iter().any(|key| covers(name, key))),
                "{} names {named:?}, and changes {keys:?}",
                path.display()
            );
            variants += 1;
        }
    }

    assert!(variants >= 20, "only {variants} variants were found");
}

fn recipes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes")
}

#[test]
fn every_fault_of_a_recipe_at_once() {
    let tables =
        "[rollout]\ngroup_siz = 8\ntop_p = 1.5\n[device]\nkind = \"amd\"\n[optim]\nlr = inf";
    let shown = error(&with_files(tables), &[]);
    let faults = shown.lines().filter_map(|line| line.trim_start().strip_prefix("× recipe.toml:"));
    assert_eq!(
        faults.collect::<Vec<_>>(),
        [
            "8:1: unknown key `group_siz` in [rollout]",
            "9:9: rollout.top_p is 1.5, expected above 0 and at most 1",
            "11:8: device.kind is \"amd\", expected \"cpu\", \"vulkan\", \"wgpu\",",
            "13:6: optim.lr is inf, expected a finite number, at least 0",
        ]
    );
    assert!(shown.contains("an AMD or Intel card needs vulkan"), "{shown}");

    // A setting that the misspelt key would have allowed is no fault. A setting that has nothing to do with the
    // key is one.
    for (tables, count) in [
        ("[optim]\nlr = -1.0\n[train]\nmini_batch = 4096", 2),
        ("[rollout]\ngroup_siz = 64\n[train]\nmini_batch = 2048", 1),
        ("[rollot]\ngroup_size = 64\n[train]\nmini_batch = 2048", 1),
    ] {
        let shown = error(&with_files(tables), &[]);
        assert_eq!(shown.matches("× recipe.toml:").count(), count, "{shown}");
    }

    // Faults of the recipe's meaning are shown together too.
    let tables =
        "[train]\nmini_batch = 4096\n[reward]\noverlong = { buffer = 2048, penalty = 1.0 }";
    let shown = error(&with_files(tables), &[]);
    assert_eq!(shown.matches("× recipe.toml:").count(), 2, "{shown}");
}

#[test]
fn what_is_set_like_a_number_or_a_device() {
    let shown = error(&with_files(""), &["optim.lr=1e999"]);
    assert!(shown.contains("`1e999` is a number that a recipe can't hold"), "{shown}");
    let shown = error(&with_files(""), &["device=vulkan:0"]);
    assert!(
        shown.contains("write `{ kind = \"vulkan\", index = 0 }`, or --device vulkan:0"),
        "{shown}"
    );
}
