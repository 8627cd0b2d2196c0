//! The script that measures a card, with a program that stands in for this one: it keeps what it found, whatever
//! happens to it.

#![cfg(target_os = "linux")] // the script needs GNU's sed, and measures Linux machines
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod scratch;

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use scratch::{Scratch, repository};
use serde_json::Value;

/// A script that is killed in the middle of anything has written whole lines, and continues after the parts that it
/// had done.
#[test]
fn a_killed_measurement_leaves_valid_lines_and_continues() {
    let card = Card::new();
    for kill in 0..12u64 {
        let out = format!("killed-{kill}");
        let mut script = card.start(&out, &[]);
        // The times differ by a prime, so that they meet different parts.
        thread::sleep(Duration::from_millis(83 + 149 * kill));
        kill_group(&mut script);
        let lines = card.lines(&out);
        assert!(kill < 4 || lines.len() > 4, "{} lines after {kill} kills", lines.len());
    }

    // The last one continues from where it was. A machine that went down may even have torn the last line.
    let before = ends(&card.lines("killed-11"));
    assert!(before.len() > 2, "{before:?}");
    let mut report = fs::read(card.0.path("killed-11/lines.jsonl")).unwrap();
    report.extend(br#"{"event":"part_end","part":"smo"#);
    card.0.write("killed-11/lines.jsonl", report);

    let script = card.start("killed-11", &[]).wait().unwrap();
    assert_eq!(script.code(), Some(1), "parts of the stand-in fail");
    let after = ends(&card.lines("killed-11"));
    assert_eq!(after[..before.len()], before);

    let mut once = after.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), after.len(), "a part that was done was done again: {after:?}");

    for part in ["smoke", "operations", "products", "defects", "again:defects/second", "bench:1m"] {
        assert!(after.iter().any(|(name, _)| name == part), "{part} is missing: {after:?}");
    }
}

/// Each part ends with its exit code and the program's last words, and one that hangs or dies stops no other.
#[test]
fn a_part_that_fails_says_how_and_stops_no_other() {
    let card = Card::new();
    assert_eq!(card.start("whole", &["--part", "again"]).wait().unwrap().code(), Some(0));
    assert_eq!(card.start("whole", &[]).wait().unwrap().code(), Some(1));
    let lines = card.lines("whole");

    let end = |part: &str| {
        let mut of =
            lines.iter().filter(|line| line["event"] == "part_end" && line["part"] == part);
        of.next().unwrap_or_else(|| panic!("{part} did not end")).clone()
    };

    assert_eq!(end("operations")["exit"], 0);
    assert_eq!(end("operations")["error"], Value::Null);
    let said = "a driver  speaks Latin-1, with \"quotes\", a \\ and a\ttab";
    assert_eq!(end("model")["exit"], 139, "it dies by a signal");
    assert_eq!(end("model")["error"], said);
    assert_eq!(end("training")["exit"], 124, "it hangs");
    assert_eq!(end("training")["error"], format!("stopped at its limit of 1 seconds\n{said}"));
    assert_eq!(end("defects")["exit"], 1);

    // The line that a killed part left half written is a text.
    let of = |part: &str, event: &str| {
        lines.iter().filter(|line| line["part"] == part && line["event"] == event).count()
    };
    assert_eq!((of("training", "case"), of("training", "text")), (0, 1));

    // The cases that broke, hung or were not reached are tried once more, alone.
    for case in ["model/decode", "training/steps", "defects/first", "defects/second"] {
        assert_eq!(end(&format!("again:{case}"))["exit"], 0);
    }
    assert!(!lines.iter().any(|line| line["part"] == "again:model/hidden"));

    // A long line is whole, and every line of a program says which part and which device it is of.
    let detail = lines.iter().find(|line| line["event"] == "detail").unwrap();
    assert_eq!(detail["kernels"].as_array().unwrap().len(), 4001);
    assert!(lines.iter().all(|line| line["part"].is_null() || line["device"].is_string()));
    assert_eq!(lines.last().unwrap()["event"], "summary");

    let text = fs::read(card.0.path("whole/said.txt")).unwrap();
    assert!(String::from_utf8_lossy(&text).contains("cuda:0 model: a driver"));
}

/// Without time, parts are not begun, and the next command begins with the first of them.
#[test]
fn a_second_command_begins_where_the_first_had_no_time() {
    let card = Card::new();
    let total = ["--total", "12", "--limit", "6", "--part", "operations", "--part", "training"];

    // The training hangs for its six seconds, so nothing is left for what comes behind.
    assert_eq!(card.start("first", &total).wait().unwrap().code(), Some(1));
    let lines = card.lines("first");
    let done: Vec<String> = ends(&lines).into_iter().map(|(part, _)| part).collect();
    assert_eq!(done[0], "operations");
    assert_eq!(lines.last().unwrap()["event"], "summary");

    let report = card.0.path("first/lines.jsonl");
    let more = ["--done", report.to_str().unwrap(), "--part", "operations", "--part", "sampling"];
    assert_eq!(card.start("second", &more).wait().unwrap().code(), Some(1), "of the first");
    let done: Vec<String> = ends(&card.lines("second")).into_iter().map(|(part, _)| part).collect();
    assert_eq!(done, ["sampling"]);
}

/// A part is not done again, unless its time ran out and it gets more.
#[test]
fn a_part_whose_time_ran_out_may_be_given_more() {
    let card = Card::new();
    for (limit, times) in [("1", 1), ("1", 1), ("2", 2)] {
        let hangs = ["--limit", limit, "--part", "training"];
        assert_eq!(card.start("more", &hangs).wait().unwrap().code(), Some(1));
        assert_eq!(ends(&card.lines("more")).len(), times, "with {limit} seconds");
    }
}

/// A folder with the script and the program that stands in.
struct Card(Scratch);

impl Card {
    fn new() -> Self {
        let card = Card(Scratch::new());
        for (file, name) in [
            ("benches/gpu/run.sh", "firebrick-gpu/run.sh"),
            ("crates/cli/tests/gpu/firebrick.sh", "firebrick-gpu/firebrick"),
        ] {
            card.0.write(name, fs::read(repository(file)).unwrap());
            fs::set_permissions(card.0.path(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        card
    }

    /// Starts the script in a process group of its own.
    fn start(&self, out: &str, more: &[&str]) -> Child {
        let fixed = ["--device", "cuda:0", "--beside", "3", "--limit", "1", "--total", "60"];
        let path = |name: &str| self.0.path(name).into_os_string();

        Command::new(self.0.path("firebrick-gpu/run.sh"))
            .arg(path("firebrick-gpu"))
            .args(fixed)
            .args(more)
            .arg("--out")
            .arg(path(out))
            .arg("--cache")
            .arg(path("cache"))
            .arg("1m")
            .env("TMPDIR", self.0.path(""))
            // NVIDIA's tools and PyTorch, which this machine may have, are no part of the test.
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap()
    }

    /// Reads a report, each of whose lines has to be a JSON object that says what it is.
    fn lines(&self, out: &str) -> Vec<Value> {
        read(&self.0.path(out).join("lines.jsonl"))
    }
}

fn read(path: &Path) -> Vec<Value> {
    // A script that was killed at once has not made the file.
    let text = fs::read_to_string(path).unwrap_or_default();
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is torn");

    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    assert!(lines.iter().all(|line| line["event"].is_string()));
    lines
}

/// Returns the parts that ended and need not be done again, each with its device, in their order.
fn ends(lines: &[Value]) -> Vec<(String, String)> {
    let text = |line: &Value, key: &str| line[key].as_str().unwrap().to_owned();
    lines
        .iter()
        .filter(|line| line["event"] == "part_end" && line["whole"] == true)
        .map(|line| (text(line, "part"), text(line, "device")))
        .collect()
}

fn kill_group(script: &mut Child) {
    let group = format!("-{}", script.id());
    assert!(Command::new("kill").args(["-KILL", "--", &group]).status().unwrap().success());
    script.wait().unwrap();
    // A program that ran is in a group of its own. It may end its line into a pipe that nobody reads.
    thread::sleep(Duration::from_millis(20));
}
