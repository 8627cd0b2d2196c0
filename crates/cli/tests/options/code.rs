//! The verifier that runs programs.

use std::{os::unix::fs::symlink, process::Command};

use crate::{
    bench::{Bench, Case, LETTERS, case},
    verifiers::{Judged, NONE, OVER, RIGHT, WRONG, judge_all, judged},
};

/// Needs Python, which is not on every machine.
#[test]
fn programs_are_run_as_the_options_say() {
    let python = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    let Ok(python) = python else {
        eprintln!("SKIPPED: there is no python3 to run programs with");
        return;
    };
    let bench = Bench::new();
    let path = String::from_utf8(python.stdout).unwrap();
    symlink(path.trim(), bench.scratch.path("snake")).unwrap();
    judge_all(&bench, CODE);
    bench.rows("halves.jsonl", &["a", "b", "c"].map(|letter| (letter, HALVES)));
    bench.try_all(CASES);
}

/// Needs `bwrap` too. With `FIREBRICK_CI` set, as in CI, it is no excuse that there is none.
#[test]
fn sandboxes_are_made_as_the_options_say() {
    let sandbox =
        Command::new("bwrap").args(["--unshare-pid", "--ro-bind", "/", "/", "true"]).output();
    let works = sandbox.is_ok_and(|sandbox| sandbox.status.success());
    if !works && std::env::var_os("FIREBRICK_CI").is_none() {
        eprintln!("SKIPPED: bwrap can't make a sandbox here");
        return;
    }
    let bench = Bench::new();
    bench.scratch.write("notes.txt", "");
    judge_all(&bench, SANDBOXED);
}

const TEN: &str = r#"{"inputs": ["5"], "outputs": ["10"]}"#;
const HALVES: &str = r#"{"inputs": ["", ""], "outputs": ["1", "0"]}"#;
const BARE: &[&str] = &["reward={kind='code',sandbox='none',bare=true}"];
const FENCED: &[&str] = &["reward={kind='code',sandbox='none'}"];
const BOXED: &[&str] = &["reward={kind='code',bare=true}"];

#[rustfmt::skip]
pub(crate) const CODE: &[Judged] = &[
    judged(BARE, FENCED, TEN,
        &[("print(10)", RIGHT, NONE), ("```py\nprint(10)\n```", WRONG, RIGHT), ("print(9)", WRONG, NONE)]),
    judged(&["reward={kind='code',sandbox='none',bare=true,python='./snake'}"], BARE, TEN,
        &[("import sys; print(10 if sys.executable.endswith('snake') else 0)", RIGHT, WRONG)]),
    judged(&["reward={kind='code',sandbox='none',bare=true,command=['sh','main.py']}"], BARE, TEN,
        &[("echo 10", RIGHT, WRONG), ("print(10)", WRONG, RIGHT)]),
    judged(&["reward={kind='code',sandbox='none',bare=true,file='other.py'}"], BARE, TEN,
        &[("import sys; print(10 if sys.argv[0] == 'other.py' else 0)", RIGHT, WRONG)]),
    judged(&["reward={kind='code',sandbox='none',languages=['calc']}"], FENCED, TEN,
        &[("```calc\nprint(10)\n```", RIGHT, NONE), ("```py\nprint(10)\n```", NONE, RIGHT)]),
    judged(&["reward={kind='code',sandbox='none',bare=true,prelude='x = '}"], BARE, TEN,
        &[("5; print(2 * x)", RIGHT, WRONG)]),
    judged(&["reward={kind='code',sandbox='none',bare=true,checker=['python3','-c','print(\"right\")']}"], BARE, TEN,
        &[("print(3)", RIGHT, WRONG)]),
    judged(&["reward={kind='code',sandbox='none',bare=true,tolerance=0.1}"], BARE, r#"{"inputs": [""], "outputs": ["10.0"]}"#,
        &[("print(10.3)", RIGHT, WRONG), ("print(12.3)", WRONG, WRONG)]),
    judged(&["reward={kind='code',sandbox='none',bare=true,time_limit=1.0}"], BARE, TEN,
        &[("import time\nwhile time.process_time() < 2.5: pass\nprint(10)", OVER, RIGHT)]),
    judged(&["reward={kind='code',sandbox='none',bare=true,memory=256}"], BARE, TEN,
        &[("x = bytearray(400 << 20); print(10)", WRONG, RIGHT)]),
    judged(&["reward={kind='code',sandbox='none',bare=true,output=2}"], BARE, TEN,
        &[("print(10)", WRONG, RIGHT), ("print(10, end='')", RIGHT, RIGHT)]),
];

/// Looks for a file wherever it may be, but not among the system's.
const SEARCH: &str = "import os\nseen = 0\nfor folder, folders, files in os.walk('/'):\n    seen += 'notes.txt' in files\n    \
                      if folder == '/': folders[:] = set(folders) - {'usr', 'proc', 'sys', 'lib', 'nix'}\nprint(10 if seen else 0)";

#[rustfmt::skip]
pub(crate) const SANDBOXED: &[Judged] = &[
    judged(&["reward={kind='code',bare=true,sandbox='bwrap'}"], BARE, TEN,
        &[("import os; print(10 if os.path.exists('/etc/passwd') else 0)", WRONG, RIGHT), ("print(10)", RIGHT, RIGHT)]),
    judged(&["reward={kind='code',bare=true,mounts=['notes.txt']}"], BOXED, TEN, &[(SEARCH, RIGHT, WRONG)]),
    judged(&["reward={kind='code',bare=true,processes=20}"], BOXED, TEN,
        &[("import os, time\nfor _ in range(10):\n    if not os.fork(): time.sleep(1); os._exit(0)\nprint(10)", RIGHT, WRONG)]),
];

pub(crate) const CASES: &[Case] = &[case(
    &["reward.kind=code", "reward.partial=true"],
    LETTERS,
    &[
        "reward.pattern=",
        "reward.matches=",
        "reward.sandbox=none",
        "reward.bare=true",
        "reward.command=['sh','-c','grep -c a main.py || true']",
        "data.train=halves.jsonl",
        "sampling.dynamic=false",
    ],
    |run| {
        // Every text passes one of the two tests, but an empty one is no program.
        for done in run.completions() {
            assert_eq!(done.credit, if done.text.is_empty() { 0.0 } else { 0.5 }, "{}", done.text);
        }
    },
)];
