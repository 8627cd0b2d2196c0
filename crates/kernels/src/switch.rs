use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use burn::tensor::Device;

/// Which bodies operations have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kernels {
    /// That of the device, where there is one, and else the reference.
    #[default]
    Fast,
    /// Plain tensor code, everywhere.
    Reference,
}

static REFERENCE: AtomicBool = AtomicBool::new(cfg!(feature = "reference"));

/// Chooses for the whole process. Results differ by rounding, so a process does not change its mind in the middle of a
/// run.
pub fn use_kernels(which: Kernels) {
    REFERENCE.store(which == Kernels::Reference, Ordering::Relaxed);
}

/// Those in use.
pub fn kernels() -> Kernels {
    if REFERENCE.load(Ordering::Relaxed) { Kernels::Reference } else { Kernels::Fast }
}

/// Does `work`, which calls many kernels of `device`. If that is the CPU, it is done on the first of the threads that kernels
/// compute on, unless it is called from one of them. A kernel that is called from another thread has to wake one, which
/// takes longer than a small kernel does; and what a thread gives back, the C library keeps for that thread. It is done
/// when each of the threads has come by.
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
