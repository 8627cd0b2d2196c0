//! Programs that are run: the verdicts of those that are known, and what hostile ones can't do.
//!
//! They need `bwrap` and Python, and skip aloud without. With `FIREBRICK_CI` set, as in CI, they fail instead.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use firebrick_core::{Completion, Prompt, Score, Verdict, Verifier as _};
use firebrick_reward::{Code, CodeOptions, SandboxKind};
use serde::Deserialize;

/// Makes a verifier, unless no sandbox can be made on this machine.
fn verifier(options: CodeOptions) -> Option<Code> {
    match Code::new(options) {
        Ok(code) => Some(code),
        Err(why) if std::env::var_os("FIREBRICK_CI").is_none() => {
            eprintln!("SKIPPED: {why}");
            None
        }
        Err(why) => panic!("{why}"),
    }
}

fn quick() -> CodeOptions {
    CodeOptions { time_limit: 1.0, memory: 512, bare: Some(true), ..CodeOptions::default() }
}

fn score(code: &Code, tests: &str, program: &str) -> Score {
    let prompt = Prompt { reference: tests.into(), ..Prompt::default() };
    code.score(&prompt, &Completion::of_text(program))
}

#[derive(Deserialize)]
struct Programs {
    task: Vec<Task>,
}

#[derive(Deserialize)]
struct Task {
    name: String,
    tests: String,
    right: Vec<String>,
    wrong: Vec<String>,
    #[serde(default)]
    late: Vec<String>,
}

#[test]
fn no_known_program_has_a_false_verdict() {
    let programs: Programs = toml::from_str(include_str!("code/programs.toml")).unwrap();
    // Tests of other kinds run beside it.
    let Some(code) = verifier(CodeOptions { time_limit: 2.0, ..quick() }) else { return };

    let mut failures = Vec::new();
    let mut count = 0;
    for task in &programs.task {
        let kinds = [
            (Verdict::Right, &task.right),
            (Verdict::Wrong, &task.wrong),
            (Verdict::OverBudget, &task.late),
        ];
        for (verdict, programs) in kinds {
            for program in programs {
                count += 1;
                let score = score(&code, &task.tests, program);
                // An empty completion has no program.
                let verdict = if program.is_empty() { Verdict::Unparsable } else { verdict };
                if score.verdict != verdict {
                    failures
                        .push(format!("{}, expected {verdict:?}: {score:?}\n{program}", task.name));
                }
            }
        }
    }
    assert!(count > 100);
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// Each file of the folder is a program, whose first line is `# VERDICT` or `# VERDICT: TESTS`.
#[test]
fn a_hostile_program_neither_harms_nor_cheats() {
    // The name tells their processes from those of other tests.
    let file = HOSTILE.to_owned();
    let Some(code) = verifier(CodeOptions { file, ..quick() }) else { return };
    let canary = tempfile::tempdir().unwrap();
    let secret = canary.path().join("secret");
    fs::write(&secret, "untouched").unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    port.set_nonblocking(true).unwrap();

    let mut files: Vec<_> = fs::read_dir(hostile()).unwrap().map(|it| it.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 40, "{} programs", files.len());

    // Most of them wait or work up to their limit, so several run at the same time.
    let files = Mutex::new(files);
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(file) = { files.lock().unwrap().pop() } {
                    let text = fs::read_to_string(&file).unwrap();
                    let text = text
                        .replace("@SECRET@", &secret.to_string_lossy())
                        .replace("@PORT@", &port.local_addr().unwrap().port().to_string())
                        .replace("@PARENT@", &std::process::id().to_string());
                    let head = text.lines().next().unwrap().trim_start_matches("# ");
                    let (wanted, tests) = head.split_once(": ").unwrap_or((head, STREAMS));

                    let begin = Instant::now();
                    let score = score(&code, &tests.replace("\\n", "\n"), &text);
                    let name = file.file_stem().unwrap().to_string_lossy();
                    if !wanted.split(" or ").any(|wanted| wanted == score.verdict.name()) {
                        let failure = format!("{name}: expected {wanted}, got {score:?}");
                        failures.lock().unwrap().push(failure);
                    }
                    // Five seconds are a program's, and the others are a busy machine's.
                    let seconds = begin.elapsed().as_secs_f64();
                    assert!(seconds < 20.0, "{name} took {seconds} s");
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(fs::read_to_string(&secret).unwrap(), "untouched");
    assert!(port.accept().is_err(), "a program has reached a port of this machine");
    assert_eq!(left_over(), [""; 0]);

    // After all of them, a right program is still right.
    for (tests, program) in [
        (r#"{"inputs": ["1"], "outputs": ["1"]}"#, "print(input())"),
        ("assert f(3) == 9", "def f(n): return n * n"),
    ] {
        let score = score(&code, tests, program);
        assert_eq!(score.verdict, Verdict::Right, "{score:?}");
    }
}

/// Returns the folder of hostile programs.
fn hostile() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/code/hostile")
}

const HOSTILE: &str = "hostile.py";

/// Tests that a program passes if it says that harm was done.
const STREAMS: &str = r#"{"inputs": ["the input"], "outputs": ["harm"]}"#;

/// Returns the command lines of hostile programs that still run.
fn left_over() -> Vec<String> {
    let running = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|it| fs::read(it.path().join("cmdline")).ok());
        let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
        lines.filter(|line| line.ends_with(&format!("{HOSTILE} "))).collect::<Vec<_>>()
    };
    // What is killed needs a moment to be gone.
    let begin = Instant::now();
    while !running().is_empty() && begin.elapsed() < Duration::from_secs(2) {
        thread::sleep(Duration::from_millis(5));
    }
    running()
}

#[test]
fn a_program_has_as_many_processes_as_its_limit_says() {
    let Some(code) = verifier(CodeOptions { processes: 5, ..quick() }) else { return };
    let program = "
import os, time
count = 1
try:
    while os.fork():
        count += 1
    time.sleep(0.5)
except OSError:
    print(count)
";
    let score = score(&code, r#"{"inputs": [""], "outputs": ["5"]}"#, program);
    assert_eq!(score.verdict, Verdict::Right, "{score:?}");
}

#[test]
fn a_sandbox_is_asked_for_or_given_up_by_name() {
    let bare = CodeOptions { sandbox: SandboxKind::None, ..quick() };
    let code = Code::new(bare).unwrap();
    let tests = r#"{"inputs": ["2"], "outputs": ["4"]}"#;
    let square = "print(int(input()) ** 2)";
    assert_eq!(score(&code, tests, square).verdict, Verdict::Right);
    assert_eq!(score(&code, tests, "while True: pass").verdict, Verdict::OverBudget);
    let asserts = "assert square(3) == 9";
    let square = "def square(n): return n * n";
    assert_eq!(score(&code, asserts, square).verdict, Verdict::Right);

    // Here the same programs do harm, which shows that their tests would see it.
    for name in ["reads_files", "variables", "other_processes", "devices"] {
        let text = fs::read_to_string(hostile().join(name).with_extension("py")).unwrap();
        let text = text
            .replace("@SECRET@", "/etc/hostname")
            .replace("@PARENT@", &std::process::id().to_string());
        assert_eq!(score(&code, STREAMS, &text).verdict, Verdict::Right, "{name}");
    }

    let refused = Code::new(CodeOptions { python: "/no/python".into(), ..quick() });
    assert!(refused.unwrap_err().to_string().contains("/no/python"));
}

#[test]
fn other_languages_and_checkers_judge() {
    let shell = CodeOptions {
        command: ["sh", "main.sh"].map(str::to_owned).to_vec(),
        file: "main.sh".into(),
        ..quick()
    };
    let Some(code) = verifier(shell) else { return };
    let tests = r#"{"inputs": ["a\nb\n"], "outputs": ["2"]}"#;
    assert_eq!(score(&code, tests, "wc -l").verdict, Verdict::Right);
    assert_eq!(score(&code, tests, "wc -w <<E\nE").verdict, Verdict::Wrong);
    let no_shell = score(&code, "assert f(1) == 2", "f() { echo 2; }");
    assert_eq!(no_shell.verdict, Verdict::Error);

    // Any divisor but 1 and the number itself is right.
    let checker = r#"
import json, sys
asked = json.loads(sys.stdin.readline())
number, divisor = int(asked["input"]), int(asked["output"])
print("right" if 1 < divisor < number and number % divisor == 0 else "wrong no divisor")
"#;
    let checker = ["python3", "-c", checker].map(str::to_owned).to_vec();
    let code = Code::new(CodeOptions { checker, ..quick() }).unwrap();
    let tests = r#"{"inputs": ["12", "35"], "outputs": ["", ""]}"#;
    let divisor = "n = int(input())\nprint(next(d for d in range(2, n) if n % d == 0))";
    assert_eq!(score(&code, tests, divisor).verdict, Verdict::Right);
    let none = score(&code, tests, "print(1)");
    assert_eq!(
        (none.verdict, none.extracted.split("; ").last().unwrap_or_default()),
        (Verdict::Wrong, "test 1: no divisor")
    );
    // A checker that fails is no verdict.
    assert_eq!(score(&code, tests, "print('x')").verdict, Verdict::Error);
}

#[test]
fn tests_of_one_program_are_never_those_of_another() {
    let Some(code) = verifier(quick()) else { return };
    let square = "def f(n): return n * n";
    let pretty = "{\n  \"inputs\": [[3]],\n  \"outputs\": [9],\n  \"fn_name\": \"f\"\n}\n";
    let value = r#"[{"input": "3\n", "output": "9\n\n", "fn_name": "f"}]"#;
    let no_test = "import no_such_module\nassert f(3) == 9";
    let slow = "assert sum(f(3)) == 9";
    for _ in 0..3 {
        for tests in [pretty, value, "assert f(3) == 9"] {
            assert_eq!(score(&code, tests, square).verdict, Verdict::Right, "{tests}");
        }
        for tests in ["assert f(", no_test, "import math", "x = 1"] {
            assert_eq!(score(&code, tests, square).verdict, Verdict::Error, "{tests}");
        }
        // Tests come from a data set, and have limits too.
        let bomb = "import os, time\nfor _ in range(100):\n    if os.fork() == 0: time.sleep(9); os._exit(0)\n";
        let bomb = score(&code, &format!("{bomb}assert f(3) == 9"), square);
        assert_eq!(bomb.verdict, Verdict::Wrong, "{bomb:?}");
        // The first ends in the middle of a question, the second is too much for its tests, and the third late.
        let gone = score(&code, "assert f(3) == 9", "import os\ndef f(n): os._exit(0)");
        assert_eq!(gone.verdict, Verdict::Wrong, "{gone:?}");
        let much = score(&code, slow, "def f(n): return range(10 ** 12)");
        assert_eq!(much.verdict, Verdict::OverBudget, "{much:?}");
        let late = score(&code, "assert f(3) == 9", "def f(n):\n    while True: pass");
        assert_eq!(late.verdict, Verdict::OverBudget, "{late:?}");
    }
}

#[test]
fn credit_is_all_or_the_share_of_the_tests() {
    let asserts =
        r#"["assert f(1) == 1", "assert f(2) == 4", "assert f(3) == 9", "assert f(4) == 16"]"#;
    let streams = r#"{"inputs": ["1", "2", "3", "4"], "outputs": ["1", "4", "9", "16"]}"#;
    let function = "def f(n): return n if n == 1 else 9 if n == 3 else 0";
    let program = "n = int(input())\nprint(n if n == 1 else 9 if n == 3 else 0)";
    for (partial, credit) in [(false, 0.0), (true, 0.5)] {
        let Some(code) = verifier(CodeOptions { partial, ..quick() }) else { return };
        for (tests, program) in [(asserts, function), (streams, program)] {
            let score = score(&code, tests, program);
            assert_eq!((score.verdict, score.credit), (Verdict::Wrong, credit), "{score:?}");
        }
    }
}
