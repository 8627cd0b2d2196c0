//! The wish that a run ends, and the moment that an update gets to end by itself.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// The time that the rest of a step's updates may take after a run was asked to end.
///
/// An update that ends half way has moved weights, so all steps since the last checkpoint would have to be computed
/// again. For a small model that is a poor trade for a fraction of a second.
const GRACE: Duration = Duration::from_secs(1);

/// A flag that is set from outside, such as by Ctrl-C, when the run is to end.
#[derive(Clone, Debug, Default)]
pub struct Interruption {
    flag: Arc<AtomicBool>,
    /// The moment at which an update saw the flag first.
    seen: Arc<OnceLock<Instant>>,
}

impl Interruption {
    /// Tells whether the run is to end.
    pub fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// Tells an update whether to stop where it is: the flag is set, and was already seen a second ago.
    pub fn stops_an_update(&self) -> bool {
        self.is_set() && self.seen.get_or_init(Instant::now).elapsed() >= GRACE
    }
}

impl From<Arc<AtomicBool>> for Interruption {
    fn from(flag: Arc<AtomicBool>) -> Self {
        Interruption { flag, seen: Arc::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_has_a_second_to_end() {
        let flag = Arc::new(AtomicBool::new(false));
        let interruption = Interruption::from(flag.clone());
        assert!(!interruption.stops_an_update());
        flag.store(true, Ordering::Relaxed);
        assert!(!interruption.stops_an_update(), "it has just been asked");
        let earlier = Instant::now().checked_sub(GRACE).unwrap();
        let seen = Arc::new(OnceLock::from(earlier));
        assert!(Interruption { flag, seen }.stops_an_update());
    }
}
