//! What a run writes opens in Python: its checkpoints in `transformers`, its adapters in `peft`.
//! `FIREBRICK_PYTHON` names that Python.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod place;

use std::{env, ffi::OsStr, io::Write as _, process::Command};

use place::{Place, repository};

const SHORT: [&str; 14] = [
    "--set",
    "warmup.steps=2",
    "--set",
    "warmup.stop_at=1.0",
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
    let Some(python) = env::var_os("FIREBRICK_PYTHON") else {
        // Past the harness, which shows a passing test's output to nobody.
        writeln!(std::io::stderr(), "skipped: FIREBRICK_PYTHON names no Python").unwrap();
        return;
    };
    let place = Place::new();
    let recipe = std::fs::read_to_string(repository("recipes/quickstart.toml")).unwrap();
    place.write("new.toml", &recipe);
    place.succeed(&[&["train", "new.toml", "--set", "name=new"][..], &SHORT].concat());
    let model = "runs/new/checkpoints/step-000001";
    open(&python, &place, &[model]);

    let (before, rest) = recipe.split_once("[model.new]").unwrap();
    let (_, after) = rest.split_once("[data]").unwrap();
    let lora = format!("[model]\npath = \"{model}\"\n[model.lora]\nrank = 4\n[data]");
    place.write("lora.toml", format!("{before}{lora}{after}"));
    place.succeed(&[&["train", "lora.toml", "--set", "name=lora"][..], &SHORT].concat());
    let adapter = "runs/lora/checkpoints/step-000001";
    open(&python, &place, &[model, "--adapter", adapter]);
    place.succeed(&["export", adapter, "merged", "--merge"]);
    open(&python, &place, &["merged"]);
}

fn open(python: &OsStr, place: &Place, arguments: &[&str]) {
    let mut command = Command::new(python);
    command.arg(repository("tests/interop/roundtrip.py")).args(arguments);
    let output = command.current_dir(place.path("")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
}
