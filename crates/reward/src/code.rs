//! Verifier that runs a completion's program on tests.

mod execution;
mod output;
mod program;
mod python;
mod reference;
mod sandbox;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use firebrick_core::{
    Completion, Metrics, Prompt, Score, Verdict, Verifier, VerifierFailed, score_each,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use self::{
    execution::{End, Execution},
    program::Extraction,
    python::PythonTests,
    reference::{Comparison, Stream, Tests},
    sandbox::{Cell, Limits, Sandbox},
};
use crate::RewardError;

pub use sandbox::SandboxKind;

/// Runs the program of a completion on the tests of its reference, in a sandbox.
///
/// The program is the last block between fences such as ```` ```python ````, after the thoughts. A reference is a text, or a
/// JSON object or list ([`Prompt::json_reference`]), in one of these forms:
///
/// - `{"inputs": ["1 2\n"], "outputs": ["3\n"]}`, or `[{"input": "1 2\n", "output": "3\n"}]`: what the program reads from
///   its stdin, and what it has to write to its stdout. It has to end with status 0.
/// - `{"inputs": [[1, 2]], "outputs": [3], "fn_name": "add"}`, or a list with a `fn_name` in each test: the arguments of a
///   function in Python, and the value that it has to return. An input may also be a text with one argument in each line,
///   and its output is a text of JSON then. A method of a class `Solution` will do.
/// - `["assert add(1, 2) == 3"]`, or `assert add(1, 2) == 3` as a text: tests in Python. Functions `test_…` and methods
///   of a `unittest.TestCase` are tests too.
/// - `{"test": "def check(candidate): …", "entry_point": "add"}`: tests in Python, with a function `check` that is called
///   with the program's `add`.
///
/// The program is in a sandbox alone. Expected outputs stay outside, and tests in Python are in a second sandbox, from
/// which they call the program's functions: only plain values pass from one to the other. So no program can read its tests
/// or change what `==` means in them.
///
/// A program that passes every test is [`Verdict::Right`], and the `extracted` text. One that takes too long is
/// [`Verdict::OverBudget`], and every other one is [`Verdict::Wrong`]: the `extracted` text then says which test it failed,
/// and how. A completion without a program is [`Verdict::Unparsable`]. Where no sandbox can be made, there is no verdict
/// ([`Verdict::Error`]), and [`Verifier::score_all`] fails if that happens again and again. Equal programs are judged once.
///
/// The limits are those of the system, in seconds and bytes. Seconds are the processor's, so that a busy machine does
/// not turn a right program into a wrong one.
#[derive(Debug)]
pub struct Code {
    options: CodeOptions,
    extraction: Extraction,
    /// Runs tests in Python; `None` if programs are in another language.
    python_tests: Option<PythonTests>,
    limits: Limits,
    sandbox: Sandbox,
    /// Failures of the sandbox in a row.
    failures: AtomicU32,
    costs: Mutex<Metrics>,
    /// True if nobody waits for a score any more.
    cancelled: AtomicBool,
}

/// How [`Code`] runs programs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct CodeOptions {
    /// The interpreter of programs and of tests in Python, such as `.venv/bin/python`.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub python: String,
    /// The program and arguments that run `file`, such as `["sh", "-c", "cc -o /tmp/a main.c && /tmp/a"]`. By default
    /// `python` runs it. Another language has tests of inputs and outputs alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Name of the file that a completion's program gets.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 100)))]
    pub file: String,
    /// Names after the opening fence of a program, in capitals or not. A block without a name will do if there is none of
    /// these.
    #[cfg_attr(feature = "schema", schemars(inner(length(min = 1))))]
    pub languages: Vec<String>,
    /// True if a completion is a program as a whole, without fences. By default it is true for the problems of
    /// `data.task`, and false for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bare: Option<bool>,
    /// Text in front of each program, such as imports.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub prelude: String,
    /// A program and its arguments that judge an output in place of the comparison. It reads
    /// `{"input": …, "expected": …, "output": …}` as a line of JSON, and its last line is `right`, or `wrong` with a reason. If
    /// a word after the first leads to a file next to the recipe, it means that file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checker: Vec<String>,
    /// How far a decimal number may be from the one wanted, absolutely or in relation to the larger of both.
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0, max = 1e6)))]
    pub tolerance: f64,
    /// True if the credit is the share of the tests that a program passes. By default it has to pass all of them.
    pub partial: bool,
    /// Seconds of the processor for each process and each input, or for all tests in Python together, rounded up. A program
    /// that only waits has three times as long, and 2 s.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0.0), range(max = 86400.0)))]
    pub time_limit: f64,
    /// MiB of memory for each process of a program.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1 << 20)))]
    pub memory: u64,
    /// Processes and threads of a program.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1024)))]
    pub processes: u64,
    /// Bytes that a program may write.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1 << 30)))]
    pub output: usize,
    /// Further files and folders that programs may read, at the same path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<PathBuf>,
    /// What keeps programs away from everything else.
    pub sandbox: SandboxKind,
}

impl Default for CodeOptions {
    fn default() -> Self {
        CodeOptions {
            python: "python3".into(),
            command: Vec::new(),
            file: "main.py".into(),
            languages: ["python", "python3", "py"].map(str::to_owned).to_vec(),
            bare: None,
            prelude: String::new(),
            checker: Vec::new(),
            tolerance: 1e-6,
            partial: false,
            time_limit: 10.0,
            memory: 1024,
            processes: 8,
            output: 1 << 20,
            mounts: Vec::new(),
            sandbox: SandboxKind::default(),
        }
    }
}

/// Failures of the sandbox in a row after which no more programs are judged.
const MOST_FAILURES: u32 = 10;

/// How long the smallest programs may take before a run.
const TRIAL: Duration = Duration::from_secs(60);

/// Characters of a program's stderr that a record gets.
const LAST_WORDS: usize = 400;

/// What the tests have found out about a program.
#[derive(Default)]
struct Judged {
    passed: usize,
    tests: usize,
    /// Why the first test that failed did; empty if none did.
    why: String,
    /// True if the program took too long.
    is_late: bool,
    /// The end of the program's stderr.
    last_words: String,
}

/// Why there is no verdict on a program.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// No sandbox was made, for no reason that the program could have.
    #[error("no sandbox was made: {0}")]
    Sandbox(String),
    /// Its tests can't be used.
    #[error("{0}")]
    Tests(String),
    /// Nobody waits for it any more.
    #[error("judging was interrupted")]
    Interrupted,
}

impl Failure {
    fn sandbox(why: impl ToString) -> Self {
        Failure::Sandbox(why.to_string())
    }
}

impl Code {
    /// Makes a verifier, and tries its sandbox.
    ///
    /// # Errors
    /// Fails if the options are wrong, Python is not there, or no sandbox can be made.
    pub fn new(mut options: CodeOptions) -> Result<Self, RewardError> {
        let refuse = |problem: String| RewardError::Code { problem };
        let limits = Limits {
            seconds: options.time_limit.ceil() as u64,
            memory: options.memory.saturating_mul(1 << 20),
            processes: options.processes,
        };
        if !(options.time_limit > 0.0 && options.time_limit <= 86400.0) {
            return Err(refuse("time_limit is not a number of seconds above 0".into()));
        }
        if options.processes == 0 || options.memory == 0 {
            return Err(refuse("a program needs at least one process, and memory".into()));
        }
        let is_plain =
            |name: &str| !name.is_empty() && !name.starts_with('.') && !name.contains('/');
        if !is_plain(&options.file) || options.file.starts_with("harness") {
            return Err(refuse(format!(
                "`{}` can't be the name of a program's file",
                options.file
            )));
        }

        // A program finds what it may read at the same place, wherever it runs.
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let mut mounts: Vec<PathBuf> = options.mounts.iter().map(|path| absolute(path)).collect();
        let file = options.file.clone();
        let words = options.command.iter_mut().filter(|word| **word != file);
        for word in words.chain(&mut options.checker) {
            let path = Path::new(word);
            let is_found = path.components().count() == 1 && path.extension().is_none();
            if path.is_file() && !is_found {
                mounts.push(absolute(path));
                *word = absolute(path).to_string_lossy().into_owned();
            }
        }
        let is_python = options.command.is_empty();
        if is_python {
            let (path, folders) = sandbox::interpreter(&options.python).map_err(refuse)?;
            options.command = vec![path, "-s".into(), "-B".into(), options.file.clone()];
            mounts.extend(folders);
        }
        let sandbox = Sandbox::new(options.sandbox, mounts)
            .map_err(|error| refuse(format!("the folder of programs can't be made: {error}")))?;
        let tests = || PythonTests::new(&options.command[0], limits, &sandbox);
        let python_tests = is_python.then(tests).transpose().map_err(refuse)?;
        let bare = options.bare.unwrap_or(false);
        let code = Code {
            extraction: Extraction { languages: options.languages.clone(), bare },
            options,
            python_tests,
            limits,
            sandbox,
            failures: AtomicU32::new(0),
            costs: Mutex::default(),
            cancelled: AtomicBool::new(false),
        };
        code.try_sandbox().map_err(refuse)?;
        Ok(code)
    }

    /// Runs the smallest programs, to find out before a run whether any can be.
    fn try_sandbox(&self) -> Result<(), String> {
        let (program, words) = match &self.python_tests {
            Some(_) => ("print(6 * 7)", self.options.command.clone()),
            None => ("", ["echo", "42"].map(str::to_owned).to_vec()),
        };
        let cell = self.sandbox.cell(&[(&self.options.file, program.as_bytes())]);
        let cell = cell.map_err(|error| error.to_string())?;
        let command = self.sandbox.command(&cell, &words, self.limits);
        let trial = Execution::start(command, Vec::new(), 1 << 16);
        let mut trial =
            trial.map_err(|error| format!("`{}` can't be started: {error}", words[0]))?;
        let end = trial.finish(TRIAL, &self.cancelled);
        if trial.stdout() != b"42\n" {
            let problem = trial.stderr().trim().to_owned();
            let has_begun = self.sandbox.was_made(&cell, false);
            return Err(match (has_begun, self.options.sandbox) {
                (false, SandboxKind::Bwrap) => format!(
                    "no sandbox can be made ({problem}); install bubblewrap 0.7 or later where `bwrap` is missing; \
                     where namespaces are forbidden, as they are in most containers, allow them; or write `sandbox = \
                     \"none\"`, with which programs can do whatever you can"
                ),
                _ => {
                    let words = words.join(" ");
                    format!("`{words}` does not run in the sandbox: {problem} ({end:?})")
                }
            });
        }

        // Tests in Python have a server, which forks.
        let Some(python) = &self.python_tests else { return Ok(()) };
        let job = r#"{"asserts": ["assert f() == 42"], "entry": null, "all": true}"#;
        let file = (self.options.file.as_str(), "def f(): return 42");
        match python.run(file, job, &self.sandbox, TRIAL, &self.cancelled) {
            Ok(judged) if judged.passed == 1 => Ok(()),
            Ok(judged) => Err(format!("Python fails the simplest test: {}", judged.why)),
            Err(failure) => Err(failure.to_string()),
        }
    }

    fn start(&self, cell: &Cell, words: &[String], input: Vec<u8>) -> Result<Execution, Failure> {
        let command = self.sandbox.command(cell, words, self.limits);
        Execution::start(command, input, self.options.output).map_err(Failure::sandbox)
    }

    /// How long a program may run that only waits, and so takes none of the processor's seconds. A busy machine has to
    /// give a program a third of its time.
    fn wall_limit(&self) -> Duration {
        Duration::from_secs_f64(3.0 * self.options.time_limit.ceil() + 2.0)
    }

    /// Judges a completion, unless there can be no verdict.
    fn try_judge(&self, prompt: &Prompt, completion: &Completion) -> Result<Score, Failure> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
        let comparison =
            Comparison { all: self.options.partial, tolerance: self.options.tolerance };
        let tests = Tests::read(&prompt.reference, comparison).map_err(Failure::Tests)?;
        if matches!(tests, Tests::Python(_)) && self.python_tests.is_none() {
            let problem = "tests in Python need a program in Python, and `command` runs another";
            return Err(Failure::Tests(problem.into()));
        }
        let Some(program) = self.extraction.find(&completion.text) else {
            return Ok(Score::none(Verdict::Unparsable));
        };

        let program = format!("{}{program}", self.options.prelude);
        let begin = Instant::now();
        let judged = match tests {
            Tests::Streams(streams) => self.run_on_streams(&program, &streams),
            Tests::Python(job) => {
                let Some(python) = &self.python_tests else {
                    let problem =
                        "tests in Python need a program in Python, and `command` runs another";
                    return Err(Failure::Tests(problem.into()));
                };
                let file = (self.options.file.as_str(), program.as_str());
                python.run(file, &job, &self.sandbox, self.wall_limit(), &self.cancelled)
            }
        }?;
        Ok(self.score_of(program, judged, begin.elapsed().as_secs_f64()))
    }

    fn score_of(&self, program: String, judged: Judged, seconds: f64) -> Score {
        let Judged { passed, tests, why, is_late, last_words } = judged;
        let mut costs = self.costs.lock().unwrap_or_else(PoisonError::into_inner);
        costs.add("code/programs", 1.0);
        costs.add("code/timeouts", f64::from(u8::from(is_late)));
        costs.add("code/seconds", seconds);
        drop(costs);

        if passed == tests && why.is_empty() {
            return Score::right(program);
        }
        let mut text = format!("passed {passed} of {tests} tests in {seconds:.2} s");
        for part in [why, last_words].iter().filter(|part| !part.is_empty()) {
            text += &format!("; {part}");
        }
        let verdict = if is_late { Verdict::OverBudget } else { Verdict::Wrong };
        let share = passed as f64 / tests.max(1) as f64;
        let credit = if self.options.partial { share } else { 0.0 };
        Score::partial(verdict, credit as f32, printable(&text))
    }

    /// Runs a program once for each input.
    fn run_on_streams(&self, program: &str, streams: &[Stream]) -> Result<Judged, Failure> {
        let file = (self.options.file.as_str(), program.as_bytes());
        let mut judged = Judged { tests: streams.len(), ..Judged::default() };
        for (index, stream) in streams.iter().enumerate() {
            let cell = self.sandbox.cell(&[file]).map_err(Failure::sandbox)?;
            let input = stream.input.clone().into_bytes();
            let mut execution = self.start(&cell, &self.options.command, input)?;
            let begin = Instant::now();
            let end = execution.finish(self.wall_limit(), &self.cancelled);
            let seconds = begin.elapsed().as_secs_f64();
            if !self.sandbox.was_made(&cell, !matches!(end, End::Ended(_))) {
                return Err(Failure::sandbox(execution.stderr().trim()));
            }

            let late = "it took too long".to_owned();
            let failure = match end {
                End::Ended(status) if status.success() => {
                    self.mismatch(stream, &execution.stdout())?
                }
                End::Ended(status) if is_late(status, seconds, self.options.time_limit) => {
                    judged.is_late = true;
                    Some(late)
                }
                End::Ended(status) => Some(format!("it ended with {}", shown(status))),
                End::TimedOut => {
                    judged.is_late = true;
                    Some(late)
                }
                End::Overflowed => Some("it wrote too much".to_owned()),
                End::Cancelled => return Err(Failure::Interrupted),
            };
            let Some(failure) = failure else {
                judged.passed += 1;
                continue;
            };

            if judged.why.is_empty() {
                judged.why = format!("test {}: {failure}", index + 1);
                judged.last_words = last_words(&execution.stderr());
            }
            // Other inputs would take as long.
            if !self.options.partial || judged.is_late {
                break;
            }
        }
        Ok(judged)
    }

    /// Returns what is wrong with an output, if anything is.
    fn mismatch(&self, stream: &Stream, written: &[u8]) -> Result<Option<String>, Failure> {
        let written = String::from_utf8_lossy(written);
        let Stream { input, output } = stream;
        if self.options.checker.is_empty() {
            let same = output::is_same(&written, output, self.options.tolerance);
            let differ = || format!("expected {}, got {}", short(output), short(&written));
            return Ok((!same).then(differ));
        }

        let question = json!({ "input": input, "expected": output, "output": written });
        let cell = self.sandbox.cell(&[]).map_err(Failure::sandbox)?;
        let question = format!("{question}\n").into_bytes();
        let mut checker = self.start(&cell, &self.options.checker, question)?;
        let begin = Instant::now();
        let end = checker.finish(self.wall_limit(), &self.cancelled);

        let answer = last_words(&String::from_utf8_lossy(&checker.stdout()));
        let seconds = begin.elapsed().as_secs_f64();
        let late = |status| is_late(status, seconds, self.options.time_limit);
        let is_endless = end == End::TimedOut || matches!(end, End::Ended(status) if late(status));
        let ended_well = matches!(end, End::Ended(status) if status.success());
        match answer.split_once(' ').map_or((answer.as_str(), ""), |(verdict, why)| (verdict, why))
        {
            ("right", _) if ended_well => Ok(None),
            ("wrong", "") if ended_well => Ok(Some("the checker refuses it".into())),
            ("wrong", why) if ended_well => Ok(Some(why.to_owned())),
            _ if end == End::Cancelled => Err(Failure::Interrupted),
            // An output for which the checker works without end must not be worth more than a wrong one.
            _ if is_endless => Ok(Some("the checker took too long".into())),
            _ => {
                let problem = last_words(&checker.stderr());
                Err(Failure::Tests(format!("the checker failed ({end:?}): {answer} {problem}")))
            }
        }
    }
}

impl Verifier for Code {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        match self.try_judge(prompt, completion) {
            Ok(score) => {
                self.failures.store(0, Ordering::Relaxed);
                score
            }
            Err(failure) => {
                if matches!(failure, Failure::Sandbox(_)) {
                    self.failures.fetch_add(1, Ordering::Relaxed);
                }
                Score::partial(Verdict::Error, 0.0, printable(&failure.to_string()))
            }
        }
    }

    fn score_all(&self, pairs: &[(&Prompt, &Completion)]) -> Result<Vec<Score>, VerifierFailed> {
        self.cancelled.store(false, Ordering::Relaxed);
        // A policy writes the same program again and again, the surer it is.
        let (mut places, mut different) = (HashMap::new(), Vec::new());
        let mut place_of_each = Vec::with_capacity(pairs.len());
        for &(prompt, completion) in pairs {
            let key = (prompt.reference.as_str(), completion.text.as_str());
            place_of_each.push(*places.entry(key).or_insert_with(|| {
                different.push((prompt, completion));
                different.len() - 1
            }));
        }
        let scores = score_each(self, &different);
        let failed = scores.iter().rev().find(|score| score.verdict == Verdict::Error);
        match failed {
            _ if self.cancelled.load(Ordering::Relaxed) => Err(VerifierFailed::Interrupted),
            Some(score) if self.failures.load(Ordering::Relaxed) > MOST_FAILURES => {
                let problem = &score.extracted;
                Err(VerifierFailed::Failed(format!("programs can't be run: {problem}").into()))
            }
            _ => Ok(place_of_each.into_iter().map(|place| scores[place].clone()).collect()),
        }
    }

    fn takes_json(&self) -> bool {
        true
    }

    /// Reads the tests of a row. A reference has no program that could be run on them.
    fn probe(&self, prompt: &Prompt, _: &Completion) -> Result<(), VerifierFailed> {
        let comparison = Comparison { all: true, tolerance: 0.0 };
        let read = Tests::read(&prompt.reference, comparison);
        read.map(|_| ()).map_err(|problem| VerifierFailed::Failed(problem.into()))
    }

    fn take_costs(&self) -> Metrics {
        std::mem::take(&mut *self.costs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

/// Tells whether the system has ended a program because it took too long: by SIGXCPU, or by SIGKILL if the program has
/// ignored that.
fn is_late(status: ExitStatus, seconds: f64, limit: f64) -> bool {
    signal(status) == Some(24) || signal(status) == Some(9) && seconds > limit
}

fn shown(status: ExitStatus) -> String {
    match (signal(status), status.code()) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, Some(code)) => format!("status {code}"),
        (None, None) => "no status".into(),
    }
}

/// Returns the signal that has ended a program. A sandbox passes it on as a shell does.
fn signal(status: ExitStatus) -> Option<i32> {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return Some(signal);
    }
    status.code().filter(|code| (129..=192).contains(code)).map(|code| code - 128)
}

/// Returns the last line that says something, cut to a readable length.
fn last_words(text: &str) -> String {
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    line.trim().chars().take(LAST_WORDS).collect()
}

/// Quotes a text, cut to a readable length.
fn short(text: &str) -> String {
    const MOST: usize = 60;
    let text = text.trim_end();
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// Writes control characters as escapes, because what a program writes must not move the cursor of a terminal.
fn printable(text: &str) -> String {
    text.chars()
        .map(|it| if it.is_control() { it.escape_default().to_string() } else { it.into() })
        .collect()
}
