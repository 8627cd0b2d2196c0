use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::cubecl::logging::{LaunchObservation, LaunchObserver};

/// What `work` launches on GPUs, by the names of kernels, and how often.
///
/// It counts all launches of the process in that time, whoever's they are.
pub fn launches<R>(work: impl FnOnce() -> R) -> (R, BTreeMap<&'static str, usize>) {
    let count = Arc::new(Count::default());
    let watching = LaunchObservation::new(count.clone());
    let done = work();
    drop(watching);
    let counts = std::mem::take(&mut *count.0.lock().unwrap_or_else(PoisonError::into_inner));
    (done, counts)
}

#[derive(Default)]
struct Count(Mutex<BTreeMap<&'static str, usize>>);

impl LaunchObserver for Count {
    fn launched(&self, kernel: &'static str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(kernel).or_default() += 1;
    }
}
