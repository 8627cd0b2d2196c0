//! Chooses between a device's own code and plain tensor code, and the thread that calls kernels.

use std::{
    cell::Cell,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
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

/// Number of threads that stay awake during a piece of work. More would rather be in each other's way.
const AWAKE: usize = 8;

/// Time without anything to take after which a thread sleeps, until rayon wakes it.
const PATIENCE: Duration = Duration::from_millis(2);

thread_local! {
    /// True while this thread is one of those that stay awake.
    static IS_HELPING: Cell<bool> = const { Cell::new(false) };
}

/// Does `work`, which calls many kernels of `device`. On the CPU, it runs on the first of the threads that compute
/// kernels, unless it is called from one of them. There are three reasons. A kernel called from another thread has to
/// wake one of these, which takes longer than a small kernel. To wake the others takes as long, so they stay awake
/// while there is something to take now and then. And the C library keeps freed memory for the thread that freed it.
/// Returns once each of these threads has taken part.
pub fn run_on_compute_thread<R: Send>(device: &Device, work: impl FnOnce() -> R + Send) -> R {
    let on_cpu = device.clone().inner() == Device::flex();
    if !on_cpu || rayon::current_thread_index().is_some() {
        return work();
    }

    // Rayon can't run work on a chosen thread. So all threads are asked, and only the first takes the work.
    let work = Mutex::new(Some(work));
    let is_done = AtomicBool::new(false);
    let take_part = |context: rayon::BroadcastContext<'_>| {
        if context.index() > 0 {
            help(context.index(), &is_done);
            return None;
        }
        let _done = Done(&is_done);
        let work = work.lock().expect("nobody panics with it").take();
        work.map(|work| work())
    };

    let mut done = rayon::broadcast(take_part);
    done.swap_remove(0).expect("the first thread has taken the work")
}

/// Takes whatever the first thread has to share, until its work is done.
fn help(index: usize, is_done: &AtomicBool) {
    // What is taken may be a part in another piece of work, which must not keep this one waiting.
    if index >= AWAKE || IS_HELPING.replace(true) {
        return;
    }
    let mut last = Instant::now();
    while !is_done.load(Ordering::Acquire) && last.elapsed() < PATIENCE {
        match rayon::yield_now() {
            Some(rayon::Yield::Executed) => last = Instant::now(),
            // Judges, for example, compute at the same time.
            _ => std::thread::yield_now(),
        }
    }
    IS_HELPING.set(false);
}

/// Says that the work is done, also if it has panicked.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_piece_of_work_does_not_wait_for_another() {
        let device = Device::flex();
        let (begin, begun) = channel();
        let (end, ended) = channel::<()>();
        std::thread::scope(|scope| {
            // The second is queued behind the first, and ends only after it.
            let second = scope.spawn({
                let device = device.clone();
                move || {
                    begun.recv().unwrap();
                    run_on_compute_thread(&device, move || ended.recv().unwrap());
                }
            });
            run_on_compute_thread(&device, || {
                begin.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(50));
            });
            end.send(()).unwrap();
            second.join().unwrap();
        });
    }
}
