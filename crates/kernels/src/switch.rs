//! Chooses between a device's own code and plain tensor code, and the thread that calls kernels.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use burn::tensor::Device;

/// Which implementations operations use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kernels {
    /// A device's own implementations where there are any, and the reference elsewhere.
    #[default]
    Fast,
    /// Plain tensor code everywhere.
    Reference,
}

static REFERENCE: AtomicBool = AtomicBool::new(cfg!(feature = "reference"));

/// Chooses the implementations for the entire process. Results differ by rounding, so don't switch in the middle of a
/// run.
pub fn use_kernels(which: Kernels) {
    REFERENCE.store(which == Kernels::Reference, Ordering::Relaxed);
}

/// Returns the implementations in use.
pub fn kernels() -> Kernels {
    if REFERENCE.load(Ordering::Relaxed) { Kernels::Reference } else { Kernels::Fast }
}

/// Does `work`, which calls many kernels of `device`. On the CPU, it runs on the first of the threads that compute
/// kernels, unless it is called from one of them. There are two reasons. A kernel called from another thread has to
/// wake one of these, which takes longer than a small kernel. And the C library keeps freed memory for the thread that
/// freed it. Returns once each of these threads has taken part.
pub fn run_on_compute_thread<R: Send>(device: &Device, work: impl FnOnce() -> R + Send) -> R {
    let on_cpu = device.clone().inner() == Device::flex();
    if !on_cpu || rayon::current_thread_index().is_some() {
        return work();
    }

    // Rayon can't run work on a chosen thread. So all threads are asked, and only the first takes the work.
    let work = Mutex::new(Some(work));
    let take = |context: rayon::BroadcastContext<'_>| {
        let first = context.index() == 0;
        first.then(|| work.lock().expect("nobody panics with it").take()).flatten()
    };

    let mut done = rayon::broadcast(|context| take(context).map(|work| work()));
    done.swap_remove(0).expect("there is a first thread")
}
