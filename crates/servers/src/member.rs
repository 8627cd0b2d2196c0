//! One server of the pool, and its state: ready, loading weights, or set aside.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{ServerError, dialect::ServerApi, handshake::Publication};

/// One server, as its pool knows it.
pub(crate) struct Member {
    pub(crate) server: Arc<dyn ServerApi>,
    pub(crate) state: State,
    /// Number of completions that the server works on.
    pub(crate) outstanding: usize,
    /// Number of failures since the server's last success.
    strikes: u32,
    /// How often in a row the server was set aside.
    times_out: u32,
    /// Until when the server gets no requests, because it reported that it is busy.
    pub(crate) rests_until: Option<Instant>,
    /// Smallest distance of the server's log-probabilities from the trainer's, in nats.
    pub(crate) rounding: Option<f64>,
    /// Adapter that the server samples with.
    pub(crate) adapter: Option<String>,
    /// Why the server was set aside, until its next success.
    why: Option<ServerError>,
}

/// How a pool can use a server.
pub(crate) enum State {
    /// The server has the weights, and samples.
    Ready,
    /// New weights are to be sent to the server.
    Due,
    /// The server is loading weights; there may be newer ones already.
    Loading { weights: Arc<Publication>, newer: bool },
    /// The server is set aside, and not asked before this time.
    Out(Instant),
}

/// Failures in a row after which a server is set aside.
const STRIKES: u32 = 3;

/// Upper bound on the time for which a server is set aside before it is asked again.
const LONGEST: Duration = Duration::from_secs(60);

impl Member {
    pub(crate) fn new(server: Arc<dyn ServerApi>) -> Self {
        Member {
            server,
            state: State::Due,
            outstanding: 0,
            strikes: 0,
            times_out: 0,
            rests_until: None,
            rounding: None,
            adapter: None,
            why: None,
        }
    }

    /// Notes that there are new weights for the server. If it is set aside, it gets them when it is asked again. If it
    /// is loading others, it gets them when that has ended, because two concurrent loads would disturb each other.
    pub(crate) fn renew(&mut self) {
        self.strikes = 0;
        self.outstanding = 0;
        match &mut self.state {
            State::Loading { newer, .. } => *newer = true,
            State::Ready => self.state = State::Due,
            State::Due | State::Out(_) => {}
        }
    }

    /// Returns the weights that the server is loading, if it is.
    pub(crate) fn loading(&self) -> Option<&Publication> {
        match &self.state {
            State::Loading { weights, .. } => Some(weights),
            State::Ready | State::Due | State::Out(_) => None,
        }
    }

    /// Tells whether the server is to load weights now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        match self.state {
            State::Due => true,
            State::Out(until) => until <= now,
            State::Ready | State::Loading { .. } => false,
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready)
    }

    /// Tells whether the server may take one more group, of `count` completions.
    pub(crate) fn takes(&self, count: usize, at_once: usize, now: Instant) -> bool {
        let rests = self.rests_until.is_some_and(|until| now < until);
        let room = self.outstanding == 0 || self.outstanding + count <= at_once;
        self.is_ready() && room && !rests
    }

    /// Notes that the server succeeded.
    pub(crate) fn succeed(&mut self) {
        self.strikes = 0;
        self.times_out = 0;
        self.rests_until = None;
        self.why = None;
    }

    /// Notes that the server failed. Returns true if it has now failed too often in a row.
    pub(crate) fn fail(&mut self) -> bool {
        self.strikes += 1;
        self.strikes >= STRIKES
    }

    /// Sends the server no requests for some time: for `pause`, and twice as long each time in a row.
    pub(crate) fn suspend(&mut self, why: ServerError, now: Instant, pause: Duration) {
        let longer = pause.saturating_mul(1 << self.times_out.min(16)).min(LONGEST.max(pause));
        self.state = State::Out(now + longer);
        self.why = Some(why);
        self.times_out += 1;
        self.strikes = 0;
        self.outstanding = 0;
    }

    /// Returns how often in a row the server was set aside.
    pub(crate) fn times_out(&self) -> u32 {
        self.times_out
    }

    /// Returns why the server was set aside. It may be loading the weights again by now.
    pub(crate) fn reason(&self) -> Option<&ServerError> {
        self.why.as_ref()
    }
}
