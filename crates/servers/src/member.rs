use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{ServerError, dialect::Speaks, handshake::Publication};

/// One server, as its pool knows it.
pub(crate) struct Member {
    pub(crate) server: Arc<dyn Speaks>,
    pub(crate) state: State,
    /// Completions that it works on.
    pub(crate) outstanding: usize,
    /// Failures since it last did what it was asked for.
    strikes: u32,
    /// How often it was put aside since it last did.
    times_out: u32,
    /// Until then it is left alone, because it said that it is busy.
    pub(crate) rests_until: Option<Instant>,
    /// The smallest distance of its log-probabilities from the trainer's, in nats.
    pub(crate) rounding: Option<f64>,
    /// The adapter that it samples with.
    pub(crate) adapter: Option<String>,
    /// Its reason to have been put aside, until it does what it is asked for.
    why: Option<ServerError>,
}

/// The use that a pool can make of a server.
pub(crate) enum State {
    /// It has the weights, and samples.
    Ready,
    /// It is to be given weights.
    Due,
    /// It is being given weights; there may be newer ones already.
    Loading { weights: Arc<Publication>, newer: bool },
    /// It is put aside, and not asked before then.
    Out(Instant),
}

/// Failures in a row after which a server is put aside.
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

    /// There are new weights for it. Whoever is put aside gets them when it is asked again, and whoever is being given others
    /// when that has ended: two at once would disturb each other.
    pub(crate) fn renew(&mut self) {
        (self.strikes, self.outstanding) = (0, 0);
        match &mut self.state {
            State::Loading { newer, .. } => *newer = true,
            State::Ready => self.state = State::Due,
            State::Due | State::Out(_) => {}
        }
    }

    /// The weights that it is being given, if it is.
    pub(crate) fn loading(&self) -> Option<&Publication> {
        match &self.state {
            State::Loading { weights, .. } => Some(weights),
            State::Ready | State::Due | State::Out(_) => None,
        }
    }

    /// Tells if it is to be given weights now.
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

    /// Tells if it may be given a group of `count` completions more.
    pub(crate) fn takes(&self, count: usize, at_once: usize, now: Instant) -> bool {
        let rests = self.rests_until.is_some_and(|until| now < until);
        let room = self.outstanding == 0 || self.outstanding + count <= at_once;
        self.is_ready() && room && !rests
    }

    /// It did what it was asked for.
    pub(crate) fn succeed(&mut self) {
        (self.strikes, self.times_out, self.rests_until) = (0, 0, None);
        self.why = None;
    }

    /// It did not; gives true when that was one time too many in a row.
    pub(crate) fn fail(&mut self) -> bool {
        self.strikes += 1;
        self.strikes >= STRIKES
    }

    /// It is asked nothing until some time has passed: `pause`, and twice as long each time in a row.
    pub(crate) fn put_aside(&mut self, why: ServerError, now: Instant, pause: Duration) {
        let longer = pause.saturating_mul(1 << self.times_out.min(16)).min(LONGEST.max(pause));
        self.state = State::Out(now + longer);
        self.why = Some(why);
        self.times_out += 1;
        (self.strikes, self.outstanding) = (0, 0);
    }

    /// How often in a row it was put aside.
    pub(crate) fn times_out(&self) -> u32 {
        self.times_out
    }

    /// Its reason to be put aside; it may be given the weights again by now.
    pub(crate) fn reason(&self) -> Option<&ServerError> {
        self.why.as_ref()
    }
}
