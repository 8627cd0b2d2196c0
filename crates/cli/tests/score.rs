//! `firebrick score`: its verdicts on rows, and its messages about lines that are no rows.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod scratch;

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{Child, Command, Stdio},
};

use scratch::{Outcome, Scratch};
use serde_json::{Value, json};

/// Rows with one answer, right and wrong, under several rules.
const ROWS: &str = include_str!("data/answers.jsonl");

fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("answers.jsonl", ROWS);
    scratch
}

/// Returns the cells of the summary without the times, which differ from run to run.
fn table(text: &str) -> Vec<Vec<&str>> {
    text.lines()
        .take_while(|line| !line.starts_with("skipped") && !line.starts_with("unreadable"))
        .map(|line| {
            let mut cells: Vec<&str> =
                line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
            cells.truncate(cells.len() - 2);
            cells
        })
        .collect()
}

fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_summary_counts_by_suite() {
    let summary = scratch().succeed(&["score", "answers.jsonl"]).stdout;
    #[rustfmt::skip]
    assert_eq!(
        table(&summary),
        [
            ["suite", "rows", "right", "wrong", "unparsable", "over budget", "error", "agreement", "false pos.", "false neg."],
            ["sums", "4", "2", "2", "0", "0", "0", "33.33 %", "1", "1"],
            ["texts", "4", "2", "1", "1", "0", "0", "100.00 %", "0", "0"],
            ["all", "8", "4", "3", "1", "0", "0", "60.00 %", "1", "1"],
        ]
    );
    assert!(summary.ends_with("skipped: 1 row that tests the options of another program\n"));
}

#[test]
fn rows_are_printed_in_their_order() {
    let outcome = scratch().succeed(&["score", "--rows", "answers.jsonl"]);
    let rows = objects(&outcome.stdout);
    let ids: Vec<&str> = rows.iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["a1", "a2", "a3", "a4", "b1", "b2", "3", "answers.jsonl:9"]);

    let verdicts: Vec<&str> = rows.iter().map(|row| row["verdict"].as_str().unwrap()).collect();
    assert_eq!(
        verdicts,
        ["right", "wrong", "right", "wrong", "right", "wrong", "unparsable", "right"]
    );

    let mut first = rows[0].clone();
    assert!(!first["why"].take().as_str().unwrap().is_empty());
    assert_eq!(
        first,
        json!({"id": "a1", "verdict": "right", "extracted": "72", "canonical": "72", "why": null,
               "expected": true, "agrees": true})
    );

    assert_eq!(rows[1]["agrees"], false);
    assert_eq!((&rows[6]["extracted"], &rows[6]["canonical"]), (&Value::Null, &Value::Null));
    let keys: Vec<&String> = rows[7].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["id", "verdict", "extracted", "canonical", "why"]);

    assert_eq!(table(&outcome.stderr).len(), 4, "{}", outcome.stderr);
}

#[test]
fn disagreements_are_those_that_count() {
    let outcome = scratch().succeed(&["score", "--disagreements", "answers.jsonl"]);
    let rows = objects(&outcome.stdout);
    assert_eq!(rows.iter().map(|row| &row["id"]).collect::<Vec<_>>(), ["a2", "a3"]);
}

#[test]
fn a_kind_replaces_the_rule_of_every_row() {
    let scratch = scratch();
    let right = |kind: &str| {
        let rows = scratch.succeed(&["score", "--rows", "--kind", kind, "answers.jsonl"]).stdout;
        let rows = objects(&rows);
        assert_eq!(rows.len(), 9, "{kind} skips a row");
        let right = rows.iter().filter(|row| row["verdict"] == "right");
        right.map(|row| row["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
    };

    assert_eq!(right("math"), "a1 a3 b1 b2 3 answers.jsonl:9 c1");
    assert_eq!(right("boxed"), "a1 a3 c1");
    assert_eq!(right("gsm8k"), "b1");
    assert_eq!(right("gsm8k_flexible"), "a1 a3 b1 3 answers.jsonl:9 c1");
    assert_eq!(right("dapo"), "");
    assert_eq!(right("dapo_strict_box"), "a1 a3 c1");
    assert_eq!(right("choice"), "");

    let outcome = scratch.run(&["score", "--kind", "magic", "answers.jsonl"]);
    assert_eq!(outcome.code, Some(2));
}

#[test]
fn a_gold_answer_may_be_a_number() {
    let scratch = Scratch::new();
    let text = [("3", "3"), ("-2.50", "-5/2"), ("1e3", "1000")].map(|(gold, response)| {
        format!("{{\"gold\": {gold}, \"response\": \"\\\\boxed{{{response}}}\"}}\n")
    });
    scratch.write("answers.jsonl", text.concat());

    let rows = objects(&scratch.succeed(&["score", "--rows", "answers.jsonl"]).stdout);
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| row["verdict"] == "right"), "{rows:?}");
}

#[test]
fn options_of_a_row_reach_its_rule() {
    let scratch = Scratch::new();
    let row = |id: &str, gold: &str, response: &str, config: Value| {
        format!("{}\n", json!({"id": id, "gold": gold, "response": response, "config": config}))
    };

    let choices = json!({"mode": "choice", "choices": ["A", "B", "C", "D", "E"]});
    let text = row("six places", "0.333333", "\\boxed{0.333}", json!({}))
        + &row("two places", "0.333333", "\\boxed{0.333}", json!({"precision": 2}))
        + &row("after", "5", "\\boxed{5}", json!({"mode": "after_think_boxed"}))
        + &row("whole", "5", "5", json!({"mode": "bare"}))
        + &row("gold", "so $5$", "so $5$", json!({"mode": "math_verify", "targets": ["latex"]}))
        + &row("no gold", "so 5", "so $5$", json!({"mode": "math_verify", "targets": ["latex"]}))
        + &row("letter", "E", "The answer is E.", choices)
        + &row(
            "limits",
            "5",
            "\\boxed{5}",
            json!({"time_limit_ms": 1, "memory_limit_mb": 1, "boxed_first": true}),
        );

    scratch.write("answers.jsonl", text);
    let rows = objects(&scratch.succeed(&["score", "--rows", "answers.jsonl"]).stdout);

    let right = |row: &Value| (row["id"].as_str().unwrap().to_owned(), row["verdict"] == "right");
    let expected = [
        ("six places", false),
        ("two places", true),
        ("after", false),
        ("whole", true),
        ("gold", true),
        ("no gold", false),
        ("letter", true),
        ("limits", true),
    ];
    assert_eq!(
        rows.iter().map(right).collect::<Vec<_>>(),
        expected.map(|(id, right)| (id.to_owned(), right))
    );
}

#[test]
fn one_row_is_explained() {
    let scratch = scratch();
    let text = scratch.succeed(&["score", "--explain", "a2", "answers.jsonl"]).stdout;
    for line in [
        "row        a2, answers.jsonl, line 2\n",
        "suite      sums\n",
        "rule       math: the answer is in the last box, else ",
        "gold       72\n  reads as 72\n",
        "extracted  71\nwhere      bytes 16 to 18: So it is \\boxed{»71«}.\n  reads as 71\n",
        "verdict    wrong, proved\n",
        "why        ",
        "expected   right; disagrees\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in {text}");
    }

    let text = scratch.succeed(&["score", "--explain", "answers.jsonl:9", "answers.jsonl"]).stdout;
    assert!(text.contains("rule       gsm8k_flexible: compared as text\n"), "{text}");
    assert!(!text.contains("reads as") && !text.contains("expected"), "{text}");
    let text = scratch.succeed(&["score", "--explain", "c1", "answers.jsonl"]).stdout;
    assert!(text.contains("is skipped"), "{text}");

    let outcome = scratch.run(&["score", "--explain", "a5", "answers.jsonl"]);
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.stderr.contains("no row has the id \"a5\""), "{}", outcome.stderr);
}

#[test]
fn bad_rows_are_named_and_the_rest_is_judged() {
    let scratch = Scratch::new();
    let bad = [
        "no JSON",
        "[\"gold\"]",
        r#"{"gold": "1"}"#,
        r#"{"gold": [1], "response": "1"}"#,
        r#"{"gold": "1", "response": "1", "config": {"mode": "magic\u001b[2J"}}"#,
        r#"{"gold": "1", "response": "1", "config": {"precision": -1}}"#,
        r#"{"gold": "1", "response": "1", "id": []}"#,
        r#"{"gold": "1", "response": "1", "expected": "yes"}"#,
        "{\"gold\": \"1\", \"response\": \"",
        r#"{"gold": "1", "response": "1", "config": {"cls": "a", "precison": 2, "precision": 2}}"#,
    ];

    let good = "{\"gold\": \"1\", \"response\": \"\\\\boxed{1}\"}\n";
    scratch.write("bad.jsonl", bad.map(|row| format!("{row}\n{good}")).concat());

    let outcome = scratch.run(&["score", "--rows", "bad.jsonl"]);
    assert_eq!(outcome.code, Some(1));
    assert_eq!(outcome.stdout.lines().count(), bad.len());

    let problems: Vec<&str> = outcome.stderr.lines().take(bad.len()).collect();
    for (index, (problem, words)) in problems
        .iter()
        .zip([
            "expected one JSON object per line",
            "expected one JSON object per line",
            "missing field `response`",
            "the gold answer is neither a text nor a number",
            "config.mode is \"magic\\u{1b}[2J\", expected one of math, boxed,",
            "integer `-1`, expected u32",
            "the id is neither a text nor a number",
            "expected a boolean",
            "EOF while parsing a string",
            "unknown key \"precison\" in config, expected one of mode, targets, precision, ",
        ])
        .enumerate()
    {
        let line = format!("bad.jsonl, line {}", 2 * index + 1);
        assert!(problem.starts_with(&line) && problem.contains(words), "{problem}");
    }
    assert!(outcome.stderr.ends_with("unreadable: 10 rows, each named on standard error\n"));

    let long =
        r#"{"gold": 12345678901234567890123, "response": "\\boxed{12345678901234567890124}"}"#;
    scratch.write("long.jsonl", long);
    let said: Value =
        serde_json::from_str(&scratch.succeed(&["score", "--rows", "long.jsonl"]).stdout).unwrap();
    assert_eq!(said["verdict"], "wrong", "all digits count");

    scratch.write("good.jsonl", good);
    for missing in ["none.jsonl", "."] {
        let outcome = scratch.run(&["score", "--rows", "good.jsonl", missing]);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(1), ""), "{missing}");
        assert!(outcome.stderr.contains(&format!("cannot read {missing}: ")), "{}", outcome.stderr);
    }
}

#[test]
fn a_file_in_utf_16_has_one_error() {
    let scratch = Scratch::new();
    let rows = "\u{feff}".to_owned() + &"{\"gold\": 1, \"response\": \"1\"}\n".repeat(3);
    let utf16: Vec<u8> = rows.encode_utf16().flat_map(u16::to_le_bytes).collect();
    scratch.write("rows.jsonl", utf16);

    let outcome = scratch.run(&["score", "rows.jsonl"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(1), ""));
    assert_eq!(outcome.stderr.matches("it is UTF-16 text").count(), 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("cannot read rows.jsonl: "), "{}", outcome.stderr);

    scratch.write("rows.jsonl", rows);
    assert_eq!(objects(&scratch.succeed(&["score", "--rows", "rows.jsonl"]).stdout).len(), 3);
}

#[test]
fn an_empty_file_has_no_rows() {
    let scratch = Scratch::new();
    scratch.write("empty.jsonl", "\n  \n");
    let outcome = scratch.succeed(&["score", "empty.jsonl"]);
    let row = ["all", "0", "0", "0", "0", "0", "0", "-", "-", "-"];
    assert_eq!(table(&outcome.stdout)[1..], [row]);
    assert_eq!(scratch.succeed(&["score", "--rows", "empty.jsonl"]).stdout, "");
}

/// Standard input has more rows than a batch, with files before and after it. Rows come in the order of the arguments.
#[test]
fn standard_input_is_a_file_among_others() {
    let scratch = scratch();
    let rows: String = (0..5000)
        .map(|number| {
            format!("{{\"gold\": \"{number}\", \"response\": \"\\\\boxed{{{number}}}\"}}\n")
        })
        .collect();

    let mut child = start(&scratch, &["score", "--rows", "answers.jsonl", "-", "answers.jsonl"]);
    let mut input = child.stdin.take().unwrap();
    let feed = std::thread::spawn(move || input.write_all(rows.as_bytes()));
    let outcome = Outcome::of(child.wait_with_output().unwrap());
    feed.join().unwrap().unwrap();

    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let rows = objects(&outcome.stdout);
    assert_eq!(rows.len(), 8 + 5000 + 8);
    assert_eq!(rows[..8], rows[5008..]);
    for (number, row) in rows[8..5008].iter().enumerate() {
        assert_eq!(row["id"], format!("standard input:{}", number + 1));
        assert_eq!(row["extracted"], number.to_string());
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let scratch = Scratch::new();
    scratch
        .write("many.jsonl", "{\"gold\": \"1\", \"response\": \"\\\\boxed{1}\"}\n".repeat(20_000));

    let mut child = start(&scratch, &["score", "--rows", "many.jsonl"]);
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""));
}

fn start(scratch: &Scratch, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_firebrick"))
        .args(arguments)
        .current_dir(scratch.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}
