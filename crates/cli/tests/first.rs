//! What a user tries in the first ten minutes: the built-in recipes, a task of one's own, and completions for a
//! shell.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]
#![allow(clippy::print_stderr, reason = "what is skipped is said aloud")]

mod scratch;

use std::{fs, process::Command};

use scratch::{Scratch, repository};

#[test]
fn a_built_in_recipe_needs_no_clone() {
    let scratch = Scratch::new();
    let list = scratch.succeed(&["recipes"]).stdout;
    assert!(list.starts_with("quickstart "), "{list}");

    let text = scratch.succeed(&["recipes", "show", "quickstart"]).stdout;
    let file = fs::read_to_string(repository("recipes/quickstart.toml")).unwrap();
    assert_eq!(text, file.split_once('\n').unwrap().1, "without the line about the schema");

    // The printed text is a recipe of the user's own.
    scratch.write("mine.toml", &text);
    for recipe in ["quickstart", "mine.toml"] {
        scratch.succeed(&["plan", recipe]);
    }

    let short = ["sft={}", "train.steps=1", "sampling.prompts_per_step=2", "train.mini_batch=4"];
    let short = ["sampling.dynamic=false", "eval.prompts=2"].iter().chain(&short);
    let set: Vec<&str> = short.flat_map(|set| ["--set", set]).collect();
    let printed = scratch.succeed(&[&["train", "quickstart"], &set[..]].concat()).stderr;
    for line in ["  wrong  ", "\nnext:\n  firebrick eval runs/quickstart/checkpoints/step-000001"] {
        assert!(printed.contains(line), "{printed}");
    }

    // A file beats a name. The error about anything else lists the recipes that there are.
    assert_eq!(
        scratch.run(&["plan", "quickstart.toml"]).code,
        Some(2),
        "whoever names a file means it"
    );
    scratch.write("quickstart", "[model]");
    assert!(
        scratch.run(&["plan", "quickstart"]).stderr.contains("quickstart"),
        "the file was passed over"
    );
    for (asked, meant) in [
        ("quikstart", "quickstart"),
        ("GSM8K", "gsm8k"),
        ("ablation/dapo", "ablation/5-dapo"),
        ("clip-higher.toml", "ablation/2-clip-higher"),
    ] {
        let outcome = scratch.run(&["recipes", "show", asked]);
        assert_eq!(outcome.code, Some(2));
        assert!(outcome.stderr.contains(&format!("did you mean {meant}?")), "{}", outcome.stderr);
    }
}

/// Needs Python for the judge, which is not on every machine.
#[test]
fn a_task_begins_with_a_command_and_trains_from_anywhere() {
    let scratch = Scratch::new();
    scratch.succeed(&["init", "tasks/mine"]);
    let judge = scratch.path("tasks/mine/judge.py");
    assert!(judge.is_file());

    assert_eq!(
        fs::read_to_string(scratch.path("tasks/mine/README.md")).unwrap().lines().count(),
        5
    );
    assert_eq!(
        fs::read_to_string(scratch.path("tasks/mine/rows.jsonl")).unwrap().lines().count(),
        20
    );

    let again = scratch.run(&["init", "tasks/mine"]);
    assert!(again.code == Some(2) && again.stderr.contains("is not empty"), "{}", again.stderr);

    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no python3 to run the judge with");
        return;
    }
    let mut test = Command::new("python3");
    test.args(["-m", "unittest", "-q"]).current_dir(scratch.path("tasks/mine"));
    assert!(test.output().unwrap().status.success(), "the judge fails its own test");

    // Rows and judge are next to the recipe, and the current folder is another one.
    let set = ["--set", "train.steps=2", "--set", "eval.every=1"];
    scratch.succeed(&[&["train", "tasks/mine/recipe.toml", "--runs", "out"], &set[..]].concat());
    let kept = fs::read_to_string(scratch.path("out/mine/recipe.toml")).unwrap();
    assert!(kept.contains(judge.to_str().unwrap()), "{kept}");

    let resumed = ["train", "out/mine/recipe.toml", "--runs", "out", "--resume"];
    let printed = scratch.succeed(&[&resumed[..], &["--set", "train.steps=3"]].concat()).stderr;
    assert!(
        !printed.contains("judge.py") && !printed.contains("rows.jsonl"),
        "a path changed: {printed}"
    );
    scratch.succeed(&["eval", "out/mine/checkpoints/step-000003", "--samples", "2"]);
}

/// A path that does not exist is no name on the Hub, wherever the recipe is read from.
#[test]
fn a_folder_that_is_missing_is_not_looked_for_on_the_hub() {
    let scratch = Scratch::new();
    scratch.write("task/recipe.toml", "[model]\npath = 'qwen'\n[data]\ntrain = 'rows.jsonl'\n");
    let outcome = scratch.run(&["train", "task/recipe.toml"]);
    assert_eq!(outcome.code, Some(1));

    let printed = outcome.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(printed.contains("model.path is ./task/qwen, expected a folder"), "{printed}");
    assert!(!printed.contains("looking for"), "{printed}");
}

#[test]
fn a_shell_and_man_know_every_command() {
    let scratch = Scratch::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = scratch.succeed(&["completions", shell]).stdout;
        assert!(script.contains("generate") && script.contains("max-tokens"), "{shell}");
    }

    scratch.succeed(&["man", "man/man1"]);
    for page in ["firebrick", "firebrick-train", "firebrick-recipes-import"] {
        let text = fs::read_to_string(scratch.path(&format!("man/man1/{page}.1"))).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{page}: {text}");
        // Examples keep their lines.
        assert!(text.contains(".nf") && !text.contains("EXTRA"), "{page}: {text}");
    }

    let version = scratch.succeed(&["--version"]).stdout;
    assert!(version.starts_with("firebrick 0.") && version.contains("built with cpu"), "{version}");
}

/// Tries a recipe that is one long line with a value of half a megabyte in it.
#[test]
fn what_came_is_not_echoed_whole() {
    let scratch = Scratch::new();
    let long = "x".repeat(500_000);
    scratch.write("long.toml", format!("[model]\n{long} = 1\npath = 3 # {long}\n"));

    let outcome = scratch.run(&["train", "long.toml"]);
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.stderr.len() < 8_000, "{} bytes", outcome.stderr.len());
    assert!(outcome.stderr.contains("unknown key"), "{}", outcome.stderr);

    let outcome = scratch.run(&["train", &format!("{}.toml", &long[..100_000])]);
    assert!(outcome.stderr.len() < 4_000, "{} bytes", outcome.stderr.len());

    let outcome = scratch.run(&["generate", "nowhere", "--prompt", "a", "--temperature", "-1"]);
    assert!(!outcome.stderr.contains("unexpected argument"), "{}", outcome.stderr);
}
