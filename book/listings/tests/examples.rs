//! The crates of `book/examples`, which are outside the workspace: each stays small enough to be read at once.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

use std::{fs, path::Path};

#[test]
fn an_example_is_short_and_its_main_is_shorter() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut crates = 0;
    for entry in fs::read_dir(examples).unwrap() {
        let source = entry.unwrap().path().join("src/main.rs");
        let Ok(text) = fs::read_to_string(&source) else { continue };
        let place = source.display();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() <= 150, "{place} has {} lines", lines.len());
        let begin = lines.iter().position(|line| line.starts_with("fn main()")).unwrap();
        let main = lines[begin..].iter().position(|&line| line == "}").unwrap() + 1;
        assert!(main <= 30, "main of {place} has {main} lines");
        crates += 1;
    }
    assert!(crates >= 7, "{crates} examples were found");
}
