//! A run that a cluster's launcher starts.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod scratch;

use scratch::{Outcome, Scratch, repository};

#[test]
fn a_second_trainer_is_refused_with_the_reason() {
    let scratch = Scratch::new();
    let recipe = repository("recipes/ci/tiny.toml");
    for variable in ["WORLD_SIZE", "SLURM_STEP_NUM_TASKS"] {
        let mut command = scratch.command(&["train", &recipe, "--set", "name=ranks"]);
        let outcome = Outcome::of(command.env(variable, "4").output().unwrap());
        assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(&format!("{variable} is 4")), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("device.count"), "{}", outcome.stderr);
        assert!(!scratch.path("runs/ranks").exists());
    }

    // A launcher of a single process is no problem.
    let mut command =
        scratch.command(&["train", &recipe, "--set", "name=one", "--set", "train.steps=1"]);
    assert_eq!(Outcome::of(command.env("WORLD_SIZE", "1").output().unwrap()).code, Some(0));
}
