//! Limits of the system, each met by the program: an error with its remedy, never a signal, a backtrace or a hang.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]
#![cfg(target_os = "linux")]

mod scratch;

use std::time::{Duration, Instant};

use scratch::{Outcome, Scratch, repository};

/// Trains the tiny recipe behind some words of a shell, with a judge if there is one.
fn train(scratch: &Scratch, before: &str, more: &[&str]) -> Outcome {
    let program = env!("CARGO_BIN_EXE_firebrick");
    let script =
        format!("{before}\nexec {program} train {} \"$@\"", repository("recipes/ci/tiny.toml"));

    // The shell has to run in the environment that the program would get.
    let mut shell = scratch.command(&[]);
    let environment: Vec<_> = shell
        .get_envs()
        .map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)))
        .collect();

    shell = std::process::Command::new("sh");
    shell.args(["-c", &script, "sh"]).args(more).current_dir(scratch.path(""));
    for (name, value) in environment {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }

    let output = shell.output().unwrap();
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

#[test]
fn a_limit_is_an_error_with_its_remedy() {
    let scratch = Scratch::new();
    for (before, code, said) in [
        // In blocks of 512 bytes.
        ("ulimit -f 40", 1, "ulimit -f"),
        ("ulimit -f 1", 1, "ulimit -f"),
        ("ulimit -v 64000", 1, "ulimit -v"),
        ("ulimit -v 200000", 1, "ulimit -v"),
        ("export RAYON_NUM_THREADS=9999", 2, "leave RAYON_NUM_THREADS out"),
        ("export RAYON_RS_NUM_CPUS=100000", 2, "leave RAYON_RS_NUM_CPUS out"),
    ] {
        let clock = Instant::now();
        let outcome = train(&scratch, before, &["--set", "name=limited"]);
        assert_eq!(outcome.code, Some(code), "{before}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(said), "{before}: {}", outcome.stderr);
        for word in ["panicked", "backtrace"] {
            assert!(!outcome.stderr.contains(word), "{before}: {}", outcome.stderr);
        }

        assert!(clock.elapsed() < Duration::from_secs(30), "{before}");
        let _ = std::fs::remove_dir_all(scratch.path("runs"));
    }
}

#[test]
fn a_limit_on_the_processors_time_ends_a_run_as_ctrl_c_does() {
    let scratch = Scratch::new();
    let outcome =
        train(&scratch, "ulimit -S -t 4", &["--set", "name=long", "--set", "train.steps=100000"]);

    assert_eq!(outcome.code, Some(130), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("--resume"), "{}", outcome.stderr);
    assert!(scratch.path("runs/long/checkpoints").read_dir().unwrap().count() > 0);
}
