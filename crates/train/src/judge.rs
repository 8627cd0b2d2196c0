//! The thread that judges groups while others are being sampled.

use std::{
    panic::resume_unwind,
    sync::{
        OnceLock,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{Scope, ScopedJoinHandle},
    time::Instant,
};

use firebrick_core::{Group, RewardedGroup, Step};
use firebrick_rollout::RequestId;
use rayon::{ThreadPool, ThreadPoolBuilder, current_num_threads};

use crate::{Task, TrainError};

/// Takes groups and gives them back with their rewards, in the order in which they came.
pub(crate) struct Judge<'scope> {
    groups: Sender<Batch>,
    judged: Receiver<Judged>,
    thread: Option<ScopedJoinHandle<'scope, ()>>,
    /// The number of batches that were given and not taken back.
    open: usize,
    /// The seconds that judging has taken, whoever waited for it.
    pub(crate) seconds: f64,
}

type Batch = (Vec<RequestId>, Vec<Group>);

/// The groups of a batch, and the seconds that judging them took.
type Judged = (Vec<RequestId>, Result<Vec<RewardedGroup>, TrainError>, f64);

impl<'scope> Judge<'scope> {
    /// Starts a judge that rewards the completions of the policy of `step`, by `task`, for as long as `scope`
    /// lasts.
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
                let rewarded = aside(task.spare_cores, || task.reward(groups, step));
                if answer.send((ids, rewarded, began.elapsed().as_secs_f64())).is_err() {
                    break;
                }
            }
        });
        Judge { groups, judged, thread: Some(thread), open: 0, seconds: 0.0 }
    }

    /// Gives the judge a batch, and does not wait.
    pub(crate) fn give(&mut self, finished: Vec<(RequestId, Group)>) {
        if !finished.is_empty() {
            // If the judge is gone, sending fails. `take` notices that, because no answer comes.
            let _ = self.groups.send(finished.into_iter().unzip());
            self.open += 1;
        }
    }

    /// Waits for the oldest open batch, and gives its groups. Gives nothing if no batch is open.
    ///
    /// # Errors
    /// When the verifier fails.
    pub(crate) fn take(&mut self) -> Result<Vec<(RequestId, RewardedGroup)>, TrainError> {
        let mut all = Vec::new();
        if self.open > 0 {
            self.open -= 1;
            let Ok((ids, rewarded, seconds)) = self.judged.recv() else {
                // A judge is gone only if its verifier panicked, and the panic continues here.
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

    /// Ends the judge because something else has failed. The results of open batches are lost.
    pub(crate) fn end(self) {
        drop((self.groups, self.judged));
        // A panic of the judge would take the place of the failure.
        let _ = self.thread.map(ScopedJoinHandle::join);
    }
}

/// Does `work` with threads of its own, because a verifier that waits for another program must not hold the
/// threads that decode. They are as many as those that decode, less those to `spare` in the first call.
fn aside<R: Send>(spare: usize, work: impl FnOnce() -> R + Send) -> R {
    static POOL: OnceLock<Option<ThreadPool>> = OnceLock::new();
    let pool = POOL.get_or_init(|| {
        let threads = current_num_threads().saturating_sub(spare).max(1);
        ThreadPoolBuilder::new().num_threads(threads).build().ok()
    });

    match pool {
        Some(pool) => pool.install(work),
        None => work(),
    }
}
