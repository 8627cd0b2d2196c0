//! The engine of a run: it writes each group to the database before anyone looks at it, and a run that goes on takes it from there.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use firebrick_core::{Group, Seed, Step};
use firebrick_models::PolicyModel;
use firebrick_rollout::{GroupRequest, RequestId, RolloutEngine, RolloutError, Wait};
use firebrick_runs::{RunError, Store, Writer};
use firebrick_train::fingerprint;

use crate::recipe::{Environment, Recipe};

/// The database of a run, with the place in it that groups are written to now.
pub(crate) struct Journal {
    /// The run's one connection to its database: another one would have to read again what this one writes.
    pub(crate) store: Writer,
    place: Option<(String, Step)>,
    /// The last step of which an earlier process has left groups.
    visited: Option<Step>,
    /// Groups that have arrived at that place and are not written: those of one place lie together.
    arrived: Arc<Mutex<Vec<Arrival>>>,
    /// Stands for what completions follow from besides request and trained weights: frozen weights, formats and device.
    setting: [u8; 32],
    /// Stands for the weights that sample; none where nobody knows them.
    weights: Option<[u8; 32]>,
    /// Completions that were taken from the database since somebody asked.
    recalled: usize,
    /// Time that the run gave to its record since somebody asked.
    spent: Duration,
}

impl Journal {
    /// A journal in `store`. Of the recipe it matters which model, device, kind of engine and environment it names.
    ///
    /// # Errors
    /// When the database can't be read, or there is no thread to write it.
    pub(crate) fn new(store: Store, recipe: &Recipe) -> Result<Arc<Mutex<Self>>, RunError> {
        let recipe = recipe.with_absolute_paths();
        let samples = (recipe.model, recipe.device, recipe.rollout.engine.kind);
        let mut words = serde_json::to_string(&samples).unwrap_or_default();
        if recipe.environment.is_there() {
            // Who plays, and how long one waits for it, changes no completion.
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
        let visited = store.last_sampled()?;
        Ok(Arc::new(Mutex::new(Journal {
            store: Writer::new(store)?,
            place: None,
            visited,
            arrived: Arc::default(),
            setting,
            weights: None,
            recalled: 0,
            spent: Duration::ZERO,
        })))
    }

    /// Names `source` and step of everything that is sampled from now on; without a place nothing of it is kept.
    pub(crate) fn turn_to(&mut self, place: Option<(&str, Step)>) {
        self.arrived = Arc::default();
        self.place = place.map(|(source, step)| (source.to_owned(), step));
    }

    /// How many completions were not sampled because they were there, since this was last asked.
    pub(crate) fn take_recalled(&mut self) -> usize {
        std::mem::take(&mut self.recalled)
    }

    /// Counts the time since `began` as the record's.
    pub(crate) fn spend(&mut self, began: Instant) {
        self.spent += began.elapsed();
    }

    /// Seconds that the run gave to its record, since this was last asked.
    pub(crate) fn take_seconds(&mut self) -> f64 {
        std::mem::take(&mut self.spent).as_secs_f64()
    }

    /// The answer to the request, if an earlier process has got it from the same weights.
    fn recall(&mut self, request: &GroupRequest, digest: [u8; 32]) -> Option<(RequestId, Group)> {
        let (source, step) = self.place_of(request.step)?;
        if Some(step) > self.visited {
            return None;
        }
        let key = (request.draw, request.prompt.id);
        // What can't be read is sampled.
        let found =
            self.store.now(move |store| store.recall(&source, step, key, &digest)).ok()??;
        let answer = request.clone().answer(found);
        // A database is a file like others: what is in it is checked as an engine's answer is.
        request.check_answer(&answer.1).ok()?;
        self.recalled += request.group_size;
        Some(answer)
    }

    /// Has groups written, with all that have arrived by the time that it is done: a small transaction costs as much as the
    /// writing of many completions.
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
                // While a step is sampled ahead, those of two steps may come together.
                let mut by_step: BTreeMap<Step, Vec<_>> = BTreeMap::new();
                for Arrival { step, digest, group } in groups {
                    let step = if step == 0 { here } else { step };
                    by_step.entry(step).or_default().push((digest, group));
                }
                let mut kept = by_step.iter().map(|(step, groups)| store.keep(&source, *step, groups));
                let error = kept.find_map(Result::err)?;
                Some(format!(
                    "what is sampled is not in run.db before its step is over, because {error}; a run that is killed samples \
                     it again"
                ))
            });
        }
        self.spend(began);
    }

    /// The place of a request for `step`, which is 0 outside of training.
    fn place_of(&self, step: Step) -> Option<(String, Step)> {
        let (source, here) = self.place.clone()?;
        Some((source, if step == 0 { here } else { step }))
    }

    /// A hash of everything that the request's completions follow from.
    fn of(&self, request: &GroupRequest) -> Option<[u8; 32]> {
        let words = |bytes: [u8; 32]| bytes.map(u64::from);
        let parts = [request.digest(), self.weights?, self.setting].map(words);
        Some(Seed::run(0).derive("journal", &parts.concat()).bytes())
    }
}

/// A group that was sampled.
struct Arrival {
    /// The step that it is for; 0 outside of training.
    step: Step,
    /// A hash of everything that its completions follow from.
    digest: [u8; 32],
    group: Group,
}

/// A request that is not answered: its step, and the hash of all that its answer follows from, if that is known.
type Asked = (Step, Option<[u8; 32]>);

pub(crate) fn lock(journal: &Mutex<Journal>) -> MutexGuard<'_, Journal> {
    journal.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An engine with a journal, which gives up what it does when the run is to end.
pub(crate) struct Journaled<M> {
    engine: Box<dyn RolloutEngine<M>>,
    journal: Arc<Mutex<Journal>>,
    interrupted: Arc<AtomicBool>,
    /// Requests that the engine has not answered.
    open: BTreeMap<RequestId, Asked>,
    /// Answers from the journal that nobody has fetched.
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
        // Where its sums can't be read, the device is about to say so by itself.
        lock(&self.journal).weights = fingerprint(policy).ok();
        self.engine.publish(policy, version)
    }

    fn submit(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        let mut journal = lock(&self.journal);
        let began = Instant::now();
        let (mut asked, mut open, mut known) = (Vec::new(), Vec::new(), Vec::new());
        for request in requests {
            let digest = journal.of(&request);
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

    /// Asks the engine for a little at a time, so that it can be interrupted between two.
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
            // One that computes elsewhere answers at once that it has nothing yet.
            pause = if began.elapsed() < AT_ONCE {
                (pause * 2 + AT_ONCE).min(LONGEST)
            } else {
                Duration::ZERO
            };
            // Whoever waits may have something to tell meanwhile.
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
}

/// No engine decodes a token in less.
const AT_ONCE: Duration = Duration::from_micros(20);

/// How long an engine elsewhere is left alone.
const LONGEST: Duration = Duration::from_millis(20);
