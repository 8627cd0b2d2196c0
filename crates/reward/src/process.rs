//! A running program that is asked and answers in lines, with a thread for each of its pipes.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, BufRead as _, BufReader, Read, Write as _},
    process::{Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::family::Family;

/// How long a thread waits before it checks whether to continue.
const LOOK: Duration = Duration::from_millis(50);

/// Maximum time for the last line of an ended program to arrive through its pipe. The line is there already, and only a
/// busy machine needs that long.
const LAST_LINE: Duration = Duration::from_millis(500);

/// Maximum bytes of stderr that are kept for the error text.
const LAST_WORDS: usize = 4096;

/// A running program.
///
/// Each of the program's three pipes has a thread, because a program may write before it reads, or never read. The
/// caller then waits only for the answer, and that wait has a limit. Dropping the copy ends the program with all that
/// it started, which closes the pipes and ends the threads.
pub(crate) struct Process {
    family: Family,
    /// Takes the requests to write. `None` if stdin is closed, or will be as soon as the program has read the
    /// written requests.
    requests: Option<Sender<Vec<u8>>>,
    /// `None` once nobody listens any more.
    answers: Option<Receiver<Result<Vec<u8>, String>>>,
    stderr: Arc<Mutex<VecDeque<u8>>>,
    /// Never carries anything. It disconnects when all of stderr was read.
    stderr_read: Receiver<()>,
    pipes: Vec<Pipe>,
    /// Tells the threads to end.
    over: Arc<AtomicBool>,
}

/// Reason why there is no answer: every way in which a started program can fail to give a judgement. None of them is a
/// verdict.
#[derive(Debug, PartialEq)]
pub(crate) enum Fault {
    /// No answer arrived in time. The program hangs, is stopped, or was replaced by one that gives no answers.
    TimeOut,
    /// The program has ended, on its own or by a signal, although others may still hold its pipes.
    Ended,
    /// The program closed its stdout, and continues.
    Closed,
    /// Nobody waits for the answer any more.
    Cancelled,
    /// The program wrote something else, described in the text.
    Nonsense(String),
}

impl Process {
    /// Starts the program. Its answers have at most `longest` bytes, without their line breaks.
    pub(crate) fn start(mut command: Command, longest: usize) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut family = Family::start(command)?;
        let child = family.child();
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());

        let (requests, asked) = channel::<Vec<u8>>();
        // At most one answer waits. A program that writes without end fills its pipe, not memory.
        let (answer, answers) = sync_channel(1);
        let stderr = Arc::new(Mutex::new(VecDeque::new()));
        let (all_read, stderr_read) = channel::<()>();

        let over = Arc::new(AtomicBool::new(false));
        let mut process = Process {
            family,
            requests: Some(requests),
            answers: Some(answers),
            stderr: stderr.clone(),
            stderr_read,
            pipes: Vec::new(),
            over: over.clone(),
        };
        let (Some(stdin), Some(stdout), Some(errors)) = pipes else {
            return Err(io::Error::other("the pipes to the program are missing"));
        };

        let is_over = over.clone();
        process.pipes.push(Pipe::new(
            "verifier stdin",
            file(stdin),
            Direction::Out,
            move |mut stdin| {
                while let Ok(request) = asked.recv() {
                    // A program that ended or closed its stdin is noticed because its answer is missing.
                    let written = stdin.write_all(&request).and_then(|()| stdin.flush());
                    if written.is_err() || is_over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            },
        )?);
        process.pipes.push(Pipe::new(
            "verifier stdout",
            file(stdout),
            Direction::In,
            move |stdout| {
                read_lines(stdout, longest, &answer);
            },
        )?);
        process.pipes.push(Pipe::new(
            "verifier stderr",
            file(errors),
            Direction::In,
            move |errors| {
                keep_the_end(errors, &stderr, &over);
                drop(all_read);
            },
        )?);

        Ok(process)
    }

    /// Asks the program and returns its line, unless that takes too long or nobody waits for it any more.
    ///
    /// The end of the pipe is not the end of the program: a child that inherited the pipe may hold it for ever. So the
    /// program itself is checked too.
    pub(crate) fn ask(
        &mut self,
        request: Vec<u8>,
        limit: Duration,
        cancelled: &AtomicBool,
    ) -> Result<Vec<u8>, Fault> {
        let Some(answers) = &self.answers else { return Err(Fault::Closed) };
        if let Some(requests) = &self.requests {
            let _ = requests.send(request); // The writer is gone when the program is.
        }

        let began = Instant::now();
        let mut ended_at: Option<Instant> = None;

        loop {
            let left = limit.saturating_sub(began.elapsed());
            match answers.recv_timeout(left.min(LOOK)) {
                Ok(line) => return line.map_err(Fault::Nonsense),
                Err(RecvTimeoutError::Disconnected) => return Err(Fault::Closed),
                Err(RecvTimeoutError::Timeout) => {}
            }

            if cancelled.load(Ordering::Relaxed) {
                return Err(Fault::Cancelled);
            }

            if ended_at.is_none() && self.family.has_ended() {
                ended_at = Some(Instant::now());
            }
            if ended_at.is_some_and(|ended_at| left <= LOOK || ended_at.elapsed() > LAST_LINE) {
                return Err(Fault::Ended);
            }

            if left <= LOOK {
                return Err(Fault::TimeOut);
            }
        }
    }

    /// Closes the program's stdin, after which the program should end.
    pub(crate) fn close(&mut self) {
        self.requests = None;
    }

    /// Returns true if the program has ended on its own, or does so before `deadline`.
    pub(crate) fn has_ended(&mut self, deadline: Instant) -> bool {
        loop {
            let ended = self.family.has_ended();
            if ended || Instant::now() >= deadline {
                return ended;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns true if a signal has stopped the program.
    pub(crate) fn is_stopped(&self) -> bool {
        self.family.is_stopped()
    }

    /// Ends the program and everything that it started. Returns the status of a program that no longer writes, if it ends
    /// on its own before `deadline`.
    pub(crate) fn status(&mut self, deadline: Instant) -> Option<ExitStatus> {
        self.close();
        let ended = self.has_ended(deadline);
        self.family.end().filter(|_| ended)
    }

    /// Ends the program and everything that it started.
    pub(crate) fn kill(&mut self) {
        self.family.end();
    }

    /// Returns the end of a killed program's stderr.
    pub(crate) fn last_words(&self) -> String {
        // A program's last output may still be in flight in the pipe, but a pipe that something else holds open has no
        // end to wait for.
        let _ = self.stderr_read.recv_timeout(Duration::from_millis(100));
        let mut kept = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);

        String::from_utf8_lossy(kept.make_contiguous()).trim().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        self.requests = None;
        self.answers = None;
        self.over.store(true, Ordering::Relaxed);

        for pipe in &self.pipes {
            pipe.end();
        }
    }
}

/// A pipe, and the thread at its end.
struct Pipe {
    /// The thread owns the pipe and closes it.
    file: Weak<File>,
    direction: Direction,
    thread: JoinHandle<()>,
}

/// Direction of a pipe's bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Direction {
    /// To this process.
    In,
    /// To the program.
    Out,
}

impl Pipe {
    fn new(
        name: &str,
        file: File,
        direction: Direction,
        work: impl FnOnce(Arc<File>) + Send + 'static,
    ) -> io::Result<Self> {
        let file = Arc::new(file);
        // A strong reference here would keep the pipe open after its thread has ended.
        let weak = Arc::downgrade(&file);
        let thread = thread::Builder::new().name(name.into()).spawn(move || work(file))?;
        Ok(Pipe { file: weak, direction, thread })
    }

    /// Waits for the thread's end. The pipe of an ended program is at its end, and so is its thread, unless
    /// something that could not be ended holds the pipe too, such as a process of another user. Then the
    /// thread is woken.
    fn end(&self) {
        let begin = Instant::now();
        while !self.thread.is_finished() && begin.elapsed() < Duration::from_millis(200) {
            if begin.elapsed() > Duration::from_millis(20) {
                self.wake();
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Wakes a thread that waits for a pipe, by a byte for a reader and by room for a writer. The other end that this
    /// takes is available on Linux only. Elsewhere such a thread keeps waiting.
    fn wake(&self) {
        #[cfg(target_os = "linux")]
        if let Some(file) = self.file.upgrade() {
            use std::{fs::OpenOptions, os::fd::AsRawFd as _};

            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            let mut options = OpenOptions::new();
            let other_end = options
                .read(self.direction == Direction::Out)
                .write(self.direction == Direction::In)
                .open(path);
            let Ok(mut other_end) = other_end else { return };

            if rustix::io::ioctl_fionbio(&other_end, true).is_ok() {
                let mut room = [0; 1 << 16];
                let _ = match self.direction {
                    Direction::In => other_end.write(b"\n"),
                    Direction::Out => other_end.read(&mut room),
                };
            }
        }

        #[cfg(not(target_os = "linux"))]
        let _ = (&self.file, self.direction);
    }
}

/// Turns a pipe into a file, because threads can share a file.
#[cfg(unix)]
fn file(pipe: impl Into<std::os::fd::OwnedFd>) -> File {
    File::from(Into::<std::os::fd::OwnedFd>::into(pipe))
}

/// Turns a pipe into a file, because threads can share a file.
#[cfg(windows)]
fn file(pipe: impl Into<std::os::windows::io::OwnedHandle>) -> File {
    File::from(Into::<std::os::windows::io::OwnedHandle>::into(pipe))
}

/// Forwards every line, until the pipe ends, a line is too long or nobody listens.
fn read_lines(stdout: Arc<File>, longest: usize, answer: &SyncSender<Result<Vec<u8>, String>>) {
    let mut stdout = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        let read = stdout.by_ref().take(longest as u64 + 1).read_until(b'\n', &mut line);

        let line = match read {
            Ok(0) => return,
            Ok(_) if line.len() > longest && line.last() != Some(&b'\n') => {
                Err(format!("it wrote a line of more than {longest} bytes"))
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
fn keep_the_end(mut errors: Arc<File>, kept: &Mutex<VecDeque<u8>>, over: &AtomicBool) {
    let mut buffer = [0; LAST_WORDS];
    while let Ok(count @ 1..) = errors.read(&mut buffer) {
        if over.load(Ordering::Relaxed) {
            return;
        }

        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(&buffer[..count]);
        // The oldest bytes are dropped.
        let excess = kept.len().saturating_sub(LAST_WORDS);
        kept.drain(..excess);
    }
}
