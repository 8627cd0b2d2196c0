//! Small pieces of work that any of several servers may do.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use crate::error::ServerError;

/// How long a server that failed is asked nothing by whoever it failed.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a wait lasts until it is looked whether the work is interrupted.
const LOOK: Duration = Duration::from_millis(50);

/// How often a piece may fail, although its servers are there. Then it is the piece's own fault.
const TRIES: usize = 5;

/// Does a piece, by its number, on a server.
pub(crate) type Errand<S, T> = dyn Fn(&S, usize) -> Result<T, ServerError> + Send + Sync;

/// Says what becomes of a failure: a result all the same, the error if it ends the work, or nothing if the piece is to be
/// tried again. The arguments are the server's index, its failure, and whether the piece has failed too often although its
/// servers are there.
pub(crate) type Settle<T> =
    dyn Fn(usize, &ServerError, bool) -> Option<Result<T, ServerError>> + Send + Sync;

/// Tells the user of failures that are waited out, though not of each.
pub(crate) struct Complaints {
    tell: Box<dyn Fn(String) + Send + Sync>,
    last: Mutex<Option<Instant>>,
}

impl Complaints {
    /// How much time lies between two of them.
    const QUIET: Duration = Duration::from_secs(60);

    pub(crate) fn new(tell: Box<dyn Fn(String) + Send + Sync>) -> Self {
        Complaints { tell, last: Mutex::new(None) }
    }

    /// Says something, unless something was said a moment ago.
    pub(crate) fn say(&self, sentence: impl FnOnce() -> String) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| last.elapsed() > Self::QUIET) {
            *last = Some(Instant::now());
            (self.tell)(sentence());
        }
    }
}

/// Why the work ended early.
pub(crate) struct Failure {
    /// Index of the server that failed last.
    pub(crate) server: usize,
    pub(crate) source: ServerError,
}

/// Has `servers` do the pieces below `count`, each server up to `at_once` at a time. A piece that one of them fails is
/// given to any of them again, unless `settle` decides otherwise. Returns the results in the order of the pieces, and
/// `None` as soon as the work is `interrupted`: requests that are under way then end by themselves, and nobody waits.
///
/// # Errors
/// When `settle` ends the work, or all servers have failed for longer than `patience`.
///
/// # Panics
/// If `errand` panics.
pub(crate) fn spread<S, T>(
    servers: &Arc<[S]>,
    count: usize,
    at_once: usize,
    patience: Duration,
    errand: &Arc<Errand<S, T>>,
    settle: &Arc<Settle<T>>,
    interrupted: &dyn Fn() -> bool,
) -> Result<Option<Vec<T>>, Failure>
where
    S: Send + Sync + 'static,
    T: Send + 'static,
{
    let state = State {
        waiting: (0..count).collect(),
        pieces: (0..count).map(|_| Piece { result: None, failures: Vec::new() }).collect(),
        left: count,
        progress: Instant::now(),
        over: count == 0,
        failure: None,
        panicked: false,
    };
    let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });

    // Every server gets its first piece before one gets its second.
    let slots = (0..at_once).flat_map(|_| 0..servers.len());
    for server in slots.take(count) {
        let (servers, shared) = (servers.clone(), shared.clone());
        let (errand, settle) = (errand.clone(), settle.clone());
        thread::spawn(move || {
            let _end = EndOnPanic(&shared);
            serve(&servers[server], server, patience, &shared, &*errand, &*settle);
        });
    }

    let mut state = shared.lock();
    while !state.over {
        state = shared.wait(state);
        if interrupted() {
            state.over = true;
            return Ok(None);
        }
    }
    assert!(!state.panicked, "a request to a server panicked");
    match state.failure.take() {
        Some(failure) => Err(failure),
        None => Ok(state.pieces.iter_mut().map(|piece| piece.result.take()).collect()),
    }
}

/// Does pieces on one server until the work is over.
fn serve<S, T>(
    server: &S,
    index: usize,
    patience: Duration,
    shared: &Shared<T>,
    errand: &Errand<S, T>,
    settle: &Settle<T>,
) {
    let mut state = shared.lock();
    while !state.over {
        // Others are still worked on, and may come back.
        let Some(number) = state.waiting.pop_front() else {
            state = shared.wait(state);
            continue;
        };
        drop(state);
        let outcome = errand(server, number);
        state = shared.lock();

        let failed = match outcome {
            Ok(result) => {
                state.finish(number, result);
                None
            }
            Err(error) => {
                let first = *state.pieces[number].failures.first().unwrap_or(&Instant::now());
                state.pieces[number].failures.push(Instant::now());
                // A server that is gone fails every piece, so it takes others to tell.
                let own_fault = state.pieces[number].failures.len() >= TRIES
                    && (state.progress > first || !error.is_outage());
                match settle(index, &error, own_fault) {
                    Some(Ok(result)) => {
                        state.finish(number, result);
                        None
                    }
                    Some(Err(source)) => {
                        state.fail(index, source);
                        None
                    }
                    None if state.progress.elapsed() > patience => {
                        state.fail(index, error);
                        None
                    }
                    None => Some(Instant::now() + PAUSE),
                }
            }
        };

        shared.changed.notify_all();
        if let Some(until) = failed {
            state.waiting.push_back(number);
            while !state.over && Instant::now() < until {
                state = shared.wait(state);
            }
        }
    }
}

struct State<T> {
    /// Pieces that nobody works on.
    waiting: VecDeque<usize>,
    pieces: Vec<Piece<T>>,
    /// How many results are missing.
    left: usize,
    /// When a server succeeded last.
    progress: Instant,
    /// True if nobody waits for anything any more.
    over: bool,
    failure: Option<Failure>,
    panicked: bool,
}

struct Piece<T> {
    result: Option<T>,
    failures: Vec<Instant>,
}

impl<T> State<T> {
    fn finish(&mut self, number: usize, result: T) {
        self.pieces[number].result = Some(result);
        self.left -= 1;
        self.over |= self.left == 0;
        self.progress = Instant::now();
    }

    fn fail(&mut self, server: usize, source: ServerError) {
        self.failure.get_or_insert(Failure { server, source });
        self.over = true;
    }
}

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something has changed, or for a moment.
    fn wait<'a>(&self, state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        let waited = self.changed.wait_timeout(state, LOOK);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Ends the work if its thread panics, because the piece that it had would never come back.
struct EndOnPanic<'a, T>(&'a Shared<T>);

impl<T> Drop for EndOnPanic<'_, T> {
    fn drop(&mut self) {
        if thread::panicking() {
            let mut state = self.0.lock();
            (state.over, state.panicked) = (true, true);
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn broken() -> ServerError {
        ServerError::Failed { request: "/", status: 500, words: String::new() }
    }

    fn run(
        errand: impl Fn(&u32, usize) -> Result<usize, ServerError> + Send + Sync + 'static,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<usize>>, Failure> {
        let errand: Arc<Errand<u32, usize>> = Arc::new(errand);
        let settle: Arc<Settle<usize>> = Arc::new(|_, _, own_fault| own_fault.then_some(Ok(99)));
        spread(&[7].into(), 3, 2, Duration::from_secs(60), &errand, &settle, interrupted)
    }

    #[test]
    fn a_panic_ends_the_work_and_an_interruption_waits_for_nobody() {
        let panics = |_: &u32, number: usize| {
            assert!(number != 1, "as expected by this test");
            Ok(number)
        };
        assert!(catch_unwind(AssertUnwindSafe(|| run(panics, &|| false).is_ok())).is_err());

        let began = Instant::now();
        let hangs = |_: &u32, number: usize| {
            thread::sleep(Duration::from_secs(30));
            Ok(number)
        };
        assert!(matches!(run(hangs, &|| true), Ok(None)));
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_piece_that_always_fails_is_given_up() {
        let fails = |_: &u32, number: usize| if number == 1 { Err(broken()) } else { Ok(number) };
        assert!(matches!(run(fails, &|| false), Ok(Some(results)) if results == [0, 99, 2]));
    }
}
