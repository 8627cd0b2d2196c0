//! The verifier on case files: it has to reach a given share of every suite.
//!
//! `FIREBRICK_VERIFIER_DIR` names a folder of case files, one for each suite, with the rows that `firebrick
//! score` reads. Without it, or without a suite's file, the tests say aloud that they skip it. Every failing
//! row is printed, also if the suite as a whole is good enough.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

use std::{
    env, fs,
    path::Path,
    time::{Duration, Instant},
};

use firebrick_cli::commands::score::{Judged, Row};
use firebrick_core::Verdict;
use firebrick_tests::{
    fixture::aloud,
    memory::{peak, reset_peak},
};

/// Rows whose expected verdict is mistaken, each with the reason. They are left out, although a row whose verdict
/// comes to agree must leave this list.
const ARGUED: &[(&str, &str)] = &[];

/// Time that one row may take: 50 ms in optimised code. Tests are built with hardly any optimisation and check
/// every addition, so they get four times as much.
const LIMIT: Duration = Duration::from_millis(if cfg!(debug_assertions) { 200 } else { 50 });

#[test]
fn published_rules_are_reproduced_verdict_by_verdict() {
    reach(&[("dapo_compat", Share::All), ("gsm8k_compat", Share::All)]);
}

#[test]
fn constructed_pairs_are_told_apart() {
    let [result] = reach(&[("synthetic", Share::AtLeast(0.995))]);
    let unequal = result.map_or(0, |result| result.false_positives);
    assert_eq!(unequal, 0, "unequal pairs were taken for equal");
}

#[test]
fn what_math_verify_asserts_holds_here_as_well() {
    reach(&[("math_verify_tests", Share::AtLeast(0.99)), ("math_verify_choice", Share::All)]);
}

/// Best shares of any other verifier, which was measured on two halves of each suite, on its better half.
#[test]
fn no_other_verifier_does_better() {
    reach(&[
        ("dapo_truth", Share::Above(0.8417)),
        ("framework_tests", Share::Above(0.8400)),
        ("math_verify_issues", Share::Above(0.8125)),
    ]);
}

/// Hostile rows are measured by time and memory. Their verdicts count as well, since a verifier that always
/// says no is right about most of them.
#[test]
fn hostile_rows_are_decided_in_bounded_time_and_memory() {
    let Some(rows) = rows("adversarial") else { return };
    // Tables that are made at first use do not count towards a row's time.
    firebrick_reward::math::Verifier::default().judge("1", "\\boxed{1}");
    let before = reset_peak();

    let mut late = Vec::new();
    for row in &rows {
        // A machine that is busy with other things gets two more tries.
        let times: Vec<Duration> = (0..3).map(|_| time(row)).collect();
        if times.iter().all(|time| *time > LIMIT) {
            late.push(format!("{} took {times:?}, expected at most {LIMIT:?}", name(row)));
        }
    }
    assert!(late.is_empty(), "{late:#?}");

    if let (Some(before), Some(peak)) = (before, peak()) {
        let grown = peak.saturating_sub(before);
        assert!(grown <= 64 << 20, "the rows took {} MiB at once", grown >> 20);
    } else {
        aloud("skipped: adversarial: the system does not tell how much memory was used");
    }

    reach(&[("adversarial", Share::AtLeast(0.98))]);
}

/// Share of a suite's rows that have to be judged as expected.
#[derive(Clone, Copy, Debug)]
enum Share {
    All,
    AtLeast(f64),
    Above(f64),
}

/// Judges all of these suites, and then fails for those that fall short.
#[track_caller]
fn reach<const SUITES: usize>(suites: &[(&str, Share); SUITES]) -> [Option<Result>; SUITES] {
    let results = suites.map(|(suite, _)| judge(suite));
    for ((suite, wanted), result) in suites.iter().zip(&results) {
        let Some(result) = result else { continue };
        let share = result.share();
        let reached = match *wanted {
            Share::All => result.failures() == 0,
            Share::AtLeast(least) => share >= least,
            Share::Above(best) => share > best,
        };
        assert!(reached, "{suite}: {share:.4} of the rows are judged as expected, not {wanted:?}");
    }
    results
}

/// Result of a suite, without rows that are disputed, argued, or only there to be survived.
struct Result {
    rows: usize,
    false_positives: usize,
    false_negatives: usize,
}

impl Result {
    fn failures(&self) -> usize {
        self.false_positives + self.false_negatives
    }

    fn share(&self) -> f64 {
        1.0 - self.failures() as f64 / self.rows.max(1) as f64
    }
}

fn judge(suite: &str) -> Option<Result> {
    let mut result = Result { rows: 0, false_positives: 0, false_negatives: 0 };
    for row in rows(suite)? {
        let (Some(rule), Some(expected)) = (row.rule(None), row.expected) else { continue };
        if !row.counts() {
            continue;
        }

        let judged = rule.judge(&row.gold, &row.response);
        let agrees = (judged.verdict == Verdict::Right) == expected;

        if let Some((id, reason)) = ARGUED.iter().find(|(id, _)| row.id.as_deref() == Some(id)) {
            assert!(!agrees, "{id} is argued without need: {reason}");
            continue;
        }

        result.rows += 1;
        if !agrees {
            result.false_positives += usize::from(!expected);
            result.false_negatives += usize::from(expected);
            aloud(&describe(&row, &judged, expected));
        }
    }

    let Result { rows, false_positives, false_negatives } = result;
    aloud(&format!(
        "{suite}: {rows} rows, {false_positives} false positives, {false_negatives} false negatives"
    ));
    assert!(rows > 0, "{suite} has no row to measure by");
    Some(result)
}

fn rows(suite: &str) -> Option<Vec<Row>> {
    let Some(folder) = env::var_os("FIREBRICK_VERIFIER_DIR") else {
        aloud(&format!("skipped: {suite}: FIREBRICK_VERIFIER_DIR names no folder of case files"));
        return None;
    };

    let path = Path::new(&folder).join(suite).with_extension("jsonl");
    let Ok(text) = fs::read(&path) else {
        aloud(&format!("skipped: {suite}: there is no {}", path.display()));
        return None;
    };

    let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    Some(lines.map(|line| Row::parse(line).unwrap()).collect())
}

fn describe(row: &Row, judged: &Judged, expected: bool) -> String {
    let kind = if expected { "false negative" } else { "false positive" };
    let why = &judged.why;
    format!(
        "{kind}: {}: gold {:?}, extracted {:?} of {:?}: {}: {why}",
        name(row),
        end(&row.gold),
        judged.extracted.as_deref().map(end),
        end(&row.response),
        judged.verdict.name(),
    )
}

fn name(row: &Row) -> &str {
    row.id.as_deref().unwrap_or("a row without an id")
}

/// Returns the last 80 characters or so.
fn end(text: &str) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(80))..]
}

fn time(row: &Row) -> Duration {
    let rule = row.rule(None).unwrap();
    let began = Instant::now();
    let _ = rule.judge(&row.gold, &row.response);
    began.elapsed()
}
