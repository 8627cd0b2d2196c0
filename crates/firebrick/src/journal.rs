//! An engine around a run's engine: it writes each group to the database before it is used, and a resumed run takes it
//! from there.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use firebrick_core::{Completion, Group, Seed, Step};
use firebrick_rollout::{GroupRequest, RequestId, RolloutEngine, RolloutError, Wait};
use firebrick_runs::{RunError, Store, TRAIN, Writer};

use crate::recipe::{Environment, Recipe};

/// A run's database, and the current position for writing groups.
pub(crate) struct Journal {
    /// Only connection of the run to its database: another one would have to read again what this one writes.
    pub(crate) store: Writer,
    position: Option<(String, Step)>,
    /// Last step of which an earlier process has left groups.
    visited: Option<Step>,
    /// Last step that an earlier process has done.
    done: Step,
    /// Groups of the current position that have arrived and wait to be written together.
    arrived: Arc<Mutex<Vec<SampledGroup>>>,
    /// A hash of everything that determines completions besides the request and the trained weights: frozen weights,
    /// formats and device.
    setting: [u8; 32],
    /// A hash of the weights that sample; `None` if they are not known.
    weights: Option<[u8; 32]>,
    /// Number of completions taken from the database since the last query.
    recalled: usize,
    /// Time that the run spent on its record since the last query.
    spent: Duration,
}

impl Journal {
    /// Makes a journal in `store`. It depends on the model, the device, the kind of engine and the environment
    /// that the recipe names.
    ///
    /// # Errors
    /// When the database can't be read, or no thread can be started to write it.
    pub(crate) fn new(store: Store, recipe: &Recipe) -> Result<Arc<Mutex<Self>>, RunError> {
        let recipe = recipe.with_absolute_paths();
        let samples = (recipe.model, recipe.device, recipe.rollout.engine.kind);
        let mut words = serde_json::to_string(&samples).unwrap_or_default();

        if recipe.environment.is_there() {
            // The servers, and the time that a run waits for them, do not change completions.
            let default = Environment::default();
            let environment = Environment {
                servers: default.servers,
                sessions: default.sessions,
                time_limit: default.time_limit,
                patience: default.patience,
                key_variable: default.key_variable,
                ..recipe.environment
            };
            words += &serde_json::to_string(&environment).unwrap_or_default();
        }

        let setting = Seed::run(0).derive(&words, &[]).bytes();
        // The writer's thread takes the store, so these come first.
        let visited = store.last_sampled()?;
        let done = store.done()?;
        Ok(Arc::new(Mutex::new(Journal {
            store: Writer::new(store)?,
            position: None,
            visited,
            done,
            arrived: Arc::default(),
            setting,
            weights: None,
            recalled: 0,
            spent: Duration::ZERO,
        })))
    }

    /// Sets the `source` and the step of everything that is sampled next. Without a position nothing is kept.
    pub(crate) fn turn_to(&mut self, position: Option<(&str, Step)>) {
        self.arrived = Arc::default();
        self.position = position.map(|(source, step)| (source.to_owned(), step));
    }

    /// Returns the number of completions that were taken from the database instead of the engine since the last call.
    pub(crate) fn take_recalled(&mut self) -> usize {
        std::mem::take(&mut self.recalled)
    }

    /// Adds the time since `began` to the time spent on the record.
    pub(crate) fn spend(&mut self, began: Instant) {
        self.spent += began.elapsed();
    }

    /// Returns the seconds that the run spent on its record since the last call.
    pub(crate) fn take_seconds(&mut self) -> f64 {
        std::mem::take(&mut self.spent).as_secs_f64()
    }

    /// Returns the answer to the request, if an earlier process got it from the same weights.
    fn recall(&mut self, request: &GroupRequest, digest: [u8; 32]) -> Option<(RequestId, Group)> {
        let (source, step) = self.position_of(request.step)?;
        if Some(step) > self.visited {
            return None;
        }

        let key = (request.draw, request.prompt.id);
        // If the answer can't be read, it is sampled.
        let owned_source = source.clone();
        let found =
            self.store.now(move |store| store.recall(&owned_source, step, key, &digest)).ok()??;

        let answer = request.clone().into_group(found);
        // A database is a file like others: its answer is checked as an engine's answer is.
        request.check_answer(&answer.1).ok()?;

        // A run that ends because its environment failed asks the environment again when that is fixed. A step
        // that was done with some failures is done again with the same ones.
        let done = source == TRAIN && step <= self.done;
        if has_failed(&answer.1) && !done {
            return None;
        }

        self.recalled += request.group_size;
        Some(answer)
    }

    /// Queues groups to be written in one transaction with all others that arrive until then: a small transaction
    /// costs as much as writing many completions.
    fn keep(&mut self, groups: Vec<SampledGroup>) {
        let Some((source, here)) = self.position.clone().filter(|_| !groups.is_empty()) else {
            return;
        };

        let began = Instant::now();
        let mut waiting = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        // If groups wait already, their write is queued and includes these.
        let written_soon = !waiting.is_empty();
        waiting.extend(groups);
        drop(waiting);

        if !written_soon {
            let arrived = self.arrived.clone();
            self.store.later(move |store| {
                let mut waiting = arrived.lock().unwrap_or_else(PoisonError::into_inner);
                let groups = std::mem::take(&mut *waiting);
                drop(waiting);

                // While a step is sampled ahead, groups of two steps may arrive together.
                let mut by_step: BTreeMap<Step, Vec<_>> = BTreeMap::new();
                for SampledGroup { step, digest, group } in groups {
                    let step = if step == 0 { here } else { step };
                    by_step.entry(step).or_default().push((digest, group));
                }

                let mut kept =
                    by_step.iter().map(|(step, groups)| store.keep(&source, *step, groups));
                let error = kept.find_map(Result::err)?;
                Some(format!(
                    "completions are in run.db only when their step is over, because {error}; a \
                     run that is killed samples them again"
                ))
            });
        }

        self.spend(began);
    }

    /// Returns the position of a request for `step`, which is 0 outside of training.
    fn position_of(&self, step: Step) -> Option<(String, Step)> {
        let (source, here) = self.position.clone()?;
        Some((source, if step == 0 { here } else { step }))
    }

    /// Returns a hash of everything that determines the request's completions, if the weights are known.
    fn digest_of(&self, request: &GroupRequest) -> Option<[u8; 32]> {
        let words = |bytes: [u8; 32]| bytes.map(u64::from);
        let parts = [request.digest(), self.weights?, self.setting].map(words);
        Some(Seed::run(0).derive("journal", &parts.concat()).bytes())
    }
}

/// A group that was sampled.
struct SampledGroup {
    /// Step that the group is for; 0 outside of training.
    step: Step,
    /// A hash of everything that determines the group's completions.
    digest: [u8; 32],
    group: Group,
}

/// A request that is not answered yet: its step, and the hash of everything that determines its answer, if that is
/// known.
type PendingRequest = (Step, Option<[u8; 32]>);

/// Tells whether the environment failed in one of the group's conversations.
fn has_failed(group: &Group) -> bool {
    let failed = |completion: &Completion| {
        completion.outcome.as_ref().is_some_and(|outcome| !outcome.failure.is_empty())
    };
    group.completions.iter().any(failed)
}

pub(crate) fn lock(journal: &Mutex<Journal>) -> MutexGuard<'_, Journal> {
    journal.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An engine with a journal, which gives up its work when the run is to end.
pub(crate) struct JournaledEngine<M> {
    engine: Box<dyn RolloutEngine<M>>,
    /// Makes a number from a policy's weights, if it can.
    fingerprint: fn(&M) -> Option<[u8; 32]>,
    journal: Arc<Mutex<Journal>>,
    interrupted: Arc<AtomicBool>,
    /// Requests that the engine has not answered yet.
    open: BTreeMap<RequestId, PendingRequest>,
    /// Answers from the journal that nobody has fetched yet.
    known: Vec<(RequestId, Group)>,
}

impl<M> JournaledEngine<M> {
    pub(crate) fn new(
        engine: Box<dyn RolloutEngine<M>>,
        fingerprint: fn(&M) -> Option<[u8; 32]>,
        journal: Arc<Mutex<Journal>>,
        interrupted: Arc<AtomicBool>,
    ) -> Self {
        let (open, known) = (BTreeMap::new(), Vec::new());
        JournaledEngine { engine, fingerprint, journal, interrupted, open, known }
    }
}

impl<M> RolloutEngine<M> for JournaledEngine<M> {
    fn publish(&mut self, policy: &M, version: u64) -> Result<(), RolloutError> {
        // If the sums of the weights can't be read, the device is about to report that itself.
        lock(&self.journal).weights = (self.fingerprint)(policy);
        self.engine.publish(policy, version)
    }

    fn submit(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        let mut journal = lock(&self.journal);
        let began = Instant::now();

        let mut new_requests = Vec::new();
        let mut pending = Vec::new();
        let mut recalled = Vec::new();
        for request in requests {
            let digest = journal.digest_of(&request);
            match digest.and_then(|digest| journal.recall(&request, digest)) {
                Some(answer) => recalled.push(answer),
                None => {
                    pending.push((request.id, (request.step, digest)));
                    new_requests.push(request);
                }
            }
        }

        // The engine may take long, and other users of the journal do not wait for it.
        journal.spend(began);
        drop(journal);

        // Only requests that the engine took are pending.
        self.engine.submit(new_requests)?;
        self.open.extend(pending);
        self.known.extend(recalled);
        Ok(())
    }

    /// Polls the engine for short periods, so that it can be interrupted in between.
    fn poll(
        &mut self,
        wait: Wait,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<(RequestId, Group)>, RolloutError> {
        if !self.known.is_empty() {
            finished(self.known.iter().map(|(_, group)| group.completions.len()).sum());
            return Ok(std::mem::take(&mut self.known));
        }

        let mut pause = Duration::ZERO;
        while !self.open.is_empty() {
            if self.interrupted.load(Ordering::Relaxed) {
                self.cancel();
                return Err(RolloutError::Interrupted);
            }

            let began = Instant::now();
            let answers =
                self.engine.poll(Wait::Never, finished).inspect_err(|_| self.open.clear())?;
            if !answers.is_empty() || wait == Wait::Never {
                let arrived = answers.iter();
                let arrived = arrived.filter_map(|(id, group)| {
                    let (step, digest) = self.open.remove(id)?;
                    Some(SampledGroup { step, digest: digest?, group: group.clone() })
                });
                let arrived = arrived.collect();
                lock(&self.journal).keep(arrived);
                return Ok(answers);
            }

            // An engine that computes elsewhere answers immediately that it has nothing yet.
            pause = if began.elapsed() < AT_ONCE {
                (pause * 2 + AT_ONCE).min(LONGEST)
            } else {
                Duration::ZERO
            };

            // The waiting caller may have something to report meanwhile.
            finished(0);
            thread::sleep(pause);
        }

        Ok(Vec::new())
    }

    fn cancel(&mut self) {
        self.open.clear();
        self.known.clear();
        self.engine.cancel();
    }

    fn tolerance(&self) -> Option<f64> {
        self.engine.tolerance()
    }

    fn token_counter(&self) -> Option<Arc<AtomicU64>> {
        self.engine.token_counter()
    }

    fn sleep(&mut self) {
        self.engine.sleep();
    }
}

/// A time in which no engine can decode a token.
const AT_ONCE: Duration = Duration::from_micros(20);

/// Maximum time between two polls of an engine elsewhere.
const LONGEST: Duration = Duration::from_millis(20);
