//! Judging of groups, on a separate thread, while others are being sampled.

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

use crate::{error::TrainError, sampler::task::Task};

/// Takes groups and returns them with their rewards, in the order in which they were given.
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

/// Groups of a batch, and the seconds that judging them took.
type Judged = (Vec<RequestId>, Result<Vec<RewardedGroup>, TrainError>, f64);

impl<'scope> Judge<'scope> {
    /// Starts a judge that rewards the completions of the policy of `step`, by `task`, for as long as `scope`
    /// lasts.
    pub(crate) fn begin<'env>(
        scope: &'scope Scope<'scope, 'env>,
        task: &'env Task,
        step: Step,
    ) -> Self {
        let (groups, batches) = channel::<Batch>();
        let (results, judged) = channel();

        let thread = scope.spawn(move || {
            for (ids, groups) in batches {
                let started = Instant::now();
                let rewarded = on_judging_threads(task.spare_cores, || task.reward(groups, step));
                if results.send((ids, rewarded, started.elapsed().as_secs_f64())).is_err() {
                    break;
                }
            }
        });

        Judge { groups, judged, thread: Some(thread), open: 0, seconds: 0.0 }
    }

    /// Hands the judge a batch, without waiting.
    pub(crate) fn give(&mut self, finished: Vec<(RequestId, Group)>) {
        if !finished.is_empty() {
            // Sending fails if the judge has ended. `take` notices that, because no result comes.
            let _ = self.groups.send(finished.into_iter().unzip());
            self.open += 1;
        }
    }

    /// Waits for the oldest open batch, and returns its groups; nothing if no batch is open.
    ///
    /// # Errors
    /// When the verifier fails.
    pub(crate) fn take(&mut self) -> Result<Vec<(RequestId, RewardedGroup)>, TrainError> {
        let mut all = Vec::new();
        if self.open > 0 {
            self.open -= 1;
            let Ok((ids, rewarded, seconds)) = self.judged.recv() else {
                // A judge has ended early only if its verifier panicked, and the panic continues here.
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
        // A panic of the judge would hide the failure.
        let _ = self.thread.map(ScopedJoinHandle::join);
    }
}

/// Does `work` on separate threads, because a verifier that waits for another program must not block the
/// threads that decode. There are as many as those that decode, minus `spare_cores` of the first call.
fn on_judging_threads<R: Send>(spare_cores: usize, work: impl FnOnce() -> R + Send) -> R {
    static POOL: OnceLock<Option<ThreadPool>> = OnceLock::new();
    let pool = POOL.get_or_init(|| {
        let threads = current_num_threads().saturating_sub(spare_cores).max(1);
        ThreadPoolBuilder::new().num_threads(threads).build().ok()
    });

    match pool {
        Some(pool) => pool.install(work),
        None => work(),
    }
}
