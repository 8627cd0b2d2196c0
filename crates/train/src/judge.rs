//! Groups are judged on a thread of their own, while others are being sampled.

use std::{
    panic::resume_unwind,
    sync::{
        LazyLock,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{Scope, ScopedJoinHandle},
    time::Instant,
};

use firebrick_core::{Group, RewardedGroup, Step};
use firebrick_rollout::RequestId;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::{Task, TrainError};

/// Takes groups and gives them back with their rewards, in the order in which they came.
pub(crate) struct Judge<'scope> {
    groups: Sender<Batch>,
    judged: Receiver<Judged>,
    thread: Option<ScopedJoinHandle<'scope, ()>>,
    /// Batches that were given and not taken back.
    open: usize,
    /// Seconds that judging has taken, whoever waited for it.
    pub(crate) seconds: f64,
}

type Batch = (Vec<RequestId>, Vec<Group>);

/// The groups of a batch, and how many seconds they took.
type Judged = (Vec<RequestId>, Result<Vec<RewardedGroup>, TrainError>, f64);

impl<'scope> Judge<'scope> {
    /// Judges what the policy of `step` wrote, by `task`, for as long as `scope` lasts.
    pub(crate) fn begin<'env>(
        scope: &'scope Scope<'scope, 'env>,
        task: &'env Task,
        step: Step,
    ) -> Self {
        let (groups, asked) = channel::<Batch>();
        let (answer, judged) = channel();
        let thread = scope.spawn(move || {
            for (ids, groups) in asked {
                let began = Instant::now();
                let rewarded = aside(|| task.reward(groups, step));
                if answer.send((ids, rewarded, began.elapsed().as_secs_f64())).is_err() {
                    break;
                }
            }
        });
        Judge { groups, judged, thread: Some(thread), open: 0, seconds: 0.0 }
    }

    /// Gives it a batch to judge, and does not wait.
    pub(crate) fn give(&mut self, finished: Vec<(RequestId, Group)>) {
        if !finished.is_empty() {
            // One that is gone gives no answer either, and that is where it comes to light.
            let _ = self.groups.send(finished.into_iter().unzip());
            self.open += 1;
        }
    }

    /// Waits for the batch that was given first among those that are open; none when none is.
    ///
    /// # Errors
    /// When the verifier fails.
    pub(crate) fn take(&mut self) -> Result<Vec<(RequestId, RewardedGroup)>, TrainError> {
        let mut all = Vec::new();
        if self.open > 0 {
            self.open -= 1;
            let Ok((ids, rewarded, seconds)) = self.judged.recv() else {
                // A judge is gone only when its verifier panicked: whoever waits hears of it.
                if let Some(Err(panic)) = self.thread.take().map(ScopedJoinHandle::join) {
                    resume_unwind(panic);
                }
                return Ok(all);
            };
            self.seconds += seconds;
            all.extend(ids.into_iter().zip(rewarded?));
        }
        Ok(all)
    }

    /// Ends where something else has failed, whatever becomes of what is being judged.
    pub(crate) fn end(self) {
        drop((self.groups, self.judged));
        // Its panic would take the place of what has failed.
        let _ = self.thread.map(ScopedJoinHandle::join);
    }
}

/// Does `work` with threads of its own: a verifier that waits for another program must not hold those that decode.
fn aside<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    static POOL: LazyLock<Option<ThreadPool>> =
        LazyLock::new(|| ThreadPoolBuilder::new().build().ok());
    match &*POOL {
        Some(pool) => pool.install(work),
        None => work(),
    }
}
