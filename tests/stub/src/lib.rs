//! Servers that misbehave on demand. [`Stub`]s speak the protocols of vLLM and SGLang, as far as a pool of servers
//! does, and [`Games`] speak that of OpenEnv.

mod decoder;
mod environment;
mod faults;
mod http;
mod model;
mod tinker;
mod words;

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::Value;

pub use decoder::{Served, Wordless};
pub use environment::{GameOptions, Games, Trouble};
pub use faults::Fault;
pub use model::{Hashed, HashedWeights, StubModel, Wanted, Written, requests, settings};
pub use tinker::{Tinker, TinkerFaults, TinkerOptions};

/// A server of completions, on a port of its own, until it is dropped.
pub struct Stub {
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// Settings of a [`Stub`].
pub struct Options {
    /// Fault of each request for a group, by its number.
    pub faults: Box<dyn Fn(u64) -> Option<Fault> + Send + Sync>,
    /// Fault of each request for the log-probabilities of given tokens, by its number.
    pub score_faults: Box<dyn Fn(u64) -> Option<Fault> + Send + Sync>,
    /// What it answers to a chat's request.
    pub chat: Box<dyn Fn(&Value) -> String + Send + Sync>,
    /// Fault of each chat, by its number.
    pub chat_faults: Box<dyn Fn(u64) -> Option<Fault> + Send + Sync>,
    /// True if it answers 200 to a reload, and keeps the weights that it has.
    pub keeps_weights: bool,
    /// True if its token endpoint is switched off, as vLLM's is without `--enable-scale-out`.
    pub without_tokens: bool,
    /// True if its log-probabilities are from before the temperature, as vLLM's are without `--logprobs-mode
    /// processed_logprobs`.
    pub raw_logprobs: bool,
    /// Key that a client has to name, if any.
    pub key: Option<String>,
    /// Time that a group takes, and the number of groups that are worked on at once.
    pub work: (Duration, usize),
}

impl Default for Options {
    fn default() -> Self {
        Options {
            faults: Box::new(|_| None),
            score_faults: Box::new(|_| None),
            chat: Box::new(|_| "yes".into()),
            chat_faults: Box::new(|_| None),
            keeps_weights: false,
            without_tokens: false,
            raw_logprobs: false,
            key: None,
            work: (Duration::ZERO, usize::MAX),
        }
    }
}

struct Shared {
    options: Options,
    model: Mutex<Box<dyn StubModel>>,
    ended: AtomicBool,
    /// Number of requests for groups.
    asked: AtomicU64,
    /// Number of groups that were answered completely.
    answered: AtomicU64,
    /// Number of requests for log-probabilities of given tokens.
    scored: AtomicU64,
    /// Number of chats.
    chats: AtomicU64,
    busy: (Mutex<usize>, Condvar),
    seen: Mutex<Seen>,
}

/// State of a stub that a test can inspect.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Folders that it had to load, in order.
    pub loaded: Vec<PathBuf>,
    /// Names of requests that it had to end.
    pub aborted: Vec<String>,
    /// Adapters that it has.
    pub adapters: Vec<String>,
    /// True between a pause and its end.
    pub paused: bool,
    /// Number of groups that it works on.
    pub at_once: usize,
    /// Largest number of groups that it was asked for at once.
    pub most_at_once: usize,
    /// Name of its weights.
    pub version: String,
}

impl Stub {
    /// Starts a server that has `model`.
    ///
    /// # Panics
    /// If no port is free.
    pub fn start(model: impl StubModel + 'static, options: Options) -> Stub {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of its own");
        let address = listener.local_addr().expect("a port has an address");

        let shared = Arc::new(Shared {
            options,
            model: Mutex::new(Box::new(model)),
            ended: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            scored: AtomicU64::new(0),
            chats: AtomicU64::new(0),
            busy: (Mutex::new(0), Condvar::new()),
            seen: Mutex::new(Seen { version: "default".into(), ..Seen::default() }),
        });

        let served = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                if served.ended.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), served) = (stream, served.clone()) else { continue };
                // If the client went away, nobody misses the answer.
                thread::spawn(move || drop(http::answer(stream, &served)));
            }
        });

        Stub { address, shared }
    }

    /// Returns its address, as a pool wants it.
    pub fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Copies its present state.
    pub fn seen(&self) -> Seen {
        self.shared.seen().clone()
    }

    /// Counts the requests for log-probabilities of given tokens.
    pub fn scored(&self) -> u64 {
        self.shared.scored.load(Ordering::Relaxed)
    }

    /// Counts the chats that it was asked for.
    pub fn chats(&self) -> u64 {
        self.shared.chats.load(Ordering::Relaxed)
    }

    /// Counts the groups that it has answered completely.
    pub fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::Relaxed)
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // The thread waits for a connection, and only then sees that it has ended.
        drop(std::net::TcpStream::connect(self.address));
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn model(&self) -> MutexGuard<'_, Box<dyn StubModel>> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a requested group until the result is dropped.
    fn count(&self) -> Counted<'_> {
        let mut seen = self.seen();
        seen.at_once += 1;
        seen.most_at_once = seen.most_at_once.max(seen.at_once);
        drop(seen);
        Counted(self)
    }

    /// Waits until fewer groups than allowed are worked on, and then works for as long as one takes.
    fn work(&self) {
        let (time, width) = self.options.work;
        let (busy, freed) = &self.busy;
        let mut at_work = busy.lock().unwrap_or_else(PoisonError::into_inner);
        while *at_work >= width {
            at_work = freed.wait(at_work).unwrap_or_else(PoisonError::into_inner);
        }
        *at_work += 1;

        drop(at_work);
        // Working holds no lock, so `width` groups are worked on at once.
        thread::sleep(time);

        *busy.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        freed.notify_one();
    }
}

struct Counted<'a>(&'a Shared);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.seen().at_once -= 1;
    }
}
