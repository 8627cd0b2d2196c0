//! The chapter on rewards: its tables of hard cases, its figures and its programs.
//!
//! `FIREBRICK_UPDATE=1 cargo test --release -p firebrick-book --test rewards` draws the figures anew.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]
#![allow(clippy::print_stderr, reason = "what is not tried is said")]

mod figure;

use std::{fs, path::PathBuf};

use figure::{Axis, Curve, Figure, Hue};
use firebrick::recipe::Recipe;
use firebrick_core::{Completion, FinishReason, Prompt, Score, Verdict};
use firebrick_reward::{
    AnswerLine, Gsm8k, Gsm8kMode, LengthPenalty, PenaltyForm, StopPenalty, StopProperly, math,
    soft_overlong_penalty,
};

/// A row of a table of hard cases.
struct Case<'page> {
    gold: &'page str,
    text: &'page str,
    /// True if the answer is right.
    right: bool,
    /// The verdicts of the five judges, ours first.
    verdicts: Vec<&'page str>,
}

#[test]
fn our_verdicts_on_hard_cases_are_those_of_the_page() {
    let page = page();
    let verbatim = |text: &str| text.to_owned();
    let answer_line = |answer: &str| format!("Answer: {answer}");
    let mut cases = 0;
    for (heading, dress, dapo_dress) in [
        ("### Answers", &boxed as &dyn Fn(&str) -> String, &answer_line as &dyn Fn(&str) -> String),
        ("### Responses", &verbatim, &verbatim),
    ] {
        for case in &hard_cases(&page, heading) {
            let Case { gold, text, verdicts, .. } = case;
            let judgement = math::Verifier::default().judge(gold, &dress(text));
            let said = |judge: usize| verdicts[judge].trim_matches('*');
            assert_eq!(
                said(0),
                Verdict::from(judgement.verdict).name(),
                "{gold}, {text}: {judgement:?}"
            );
            // We have these two rules too. Their verdicts are either right or wrong.
            let flexible = Gsm8k { mode: Gsm8kMode::Flexible };
            for (judge, score) in [
                (2, score(&AnswerLine::default(), gold, &dapo_dress(text))),
                (4, score(&flexible, gold, text)),
            ] {
                let right = score.verdict == Verdict::Right;
                assert_eq!(said(judge) == "right", right, "{gold}, {text}: judge {judge}");
            }
            cases += 1;
        }
    }
    assert!(cases > 25, "only {cases} rows were found: have the tables changed their form?");
}

#[test]
fn mistaken_verdicts_are_bold_and_counted() {
    let page = page();
    for heading in ["### Answers", "### Responses"] {
        let cases = hard_cases(&page, heading);
        for case in &cases {
            for verdict in &case.verdicts {
                let mistaken = (verdict.trim_matches('*') == "right") != case.right;
                assert_eq!(verdict.starts_with("**"), mistaken, "{}, {}", case.gold, case.text);
            }
        }
        let mistakes = |judge: usize| {
            cases.iter().filter(|case| case.verdicts[judge].starts_with("**")).count().to_string()
        };
        let counts: Vec<String> = (0..5).map(mistakes).collect();
        let last = rows(&page, heading).pop().unwrap();
        assert_eq!(last[3..], counts, "the last row of {heading}");
    }
}

#[test]
fn what_the_page_calls_the_same_is_and_what_not_is_not() {
    let page = page();
    let mut pairs = 0;
    for row in rows(&page, "### Values and their comparison") {
        let gold = row[0].trim_matches('`');
        for (cell, expected) in [(row[1], Verdict::Right), (row[2], Verdict::Wrong)] {
            for answer in cell.split('`').skip(1).step_by(2) {
                let judgement = math::Verifier::default().judge(gold, &boxed(answer));
                assert_eq!(
                    Verdict::from(judgement.verdict),
                    expected,
                    "{gold}, {answer}: {judgement:?}"
                );
                pairs += 1;
            }
        }
    }
    assert!(pairs > 20, "only {pairs} pairs were found: has the table changed its form?");
}

#[test]
fn what_is_not_decided_is_what_the_page_says() {
    let page = page();
    let undecided = rows(&page, "### Answers that it does not decide");
    assert!(undecided.len() > 5, "has the table changed its form?");
    for row in undecided {
        let (gold, answer) = (row[0].trim_matches('`'), row[1].trim_matches('`'));
        let judgement = math::Verifier::default().judge(gold, &boxed(answer));
        assert_eq!(
            Verdict::from(judgement.verdict).name(),
            row[2],
            "{gold}, {answer}: {judgement:?}"
        );
    }
}

fn hard_cases<'page>(page: &'page str, heading: &str) -> Vec<Case<'page>> {
    let mut rows = rows(page, heading);
    // The last row counts the others.
    rows.pop();
    let case = |row: Vec<&'page str>| Case {
        gold: row[0].trim_matches('`'),
        text: row[1].trim_matches('`'),
        right: row[2] == "yes",
        verdicts: row[3..].to_vec(),
    };
    rows.into_iter().map(case).collect()
}

/// Reads the cells of the table in the section below `heading`, without the table's own heading.
fn rows<'page>(page: &'page str, heading: &str) -> Vec<Vec<&'page str>> {
    let section = page.split(&format!("\n{heading}\n")).nth(1).unwrap();
    let section = section.split("\n#").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    rows.skip(1).map(|row| row.split(" | ").map(str::trim).collect()).collect()
}

/// Writes an answer as a model does.
fn boxed(answer: &str) -> String {
    format!("$\\boxed{{{answer}}}$")
}

fn score(verifier: &dyn firebrick_core::Verifier, reference: &str, text: &str) -> Score {
    let prompt = Prompt { reference: reference.into(), ..Prompt::default() };
    let completion = Completion::of_text(text);
    verifier.score(&prompt, &completion)
}

#[test]
fn the_figures_are_current() {
    for (name, figure) in figures() {
        let path = book().join("src/figures").join(name);
        let drawn = figure.svg();
        if std::env::var_os("FIREBRICK_UPDATE").is_some() {
            fs::write(&path, &drawn).unwrap();
        }
        let stored = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored.replace("\r\n", "\n") == drawn,
            "book/src/figures/{name} is not what the crate computes now; draw it anew with\n\
             FIREBRICK_UPDATE=1 cargo test --release -p firebrick-book --test rewards"
        );
        assert!(
            page().contains(&format!("{{{{#include figures/{name}}}}}")),
            "{name} is not shown"
        );
    }
}

fn figures() -> Vec<(&'static str, Figure)> {
    let reward = || Axis {
        label: "shaped reward",
        from: -2.1,
        to: 1.1,
        ticks: [("−2", -2.0), ("−1", -1.0), ("0", 0.0), ("1", 1.0)].to_vec(),
    };
    let overlong = Figure {
        title: "Soft overlong punishment: L_max = 20,480, L_cache = 4,096, penalty 1",
        x: Axis {
            label: "length in tokens",
            from: 0.0,
            to: 20_480.0,
            ticks: [("0", 0.0), ("8,192", 8192.0), ("16,384", 16_384.0), ("20,480", 20_480.0)]
                .to_vec(),
        },
        y: reward(),
        curves: [("right", Hue::Blue, 1.0), ("wrong", Hue::Orange, -1.0)]
            .map(|(label, hue, accuracy)| {
                let shaped = |length| accuracy + soft_overlong_penalty(length, 20_480, 4096, 1.0);
                let points = (0..=80).map(|step| step * 256);
                Curve {
                    label,
                    hue,
                    dashed: false,
                    points: points.map(|length| (length as f64, shaped(length))).collect(),
                }
            })
            .into(),
    };
    let stop = Figure {
        title: "Stop properly: a completion that ran into the limit",
        x: Axis {
            label: "scale",
            from: 0.0,
            to: 1.0,
            ticks: [("0", 0.0), ("0.25", 0.25), ("0.5", 0.5), ("0.75", 0.75), ("1", 1.0)].to_vec(),
        },
        y: reward(),
        curves: both_forms(100, |reward, form, scale| {
            let penalty = StopPenalty::Scale(scale);
            (scale, StopProperly { penalty, form }.penalised(reward, FinishReason::Length))
        }),
    };
    let length = |title, truncated| Figure {
        title,
        x: Axis {
            label: "length as a multiple of the target",
            from: 0.0,
            to: 2.5,
            ticks: [("0", 0.0), ("0.5", 0.5), ("1", 1.0), ("1.5", 1.5), ("2", 2.0), ("2.5", 2.5)]
                .to_vec(),
        },
        y: reward(),
        curves: both_forms(250, |reward, form, share| {
            let tokens = (2500.0 * share).round() as usize;
            let penalty = LengthPenalty { form, ..LengthPenalty::new(1000) };
            (tokens as f64 / 1000.0, penalty.penalised(reward, tokens, truncated))
        }),
    };
    vec![
        ("overlong.svg", overlong),
        ("stop.svg", stop),
        ("length.svg", length("Length penalty: a completion that stopped", false)),
        (
            "truncation.svg",
            length("Length and truncation penalty: a completion that was cut off", true),
        ),
    ]
}

/// Draws a right answer, for which both forms are the same, and a wrong one in each form. `point` gets the
/// reward, the form and a share from 0 to 1.
fn both_forms(steps: u32, point: impl Fn(f64, PenaltyForm, f64) -> (f64, f64)) -> Vec<Curve> {
    [
        ("right, both forms", Hue::Blue, false, 1.0, PenaltyForm::SignSafe),
        ("wrong, sign-safe", Hue::Orange, false, -1.0, PenaltyForm::SignSafe),
        ("wrong, as written", Hue::Orange, true, -1.0, PenaltyForm::AsWritten),
    ]
    .map(|(label, hue, dashed, reward, form)| {
        let share = |step| f64::from(step) / f64::from(steps);
        let points = (0..=steps).map(|step| point(reward, form, share(step))).collect();
        Curve { label, hue, dashed, points }
    })
    .into()
}

#[test]
fn the_rewards_of_the_page_are_those_of_a_recipe() {
    let page = page();
    let blocks = page.split("\n```toml\n").skip(1).map(|block| block.split("```").next().unwrap());
    let mut kinds = std::collections::BTreeSet::new();
    for block in blocks {
        let recipe = format!(
            "model.path = \"model\"\ndata.train = \"train.jsonl\"\n\
             rollout.max_completion_tokens = 20480\n{block}"
        );
        let recipe = Recipe::parse("rewards.md".as_ref(), &recipe, &[]);
        let recipe = recipe.unwrap_or_else(|error| panic!("{block}{error}")).recipe;
        kinds.extend(
            recipe.reward.kind.map(|kind| serde_json::to_value(kind).unwrap()["kind"].to_string()),
        );
    }
    // The chapter shows one of the two rules for GSM8K.
    assert_eq!(kinds.len(), 14, "{kinds:?}");
}

/// Runs the programs of the chapter as a recipe would run them.
#[cfg(unix)]
#[test]
fn the_programs_judge() {
    use firebrick_reward::{Command, CommandOptions};

    let near = [("It is 9.8 m/s².", 1.0), ("10", 0.0), ("no idea", 0.0)];
    let parses = [("echo \"$1\"\n", 1.0), ("if true; then", 0.0), ("ls |", 0.0)];
    for (interpreter, needs, name, reference, rows) in
        [("python3", "python3", "near.py", "9.81", near), ("sh", "jq", "parses.sh", "", parses)]
    {
        if std::process::Command::new(needs).arg("--version").output().is_err() {
            eprintln!("{name} is not tried: there is no {needs}");
            continue;
        }
        let path = book().join("listings/programs").join(name);
        let program = vec![interpreter.to_owned(), path.to_str().unwrap().to_owned()];
        let judge = Command::new(CommandOptions { program, ..CommandOptions::default() }).unwrap();
        for (text, credit) in rows {
            let score = score(&judge, reference, text);
            assert_ne!(score.verdict, Verdict::Error, "{name}: {text}");
            assert_eq!(score.credit, credit, "{name}: {text}");
        }
    }
}

fn page() -> String {
    fs::read_to_string(book().join("src/rewards.md")).unwrap().replace("\r\n", "\n")
}

fn book() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}
