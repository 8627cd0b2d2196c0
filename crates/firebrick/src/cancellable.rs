//! A verifier that can be cancelled: its judgement ends when the run is to end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, Thread},
    time::Duration,
};

use firebrick_core::{Completion, Metrics, Prompt, Score, Verifier, VerifierFailed};

/// A verifier with a flag that makes it give up.
pub(crate) struct CancellableVerifier {
    pub(crate) verifier: Box<dyn Verifier>,
    pub(crate) interrupted: Arc<AtomicBool>,
}

impl CancellableVerifier {
    fn check(&self) -> Result<(), VerifierFailed> {
        // The flag guards no other memory, so the weakest order is enough.
        if self.interrupted.load(Ordering::Relaxed) {
            Err(VerifierFailed::Interrupted)
        } else {
            Ok(())
        }
    }

    /// Cancels repeatedly, because a verifier of several parts asks one part after the other.
    fn watch(&self, done: &AtomicBool) {
        while !done.load(Ordering::Relaxed) {
            if self.check().is_err() {
                self.verifier.cancel();
            }
            thread::park_timeout(POLL_INTERVAL);
        }
    }
}

impl Verifier for CancellableVerifier {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        self.verifier.score(prompt, completion)
    }

    fn score_all(&self, pairs: &[(&Prompt, &Completion)]) -> Result<Vec<Score>, VerifierFailed> {
        self.check()?;
        let done = AtomicBool::new(false);
        let scores = thread::scope(|scope| {
            let watch = scope.spawn(|| self.watch(&done));
            let _end = WatchGuard { done: &done, watch: watch.thread().clone() };
            self.verifier.score_all(pairs)
        });

        // Scores of a cancelled judgement are not to be trusted.
        self.check()?;
        scores
    }

    fn same(&self, prompt: &Prompt, one: &str, other: &str) -> bool {
        self.verifier.same(prompt, one, other)
    }

    fn takes_json(&self) -> bool {
        self.verifier.takes_json()
    }

    fn probe(&self, prompt: &Prompt, completion: &Completion) -> Result<(), VerifierFailed> {
        self.verifier.probe(prompt, completion)
    }

    fn take_costs(&self) -> Metrics {
        self.verifier.take_costs()
    }

    fn cancel(&self) {
        self.verifier.cancel();
    }
}

/// A guard that ends the watch, even if the verifier panics.
struct WatchGuard<'a> {
    done: &'a AtomicBool,
    watch: Thread,
}

impl Drop for WatchGuard<'_> {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        self.watch.unpark();
    }
}

/// Time between two checks of the flag.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    struct Broken;

    impl Verifier for Broken {
        fn score(&self, _: &Prompt, _: &Completion) -> Score {
            unreachable!("completions are judged together");
        }

        fn score_all(&self, _: &[(&Prompt, &Completion)]) -> Result<Vec<Score>, VerifierFailed> {
            panic!("no verdict");
        }
    }

    #[test]
    fn a_verifier_that_panics_is_not_waited_for() {
        let cancellable =
            CancellableVerifier { verifier: Box::new(Broken), interrupted: Arc::default() };
        let prompt = Prompt::default();
        let completion = Completion::default();

        let judged = || cancellable.score_all(&[(&prompt, &completion)]);
        assert!(catch_unwind(AssertUnwindSafe(judged)).is_err());

        cancellable.interrupted.store(true, Ordering::Relaxed);
        assert!(judged().is_err());
    }
}
