//! One server of the pool, and its state: ready, loading weights, or put aside.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{ServerError, dialect::Speaks, handshake::Publication};

/// One server, as its pool knows it.
pub(crate) struct Member {
    pub(crate) server: Arc<dyn Speaks>,
    pub(crate) state: State,
    /// The number of completions that the server works on.
    pub(crate) outstanding: usize,
    /// The number of failures since the server last did what it was asked for.
    strikes: u32,
    /// The number of times in a row that the server was put aside.
    times_out: u32,
    /// The time until which the server is left alone, because it said that it is busy.
    pub(crate) rests_until: Option<Instant>,
    /// The smallest distance of the server's log-probabilities from the trainer's, in nats.
    pub(crate) rounding: Option<f64>,
    /// The adapter that the server samples with.
    pub(crate) adapter: Option<String>,
    /// The reason why the server was put aside, until it does what it is asked for.
    why: Option<ServerError>,
}

/// The use that a pool can make of a server.
pub(crate) enum State {
    /// The server has the weights, and samples.
    Ready,
    /// The server is to be given weights.
    Due,
    /// The server is being given weights; there may be newer ones already.
    Loading { weights: Arc<Publication>, newer: bool },
    /// The server is put aside, and not asked before this time.
    Out(Instant),
}

/// The number of failures in a row after which a server is put aside.
const STRIKES: u32 = 3;

/// The longest time for which a server is put aside before it is asked again.
const LONGEST: Duration = Duration::from_secs(60);

impl Member {
    pub(crate) fn new(server: Arc<dyn Speaks>) -> Self {
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

    /// Notes that there are new weights for the server. If it is put aside, it gets them when it is asked
    /// again. If it is being given others, it gets them when that has ended, because two loads at once would
    /// disturb each other.
    pub(crate) fn renew(&mut self) {
        (self.strikes, self.outstanding) = (0, 0);
        match &mut self.state {
            State::Loading { newer, .. } => *newer = true,
            State::Ready => self.state = State::Due,
            State::Due | State::Out(_) => {}
        }
    }

    /// Gives the weights that the server is being given, if it is.
    pub(crate) fn loading(&self) -> Option<&Publication> {
        match &self.state {
            State::Loading { weights, .. } => Some(weights),
            State::Ready | State::Due | State::Out(_) => None,
        }
    }

    /// Tells whether the server is to be given weights now.
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

    /// Tells whether the server may be given one more group, of `count` completions.
    pub(crate) fn takes(&self, count: usize, at_once: usize, now: Instant) -> bool {
        let rests = self.rests_until.is_some_and(|until| now < until);
        let room = self.outstanding == 0 || self.outstanding + count <= at_once;
        self.is_ready() && room && !rests
    }

    /// Notes that the server did what it was asked for.
    pub(crate) fn succeed(&mut self) {
        (self.strikes, self.times_out, self.rests_until) = (0, 0, None);
        self.why = None;
    }

    /// Notes that the server failed. Gives true if it has now failed too often in a row.
    pub(crate) fn fail(&mut self) -> bool {
        self.strikes += 1;
        self.strikes >= STRIKES
    }

    /// Leaves the server alone for some time: for `pause`, and twice as long each time in a row.
    pub(crate) fn put_aside(&mut self, why: ServerError, now: Instant, pause: Duration) {
        let longer = pause.saturating_mul(1 << self.times_out.min(16)).min(LONGEST.max(pause));
        self.state = State::Out(now + longer);
        self.why = Some(why);
        self.times_out += 1;
        (self.strikes, self.outstanding) = (0, 0);
    }

    /// Gives the number of times in a row that the server was put aside.
    pub(crate) fn times_out(&self) -> u32 {
        self.times_out
    }

    /// Gives the reason why the server was put aside. It may be given the weights again by now.
    pub(crate) fn reason(&self) -> Option<&ServerError> {
        self.why.as_ref()
    }
}
