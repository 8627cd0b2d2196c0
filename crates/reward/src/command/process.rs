//! One running copy of a user's verifier program, with a thread for each of its pipes.

use std::{
    collections::VecDeque,
    io::{self, BufRead as _, BufReader, Read, Write as _},
    process::{Child, ChildStdout, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

/// The most bytes of an answer, without its line break.
const MAX_LINE: usize = 1 << 20;

/// The time after which a waiting thread looks whether to go on.
const LOOK: Duration = Duration::from_millis(50);

/// The most bytes of stderr that are kept for the error text.
const LAST_WORDS: usize = 4096;

/// One running copy of the program.
///
/// Each of the program's three pipes has a thread, because a program may write before it reads, or not read at
/// all. The caller then waits for the answer alone, and that wait has an end. The threads end with the pipes.
/// Dropping the copy kills the program, which closes the pipes.
pub(super) struct Process {
    guard: Option<Guard>,
    child: Child,
    /// The requests to write. `None` if stdin is closed, or will be as soon as the program has read the written
    /// requests.
    requests: Option<Sender<Vec<u8>>>,
    answers: Receiver<Result<Vec<u8>, String>>,
    stderr: Arc<Mutex<VecDeque<u8>>>,
    /// A channel that never carries anything. It disconnects when all of stderr was read.
    stderr_read: Receiver<()>,
    reaped: Option<ExitStatus>,
}

/// The reason why there is no answer.
pub(super) enum Fault {
    /// No answer came in time.
    TimeOut,
    /// The program closed its stdout, most likely by ending.
    Ended,
    /// Nobody waits for the answer any more.
    Cancelled,
    /// The program wrote something else, described in words.
    Nonsense(String),
}

impl Process {
    /// Starts the program, and a guard that ends it should this process be killed.
    pub(super) fn start(program: &[String]) -> io::Result<Self> {
        let [name, arguments @ ..] = program else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no program is named"));
        };
        let mut command = std::process::Command::new(name);
        command.args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The program gets a group of its own. Everything that it starts is then killed with it. It also gets no
        // Ctrl-C, after which a run still finishes its step.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn()?;
        let guard = Guard::over(&child);

        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (requests, asked) = channel::<Vec<u8>>();
        // At most one answer waits. A program that writes without end fills its pipe, not memory.
        let (answer, answers) = sync_channel(1);
        let stderr = Arc::new(Mutex::new(VecDeque::new()));
        let (all_read, stderr_read) = channel::<()>();
        let process = Process {
            guard,
            child,
            requests: Some(requests),
            answers,
            stderr: stderr.clone(),
            stderr_read,
            reaped: None,
        };
        let (Some(mut stdin), Some(stdout), Some(mut errors)) = pipes else {
            return Err(io::Error::other("the pipes to the program are missing"));
        };
        spawn("verifier stdin", move || {
            while let Ok(request) = asked.recv() {
                // A program that ended or closed its stdin is noticed because its answer is missing.
                if stdin.write_all(&request).and_then(|()| stdin.flush()).is_err() {
                    return;
                }
            }
        })?;
        spawn("verifier stdout", move || read_lines(stdout, &answer))?;
        spawn("verifier stderr", move || {
            keep_the_end(&mut errors, &stderr);
            drop(all_read);
        })?;
        Ok(process)
    }

    /// Asks the program and returns its line, unless that takes too long or nobody waits for it any more.
    pub(super) fn ask(
        &mut self,
        request: Vec<u8>,
        limit: Duration,
        cancelled: &AtomicBool,
    ) -> Result<Vec<u8>, Fault> {
        if let Some(requests) = &self.requests {
            let _ = requests.send(request); // The writer is gone when the program is.
        }
        let began = Instant::now();
        loop {
            let left = limit.saturating_sub(began.elapsed());
            return match self.answers.recv_timeout(left.min(LOOK)) {
                Ok(Ok(line)) => Ok(line),
                Ok(Err(problem)) => Err(Fault::Nonsense(problem)),
                Err(RecvTimeoutError::Disconnected) => Err(Fault::Ended),
                Err(RecvTimeoutError::Timeout) if cancelled.load(Ordering::Relaxed) => {
                    Err(Fault::Cancelled)
                }
                Err(RecvTimeoutError::Timeout) if left <= LOOK => Err(Fault::TimeOut),
                Err(RecvTimeoutError::Timeout) => continue,
            };
        }
    }

    /// Closes the program's stdin, at which the program should end.
    pub(super) fn close(&mut self) {
        self.requests = None;
    }

    /// Tells whether the program has ended by itself, or does so before `deadline`.
    pub(super) fn has_ended(&mut self, deadline: Instant) -> bool {
        loop {
            if self.reaped.is_none() {
                self.reaped = self.child.try_wait().ok().flatten();
                // The program's number may be another process's from now on.
                if self.reaped.is_some() {
                    drop(self.guard.take());
                }
            }
            if self.reaped.is_some() || Instant::now() >= deadline {
                return self.reaped.is_some();
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Says in words how a program ended that has closed its stdout.
    pub(super) fn how_it_ended(&mut self, deadline: Instant) -> String {
        self.close();
        self.has_ended(deadline);
        match self.reaped {
            Some(status) => format!("it ended with {status}"),
            None => "it closed its stdout".into(),
        }
    }

    /// Ends the program and everything that it started.
    pub(super) fn kill(&mut self) {
        // The guard goes before the program is waited for. From then on the program's number may be another's.
        drop(self.guard.take());
        // The number of a process that was waited for may be another's by now.
        if self.reaped.is_some() {
            return;
        }
        #[cfg(unix)]
        {
            use rustix::process::{Pid, Signal, kill_process_group};
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        }
        let _ = self.child.kill();
        self.reaped = self.child.wait().ok();
    }

    /// Returns the end of a killed program's stderr, as the end of a sentence. It is empty if there is none.
    pub(super) fn last_words(&self) -> String {
        // The last words of a program may still be on their way through the pipe. But a pipe that something else
        // holds open has no end to wait for.
        let _ = self.stderr_read.recv_timeout(Duration::from_millis(100));
        let mut kept = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(kept.make_contiguous()).trim().to_owned();
        if text.is_empty() { text } else { format!("; its stderr ended with: {text}") }
    }
}

/// A shell that waits for the end of its stdin, which only this process holds open, and then kills a group of
/// processes. Otherwise a hung program would outlive a killed run, and keep everything that it holds.
struct Guard(Child);

impl Guard {
    #[cfg(unix)]
    fn over(child: &Child) -> Option<Self> {
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", "read -r _; kill -s KILL -- -$0 2>/dev/null", &child.id().to_string()]);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        std::os::unix::process::CommandExt::process_group(&mut shell, 0);
        // On a system without a shell, a program ends with its stdin or not at all.
        shell.spawn().ok().map(Guard)
    }

    #[cfg(not(unix))]
    fn over(_: &Child) -> Option<Self> {
        None
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(work).map(|_| ())
}

/// Sends every line on, until the pipe ends, a line is too long or nobody listens.
fn read_lines(stdout: ChildStdout, answer: &SyncSender<Result<Vec<u8>, String>>) {
    let mut stdout = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        let read = stdout.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut line);
        let line = match read {
            Ok(0) => return,
            Ok(_) if line.len() > MAX_LINE && line.last() != Some(&b'\n') => {
                Err(format!("it wrote a line of more than {MAX_LINE} bytes"))
            }
            Ok(_) => Ok(line),
            Err(error) => Err(format!("its stdout can't be read: {error}")),
        };
        let last = line.is_err();
        if answer.send(line).is_err() || last {
            return;
        }
    }
}

/// Reads everything, so that the program never waits for a reader, and keeps the end.
fn keep_the_end(errors: &mut impl Read, kept: &Mutex<VecDeque<u8>>) {
    let mut buffer = [0; LAST_WORDS];
    while let Ok(count @ 1..) = errors.read(&mut buffer) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(&buffer[..count]);
        let excess = kept.len().saturating_sub(LAST_WORDS);
        kept.drain(..excess);
    }
}
