use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

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

/// Does `work` on the first of the threads that kernels compute on. A kernel that is called from another thread has to
/// wake one first, which takes longer than a small kernel does; and the C library keeps the memory that a thread gave back
/// for that thread. So whoever calls many kernels calls them from here. All of the threads are woken for it.
pub fn together<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    if rayon::current_thread_index().is_some() {
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
