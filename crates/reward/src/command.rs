//! Verifier that asks a user's program.

use std::{
    fmt,
    path::PathBuf,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use firebrick_core::{
    Completion, Prompt, Reason, Score, Verdict, Verifier, VerifierFailed, score_each,
};
use serde::{Deserialize, Serialize};

use crate::{
    RewardError, family,
    process::{Fault, Process},
};

/// Asks a user's program, one JSON object per line in each direction.
///
/// The program gets this line on its stdin:
///
/// ```json
/// {"id": 0, "question": "…", "prompt": "…", "reference": "72", "completion": "… #### 72", "finish": "stop"}
/// ```
///
/// `reference` is a text, or the object or list that the data has ([`Prompt::json_reference`]). `question` is the
/// question of the data. `prompt` is the text that the model read: the question in its pattern
/// and chat template. `finish` is `"stop"` or `"length"`.
///
/// The program writes its answer to its stdout before it gets the next line, with the same `id`. An answer has a
/// `score` in `[0, 1]` or a `verdict` (`"right"`, `"wrong"`, `"unparsable"`, `"over_budget"`, `"error"`) or both. It
/// may also have the `extracted` answer, and a `printed` text for the user. Other keys are ignored:
///
/// ```json
/// {"id": 0, "score": 0.5, "extracted": "72"}
/// ```
///
/// A score alone is right if it is 1, else wrong with that credit. A verdict alone has credit 1 if it is right, else 0.
/// The program must flush its stdout after each line, as Python does with `print(…, flush=True)`. Its stderr is read
/// and dropped, although its end is quoted if the program fails. The program should end when its stdin does.
///
/// Only what the program writes is a judgement. In every other case the score is [`Verdict::Error`], which is not a
/// verdict:
///
/// - The program can't be started, or was given up.
/// - It ends before it answers, on its own or by a signal, even if another process still holds its pipes.
/// - It closes its stdout and continues.
/// - It takes longer than the limit: it hangs, is stopped, or was replaced by another program.
/// - It writes anything else, the answer to another id, or more than 1 MiB in a line.
/// - Nobody waits for the score any more ([`Verifier::cancel`]).
///
/// A copy of the program that failed is ended with everything that it started, and so is every copy when the
/// verifier is dropped or its process is killed. The next completion starts a new copy; none is asked about
/// twice. After too many failures in a row the program is given up, and [`Verifier::score_all`] fails.
///
/// Only this verifier and [`Code`](crate::Code) read a clock. All others count their work in operations, so that their verdict is
/// the same under any load. The operations of another program can't be counted, so its limit is in seconds. Choose the
/// limit so large that only a hang reaches it. A program that judges by its own limit, such as one that runs
/// completions, answers `over_budget` itself.
pub struct Command {
    options: CommandOptions,
    /// What messages call the program.
    name: String,
    /// True if the program can be asked before a run.
    probes: bool,
    time_limit: Duration,
    /// Variables of the environment that the program does not get.
    hidden: Vec<String>,
    on_message: Box<dyn Fn(&str) + Send + Sync>,
    next_id: AtomicU64,
    /// True if nobody waits for a score any more.
    cancelled: AtomicBool,
    copies: Mutex<Copies>,
    /// Signals that a copy became idle or may be started, or that there will be no more copies.
    changed: Condvar,
}

/// Program of a [`Command`], and its limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CommandOptions {
    /// The program and its arguments. No shell reads them.
    pub program: Vec<String>,
    /// The seconds that one completion may take, above 0. The first completion after a start includes the start.
    pub time_limit: f64,
    /// The number of failures in a row after which the program is still started again. After one more it is given
    /// up.
    pub restarts: u32,
    /// The number of copies of the program that run concurrently, at least 1.
    pub processes: usize,
}

impl Default for CommandOptions {
    fn default() -> Self {
        CommandOptions { program: vec![], time_limit: 10.0, restarts: 10, processes: 1 }
    }
}

/// A function in a Python file, which judges completions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonFunction {
    /// The interpreter, such as `python3`.
    pub python: String,
    /// The file. A module next to it can be imported.
    pub file: PathBuf,
    /// The function's name.
    pub function: String,
}

/// The program that calls a function in Python.
const PYTHON: &str = include_str!("command/python.py");

/// Copies that run.
#[derive(Default)]
struct Copies {
    idle: Vec<Process>,
    /// Copies, idle or at work.
    running: usize,
    failures_in_a_row: u32,
    /// Lines that the program's answers gave to the user.
    printed: usize,
    /// True if the first failure was reported.
    warned: bool,
    /// Reason why the program is no longer started.
    given_up: Option<Reason>,
}

/// Maximum bytes of an answer, without its line break.
const MAX_LINE: usize = 1 << 20;

/// How long a copy may take to end on its own, once it gets no more requests.
const GRACE: Duration = Duration::from_millis(500);

impl Command {
    /// Makes a verifier that starts its program when it is first asked, or by [`Command::start`].
    ///
    /// # Errors
    /// Fails if there is no program, no time or no copy.
    pub fn new(options: CommandOptions) -> Result<Self, RewardError> {
        let refuse = |problem: &str| {
            let program = options.program.clone();
            Err(RewardError::Command { program: shown(&program), problem: problem.into() })
        };

        if options.program.first().is_none_or(String::is_empty) {
            return refuse("no program is named");
        }
        if options.processes == 0 {
            return refuse("processes is 0, expected at least 1");
        }
        let time_limit = match Duration::try_from_secs_f64(options.time_limit) {
            Ok(limit) if !limit.is_zero() => limit,
            _ => return refuse("time_limit is not a number of seconds above 0"),
        };

        Ok(Command {
            name: shown(&options.program),
            probes: false,
            options,
            time_limit,
            hidden: Vec::new(),
            on_message: Box::new(|_| ()),
            next_id: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            copies: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Makes a verifier that asks a function in Python, which is called once for each completion and gets, by their
    /// names, those of `question`, `completion`, `reference`, `prompt` and `finish` that it has as arguments. It returns
    /// a score in `[0, 1]`, or such a score and the text that it judged. What it prints is `printed`. The program in
    /// `options` is not used.
    ///
    /// A score of any other kind, and an error in the function, are failures of the program.
    ///
    /// # Errors
    /// Fails as [`Command::new`] does.
    pub fn python(
        PythonFunction { python, file, function }: PythonFunction,
        options: CommandOptions,
    ) -> Result<Self, RewardError> {
        let path = file.to_string_lossy().into_owned();
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let program = [python.as_str(), "-c", PYTHON, &path, &function].map(String::from).to_vec();
        let mut command = Command::new(CommandOptions { program, ..options })?;
        command.name = name;
        command.probes = true;
        Ok(command)
    }

    /// Hides these environment variables from the program, such as those that hold keys.
    #[must_use]
    pub fn without(mut self, variables: impl IntoIterator<Item = String>) -> Self {
        self.hidden.extend(variables);
        self
    }

    /// Calls `hear` with each of the first lines that the program prints for the user, and with the reason when it fails
    /// for the first time, unless it is then given up.
    #[must_use]
    pub fn on_message(mut self, hear: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_message = Box::new(hear);
        self
    }

    /// Starts one copy now, to find out before a long run whether it can be started.
    ///
    /// # Errors
    /// Fails with the system's error if the system can't start the program.
    pub fn start(&self) -> Result<(), RewardError> {
        let mut copies = self.lock();
        if copies.running == 0 {
            let process = self.start_copy().map_err(|error| {
                let problem = self.not_started(&error);
                RewardError::Command { program: self.name.clone(), problem }
            })?;
            copies.running += 1;
            copies.idle.push(process);
        }

        Ok(())
    }

    fn start_copy(&self) -> std::io::Result<Process> {
        // There is a first word, as `new` has seen.
        let [name, arguments @ ..] = &self.options.program[..] else { unreachable!() };
        let mut command = std::process::Command::new(name);
        command.args(arguments);
        for variable in &self.hidden {
            command.env_remove(variable);
        }
        Process::start(command, MAX_LINE)
    }

    fn not_started(&self, error: &std::io::Error) -> String {
        let program = self.options.program.first().map_or("", String::as_str);
        format!("`{program}` can't be started: {error}")
    }

    /// Takes an idle copy or starts a new one. Waits while all copies are at work. Returns `None` if the program
    /// is given up or can't be started, or if nobody waits for its score.
    fn take(&self) -> Option<Process> {
        let mut copies = self.lock();
        loop {
            if copies.given_up.is_some() || self.cancelled.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(process) = copies.idle.pop() {
                return Some(process);
            }
            if copies.running < self.options.processes {
                copies.running += 1;
                // Starting takes time, in which other threads may return their copies.
                drop(copies);
                return match self.start_copy() {
                    Ok(process) => Some(process),
                    Err(error) => {
                        self.failed(&self.not_started(&error));
                        None
                    }
                };
            }

            copies = self.changed.wait(copies).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns the program's score of the completion, or `None` if it gave none. Scores come only from here.
    fn judged(&self, prompt: &Prompt, completion: &Completion) -> Option<Score> {
        let process = self.take()?;
        match self.ask(process, prompt, completion) {
            Ok(score) => Some(score),
            Err(Some(problem)) => {
                self.failed(&problem);
                None
            }
            Err(None) => {
                self.lock().running -= 1;
                None
            }
        }
    }

    /// Asks a copy about a completion. A copy that fails is gone afterwards, but is still counted as running. The
    /// error says what is wrong with it, or is `None` if nobody waits for the score any more.
    fn ask(
        &self,
        mut process: Process,
        prompt: &Prompt,
        completion: &Completion,
    ) -> Result<Score, Option<String>> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        // No lock is held while the program judges, so that other copies can judge meanwhile.
        let answer = process
            .ask(request(id, prompt, completion), self.time_limit, &self.cancelled)
            .and_then(|line| read(&line, id).map_err(Fault::Nonsense));

        let problem = match answer {
            Ok((score, printed)) => {
                self.give_back(process);
                self.pass_on(&printed);
                return Ok(score);
            }
            Err(Fault::Cancelled) => return Err(None),
            Err(Fault::Nonsense(problem)) => problem,
            Err(Fault::TimeOut) if process.is_stopped() => {
                format!("no answer in {} s, a signal has stopped it", self.options.time_limit)
            }
            Err(Fault::TimeOut) => format!("no answer in {} s", self.options.time_limit),
            Err(Fault::Ended | Fault::Closed) => match process.status(Instant::now() + GRACE) {
                Some(status) => format!("it ended with {status}"),
                None => "it closed its stdout".into(),
            },
        };

        process.kill();
        let last_words = match process.last_words() {
            words if words.is_empty() => words,
            words => format!("; its stderr ended with: {words}"),
        };
        // The copy and its threads are gone before another copy replaces it.
        drop(process);
        Err(Some(format!("{problem}{}", escaped(&last_words))))
    }

    /// Passes on what the program printed, until that is enough to find a fault by.
    fn pass_on(&self, printed: &str) {
        const MOST: usize = 20;
        for line in printed.lines() {
            let mut copies = self.lock();
            copies.printed += 1;
            let count = copies.printed;
            // The list is unlocked before a caller's function runs, which may lock it.
            drop(copies);

            let program = &self.name;
            match count {
                ..=MOST => (self.on_message)(&format!("{program} printed: {}", escaped(line))),
                _ if count == MOST + 1 => {
                    (self.on_message)(&format!("what else {program} prints is not shown"));
                }
                _ => {}
            }
        }
    }

    fn give_back(&self, process: Process) {
        let mut copies = self.lock();
        copies.failures_in_a_row = 0;
        copies.idle.push(process);
        drop(copies);
        self.changed.notify_one();
        family::bury_orphans();
    }

    /// Counts a copy that failed and is gone.
    fn failed(&self, problem: &str) {
        let mut copies = self.lock();
        copies.running -= 1;
        copies.failures_in_a_row = copies.failures_in_a_row.saturating_add(1);
        let failures = copies.failures_in_a_row;

        let program = &self.name;
        if failures > self.options.restarts && copies.given_up.is_none() {
            let times = match failures {
                1 => "failed".to_owned(),
                _ => format!("failed {failures} times in a row"),
            };
            let why = format!("the verifier `{program}` {times} and is given up: {problem}");
            copies.given_up = Some(why.into());
        }

        let first = !std::mem::replace(&mut copies.warned, true) && copies.given_up.is_none();

        // The list is unlocked before a caller's function runs, which may lock it.
        drop(copies);
        self.changed.notify_all();

        if first {
            (self.on_message)(&format!(
                "the verifier `{program}` failed, so it could not judge one completion, and is \
                 started again: {problem}"
            ));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Copies> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Verifier for Command {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        self.judged(prompt, completion).unwrap_or_else(|| Score::none(Verdict::Error))
    }

    fn score_all(&self, pairs: &[(&Prompt, &Completion)]) -> Result<Vec<Score>, VerifierFailed> {
        self.cancelled.store(false, Ordering::Relaxed);
        let scores = score_each(self, pairs);
        match &self.lock().given_up {
            Some(why) => Err(VerifierFailed::Failed(why.clone())),
            None => Ok(scores),
        }
    }

    fn takes_json(&self) -> bool {
        true
    }

    /// Asks a function in Python. Another program is not asked, because its ids begin with the run.
    fn probe(&self, prompt: &Prompt, completion: &Completion) -> Result<(), VerifierFailed> {
        if !self.probes {
            return Ok(());
        }
        let Some(process) = self.take() else { return Err(VerifierFailed::Interrupted) };
        let failed = |problem| {
            VerifierFailed::Failed(format!("the verifier `{}`: {problem}", self.name).into())
        };
        match self.ask(process, prompt, completion) {
            Ok(_) => Ok(()),
            Err(problem) => {
                self.lock().running -= 1;
                Err(problem.map_or(VerifierFailed::Interrupted, failed))
            }
        }
    }

    /// Gives up every completion that is being judged, and kills the copies of the program that judge.
    fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        // A thread that waits for a copy checks `cancelled` under the lock.
        drop(self.lock());
        self.changed.notify_all();
    }
}

/// Ends every copy: its stdin is closed, and a copy that does not end on its own is killed.
impl Drop for Command {
    fn drop(&mut self) {
        // All copies are asked to end before any of them is waited for.
        let mut idle = std::mem::take(&mut self.lock().idle);
        idle.iter_mut().for_each(Process::close);

        let deadline = Instant::now() + GRACE;
        for process in &mut idle {
            process.has_ended(deadline); // If it has not, dropping it kills it.
        }
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Command").field(&self.options).finish()
    }
}

/// Makes the line that asks for a score.
fn request(id: u64, prompt: &Prompt, completion: &Completion) -> Vec<u8> {
    // JSON writes a line break inside a text as an escape, so this is one line.
    let text = |text: &str| serde_json::Value::from(text).to_string();
    // JSON is not read and written again, which would round its long numbers. Between its values a line break is no
    // more than a space.
    let reference = if prompt.json_reference {
        prompt.reference.replace(['\r', '\n'], " ")
    } else {
        text(&prompt.reference)
    };

    format!(
        "{{\"id\":{id},\"question\":{},\"prompt\":{},\"reference\":{reference},\"completion\":{},\"finish\":{}}}\n",
        text(prompt.question_text()),
        text(&prompt.text),
        text(&completion.text),
        text(completion.finish.name()),
    )
    .into_bytes()
}

/// The line of an answer.
#[derive(Deserialize)]
struct Answer {
    id: u64,
    score: Option<f64>,
    verdict: Option<Verdict>,
    extracted: Option<String>,
    printed: Option<String>,
}

/// Reads an answer, and what the program printed with it.
pub(crate) fn read(line: &[u8], id: u64) -> Result<(Score, String), String> {
    // The problem may quote the line, so it is escaped as well.
    let nonsense = |problem: String| {
        Err(format!("it wrote `{}`: {}", beginning(line).trim_end(), escaped(&problem)))
    };

    let answer: Answer = match serde_json::from_slice(line) {
        Ok(answer) => answer,
        Err(_) if line.starts_with(b"{'") => {
            return nonsense("expected JSON, which Python writes with json.dumps".into());
        }
        Err(error) => return nonsense(format!("expected an answer in JSON, {error}")),
    };

    if answer.id != id {
        return nonsense(format!("expected the answer to id {id}"));
    }

    // If the verdict or the score is missing, it follows from the other.
    let (verdict, credit) = match (answer.verdict, answer.score) {
        (None, None) => return nonsense("expected `score` or `verdict`".into()),
        (_, Some(score)) if !(0.0..=1.0).contains(&score) => {
            return nonsense("expected a `score` from 0 to 1".into());
        }
        (Some(verdict), Some(score)) => (verdict, score),
        (Some(verdict), None) => (verdict, f64::from(u8::from(verdict == Verdict::Right))),
        (None, Some(score)) if score == 1.0 => (Verdict::Right, score),
        (None, Some(score)) => (Verdict::Wrong, score),
    };

    let score = Score::partial(verdict, credit as f32, answer.extracted.unwrap_or_default());
    Ok((score, answer.printed.unwrap_or_default()))
}

/// Returns the beginning of a line, as much as fits into a message.
fn beginning(line: &[u8]) -> String {
    const ROOM: usize = 80;
    let text: String = String::from_utf8_lossy(&line[..line.len().min(4 * ROOM)]).into_owned();
    match text.char_indices().nth(ROOM) {
        Some((end, _)) => format!("{}…", escaped(&text[..end])),
        None => escaped(text.trim_end()),
    }
}

/// Writes out the control characters of a text, except line breaks: what a program writes must not move the cursor of a
/// terminal.
fn escaped(text: &str) -> String {
    let safe = |character: char| character == '\n' || !character.is_control();
    text.chars()
        .map(|character| {
            if safe(character) {
                character.to_string()
            } else {
                character.escape_default().to_string()
            }
        })
        .collect()
}

/// Writes a command line to read, not to run.
fn shown(program: &[String]) -> String {
    program.join(" ")
}

#[cfg(test)]
#[cfg(unix)]
mod tests;
