//! Interruption of a run, and how long an update may still take to end on its own.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// How long the rest of a step's updates may take after a run was interrupted.
///
/// A step that ends between updates has moved weights, so all steps since the last checkpoint would have to be
/// computed again. For a small model that is a poor trade for a fraction of a second.
const GRACE: Duration = Duration::from_secs(1);

/// A flag that is set from outside to interrupt the run, such as by Ctrl-C.
#[derive(Clone, Debug, Default)]
pub struct Interruption {
    flag: Arc<AtomicBool>,
    /// Time when an update first found the flag set.
    first_seen: Arc<OnceLock<Instant>>,
}

impl Interruption {
    /// Returns true if the run was interrupted.
    pub fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// Returns true if an update should stop where it is: the flag is set, and an update found it set at least a
    /// second ago.
    pub fn stops_an_update(&self) -> bool {
        self.is_set() && self.first_seen.get_or_init(Instant::now).elapsed() >= GRACE
    }
}

impl From<Arc<AtomicBool>> for Interruption {
    fn from(flag: Arc<AtomicBool>) -> Self {
        Interruption { flag, first_seen: Arc::default() }
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
        let first_seen = Arc::new(OnceLock::from(earlier));
        assert!(Interruption { flag, first_seen }.stops_an_update());
    }
}
