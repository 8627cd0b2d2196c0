//! Counts and times the launches of GPU kernels.

use std::collections::BTreeMap;

/// How often a kernel was launched, and for how long it ran: 0 if that was not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Launched {
    /// Number of launches.
    pub count: usize,
    /// Time of all launches together, in seconds.
    pub seconds: f64,
}

/// Counts the launches on GPUs while `work` runs, by the names of kernels.
///
/// Every launch of the process in that time counts, whichever thread makes it.
pub fn launches<R>(work: impl FnOnce() -> R) -> (R, BTreeMap<&'static str, Launched>) {
    watched(false, work)
}

/// Does [`launches`] and measures times. Each kernel is synchronised before the next, so the times do not show how
/// kernels overlap.
pub fn timed_launches<R>(work: impl FnOnce() -> R) -> (R, BTreeMap<&'static str, Launched>) {
    watched(true, work)
}

#[cfg(not(feature = "gpu"))]
fn watched<R>(_: bool, work: impl FnOnce() -> R) -> (R, BTreeMap<&'static str, Launched>) {
    (work(), BTreeMap::new())
}

#[cfg(feature = "gpu")]
use on_gpu::watched;

#[cfg(feature = "gpu")]
mod on_gpu {
    use std::{
        collections::BTreeMap,
        sync::{Arc, Mutex, PoisonError},
    };

    use burn_cubecl::cubecl::logging::{
        Duration, LaunchObservation, LaunchObserver, TimingMethod, TimingRequest,
    };

    use super::Launched;

    pub(super) fn watched<R>(
        timed: bool,
        work: impl FnOnce() -> R,
    ) -> (R, BTreeMap<&'static str, Launched>) {
        let watch = Arc::new(Watch { timed, seen: Mutex::default() });
        let watching = LaunchObservation::new(watch.clone());
        let done = work();
        drop(watching);
        let seen = std::mem::take(&mut *watch.seen.lock().unwrap_or_else(PoisonError::into_inner));
        (done, seen)
    }

    struct Watch {
        timed: bool,
        seen: Mutex<BTreeMap<&'static str, Launched>>,
    }

    impl Watch {
        fn note(&self, kernel: &'static str, note: impl FnOnce(&mut Launched)) {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            note(seen.entry(kernel).or_default());
        }
    }

    impl LaunchObserver for Watch {
        fn launched(&self, kernel: &'static str) {
            self.note(kernel, |of| of.count += 1);
        }

        fn timing(&self) -> TimingRequest {
            if self.timed { TimingRequest::Resolved } else { TimingRequest::None }
        }

        fn timed(&self, kernel: &'static str, duration: Duration, _: TimingMethod) {
            self.note(kernel, |of| of.seconds += duration.as_secs_f64());
        }
    }
}
