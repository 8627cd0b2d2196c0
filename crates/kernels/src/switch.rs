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

/// Does `work` on one of the threads that kernels compute on. A kernel that is called from another thread has to wake
/// one first, which takes longer than a small kernel does; so whoever calls many of them calls them from here.
pub fn together<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    rayon::scope(|_| work())
}

/// [`together`] for long work that takes much memory: always on the same thread, because the C library keeps what a thread
/// gave back for that thread. All of them are woken for it.
pub fn together_on_first<R: Send>(work: impl FnOnce() -> R + Send) -> R {
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
