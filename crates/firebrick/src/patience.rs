//! A verifier that is waited for until the run is to end, and no longer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use firebrick_core::{Completion, Prompt, Score, Verifier, VerifierFailed};

/// A verifier, and the flag that makes it give up.
pub(crate) struct Patient {
    pub(crate) verifier: Box<dyn Verifier>,
    pub(crate) interrupted: Arc<AtomicBool>,
}

impl Verifier for Patient {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        self.verifier.score(prompt, completion)
    }

    fn score_all(&self, asked: &[(&Prompt, &Completion)]) -> Result<Vec<Score>, VerifierFailed> {
        let (verifier, interrupted) = (&self.verifier, &self.interrupted);
        let done = AtomicBool::new(false);
        let scores = thread::scope(|scope| {
            let watch = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if interrupted.load(Ordering::Relaxed) {
                        return verifier.cancel();
                    }
                    thread::park_timeout(LOOK);
                }
            });
            let scores = verifier.score_all(asked);
            done.store(true, Ordering::Relaxed);
            watch.thread().unpark();
            scores
        });
        match interrupted.load(Ordering::Relaxed) {
            true => Err(VerifierFailed("judging was interrupted".into())),
            false => scores,
        }
    }

    fn same(&self, one: &str, other: &str) -> bool {
        self.verifier.same(one, other)
    }

    fn cancel(&self) {
        self.verifier.cancel();
    }
}

/// How often the flag is looked at.
const LOOK: Duration = Duration::from_millis(50);
