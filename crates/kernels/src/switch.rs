//! The choice between a device's own code and plain tensor code, and the thread that calls kernels.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use burn::tensor::Device;

/// The bodies that operations use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kernels {
    /// The device's own bodies if there are any, and else the reference.
    #[default]
    Fast,
    /// Plain tensor code everywhere.
    Reference,
}

static REFERENCE: AtomicBool = AtomicBool::new(cfg!(feature = "reference"));

/// Chooses the bodies for the whole process. Results differ by rounding, so a process must not change its mind in
/// the middle of a run.
pub fn use_kernels(which: Kernels) {
    REFERENCE.store(which == Kernels::Reference, Ordering::Relaxed);
}

/// Returns the bodies in use.
pub fn kernels() -> Kernels {
    if REFERENCE.load(Ordering::Relaxed) { Kernels::Reference } else { Kernels::Fast }
}

/// Does `work`, which calls many kernels of `device`. On the CPU, it is done on the first of the threads that
/// compute kernels, unless it is called from one of them. There are two reasons. A kernel that is called from
/// another thread has to wake one of these, which takes longer than a small kernel. And memory that a thread gives
/// back is kept by the C library for that thread. The call returns when all of these threads have come by.
pub fn together<R: Send>(device: &Device, work: impl FnOnce() -> R + Send) -> R {
    let on_cpu = device.clone().inner() == Device::flex();
    if !on_cpu || rayon::current_thread_index().is_some() {
        return work();
    }
    let work = Mutex::new(Some(work));
    let take = |context: rayon::BroadcastContext<'_>| {
        let first = context.index() == 0;
        first.then(|| work.lock().expect("nobody panics with it").take()).flatten()
    };
    let mut done = rayon::broadcast(|context| take(context).map(|work| work()));
    done.swap_remove(0).expect("there is a first thread")
}
