//! Dashboard in a pseudo-terminal: the text on the screen, and the ways to leave it.

#![cfg(all(target_os = "linux", feature = "tui"))]
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod scratch;

use std::{
    fs,
    io::{Read, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread::{sleep, spawn},
    time::{Duration, Instant},
};

use scratch::{Outcome, Scratch, repository};

#[test]
fn a_run_is_drawn_at_any_size_and_left_by_a_key() {
    let scratch = run("seen");
    for (columns, rows) in [(80, 24), (140, 40), (40, 12)] {
        let mut screen = Screen::open(&scratch, columns, rows, "watch runs/seen");
        let seen = screen.wait_for("step 24 of 24");
        assert!(seen.contains("held-out accuracy"), "{columns} columns:\n{seen}");
        // The screen shows the curve itself, and a completion with its verdict.
        let drawn = screen.wait_until(|seen| seen.chars().any(is_of_a_curve));
        assert!(drawn.contains(" → "), "{drawn}");
        if columns == 80 && std::env::var_os("FIREBRICK_UPDATE").is_some() {
            let figures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book/src/figures");
            fs::write(figures.join("dashboard.txt"), trimmed(&drawn)).unwrap();
        }
        screen.press("\u{1b}[C");
        screen.wait_for("reward");

        screen.press("q");
        assert_eq!(screen.end(), 0, "{columns} columns");
    }
}

#[test]
fn who_leaves_a_run_is_asked_and_it_is_saved() {
    let scratch = Scratch::new();
    let recipe = repository("recipes/ci/tiny.toml");
    let train = format!("train {recipe} --tui --set name=left --set train.steps=100000");
    let mut screen = Screen::open(&scratch, 100, 30, &train);
    screen.wait_until(|seen| seen.chars().any(is_of_a_curve));
    for answer in ["x", "s"] {
        screen.press("q");
        screen.wait_for("[s] save and end");
        screen.press(answer);
    }
    assert_eq!(screen.end(), 130);
    assert!(screen.text().contains("--resume"), "{}", screen.text());
}

#[test]
fn ctrl_c_ends_a_run_that_is_drawn_and_the_last_line_says_how_to_continue() {
    let scratch = Scratch::new();
    let recipe = repository("recipes/ci/tiny.toml");
    let train = format!("train {recipe} --tui --set name=drawn --set train.steps=100000");
    let mut screen = Screen::open(&scratch, 100, 30, &train);
    screen.wait_until(|seen| seen.chars().any(is_of_a_curve));
    screen.press("\u{3}");
    assert_eq!(screen.end(), 130);

    let left = screen.text();
    assert!(left.contains("--resume"), "{left}");
}

#[test]
fn without_a_terminal_lines_are_printed() {
    let scratch = run("piped");
    let lines = scratch.succeed(&["watch", "runs/piped"]).stdout;
    assert!(lines.contains("held-out accuracy"), "{lines}");
    assert!(!lines.contains('\u{1b}'), "{lines}");
}

/// Standard output of another kind gets nothing, and neither does the file that standard error is.
#[cfg(unix)]
#[test]
fn a_log_has_the_lines_of_the_terminal() {
    use std::fs::File;

    let scratch = Scratch::new();
    let recipe = repository("recipes/ci/tiny.toml");
    let train = |name: &str| {
        let name = format!("name={name}");
        scratch.command(&["train", &recipe, "--set", &name, "--set", "train.steps=2"])
    };

    let log = File::create(scratch.path("log")).unwrap();
    let shown = Outcome::of(train("a").stdout(log).output().unwrap()).success().stderr;
    let kept = fs::read_to_string(scratch.path("log")).unwrap();
    assert!(kept.contains("held-out accuracy") && kept.contains("\nnext:"), "{kept}");
    assert_eq!(kept, shown);

    let both = File::create(scratch.path("both")).unwrap();
    let error = both.try_clone().unwrap();
    assert!(train("b").stdout(both).stderr(error).status().unwrap().success());
    let kept = fs::read_to_string(scratch.path("both")).unwrap();
    assert_eq!(kept.matches("\nnext:").count(), 1, "{kept}");
}

/// The record of a run whose process was killed says that it is under way.
#[test]
fn watching_ends_with_the_run_and_with_its_reader() {
    let scratch = run("gone");
    let record = rusqlite::Connection::open(scratch.path("runs/gone/run.db")).unwrap();
    let changed = record.execute("UPDATE info SET value = '' WHERE key = 'ended'", []).unwrap();
    assert_eq!(changed, 1);

    let outcome = scratch.succeed(&["watch", "runs/gone", "--plain"]);
    assert!(outcome.said().contains("no process writes it any more"), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("held-out accuracy"), "{}", outcome.stdout);

    // While this process has the lock, the run counts as one that goes on.
    let lock = std::fs::File::open(scratch.path("runs/gone/.lock")).unwrap();
    lock.lock().unwrap();
    let mut watching = scratch.command(&["watch", "runs/gone", "--plain"]).spawn().unwrap();
    drop(watching.stdout.take());
    assert!(watching.wait().unwrap().success());
}

#[test]
fn lines_and_bars_keep_to_any_width() {
    let scratch = Scratch::new();
    let recipe = repository("recipes/ci/tiny.toml");
    for columns in [40, 80, 200] {
        // SFT is long enough to be seen.
        let train = format!("train {recipe} --set name=w{columns} --set sft.steps=1500");
        let mut screen = Screen::open(&scratch, columns, 30, &train);
        let bar = screen.wait_for("sft [");
        assert_eq!(bar.contains(" left"), columns >= 80, "{columns}:\n{bar}");
        assert_eq!(screen.end(), 0, "{columns} columns");
        let seen = screen.text();
        assert!(!seen.contains('['), "a bar is left over:\n{seen}");

        let rows = screen.terminal.screen();
        let wide: Vec<String> = rows
            .rows(0, columns)
            .enumerate()
            .filter(|(at, _)| rows.row_wrapped(*at as u16))
            .map(|(_, row)| row)
            .collect();
        // A command stays in one piece, to be typed again.
        assert!(wide.iter().all(|row| row.contains("  firebrick ")), "{columns} columns: {wide:?}");
    }
}

#[test]
fn a_run_may_be_silent_or_speak_to_programs() {
    let scratch = Scratch::new();
    let recipe = repository("recipes/ci/tiny.toml");
    let train = |name: &str, how: &str| {
        scratch.succeed(&["train", &recipe, "--set", &format!("name={name}"), how])
    };
    let silent = train("silent", "--quiet");
    assert_eq!((silent.stdout.as_str(), silent.stderr.as_str()), ("", ""));

    let spoken = train("spoken", "--json");
    assert_eq!(spoken.stderr, "");
    let lines: Vec<serde_json::Value> =
        spoken.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |event: &str| lines.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    let rewards = of("metrics").iter().filter(|line| line["reward/mean"].is_f64()).count();
    assert_eq!(rewards, 6);
    assert!(of("begin").len() > 6 && of("begin").len() == of("end").len());
    assert!(!of("example").is_empty());

    let finished = of("finished");
    assert_eq!(finished.len(), 1);
    assert_eq!(finished[0]["stopped_because"], "steps");
    assert_eq!(finished[0]["checkpoint"], "runs/spoken/checkpoints/step-000006");
}

/// Makes a scratch folder with a run of this name that has ended.
fn run(name: &str) -> Scratch {
    let scratch = Scratch::new();
    scratch.train_tiny(name, &["train.steps=24", "eval.every=8"]).success();
    scratch
}

/// Returns whether a letter is Braille, of which the renderer's curves are made.
fn is_of_a_curve(letter: char) -> bool {
    ('\u{2801}'..='\u{28ff}').contains(&letter)
}

fn trimmed(screen: &str) -> String {
    screen.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Runs the program in a terminal of its own, which `script` makes.
struct Screen {
    child: Child,
    keys: ChildStdin,
    written: Receiver<Vec<u8>>,
    terminal: vt100::Parser,
}

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

impl Screen {
    fn open(scratch: &Scratch, columns: u16, rows: u16, arguments: &str) -> Self {
        let program = env!("CARGO_BIN_EXE_firebrick");
        let line = format!("stty cols {columns} rows {rows}; exec '{program}' {arguments}");
        let mut child = Command::new("script")
            .args(["-q", "-e", "-c", &line, "/dev/null"])
            .current_dir(scratch.path(""))
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`script` of util-linux makes the terminal");

        let (keys, mut out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, written) = channel();

        spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Screen { child, keys, written, terminal: vt100::Parser::new(rows, columns, 0) }
    }

    fn wait_for(&mut self, words: &str) -> String {
        self.wait_until(|seen| seen.contains(words))
    }

    /// Waits until the screen is as it should be, and returns its text.
    fn wait_until(&mut self, is_there: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let seen = self.text();
            if is_there(&seen) {
                return seen;
            }
            assert!(began.elapsed() < PATIENCE, "it was not on the screen:\n{seen}");
            sleep(Duration::from_millis(50));
        }
    }

    fn text(&mut self) -> String {
        for bytes in self.written.try_iter() {
            self.terminal.process(&bytes);
        }
        self.terminal.screen().contents()
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits for the program's end, and returns its exit code.
    fn end(&mut self) -> i32 {
        let began = Instant::now();
        loop {
            // The program's output is read here. Otherwise the program would wait for a reader.
            let seen = self.text();
            if let Some(status) = self.child.try_wait().unwrap() {
                // What the program wrote last may still be on its way.
                sleep(Duration::from_millis(100));
                return status.code().unwrap();
            }
            assert!(began.elapsed() < PATIENCE, "it does not end:\n{seen}");
            sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
