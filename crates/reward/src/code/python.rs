//! Tests in Python, which call a program in another sandbox.

use std::{
    fs,
    process::{Command, Stdio},
    sync::{Mutex, PoisonError, atomic::AtomicBool},
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    Outcome, is_late,
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

    /// Runs the tests of `job` on a program. The error says why there is no verdict.
    pub(super) fn run(
        &self,
        (file, program): (&str, &str),
        job: &str,
        sandbox: &Sandbox,
        seconds: Duration,
        cancelled: &AtomicBool,
    ) -> Result<Outcome, String> {
        // One that waits may have been ended meanwhile, as all its kind are if memory is short.
        let idle = self.lock().pop();
        let idle = idle.map(|mut server| (server.process.has_ended(Instant::now()), server));
        let mut server = match idle {
            Some((false, server)) => server,
            _ => self.start_server(sandbox)?,
        };
        let files: [(&str, &[u8]); 2] = [(HARNESS, &self.harness), (file, program.as_bytes())];
        let cell = sandbox.cell(&files).map_err(|error| error.to_string())?;
        let mut answering = self.start(sandbox, &cell, &["answer", file], self.limits)?;

        let begin = Instant::now();
        let left = || seconds.saturating_sub(begin.elapsed());
        let (mut late, mut has_begun) = (false, false);
        let mut to_server = format!("{job}\n").into_bytes();
        let report = loop {
            let line = match server.process.ask(to_server, left().max(GRACE), cancelled) {
                Ok(line) => line,
                Err(Fault::Cancelled) => return Err(INTERRUPTED.into()),
                Err(fault) if !has_begun => {
                    let fault = format!("the tests can't be run ({fault:?})");
                    server.process.kill();
                    return Err(format!("{fault}: {}", server.process.last_words()));
                }
                // What the program has returned was too much for them, or they wait for ever.
                Err(fault) => {
                    late = late || fault == Fault::TimeOut;
                    break Value::Null;
                }
            };
            if line.starts_with(REPORT) {
                let report = serde_json::from_slice::<Value>(&line);
                self.lock().push(server);
                break report.map_err(|error| error.to_string())?["report"].take();
            }

            has_begun = true;
            to_server = match answering.ask(line, left(), cancelled) {
                Ok(line) => line,
                Err(Fault::Cancelled) => return Err(INTERRUPTED.into()),
                Err(fault) => {
                    late = fault == Fault::TimeOut;
                    GONE.to_vec()
                }
            };
        };

        let elapsed = begin.elapsed().as_secs_f64();
        let status = answering
            .status(Instant::now() + if report["gone"] == true { GRACE } else { Duration::ZERO });
        if !sandbox.was_made(&cell) {
            return Err(format!("no sandbox was made: {}", answering.last_words()));
        }
        if let Some(problem) = report["problem"].as_str() {
            return Err(format!("the tests can't be run: {problem}"));
        }
        late = late
            || status.is_some_and(|status| is_late(status, elapsed, self.limits.seconds as f64));
        let last_words = super::last_words(&answering.last_words());
        if report.is_null() {
            let why = if late { "it took too long" } else { "it has broken the tests off" };
            return Ok(Outcome { why: why.into(), is_late: late, last_words, ..Outcome::of(1) });
        }
        let number = |key: &str| report[key].as_u64().unwrap_or_default() as usize;
        let why = report["why"].as_str().unwrap_or_default().to_owned();
        let (passed, tests) = (number("passed"), number("tests"));
        Ok(Outcome { passed, tests, why, is_late: late, last_words })
    }

    /// Starts a server. It lives as long as the verifier, so the limit of seconds is its copies' own.
    fn start_server(&self, sandbox: &Sandbox) -> Result<Server, String> {
        let cell = sandbox.cell(&[(HARNESS, &self.harness)]).map_err(|error| error.to_string())?;
        let seconds = self.limits.seconds.to_string();
        // The server, its copy for a judgement, and what a test may start.
        let limits = Limits { processes: 8, seconds: u64::from(u32::MAX), ..self.limits };
        let process = self.start(sandbox, &cell, &["tests", &seconds], limits)?;
        Ok(Server { process, _cell: cell })
    }

    fn start(
        &self,
        sandbox: &Sandbox,
        cell: &Cell,
        words: &[&str],
        limits: Limits,
    ) -> Result<Process, String> {
        let words = [&[HARNESS], words].concat();
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let command = sandbox.command(cell, &[self.python.clone(), words].concat(), limits);
        Process::start(command, LONGEST)
            .map_err(|error| format!("Python can't be started: {error}"))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Server>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for PythonTests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PythonTests").field(&self.python).finish()
    }
}

/// How the line begins that ends the tests.
const REPORT: &[u8] = b"{\"report\"";

/// Tells the tests that the program is no more.
const GONE: &[u8] = b"{\"gone\": true}\n";

const INTERRUPTED: &str = "judging was interrupted";

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
