//! One server that speaks Tinker's API: requests are posted, repeated if their answers are lost, and waited for.

use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;
use serde_json::{Value, json};

use super::error::TinkerError;
use crate::{
    errands::Complaints,
    error::ServerError,
    http::{Address, SMALL},
};

/// A request, but for its body.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    /// What the server is to do, in words.
    pub(super) task: &'static str,
    pub(super) path: &'static str,
    pub(super) repeat: Repeat,
    pub(super) ends: Ends<'a>,
    /// Limit in bytes of the result.
    pub(super) limit: u64,
}

/// What happens to a request whose answer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// It is repeated, because a second one changes nothing.
    Always,
    /// It is repeated if the server knows requests by their numbers.
    IfNumbered,
    /// It is not repeated.
    Never,
}

/// What ends a wait before its time.
#[derive(Clone, Copy)]
pub(super) enum Ends<'a> {
    /// The run is to end.
    WithRun,
    /// The run is to end, or nobody wants the result any more.
    With(&'a AtomicBool),
    /// Nothing, because a run that is to end saves its work first.
    Never,
}

impl Call<'_> {
    /// A request for something small, which is repeated until it is answered, or the run is to end.
    pub(super) fn new(task: &'static str, path: &'static str) -> Self {
        Call { task, path, repeat: Repeat::Always, ends: Ends::WithRun, limit: SMALL }
    }
}

/// A server, and how patient one is with it.
pub(super) struct Client {
    address: Address,
    /// How long a request may take, from its acceptance to its result, while the server is there.
    deadline: Duration,
    /// How long the server may be away.
    patience: Duration,
    complaints: Complaints,
    /// True if the server takes a request with the number of another for that other.
    pub(super) is_numbered: AtomicBool,
    interrupted: OnceLock<Arc<AtomicBool>>,
}

const RETRIEVE: &str = "/api/v1/retrieve_future";

/// How long one HTTP request may take. A server answers at once, but holds the line while it has no result.
const LINE: Duration = Duration::from_secs(45);

/// How long the client waits before it asks again.
const PAUSE: Duration = Duration::from_millis(500);

/// How often it is looked whether the run is to end.
const LOOK: Duration = Duration::from_millis(20);

/// How often a server may fail at a request in a row although it is there, or answer nothing that can be read.
const TRIES: usize = 5;

impl Client {
    pub(super) fn new(
        address: Address,
        [deadline, patience]: [Duration; 2],
        tell: Box<dyn Fn(String) + Send + Sync>,
    ) -> Self {
        Client {
            address,
            deadline,
            patience,
            complaints: Complaints::new(tell),
            is_numbered: AtomicBool::new(false),
            interrupted: OnceLock::new(),
        }
    }

    pub(super) fn base(&self) -> &str {
        self.address.base()
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Makes waits end when the flag is set. The first flag counts.
    pub(super) fn interrupted_by(&self, flag: Arc<AtomicBool>) {
        let _ = self.interrupted.set(flag);
    }

    pub(super) fn failed(&self, task: &'static str, source: ServerError) -> TinkerError {
        let base = self.base().to_owned();
        match source {
            ServerError::Refused { status: 404 | 410, .. } => TinkerError::Gone { base, task },
            source => TinkerError::Server { base, task, source },
        }
    }

    /// Makes the error of a result that is not what was asked for.
    pub(super) fn wrong(&self, call: Call<'_>, problem: &str) -> TinkerError {
        let problem = self.address.words(problem.as_bytes());
        self.failed(call.task, ServerError::Answer { request: call.path, problem })
    }

    fn late(&self, call: Call<'_>) -> TinkerError {
        let (base, seconds) = (self.base().to_owned(), self.deadline.as_secs());
        TinkerError::Late { base, task: call.task, seconds }
    }

    /// Posts a request and waits for its result.
    pub(super) fn run(&self, call: Call<'_>, body: &impl Serialize) -> Result<Value, TinkerError> {
        let accepted = self.post(call, body)?;
        self.wait(call, &accepted)
    }

    /// Posts a request until the server has accepted it, or refuses it.
    pub(super) fn post(&self, call: Call<'_>, body: &impl Serialize) -> Result<Value, TinkerError> {
        let body: Arc<[u8]> = serde_json::to_vec(body).unwrap_or_default().into();
        let mut trouble = Trouble::default();
        loop {
            let error = match self.ask(call.path, &body, SMALL, call.ends)? {
                Ok(answer) if answer.is_object() => return Ok(answer),
                Ok(_) => unreadable(call.path),
                Err(error) => error,
            };

            let may_repeat = match call.repeat {
                Repeat::Always => true,
                Repeat::IfNumbered => self.is_numbered.load(Ordering::Relaxed),
                Repeat::Never => false,
            };
            if error.may_have_arrived() && !may_repeat {
                let base = self.base().to_owned();
                return Err(TinkerError::Unsure { base, task: call.task, source: error });
            }
            self.bear(call, error, &mut trouble)?;
        }
    }

    /// Waits for the result of a request that was accepted.
    pub(super) fn wait(&self, call: Call<'_>, accepted: &Value) -> Result<Value, TinkerError> {
        let Some(id) = accepted["request_id"].as_str() else {
            return Err(self.wrong(call, "it has no request_id"));
        };
        let body: Arc<[u8]> = json!({ "request_id": id }).to_string().into_bytes().into();
        let mut trouble = Trouble::default();
        let mut at_work = Duration::ZERO;

        loop {
            let asked = Instant::now();
            let error = match self.ask(RETRIEVE, &body, call.limit, call.ends)? {
                Ok(answer) if answer["type"] == "try_again" => None,
                Ok(answer) if answer["error"].is_string() => {
                    return Err(self.wrong(call, answer["error"].as_str().unwrap_or_default()));
                }
                Ok(answer) if answer.is_object() => return Ok(answer),
                Ok(_) => Some(unreadable(call.path)),
                // The server is there, and still at work.
                Err(
                    ServerError::Refused { status: 408 | 425, .. } | ServerError::Silent { .. },
                ) => None,
                Err(error) => Some(error),
            };

            match error {
                Some(error) => self.bear(call, error, &mut trouble)?,
                None => {
                    trouble = Trouble::default();
                    // A server that does not hold the line is not asked all the time.
                    self.pause(PAUSE.saturating_sub(asked.elapsed()), call.ends)?;
                    at_work += asked.elapsed();
                }
            }
            if at_work > self.deadline {
                return Err(self.late(call));
            }
        }
    }

    /// Downloads a file, whose path is `path`; `None` if the server offers none.
    pub(super) fn download(
        &self,
        call: Call<'_>,
        path: &str,
    ) -> Result<Option<Vec<u8>>, TinkerError> {
        let mut trouble = Trouble::default();
        loop {
            match self.address.download(call.path, path, self.deadline, call.limit) {
                Ok(file) => return Ok(file),
                Err(ServerError::Refused { status: 404 | 405 | 501, .. }) => return Ok(None),
                // It is being made.
                Err(ServerError::Refused { status: 425, .. }) => self.pause(PAUSE, call.ends)?,
                Err(ServerError::Silent { .. }) => return Err(self.late(call)),
                Err(error) => self.bear(call, error, &mut trouble)?,
            }
        }
    }

    /// Waits a moment after a failure.
    ///
    /// # Errors
    /// If it is not to be borne: the server refuses, fails again and again, or is away for too long.
    fn bear(
        &self,
        call: Call<'_>,
        error: ServerError,
        trouble: &mut Trouble,
    ) -> Result<(), TinkerError> {
        let since = *trouble.since.get_or_insert_with(Instant::now);
        trouble.failures += usize::from(!error.is_outage());
        let refused = matches!(error, ServerError::Refused { .. });
        if refused || trouble.failures >= TRIES || since.elapsed() > self.patience {
            return Err(self.failed(call.task, error));
        }

        self.complaints.say(|| {
            let (base, seconds) = (self.base(), self.patience.as_secs());
            format!("the server at {base}: {error}; it is asked again, for {seconds} s at most")
        });
        self.pause(PAUSE, call.ends)
    }

    fn pause(&self, time: Duration, ends: Ends<'_>) -> Result<(), TinkerError> {
        let began = Instant::now();
        while began.elapsed() < time {
            if self.is_over(ends) {
                return Err(TinkerError::Interrupted);
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    fn is_over(&self, ends: Ends<'_>) -> bool {
        let run = || self.interrupted.get().is_some_and(|flag| flag.load(Ordering::Relaxed));
        match ends {
            Ends::WithRun => run(),
            Ends::With(flag) => flag.load(Ordering::Relaxed) || run(),
            Ends::Never => false,
        }
    }

    /// Sends one request, in another thread, so that an end of the wait waits for nobody.
    fn ask(
        &self,
        path: &'static str,
        body: &Arc<[u8]>,
        limit: u64,
        ends: Ends<'_>,
    ) -> Result<Result<Value, ServerError>, TinkerError> {
        let (sender, answers) = channel();
        let (address, body) = (self.address.clone(), body.clone());
        let work = move || drop(sender.send(address.post_bytes(path, &body, LINE, limit)));
        if let Err(error) = thread::Builder::new().spawn(work) {
            return Ok(Err(no_thread(&error)));
        }
        loop {
            match answers.recv_timeout(LOOK) {
                Ok(answer) => return Ok(answer),
                Err(_) if self.is_over(ends) => return Err(TinkerError::Interrupted),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Ok(Err(ServerError::Lost("the request's thread has died".into())));
                }
            }
        }
    }
}

/// Failures in a row.
#[derive(Default)]
struct Trouble {
    since: Option<Instant>,
    /// Those in which the server was there.
    failures: usize,
}

fn unreadable(request: &'static str) -> ServerError {
    ServerError::Answer { request, problem: "it is not a JSON object".into() }
}

pub(super) fn no_thread(error: &io::Error) -> ServerError {
    ServerError::Unreachable(format!("cannot start a thread to ask it: {error}"))
}
