//! A program that runs, up to its end or its limits.

use std::{
    io::{self, Read, Write as _},
    process::{Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::family::Family;

/// A program that runs, with all that it started. Dropping it ends them.
pub(super) struct Execution {
    family: Family,
    stdout: Drain,
    stderr: Drain,
}

/// How a program came to its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// By itself, or by a signal.
    Ended(ExitStatus),
    /// It took too long.
    TimedOut,
    /// It wrote too much.
    Overflowed,
    /// Nobody waits for it any more.
    Cancelled,
}

impl Execution {
    /// Starts a program, which reads `input` and may write at most `output` bytes to each of its pipes.
    pub(super) fn start(mut command: Command, input: Vec<u8>, output: usize) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut family = Family::start(command)?;
        let child = family.child();
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        if let Some(mut stdin) = stdin {
            // A program may write before it reads, or never read. It then ends, and the pipe with it.
            thread::spawn(move || stdin.write_all(&input));
        }
        let (Some(stdout), Some(stderr)) = (stdout, stderr) else {
            return Err(io::Error::other("the pipes to the program are missing"));
        };
        Ok(Execution {
            family,
            stdout: Drain::new(stdout, output),
            stderr: Drain::new(stderr, output),
        })
    }

    /// Waits for the program's end, and ends it at its limits. Nothing that it started is left then.
    pub(super) fn finish(&mut self, limit: Duration, cancelled: &AtomicBool) -> End {
        let begin = Instant::now();
        // Most programs take milliseconds, and some take seconds.
        let mut pause = Duration::from_micros(200);
        let end = loop {
            if self.family.has_ended() {
                break None;
            }
            if self.is_full() {
                break Some(End::Overflowed);
            }
            if cancelled.load(Ordering::Relaxed) {
                break Some(End::Cancelled);
            }
            if begin.elapsed() >= limit {
                break Some(End::TimedOut);
            }
            thread::sleep(pause);
            pause = (pause * 3 / 2).min(Duration::from_millis(5));
        };

        let status = self.family.end();
        // A program that has ended by itself may have filled its pipe just before.
        self.stdout.join();
        self.stderr.join();
        match (end, status) {
            (Some(end), _) => end,
            (None, _) if self.is_full() => End::Overflowed,
            (None, Some(status)) => End::Ended(status),
            // The system does not say how it ended, which does not happen to a child that was not waited for.
            (None, None) => End::Cancelled,
        }
    }

    fn is_full(&self) -> bool {
        self.stdout.is_full() || self.stderr.is_full()
    }

    /// Returns what an ended program has written to its stdout.
    pub(super) fn stdout(&self) -> Vec<u8> {
        self.stdout.bytes()
    }

    /// Returns what an ended program has written to its stderr.
    pub(super) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr.bytes()).into_owned()
    }
}

/// Reads a pipe to its end, or up to a limit.
struct Drain {
    bytes: Arc<Mutex<Vec<u8>>>,
    full: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drain {
    fn new(mut pipe: impl Read + Send + 'static, limit: usize) -> Self {
        let (bytes, full) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (all, is_full) = (bytes.clone(), full.clone());
        let thread = thread::spawn(move || {
            let mut buffer = [0; 1 << 16];
            while let Ok(count @ 1..) = pipe.read(&mut buffer) {
                let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                if all.len() + count > limit {
                    is_full.store(true, Ordering::Relaxed);
                    return;
                }
                all.extend(&buffer[..count]);
            }
        });
        Drain { bytes, full, thread: Some(thread) }
    }

    fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Waits for the end of the pipe of an ended program. What could not be ended, as a program without a sandbox may
    /// arrange it, may still hold the pipe.
    fn join(&mut self) {
        let begin = Instant::now();
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            if begin.elapsed() > Duration::from_millis(500) {
                return;
            }
            thread::sleep(Duration::from_micros(100));
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // It does not panic.
        }
    }

    fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
