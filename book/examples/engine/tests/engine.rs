//! The program is run as its user runs it, with a child that does what it should, and with others.

use std::{
    ffi::OsStr,
    fs,
    path::Path,
    process::{Command, Output},
};

/// Runs the program in `place`. The sampler is a script in which $0 is the program.
fn train(place: &Path, script: &str) -> Output {
    let program = OsStr::new(env!("CARGO_BIN_EXE_own-engine"));
    let sampler = [OsStr::new("sh"), OsStr::new("-c"), OsStr::new(script), program];
    Command::new(program).args(sampler).current_dir(place).output().unwrap()
}

fn weights(place: &Path) -> Vec<u8> {
    fs::read(place.join("runs/elsewhere/checkpoints/step-000005/model.safetensors")).unwrap()
}

#[test]
fn a_child_that_dies_changes_nothing() {
    // The second child hears 200 lines, and so does every child that is started in its place.
    let scripts = [r#"exec "$0" serve"#, r#"sed -u 200q | "$0" serve"#];
    let [lives, dies] = scripts.map(|script| {
        let place = tempfile::tempdir().unwrap();
        let run = train(place.path(), script);
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        let said = String::from_utf8(run.stdout).unwrap();
        (weights(place.path()), said.matches("starting a sampler").count())
    });
    assert!(lives.1 == 1 && dies.1 > 2, "{} and {} samplers", lives.1, dies.1);
    assert!(lives.0 == dies.0, "the runs differ");
}

#[test]
fn garbage_ends_the_run_and_is_shown() {
    let other = r#"echo '[7, []]'; cat"#;
    for (script, why) in
        [("echo out of memory, or so; cat", "out of memory"), (other, "another number")]
    {
        let place = tempfile::tempdir().unwrap();
        let run = train(place.path(), script);
        let said = String::from_utf8(run.stderr).unwrap();
        assert!(!run.status.success(), "{said}");
        assert!(said.contains("answer 1 of the sampler") && said.contains(why), "{said}");
    }
}

#[test]
fn a_child_that_always_dies_is_given_up() {
    let place = tempfile::tempdir().unwrap();
    let run = train(place.path(), "echo no GPU here >&2");
    let said = String::from_utf8(run.stderr).unwrap();
    assert!(!run.status.success(), "{said}");
    let why = "lost its work 4 times, the last time because: the sampler is gone";
    assert!(said.contains(why) && said.contains("no GPU here"), "{said}");
}
