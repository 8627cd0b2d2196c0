//! Python opens the files that a run writes: its checkpoints in `transformers`, its adapters in `peft`, its
//! numbers in TensorBoard and W&B. `FIREBRICK_PYTHON` names that Python. `FIREBRICK_OPENENV` names a Python that
//! serves environments with OpenEnv.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod scratch;

use std::{
    env,
    ffi::{OsStr, OsString},
    io::Write as _,
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use scratch::{Scratch, assert_same, repository};

const SHORT: [&str; 14] = [
    "--set",
    "sft.steps=2",
    "--set",
    "sft.stop_at=1.0",
    "--set",
    "sampling.prompts_per_step=4",
    "--set",
    "train.steps=1",
    "--set",
    "train.mini_batch=32",
    "--set",
    "eval.every=1",
    "--set",
    "eval.prompts=4",
];

#[test]
fn interop_checkpoints_of_a_run_open_in_python() {
    let Some(python) = python() else { return };
    let scratch = Scratch::new();
    let recipe = std::fs::read_to_string(repository("recipes/quickstart.toml")).unwrap();
    scratch.write("new.toml", &recipe);
    scratch.succeed(&[&["train", "new.toml", "--set", "name=new"][..], &SHORT].concat());
    let model = "runs/new/checkpoints/step-000001";
    open(&python, &scratch, &[model]);

    let (before, rest) = recipe.split_once("[model.new]").unwrap();
    let (_, after) = rest.split_once("[data]").unwrap();
    let lora = format!("[model]\npath = \"{model}\"\n[model.lora]\nrank = 4\n[data]");
    scratch.write("lora.toml", format!("{before}{lora}{after}"));
    scratch.succeed(&[&["train", "lora.toml", "--set", "name=lora"][..], &SHORT].concat());
    let adapter = "runs/lora/checkpoints/step-000001";
    open(&python, &scratch, &[model, "--adapter", adapter]);
    scratch.succeed(&["export", adapter, "merged", "--merge"]);
    open(&python, &scratch, &["merged"]);
}

#[test]
fn interop_event_files_are_read_by_their_own_readers() {
    let Some(python) = python() else { return };
    let scratch = Scratch::new();
    scratch.train_tiny("a", &[]).success();

    // No run of a second has such values.
    let strange = "INSERT INTO metrics VALUES (7, 'odd/nan', NULL), (7, 'odd/most', 9e999), (7, 'odd/least', -9e999), \
                   (7, 'odd/small', 5e-324), (7, 'reward/mean', 0.1)";
    let database = rusqlite::Connection::open(scratch.path("runs/a/run.db")).unwrap();
    database.execute(strange, []).unwrap();

    let lines = scratch.succeed(&["metrics", "runs/a"]).stdout;
    scratch.write("metrics.jsonl", &lines);
    for form in ["tensorboard", "wandb"] {
        // A run that is written twice is there once.
        for _ in 0..2 {
            scratch.succeed(&["metrics", "runs/a", "--form", form, "--out", form]);
        }
    }

    let mut command = Command::new(python);
    command.arg(repository("tests/interop/events.py"));
    command.args(["tensorboard/a", "wandb", "metrics.jsonl"]).current_dir(scratch.path(""));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));

    // The script skips a reader that is not installed, and says so. CI has both readers.
    say(&said);
}

/// A game that a server plays is the same, to the bit, as the game that is played here.
#[test]
fn interop_a_server_of_openenv_plays_a_run() {
    let Some(python) = named("FIREBRICK_OPENENV") else { return };
    let scratch = Scratch::new();

    // The port was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut server = Command::new(python);
    server.arg(repository("tests/interop/guessing.py")).args(["--port", &port]);
    let server = Ended(server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let address = format!("127.0.0.1:{port}");

    // The server needs a while before it listens.
    let until = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(&address).is_err() {
        assert!(Instant::now() < until, "the server does not come up");
        thread::sleep(Duration::from_millis(100));
    }

    let short = ["train.steps=2", "eval.every=1", "model.new.alphabet=0123456789-:<>=?"];
    let servers = format!("environment.servers=[\"http://{address}\"]");
    let there = [
        "environment.kind=openenv",
        &servers,
        "environment.sessions=64",
        "environment.reset={\"secret\": {{ reference }}}",
        "environment.observation={{ observation.message }}",
    ];

    let train = |name: &str, more: &[&str]| {
        let (recipe, name) = (repository("recipes/guessing.toml"), format!("name={name}"));
        let sets = short.iter().chain(more).flat_map(|set| ["--set", set]);
        scratch.succeed(
            &["train", &recipe, "--set", &name].into_iter().chain(sets).collect::<Vec<_>>(),
        )
    };

    train("here", &[]);
    train("there", &there);

    // The server pays 0 where the game pays nothing. Waiting groups record this, so their file may differ.
    let result = |run: &str| {
        let mut result = scratch.result(run);
        result.retain(|(file, _)| !file.contains("state.json"));
        result
    };
    assert_same(&result("here"), &result("there"));

    // Its tasks are prompts, if the recipe has none.
    let tasks = "data.task={kind=\"environment\",split=\"train\",heldout_split=\"test\"}";
    let opening =
        "environment.opening={{ observation.message[20:21] }}-{{ observation.message[-2:-1] }}:";
    let own = [there[0], there[1], there[2], there[4], tasks, opening];
    let said = train("tasks", &own);
    assert!(said.stderr.contains("168 of 168 prompts kept"), "{}", said.stderr);
    drop(server);
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Returns the Python to open files with. Without one the test is skipped, and says so.
fn python() -> Option<OsString> {
    named("FIREBRICK_PYTHON")
}

fn named(variable: &str) -> Option<OsString> {
    let python = env::var_os(variable);
    if python.is_none() {
        say(&format!("skipped: {variable} names no Python"));
    }
    python
}

/// Writes a line past the harness, which shows a passing test's output to nobody.
#[expect(clippy::explicit_write, reason = "the harness takes what eprintln! says")]
fn say(line: &str) {
    writeln!(std::io::stderr(), "{line}").unwrap();
}

fn open(python: &OsStr, scratch: &Scratch, arguments: &[&str]) {
    let mut command = Command::new(python);
    command.arg(repository("tests/interop/roundtrip.py")).args(arguments);
    let output = command.current_dir(scratch.path("")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
}
