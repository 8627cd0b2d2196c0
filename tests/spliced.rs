//! The maths verifier on text as models write it: published GSM8K solutions whose last line is replaced by an
//! answer, right or wrong, in one of the many dresses that models use.
//!
//! `FIREBRICK_GSM8K` is the data set's folder, or one of its files (`train.jsonl`, `test.jsonl`). Without it
//! the test says aloud that it is skipped, and only the repository's own solutions are used. Every error is
//! listed.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod splice;

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use firebrick_reward::math::{Verdict, Verifier};
use firebrick_tests::fixture::aloud;
use splice::{Response, Solution, responses};

#[test]
fn published_solutions_in_every_dress() {
    let Some(path) = env::var_os("FIREBRICK_GSM8K") else {
        aloud("skipped: spliced: FIREBRICK_GSM8K names no copy of the data set");
        return;
    };
    let files = files(Path::new(&path));
    let errors = errors("GSM8K", &files, 5000);
    assert!(errors <= 5, "{errors} of 5000 verdicts are mistaken");
}

#[test]
fn our_own_solutions_in_every_dress() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cli/tests/data/gsm8k-style.jsonl");
    let errors = errors("our own", &[file], 1000);
    assert!(errors <= 1, "{errors} of 1000 verdicts are mistaken");
}

/// Counts the mistaken verdicts among `count` responses, and says each aloud.
fn errors(name: &str, files: &[PathBuf], count: usize) -> usize {
    let solutions: Vec<Solution> = files
        .iter()
        .flat_map(|file| {
            let text = fs::read_to_string(file).unwrap();
            text.lines().filter_map(Solution::parse).collect::<Vec<_>>()
        })
        .collect();

    let responses = responses(&solutions, count);
    let right = responses.iter().filter(|response| response.right).count();
    assert_eq!((responses.len(), right), (count, count / 2), "{name}");

    let verifier = Verifier::default();
    let mut errors = 0;
    for Response { gold, text, right, dress } in &responses {
        let judged = verifier.judge(gold, text);
        if (judged.verdict == Verdict::Right) != *right {
            errors += 1;
            let kind = if *right { "false negative" } else { "false positive" };
            aloud(&format!(
                "{kind}: {dress:?}: gold {gold:?}, extracted {:?} of …{:?}: {:?}: {}",
                judged.extracted.map(|span| span.text),
                &text[text.ceil_char_boundary(text.len().saturating_sub(160))..],
                judged.verdict,
                judged.why,
            ));
        }
    }

    aloud(&format!("{name}: {count} spliced responses, {errors} verdicts mistaken"));
    errors
}

fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_dir() {
        ["train.jsonl", "test.jsonl"].map(|name| path.join(name)).into()
    } else {
        vec![path.to_owned()]
    }
}
