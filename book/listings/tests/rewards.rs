//! The chapter on rewards: its tables of hard cases and its programs.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]
#![allow(clippy::print_stderr, reason = "what is not tried is said")]

use std::{fs, path::PathBuf};

use firebrick::recipe::Recipe;
use firebrick_core::{Completion, Prompt, Score, Verdict};
use firebrick_reward::{AnswerLine, Gsm8k, Gsm8kMode, math};

/// A row of a table of hard cases.
struct Case<'page> {
    gold: &'page str,
    text: &'page str,
    /// True if the answer is right.
    right: bool,
    /// Verdicts of the five judges, ours first.
    verdicts: Vec<&'page str>,
}

#[test]
fn our_verdicts_on_hard_cases_are_those_of_the_page() {
    let page = chapter();
    let verbatim = |text: &str| text.to_owned();
    let answer_line = |answer: &str| format!("Answer: {answer}");
    let mut cases = 0;

    for (heading, dress, dapo_dress) in [
        ("## Answers", &boxed as &dyn Fn(&str) -> String, &answer_line as &dyn Fn(&str) -> String),
        ("## Responses", &verbatim, &verbatim),
    ] {
        for case in &hard_cases(&page, heading) {
            let Case { gold, text, verdicts, .. } = case;
            let judgement = math::Verifier::default().judge(gold, &dress(text));
            let verdict = |judge: usize| verdicts[judge].trim_matches('*');
            assert_eq!(
                verdict(0),
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
                assert_eq!(verdict(judge) == "right", right, "{gold}, {text}: judge {judge}");
            }
            cases += 1;
        }
    }

    assert!(cases > 25, "only {cases} rows were found: have the tables changed their form?");
}

#[test]
fn mistaken_verdicts_are_bold_and_counted() {
    let page = chapter();
    for heading in ["## Answers", "## Responses"] {
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
    let page = chapter();
    let mut pairs = 0;

    for row in rows(&page, "## Values and their comparison") {
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
    let page = chapter();
    let undecided = rows(&page, "## Answers that it does not decide");
    assert!(undecided.len() > 5, "has the table changed its form?");

    for row in undecided {
        let gold = row[0].trim_matches('`');
        let answer = row[1].trim_matches('`');
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
fn the_rewards_of_the_page_are_those_of_a_recipe() {
    let page = chapter();
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
    assert_eq!(kinds.len(), 17, "{kinds:?}");
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

/// Asks the judges of the page on one's own question about their rows: the reference earns everything, and silence
/// nothing.
#[cfg(unix)]
#[test]
fn the_judges_of_the_first_hour_judge() {
    use firebrick_core::Verifier as _;
    use firebrick_reward::{Command, CommandOptions, PythonFunction};

    if std::process::Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no python3 to run the judges with");
        return;
    }

    for task in ["units", "weekdays", "fractions", "json"] {
        let folder = book().join("examples/first-hour").join(task);
        let (python, function) = ("python3".into(), "score".into());
        let function = PythonFunction { python, file: folder.join("judge.py"), function };
        let judge = Command::python(function, CommandOptions::default()).unwrap();

        let rows = fs::read_to_string(folder.join("rows.jsonl")).unwrap();
        assert_eq!(rows.lines().count(), 30);
        for row in rows.lines() {
            let row: serde_json::Value = serde_json::from_str(row).unwrap();
            let json_reference = row["answer"].is_object();
            let reference = match &row["answer"] {
                serde_json::Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let text = row["prompt"].as_str().unwrap().to_owned();
            let prompt =
                Prompt { text, reference: reference.clone(), json_reference, ..Prompt::default() };

            let credit = |answer: &str| judge.score(&prompt, &Completion::of_text(answer)).credit;
            assert_eq!((credit(&reference), credit("")), (1.0, 0.0), "{row}");
        }
    }
}

/// Reads the pages of the chapter as one text.
fn chapter() -> String {
    let mut pages = firebrick_book::pages();
    pages.retain(|page| {
        page.ends_with("src/rewards.md") || page.parent().unwrap().ends_with("rewards")
    });
    let texts: Vec<String> = pages.iter().map(|page| fs::read_to_string(page).unwrap()).collect();
    texts.concat().replace("\r\n", "\n")
}

fn book() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}
