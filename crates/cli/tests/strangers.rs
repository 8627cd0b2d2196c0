//! Runs of strangers: their texts and files do nothing to those who look at them.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod scratch;

use std::{
    fs::{self, File},
    os::unix::fs::{FileTypeExt as _, symlink},
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use firebrick_core::is_unseen;
use rusqlite::Connection;
use scratch::{Outcome, Scratch};
use serde_json::Value;

/// Commands to a terminal in C0 and in C1, a mark that turns the direction of writing, a separator of lines, and a
/// formula.
const HOSTILE: &str = "=1\u{1b}]0;title\u{7}\u{9b}31m\u{202e}\u{2066}\u{2028}\u{85}\r";

/// Runs the program, which has to end in time.
fn ended(scratch: &Scratch, arguments: &[&str]) -> Outcome {
    let mut child = scratch.command(arguments).spawn().unwrap();

    // Pipes that nobody reads would hold the program up.
    let mut stdout = child.stdout.take().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let read = |stream: &mut dyn std::io::Read| {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    };

    thread::scope(|scope| {
        let outputs = (scope.spawn(|| read(&mut stdout)), scope.spawn(|| read(&mut stderr)));

        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if begun.elapsed() > Duration::from_secs(60) {
                child.kill().unwrap();
                panic!("{arguments:?} has not ended");
            }
            thread::sleep(Duration::from_millis(10));
        };

        let stdout = outputs.0.join().unwrap();
        let stderr = outputs.1.join().unwrap();
        Outcome { code: status.code(), stdout, stderr }
    })
}

/// Checks that nothing in an output is obeyed by a terminal.
#[track_caller]
fn assert_seen(arguments: &[&str], outcome: &Outcome) {
    for text in [&outcome.stdout, &outcome.stderr] {
        let obeyed = text.chars().find(|c| is_unseen(*c) && !matches!(c, '\n' | '\t'));
        assert_eq!(obeyed, None, "{arguments:?}: {text}");
    }
}

/// Appends the hostile text to every text of these columns.
fn poison(run: &Path, columns: &[&str]) {
    let store = Connection::open(run.join("run.db")).unwrap();
    for column in columns {
        let (table, column) = column.split_once('.').unwrap();
        let sql = format!("UPDATE {table} SET \"{column}\" = coalesce(\"{column}\", '') || ?1");
        assert!(store.execute(&sql, [HOSTILE]).unwrap() > 0, "{table}.{column}");
    }
}

#[test]
fn numbers_without_bounds_do_not_hold_up_a_comparison() {
    let scratch = Scratch::new();
    scratch.train_tiny("a", &[]).success();

    let store = Connection::open(scratch.path("runs/a/run.db")).unwrap();
    let endless = "UPDATE metrics SET value = 9e999 WHERE name = 'time/step' AND step = 2";
    assert_eq!(store.execute(endless, []).unwrap(), 1);
    // A negative step is read as one of twenty digits.
    let no_step = "INSERT INTO metrics (step, name, value) VALUES \
                   (-1, 'loss/entropy', 1.0), (-1, 'eval/heldout_accuracy', 0.5)";
    assert_eq!(store.execute(no_step, []).unwrap(), 2);
    drop(store);

    let metrics = ["--metric", "time/step", "--metric", "loss/entropy"];
    let arguments = [&["compare", "runs", "--out", "read"][..], &metrics].concat();
    let outcome = ended(&scratch, &arguments);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);

    let json = scratch.json("read/compare.json");
    let run = &json["recipes"][0]["runs"][0];
    assert!(run["seconds"].is_number(), "{run}");
    let steps = |points: &Value| -> Vec<u64> {
        points.as_array().unwrap().iter().map(|at| at["step"].as_u64().unwrap()).collect()
    };
    assert_eq!(steps(&run["evaluations"]), [0, 3, 6]);
    let entropy = &json["metrics"][1]["recipes"][0]["curve"];
    assert!(steps(entropy).into_iter().all(|step| step <= 6), "{entropy}");
}

#[test]
fn nothing_that_a_run_holds_is_obeyed() {
    let scratch = Scratch::new();
    // The coefficient makes the gradient infinite in float16, so that a batch is kept.
    let more = [
        "loss.entropy_coef=1e9",
        "model.dtype=float16",
        "train.max_skipped=1",
        "sampling.dynamic=false",
    ];
    scratch.train_tiny("skipped", &more);
    scratch.train_tiny("a", &["record.tokens_every=1"]).success();

    // A folder may have such a name too.
    let run = format!("runs/{}", HOSTILE.replace('/', ""));
    fs::rename(scratch.path("runs/a"), scratch.path(&run)).unwrap();

    let batch = "runs/skipped/skipped-step-000001-0.json";
    let text = fs::read_to_string(scratch.path(batch)).unwrap();
    let samples: Value = serde_json::from_str(&text).unwrap();
    assert!(samples.is_array());

    let checkpoint = format!("{run}/checkpoints/step-000006");
    let mut config = scratch.json(&format!("{checkpoint}/config.json"));
    config["note"] = HOSTILE.into();
    config["architectures"] = [HOSTILE].to_vec().into();
    scratch.write(&format!("{checkpoint}/config.json"), config.to_string());

    let out = scratch.path("out.html");
    let out = out.to_str().unwrap();

    let texts = ["info.value", "events.text", "groups.prompt", "groups.reference"];
    let of_completions = ["completions.text", "completions.extracted", "completions.parts"];
    // Words that the program knows are the last, because it shows less of a run where it does not know them.
    let words = ["groups.source", "groups.status", "completions.verdict", "completions.finish"];
    let names = ["metrics.name"];
    for columns in [&texts[..], &of_completions, &names, &words] {
        poison(&scratch.path(&run), columns);
        let commands: [&[&str]; 21] = [
            &["metrics", &run],
            &["metrics", &run, "--form", "csv"],
            &["metrics", &run, "--form", "table"],
            &["metrics", &run, "--form", "row"],
            &["metrics", &run, "--form", "wandb", "--out", "board"],
            &["metrics", &run, "--form", "tensorboard", "--out", "board"],
            &["metrics", &run, "--last", "1", HOSTILE],
            &["watch", &run, "--plain"],
            &["watch", &run],
            &["report", &run, "--out", "/dev/stdout"],
            &["report", &run, "--out", out],
            &["diagnose", &run],
            &["diagnose", &run, "--json"],
            &["inspect", &checkpoint],
            &["inspect", &checkpoint, "--tensors"],
            &["inspect", &checkpoint, "--json"],
            &["eval", &checkpoint, "--json"],
            &["eval", &checkpoint, "--completions", "/dev/stdout"],
            &["generate", &checkpoint, "1+1=", "--json"],
            &["replay", batch],
            &["replay", &run],
        ];
        for arguments in commands {
            let outcome = ended(&scratch, arguments);
            assert_seen(arguments, &outcome);
            if arguments.contains(&"--json") && outcome.code == Some(0) {
                serde_json::from_str::<Value>(&outcome.stdout).unwrap();
            }
        }
    }

    // JSON says the same in other letters, and a name is no formula.
    let json = scratch.succeed(&["metrics", &run]).stdout;
    let first: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert!(first.as_object().unwrap().keys().any(|name| name.ends_with(HOSTILE)), "{first}");
    let store = Connection::open(scratch.path(&run).join("run.db")).unwrap();
    store
        .execute("UPDATE metrics SET name = '=HYPERLINK(1)' WHERE name LIKE 'reward/mean%'", [])
        .unwrap();
    let csv = scratch.succeed(&["metrics", &run, "--form", "csv"]).stdout;
    assert!(csv.lines().next().unwrap().contains(",'=HYPERLINK(1)"), "{csv}");

    // The file of a faulty recipe is quoted, and so are the rows of a faulty data set.
    scratch.write(&format!("{run}/recipe.toml"), format!("a = \"{HOSTILE}\" b\n"));
    scratch.write("bad.yaml", format!("name: [\"{HOSTILE}\"\n"));
    scratch.write("bad.jsonl", format!("{{\"prompt\": {HOSTILE}}}\n"));
    scratch.write(
        "row.jsonl",
        format!("{}\n", serde_json::json!({"id": HOSTILE, "gold": HOSTILE, "response": HOSTILE})),
    );
    let recipe = format!("{run}/recipe.toml");
    let train = scratch::repository("recipes/ci/tiny.toml");
    for arguments in [
        &["diagnose", &run][..],
        &["plan", &recipe],
        &["train", &recipe],
        &["train", "bad.yaml"],
        &["train", &train, "--set", "data.train=bad.jsonl"],
        &["train", &train, "--set", &format!("name={HOSTILE}")],
        &["recipes", "import", "bad.yaml"],
        &["score", "row.jsonl"],
        &["score", "row.jsonl", "--rows"],
        &["score", "row.jsonl", "--explain", HOSTILE],
        &["score", "bad.jsonl"],
        &["inspect", HOSTILE, HOSTILE],
        &["inspect", &format!("--{HOSTILE}")],
    ] {
        assert_seen(arguments, &ended(&scratch, arguments));
    }
}

#[test]
fn a_run_shows_no_file_from_elsewhere_and_waits_for_none() {
    let scratch = Scratch::new();
    scratch.train_tiny("a", &["train.steps=1"]).success();
    scratch.write("secret", "a = \"the secret\"\n");
    let pipe = |name: &str| {
        let path = scratch.path(name);
        let _ = fs::remove_file(&path);
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    let link = |name: &str, to: &Path| {
        let path = scratch.path(name);
        let _ = fs::remove_file(&path);
        symlink(to, path).unwrap();
    };
    let view = || {
        let mut all = String::new();
        let ways: [&[&str]; 7] = [
            &["report", "runs/a", "--out", "page.html"],
            &["diagnose", "runs/a"],
            &["watch", "runs/a", "--plain"],
            &["metrics", "runs/a", "--form", "row"],
            &["metrics", "runs/a", "--form", "wandb", "--out", "board"],
            &["eval", "runs/a/checkpoints/step-000001"],
            &["metrics", "runs/a"],
        ];
        for arguments in ways {
            let outcome = ended(&scratch, arguments);
            all += &format!("{}{}", outcome.stdout, outcome.stderr);
        }
        all + &fs::read_to_string(scratch.path("page.html")).unwrap_or_default()
    };

    let whole = fs::read(scratch.path("runs/a/recipe.toml")).unwrap();
    for to in ["secret", "/dev/zero", "nowhere"] {
        link("runs/a/recipe.toml", &scratch.path(to));
        let seen = view();
        assert!(!seen.contains("the secret") && seen.contains("it is a link"), "{to}: {seen}");
    }
    pipe("runs/a/recipe.toml");
    assert!(view().contains("it is a pipe"));
    fs::remove_file(scratch.path("runs/a/recipe.toml")).unwrap();
    scratch.write("runs/a/recipe.toml", [&whole[..], &b"#".repeat(1 << 20)].concat());
    assert!(view().contains("larger than 1048576 bytes"));
    scratch.write("runs/a/recipe.toml", &whole);

    // Each of the other files of a run's folder is a pipe, then a link without end.
    for name in ["summary.json", "run.db-wal", "run.db"] {
        let file = format!("runs/a/{name}");
        let aside = fs::read(scratch.path(&file)).ok();
        pipe(&file);
        view();
        link(&file, Path::new("/dev/zero"));
        view();
        fs::remove_file(scratch.path(&file)).unwrap();
        if let Some(aside) = aside {
            scratch.write(&file, aside);
        }
    }

    // The report's own path is a link to a file of the reader.
    link("runs/a/report.html", &scratch.path("secret"));
    let refused = ended(&scratch, &["report", "runs/a"]);
    assert!(refused.said().contains("not an ordinary file"), "{}", refused.stderr);
    let refused = ended(&scratch, &["report", "runs/a", "--out", "runs/a/run.db"]);
    assert!(refused.said().contains("a file of the run"), "{}", refused.stderr);
    assert_eq!(fs::read(scratch.path("secret")).unwrap(), b"a = \"the secret\"\n");
    link("runs/a/.tmp-page.html", &scratch.path("secret"));
    ended(&scratch, &["report", "runs/a", "--out", "runs/a/page.html"]).success();
    assert_eq!(fs::read(scratch.path("secret")).unwrap(), b"a = \"the secret\"\n");

    // Data, alone and in a folder, and a recipe.
    scratch.fixture("qwen2-f32", "qwen2");
    fs::create_dir(scratch.path("rows")).unwrap();
    scratch.write("rows/a.jsonl", "{\"prompt\": \"1+1=\", \"answer\": \"2\"}\n");
    for name in ["rows/b.jsonl", "rows.jsonl", "rows.parquet", "pipe.toml"] {
        pipe(name);
    }
    for data in ["rows", "rows.jsonl", "rows.parquet"] {
        let recipe = "[model]\npath = \"qwen2\"\n[train]\nsteps = 1\n[data]\nheldout_size = 1\n";
        scratch.write("rows.toml", format!("{recipe}train = \"{data}\"\n"));
        let refused = ended(&scratch, &["train", "rows.toml"]);
        assert!(refused.said().contains("expected a file"), "{data}: {}", refused.stderr);
    }
    for arguments in [
        &["train", "pipe.toml"][..],
        &["recipes", "import", "pipe.toml"],
        &["score", "pipe.toml"],
        &["score", "/dev/zero"],
    ] {
        let refused = ended(&scratch, arguments);
        assert!(refused.said().contains("expected a file"), "{}", refused.stderr);
    }
}

#[test]
fn a_record_that_is_taken_away_ends_the_run() {
    for replaced in [false, true] {
        let scratch = Scratch::new();
        let recipe = scratch::repository("recipes/ci/tiny.toml");
        let train = ["train", &recipe, "--set", "name=a", "--set", "train.steps=100000"];
        let begun = || scratch.newest("a").is_some();

        let child = scratch.start_until(&train, begun).unwrap();
        for name in ["run.db", "run.db-wal", "run.db-shm"] {
            let file = scratch.path(&format!("runs/a/{name}"));
            if replaced {
                fs::copy(&file, scratch.path(name)).unwrap();
            }
            fs::remove_file(&file).unwrap();
            if replaced {
                fs::copy(scratch.path(name), &file).unwrap();
            }
        }

        let outcome = Outcome::of(child.wait_with_output().unwrap());
        assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
        assert!(
            outcome.said().contains("run.db was removed, moved or replaced"),
            "{}",
            outcome.stderr
        );

        if !replaced {
            let steps = format!("train.steps={}", scratch.newest("a").unwrap() + 1);
            let resumed = scratch.train_tiny("a", &[&steps, "--resume"]).success();
            assert!(resumed.said().contains("the record starts over"), "{}", resumed.stderr);
        }
    }
}

#[test]
fn a_full_device_is_said_to_be_full() {
    let scratch = Scratch::new();
    scratch.train_tiny("a", &["train.steps=1"]).success();
    let into = |arguments: &[&str]| {
        let full = File::options().write(true).open("/dev/full").unwrap();
        Outcome::of(scratch.command(arguments).stdout(full).output().unwrap())
    };
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["metrics", "--help"],
        &["schema"],
        &["metrics", "runs/a"],
        &["report", "runs/a"],
        &["completions", "bash"],
    ] {
        let outcome = into(arguments);
        assert_eq!(outcome.code, Some(1), "{arguments:?}: {}", outcome.stderr);
        let said = outcome.said();
        assert!(said.contains("standard output") && !said.contains("checkpoint"), "{said}");
    }

    let devices = [
        &["report", "runs/a", "--out"][..],
        &["eval", "runs/a/checkpoints/step-000001", "--completions"],
    ];
    for arguments in devices {
        let outcome = scratch.run(&[arguments, &["/dev/full"]].concat());
        assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
        let written = scratch.run(&[arguments, &["/dev/stdout"]].concat()).success().stdout;
        assert!(written.contains("<html") || written.contains("\"logprobs\""), "{written}");
    }

    assert!(fs::metadata("/dev/full").unwrap().file_type().is_char_device());
}

#[test]
fn numbers_beyond_reading_are_short() {
    let scratch = Scratch::new();
    scratch.train_tiny("a", &[]).success();
    let store = Connection::open(scratch.path("runs/a/run.db")).unwrap();
    store
        .execute("UPDATE metrics SET value = 1e308 * (CASE WHEN step % 2 THEN 1 ELSE -1 END)", [])
        .unwrap();

    for arguments in [
        &["diagnose", "runs/a"][..],
        &["diagnose", "runs/a", "--json"],
        &["watch", "runs/a", "--plain"],
        &["metrics", "runs/a", "--form", "csv"],
        &["metrics", "runs/a", "--form", "table"],
        &["report", "runs/a", "--out", "/dev/stdout"],
    ] {
        let outcome = ended(&scratch, arguments);
        let text = outcome.stdout + &outcome.stderr;
        let zeros = text.contains(&"0".repeat(60));
        assert!(!zeros, "{arguments:?}");
    }
}
