//! An engine around a run's engine: it writes each group to the database before anyone looks at it, and a resumed run
//! takes it from there.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use firebrick_core::{Completion, Group, Seed, Step};
use firebrick_models::PolicyModel;
use firebrick_rollout::{GroupRequest, RequestId, RolloutEngine, RolloutError, Wait};
use firebrick_runs::{RunError, Store, TRAIN, Writer};
use firebrick_train::fingerprint;

use crate::recipe::{Environment, Recipe};

/// The database of a run, and the place in it where groups are written now.
pub(crate) struct Journal {
    /// The run's one connection to its database. Another connection would have to read again what this one
    /// writes.
    pub(crate) store: Writer,
    place: Option<(String, Step)>,
    /// The last step of which an earlier process has left groups.
    visited: Option<Step>,
    /// The last step that an earlier process has done.
    done: Step,
    /// Groups of the present place that have arrived and are not written yet, so that they are written
    /// together.
    arrived: Arc<Mutex<Vec<Arrival>>>,
    /// A hash of everything that completions follow from besides the request and the trained weights: frozen
    /// weights, formats and device.
    setting: [u8; 32],
    /// A hash of the weights that sample; `None` if nobody knows them.
    weights: Option<[u8; 32]>,
    /// The number of completions that were taken from the database since somebody asked.
    recalled: usize,
    /// The time that the run gave to its record since somebody asked.
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
            // The servers, and the time that a run waits for them, change no completion.
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
        let (visited, done) = (store.last_sampled()?, store.done()?);
        Ok(Arc::new(Mutex::new(Journal {
            store: Writer::new(store)?,
            place: None,
            visited,
            done,
            arrived: Arc::default(),
            setting,
            weights: None,
            recalled: 0,
            spent: Duration::ZERO,
        })))
    }

    /// Names the `source` and the step of everything that is sampled from now on. Without a place nothing is
    /// kept.
    pub(crate) fn turn_to(&mut self, place: Option<(&str, Step)>) {
        self.arrived = Arc::default();
        self.place = place.map(|(source, step)| (source.to_owned(), step));
    }

    /// Returns the number of completions that came from the database instead of the engine since the last call.
    pub(crate) fn take_recalled(&mut self) -> usize {
        std::mem::take(&mut self.recalled)
    }

    /// Counts the time since `began` as the record's.
    pub(crate) fn spend(&mut self, began: Instant) {
        self.spent += began.elapsed();
    }

    /// Returns the seconds that the run gave to its record since the last call.
    pub(crate) fn take_seconds(&mut self) -> f64 {
        std::mem::take(&mut self.spent).as_secs_f64()
    }

    /// Returns the answer to the request, if an earlier process has got it from the same weights.
    fn recall(&mut self, request: &GroupRequest, digest: [u8; 32]) -> Option<(RequestId, Group)> {
        let (source, step) = self.place_of(request.step)?;
        if Some(step) > self.visited {
            return None;
        }
        let key = (request.draw, request.prompt.id);
        // If the answer can't be read, it is sampled.
        let place = source.clone();
        let found =
            self.store.now(move |store| store.recall(&place, step, key, &digest)).ok()??;
        let answer = request.clone().answer(found);
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

    /// Has groups written, together with all others that arrive until they are written: a small transaction
    /// costs as much as the writing of many completions.
    fn keep(&mut self, groups: Vec<Arrival>) {
        let Some((source, here)) = self.place.clone().filter(|_| !groups.is_empty()) else {
            return;
        };
        let began = Instant::now();
        let mut waiting = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        let written_soon = !waiting.is_empty();
        waiting.extend(groups);
        drop(waiting);
        if !written_soon {
            let arrived = self.arrived.clone();
            self.store.later(move |store| {
                let mut waiting = arrived.lock().unwrap_or_else(PoisonError::into_inner);
                let groups = std::mem::take(&mut *waiting);
                drop(waiting);
                // While a step is sampled ahead, groups of two steps may come together.
                let mut by_step: BTreeMap<Step, Vec<_>> = BTreeMap::new();
                for Arrival { step, digest, group } in groups {
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

    /// Returns the place of a request for `step`, which is 0 outside of training.
    fn place_of(&self, step: Step) -> Option<(String, Step)> {
        let (source, here) = self.place.clone()?;
        Some((source, if step == 0 { here } else { step }))
    }

    /// Returns a hash of everything that the request's completions follow from, if the weights are known.
    fn digest_of(&self, request: &GroupRequest) -> Option<[u8; 32]> {
        let words = |bytes: [u8; 32]| bytes.map(u64::from);
        let parts = [request.digest(), self.weights?, self.setting].map(words);
        Some(Seed::run(0).derive("journal", &parts.concat()).bytes())
    }
}

/// A group that was sampled.
struct Arrival {
    /// The step that the group is for; 0 outside of training.
    step: Step,
    /// A hash of everything that the group's completions follow from.
    digest: [u8; 32],
    group: Group,
}

/// A request that is not answered yet: its step, and the hash of everything that its answer follows from, if
/// that is known.
type Asked = (Step, Option<[u8; 32]>);

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

/// An engine with a journal. It gives up its work when the run is to end.
pub(crate) struct Journaled<M> {
    engine: Box<dyn RolloutEngine<M>>,
    journal: Arc<Mutex<Journal>>,
    interrupted: Arc<AtomicBool>,
    /// Requests that the engine has not answered yet.
    open: BTreeMap<RequestId, Asked>,
    /// Answers from the journal that nobody has fetched yet.
    known: Vec<(RequestId, Group)>,
}

impl<M> Journaled<M> {
    pub(crate) fn new(
        engine: Box<dyn RolloutEngine<M>>,
        journal: Arc<Mutex<Journal>>,
        interrupted: Arc<AtomicBool>,
    ) -> Self {
        Journaled { engine, journal, interrupted, open: BTreeMap::new(), known: Vec::new() }
    }
}

impl<M: PolicyModel> RolloutEngine<M> for Journaled<M> {
    fn publish(&mut self, policy: &M, version: u64) -> Result<(), RolloutError> {
        // If the sums of the weights can't be read, the device is about to report that itself.
        lock(&self.journal).weights = fingerprint(policy).ok();
        self.engine.publish(policy, version)
    }

    fn submit(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        let mut journal = lock(&self.journal);
        let began = Instant::now();
        let (mut asked, mut open, mut known) = (Vec::new(), Vec::new(), Vec::new());
        for request in requests {
            let digest = journal.digest_of(&request);
            match digest.and_then(|digest| journal.recall(&request, digest)) {
                Some(answer) => known.push(answer),
                None => {
                    open.push((request.id, (request.step, digest)));
                    asked.push(request);
                }
            }
        }
        journal.spend(began);
        drop(journal);
        self.engine.submit(asked)?;
        self.open.extend(open);
        self.known.extend(known);
        Ok(())
    }

    /// Asks the engine for a little at a time, so that it can be interrupted in between.
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
                    Some(Arrival { step, digest: digest?, group: group.clone() })
                });
                let arrived = arrived.collect();
                lock(&self.journal).keep(arrived);
                return Ok(answers);
            }
            // An engine that computes elsewhere answers at once that it has nothing yet.
            pause = if began.elapsed() < AT_ONCE {
                (pause * 2 + AT_ONCE).min(LONGEST)
            } else {
                Duration::ZERO
            };
            // The waiting caller may have something to tell meanwhile.
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

    fn sleep(&mut self) {
        self.engine.sleep();
    }
}

/// A time in which no engine decodes a token.
const AT_ONCE: Duration = Duration::from_micros(20);

/// The longest time between two questions to an engine elsewhere.
const LONGEST: Duration = Duration::from_millis(20);
