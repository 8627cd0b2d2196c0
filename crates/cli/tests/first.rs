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
    for line in ["  wrong  ", "\nnext:\n  firebrick eval runs/quickstart --samples"] {
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
    for far in ["my-task", "calculus", "gpt.toml", "ing"] {
        let outcome = scratch.run(&["plan", far]);
        assert!(!outcome.stderr.contains("did you mean"), "{}", outcome.stderr);
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

/// Needs Python for the judge, which is not on every machine.
#[test]
fn a_model_is_tried_before_it_is_trained() {
    let scratch = Scratch::new();
    scratch.fixture("qwen2-f32", "model");
    let small = ["init", "small", "--model", "model", "--memory", "1MB"];
    let refused = scratch.run(&small);
    assert!(refused.stderr.contains("model does not fit into"), "{}", refused.stderr);
    assert!(!scratch.path("small").exists(), "a folder was made although nothing was written");

    // The numbers follow from the memory: a plan with less of it has smaller batches.
    let tokens = |name: &str, memory: &str| {
        scratch.succeed(&["init", name, "--model", "model", "--memory", memory]);
        let text = fs::read_to_string(scratch.path(&format!("{name}/recipe.toml"))).unwrap();
        text.lines().find(|line| line.starts_with("micro_batch_tokens")).map(str::to_owned)
    };
    assert_eq!(tokens("large", "16GB"), None);
    assert!(tokens("little", "45MB").is_some());

    let crates = ["init", "crate", "--model", "model", "--rust"];
    scratch.succeed(&crates);
    assert!(scratch.path("crate/judge.rs").is_file() && scratch.path("crate/Cargo.toml").is_file());

    scratch.succeed(&["init", "task", "--model", "model"]);
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no python3 to run the judge with");
        return;
    }
    let mut test = Command::new("python3");
    test.args(["-m", "unittest", "-q"]).current_dir(scratch.path("task"));
    assert!(test.output().unwrap().status.success(), "the judge fails its own test");

    let short = ["--prompts", "2", "--set", "rollout.max_completion_tokens=8"];
    let tried = scratch.succeed(&[&["try", "task/recipe.toml"], &short[..]].concat()).stdout;
    for part in [
        "prompt 2 of 2, as the model reads it\n  | <|im_start|>system",
        "as an answer it gets 0.00, wrong",
        "16 answers, score 0.00 on average, 16 cut off",
        "the run      ",
        "No answer earned anything",
    ] {
        assert!(tried.contains(part), "{part}: {tried}");
    }
    assert!(!scratch.path("runs").exists(), "a trial left a run");

    // Mistakes in a judge end the command before anything is sampled, and say what to do.
    let judge = fs::read_to_string(scratch.path("task/judge.py")).unwrap();
    for (from, to, problem) in [
        (
            "return float(word",
            "return float(sentence",
            "judge.py, line 9: NameError: name 'sentence' is not defined (for the completion",
        ),
        ("return float(", "return str(", "`score` returned 'False', expected a number from 0 to 1"),
        (
            "return float(",
            "float(",
            "`score` returned nothing (does every path of it end with `return`?)",
        ),
        ("def score(", "def scoer(", "has no function `score`; its functions are: scoer"),
        ("def score(question", "def score(row", "'row' is none of its arguments"),
        ("import re", "import re)", "judge.py, line 3: SyntaxError"),
    ] {
        let mistake = judge.replacen(from, to, 1);
        assert_ne!(mistake, judge, "{problem}");
        scratch.write("task/judge.py", mistake);
        let outcome = scratch.run(&["train", "task/recipe.toml"]);
        assert_eq!(outcome.code, Some(2));
        assert!(
            outcome.stderr.replace("\n", " ").contains(problem),
            "{problem}: {}",
            outcome.stderr
        );
        assert!(!scratch.path("runs").exists(), "a run began");
    }

    // A trial says on how many answers a judge failed, and why.
    let rare = "return float(len(completion) % 2 == 1 or word_that_is_not_there";
    scratch.write("task/judge.py", judge.replacen("return float(word", rare, 1));
    let outcome = scratch.run(&[&["try", "task/recipe.toml"], &short[..]].concat());
    assert!(outcome.stdout.contains("32 answers have no verdict, because"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("  0.00 error: "), "{}", outcome.stdout);
    let reason = "judge.py, line 9: NameError: name 'word_that";
    assert!(outcome.stderr.replace('\n', " ").contains(reason), "{}", outcome.stderr);

    scratch.write("task/judge.py", judge.replacen("    word", "    print('loud')\n    word", 1));
    scratch.write("answers.jsonl", ANSWERS);
    let scored =
        scratch.succeed(&["score", "--recipe", "task/recipe.toml", "--rows", "answers.jsonl"]);
    let scores: Vec<serde_json::Value> =
        scored.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        scores.iter().map(|row| row["score"].as_f64()).collect::<Vec<_>>(),
        [1.0, 0.0].map(Some)
    );
    assert!(
        scored.stderr.contains("2 answers, judged by reward.kind = \"python\"")
            && scored.stderr.contains("judge.py printed: loud"),
        "{}",
        scored.stderr
    );

    let args = ["score", "--recipe", "task/recipe.toml", "--disagreements", "answers.jsonl"];
    let scored = scratch.succeed(&args);
    assert_eq!(scored.stdout.lines().count(), 1, "{}", scored.stdout);
    assert!(scored.stderr.contains("expected  1 of 2 agree"), "{}", scored.stderr);

    // As in a run, the judge of a row's data set is asked, and gets a reference that is an object as one.
    scratch.write("task/judge.py", "def score(reference):\n    return reference['worth']\n");
    let recipe = fs::read_to_string(scratch.path("task/recipe.toml")).unwrap();
    let list = "[{ path = 'rows.jsonl', name = 'own', reward = { kind = 'exact' } }]";
    scratch.write("task/two.toml", recipe.replacen("\"rows.jsonl\"", list, 1));
    scratch.write("answers.jsonl", OBJECTS);
    let scored =
        scratch.succeed(&["score", "--recipe", "task/two.toml", "--rows", "answers.jsonl"]);
    let scores: Vec<String> = scored.stdout.lines().map(str::to_owned).collect();
    assert!(
        scores[0].contains("\"score\":0.5") && scores[1].contains("\"score\":1.0"),
        "{scores:?}"
    );
}

/// A reference that is an object, and a row of a data set with a judge of its own.
const OBJECTS: &str = r#"{"question": "?", "reference": {"worth": 0.5}, "completion": "a"}
{"question": "?", "reference": "b", "completion": "b", "data_source": "own"}
"#;

/// A right answer and a wrong one, with the keys of a judge's requests and of `eval --completions`.
const ANSWERS: &str = r#"{"id": 7, "question": "Write one word that begins with the letter B.", "reference": "B", "completion": "Bread.", "expected": true}
{"question": "Write one word that begins with the letter B.", "answer": "B", "text": "Apple", "expected": 0.5}
"#;

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

    // What bash offers is asked of bash itself.
    let script = scratch.succeed(&["completions", "bash"]).stdout;
    let offers = |words: &[&str]| {
        let words = words.join(" ");
        let ask = format!(
            "compopt() {{ :; }}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _firebrick firebrick \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; echo \"${{COMPREPLY[@]}}\""
        );
        let output =
            Command::new("bash").args(["-c", &format!("{script}\n{ask}")]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    if Command::new("bash").arg("--version").output().is_ok() {
        assert_eq!(offers(&["firebrick", "train", "quicks"]), "quickstart");
        assert_eq!(offers(&["firebrick", "train", "x", "--set", "train.ste"]), "train.steps=");
        assert!(offers(&["firebrick", "cha"]).contains("chat"));
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

    let outcome = scratch.run(&["generate", "nowhere", "a", "--temperature", "-1"]);
    assert!(!outcome.stderr.contains("unexpected argument"), "{}", outcome.stderr);
}
