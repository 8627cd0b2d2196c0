use std::sync::atomic::{AtomicBool, Ordering};

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
