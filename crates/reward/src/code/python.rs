//! Tests in Python, which call a program in another sandbox.

use std::{
    fmt, fs,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    process::{Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    time::{Duration, Instant},
};

use serde::Deserialize;

use super::{
    Failure, Judged, is_late,
    sandbox::{Cell, Limits, Sandbox},
};
use crate::process::{Fault, Process};

/// Runs tests in Python on programs.
///
/// A program has a sandbox of its own, which ends with it. The tests are run by servers in other sandboxes, one for each
/// thread that judges. A server makes a copy of itself for each judgement. The two exchange lines, which this process
/// passes on: a side asks, and waits for the answer of the other.
pub(super) struct PythonTests {
    /// The interpreter with its options.
    python: Vec<String>,
    /// The program of both sides, compiled.
    harness: Vec<u8>,
    limits: Limits,
    /// Servers of tests that wait for work.
    idle: Mutex<Vec<Server>>,
}

/// What runs the tests.
struct Server {
    process: Process,
    /// How its jobs and reports begin. No program knows it.
    token: String,
    _cell: Cell,
}

const SOURCE: &str = include_str!("harness.py");
const HARNESS: &str = "harness.pyc";

/// Bytes of a call's arguments, or of its value.
const LONGEST: usize = 16 << 20;

/// Options of the interpreter. Installed packages are looked for when one is imported, since most programs need none and
/// looking takes longer than all else.
const OPTIONS: [&str; 3] = ["-S", "-s", "-B"];

impl PythonTests {
    /// Prepares the tests, in the sandbox's own folder.
    ///
    /// # Errors
    /// Says why the interpreter can't compile.
    pub(super) fn new(python: &str, limits: Limits, sandbox: &Sandbox) -> Result<Self, String> {
        const COMPILE: &str =
            "import py_compile, sys; py_compile.compile(*sys.argv[1:], doraise=True)";
        let [source, compiled] = ["harness.py", HARNESS].map(|name| sandbox.folder().join(name));
        fs::write(&source, SOURCE).map_err(|error| error.to_string())?;
        let mut compile = Command::new(python);
        compile.args(["-c", COMPILE]).args([&source, &compiled]).stdin(Stdio::null());
        let done = compile.output().map_err(|error| error.to_string())?;
        let harness = fs::read(&compiled).map_err(|_| {
            let problem = String::from_utf8_lossy(&done.stderr);
            format!("`{python}` can't compile: {}", problem.trim())
        })?;

        let options = OPTIONS.map(str::to_owned).to_vec();
        let python = [vec![python.to_owned()], options].concat();
        Ok(PythonTests { python, harness, limits, idle: Mutex::default() })
    }

    /// Runs the tests of `job`, a JSON object, on a program.
    pub(super) fn run(
        &self,
        (file, program): (&str, &str),
        job: &str,
        sandbox: &Sandbox,
        limit: Duration,
        cancelled: &AtomicBool,
    ) -> Result<Judged, Failure> {
        let files: [(&str, &[u8]); 2] = [(HARNESS, &self.harness), (file, program.as_bytes())];
        let cell = sandbox.cell(&files).map_err(Failure::sandbox)?;
        let command = sandbox.command(&cell, &self.words(&["answer", file]), self.limits);
        let mut answering = Process::start(command, LONGEST).map_err(Failure::sandbox)?;

        // A line break between the values of JSON is no more than a space, and no text has one.
        let job = job.replace(['\r', '\n'], " ");
        let begin = Instant::now();
        let mut exchange = Exchange { answering: &mut answering, begin, limit, cancelled };

        let (report, server) = match self.idle_server() {
            Some(mut server) => match exchange.run(&mut server, &job) {
                // It has ended just now.
                Err(Failure::Sandbox(_)) => self.with_new_server(sandbox, exchange, &job)?,
                report => (report?, server),
            },
            None => self.with_new_server(sandbox, exchange, &job)?,
        };
        // A server is used again only if its copy has said everything, and was told everything.
        if !report.broken && !report.gone {
            self.lock().push(server);
        }

        // A program that has ended by itself did so already.
        let seconds = begin.elapsed().as_secs_f64();
        let soon = Instant::now() + if report.gone { GRACE } else { Duration::ZERO };
        let status = answering.status(soon);
        if !sandbox.was_made(&cell, status.is_none()) {
            return Err(Failure::sandbox(answering.last_words()));
        }
        if let Some(problem) = report.problem {
            return Err(Failure::Tests(format!("the tests can't be run: {problem}")));
        }
        let limit = self.limits.seconds as f64;
        let is_late = report.late || status.is_some_and(|status| is_late(status, seconds, limit));
        let Report { passed, tests, why, .. } = report;
        let last_words = super::last_words(&answering.last_words());
        Ok(Judged { passed, tests, why, is_late, last_words })
    }

    fn with_new_server(
        &self,
        sandbox: &Sandbox,
        mut exchange: Exchange<'_>,
        job: &str,
    ) -> Result<(Report, Server), Failure> {
        let cell = sandbox.cell(&[(HARNESS, &self.harness)]).map_err(Failure::sandbox)?;
        let token = token();
        let words = self.words(&["tests", &self.limits.seconds.to_string(), &token]);
        let command = sandbox.server(&cell, &words, self.limits);
        let process = Process::start(command, LONGEST).map_err(Failure::sandbox)?;
        let mut server = Server { process, token, _cell: cell };
        let report = exchange.run(&mut server, job)?;
        Ok((report, server))
    }

    /// Takes a server that waits for work, and still runs.
    fn idle_server(&self) -> Option<Server> {
        let mut server = self.lock().pop()?;
        (!server.process.has_ended(Instant::now())).then_some(server)
    }

    /// Returns the command line of a side.
    fn words(&self, side: &[&str]) -> Vec<String> {
        let side = side.iter().map(|word| (*word).to_owned());
        self.python.iter().cloned().chain([HARNESS.to_owned()]).chain(side).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Server>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for PythonTests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PythonTests").field(&self.python).finish()
    }
}

/// One judgement: a server runs tests, and a program answers.
struct Exchange<'a> {
    answering: &'a mut Process,
    begin: Instant,
    limit: Duration,
    cancelled: &'a AtomicBool,
}

impl Exchange<'_> {
    /// Passes on what each side says, until the tests of the job are over.
    fn run(&mut self, server: &mut Server, job: &str) -> Result<Report, Failure> {
        let mut to_server = format!("{}{job}\n", server.token).into_bytes();
        let (mut late, mut has_begun) = (false, false);
        loop {
            let left = self.limit.saturating_sub(self.begin.elapsed());
            let line = match server.process.ask(to_server, left.max(GRACE), self.cancelled) {
                Ok(line) => line,
                Err(Fault::Cancelled) => return Err(Failure::Interrupted),
                Err(_) if !has_begun => {
                    server.process.kill();
                    return Err(Failure::sandbox(server.process.last_words()));
                }
                // They wait for ever, or the program's values were too much for them.
                Err(fault) => {
                    late = late || fault == Fault::TimeOut;
                    let why = if late { "it took too long" } else { "it has broken the tests off" };
                    return Ok(Report {
                        tests: 1,
                        why: why.into(),
                        late,
                        broken: true,
                        ..Report::default()
                    });
                }
            };
            if let Some(report) = line.strip_prefix(server.token.as_bytes()) {
                let report: Report = serde_json::from_slice(report).map_err(Failure::sandbox)?;
                if report.broken && !has_begun {
                    return Err(Failure::Tests(format!(
                        "the tests can't be prepared: {}",
                        report.why
                    )));
                }
                return Ok(Report { late: late || report.late, ..report });
            }

            has_begun = true;
            let left = self.limit.saturating_sub(self.begin.elapsed());
            to_server = match self.answering.ask(line, left, self.cancelled) {
                Ok(line) => line,
                Err(Fault::Cancelled) => return Err(Failure::Interrupted),
                Err(fault) => {
                    late = late || fault == Fault::TimeOut;
                    GONE.to_vec()
                }
            };
        }
    }
}

/// What a server says at the end of its tests.
#[derive(Default, Deserialize)]
struct Report {
    #[serde(default)]
    passed: usize,
    /// At least 1, unless there is a problem.
    #[serde(default)]
    tests: usize,
    #[serde(default)]
    why: String,
    /// True if the program has ended.
    #[serde(default)]
    gone: bool,
    #[serde(default)]
    late: bool,
    /// True if the copy that ran the tests has ended early.
    #[serde(default)]
    broken: bool,
    /// Why the tests can't be used.
    #[serde(default)]
    problem: Option<String>,
}

/// Makes a word that nobody can guess.
fn token() -> String {
    let part = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x} ", part(), part())
}

/// Tells the tests that the program is no more.
const GONE: &[u8] = b"{\"gone\": true}\n";

/// How long what has ended may take to be seen as such, and the tests to report it.
const GRACE: Duration = Duration::from_millis(500);

#[cfg(all(test, target_os = "linux"))]
#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
mod tests {
    use firebrick_core::{Completion, Prompt, Verdict, Verifier as _};

    use super::super::{Code, CodeOptions, SandboxKind};

    #[test]
    fn a_server_of_tests_that_was_ended_is_replaced() {
        let options =
            CodeOptions { sandbox: SandboxKind::None, bare: Some(true), ..CodeOptions::default() };
        let code = match Code::new(options) {
            Ok(code) => code,
            Err(why) => return eprintln!("SKIPPED: {why}"),
        };
        let prompt = Prompt { reference: "assert f(3) == 9".into(), ..Prompt::default() };
        let judge = || code.score(&prompt, &Completion::of_text("def f(n): return n * n"));
        assert_eq!(judge().verdict, Verdict::Right);

        let servers = || code.python_tests.as_ref().unwrap().lock();
        assert_eq!(servers().len(), 1);
        servers()[0].process.kill();
        assert_eq!(judge().verdict, Verdict::Right);
        assert_eq!(servers().len(), 1);
    }
}
