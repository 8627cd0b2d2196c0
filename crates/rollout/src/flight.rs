//! What is on its way between whoever asks and an engine.

use std::collections::{BTreeMap, BTreeSet};

use firebrick_core::Group;

use crate::{GroupRequest, RequestId, RolloutEngine, RolloutError, Wait};

/// How often in a row a [`Flight`] submits again what an engine lost.
pub const RETRIES: usize = 3;

/// Requests that an engine has not answered: more can be asked for while others are being answered.
///
/// An engine's answers are checked ([`GroupRequest::check_answer`]). Work that it lost
/// ([`RolloutError::Engine`], where that is `retryable`) is submitted again, up to [`RETRIES`] times in
/// a row without an answer between them: a completion follows from its seed, so the second time it is the
/// same.
#[derive(Default)]
pub struct Flight {
    /// Without an answer.
    open: BTreeMap<RequestId, GroupRequest>,
    /// Those among them that the engine has not been given.
    waiting: Vec<GroupRequest>,
    answered: BTreeSet<RequestId>,
    /// Completions of everything that was asked for, and of what was answered.
    asked: usize,
    came: usize,
    /// Completions that ended, as the engine says, and how many of them were passed on.
    heard: usize,
    told: usize,
    /// How often in a row the engine has lost its work.
    lost: usize,
}

impl Flight {
    /// Adds requests, which the engine is given when it is next asked for groups.
    ///
    /// # Errors
    /// When one asks for nothing, or has the id of another; then none of them is added.
    pub fn ask(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        let mut ids = BTreeSet::new();
        for request in &requests {
            request.check()?;
            let known = self.open.contains_key(&request.id) || self.answered.contains(&request.id);
            if known || !ids.insert(request.id) {
                let problem = "has the id of another request, expected one of its own".into();
                return Err(RolloutError::Request { id: request.id, problem });
            }
        }
        self.asked += requests.iter().map(|request| request.group_size).sum::<usize>();
        self.open.extend(requests.iter().map(|request| (request.id, request.clone())));
        self.waiting.extend(requests);
        Ok(())
    }

    /// How many requests have no answer.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// The smallest id without an answer.
    pub fn first_open(&self) -> Option<RequestId> {
        self.open.keys().next().copied()
    }

    /// Waits until at least one request is answered; gives nothing at once when none is open. `finished`
    /// hears how many completions have come to their end since it was last called, each of them once.
    ///
    /// # Errors
    /// When an answer is none to what was asked, or the engine fails. Everything in flight is then cancelled
    /// ([`RolloutEngine::cancel`]) and forgotten.
    pub fn fetch<M>(
        &mut self,
        engine: &mut dyn RolloutEngine<M>,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<(RequestId, Group)>, RolloutError> {
        while !self.open.is_empty() {
            match self.poll(engine, finished) {
                Ok(answers) => {
                    self.lost = 0;
                    return Ok(answers);
                }
                Err(RolloutError::Engine { retryable: true, source }) => {
                    self.lost += 1;
                    if self.lost > RETRIES {
                        let times = self.lost;
                        self.cancel(engine);
                        return Err(RolloutError::GivenUp { times, source });
                    }
                    self.waiting = self.open.values().cloned().collect();
                    self.heard = self.came;
                }
                Err(other) => {
                    self.cancel(engine);
                    return Err(other);
                }
            }
        }
        Ok(Vec::new())
    }

    /// Forgets what is open, and has the engine do so.
    pub fn cancel<M>(&mut self, engine: &mut dyn RolloutEngine<M>) {
        *self = Flight::default();
        engine.cancel();
    }

    fn poll<M>(
        &mut self,
        engine: &mut dyn RolloutEngine<M>,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<(RequestId, Group)>, RolloutError> {
        if !self.waiting.is_empty() {
            engine.submit(std::mem::take(&mut self.waiting))?;
        }
        let answers = engine.poll(Wait::ForGroup, &mut |count| self.hear(count, finished))?;
        // It would be asked for ever.
        if let (true, Some((&id, _))) = (answers.is_empty(), self.open.first_key_value()) {
            let problem = "the engine says that nothing is in flight, expected a group".into();
            return Err(RolloutError::Answer { id, problem });
        }
        answers.iter().try_for_each(|(id, group)| self.take(*id, group))?;
        // Those that the engine did not tell.
        if self.came > self.heard {
            self.hear(self.came - self.heard, finished);
        }
        Ok(answers)
    }

    fn take(&mut self, id: RequestId, group: &Group) -> Result<(), RolloutError> {
        let Some(request) = self.open.get(&id) else {
            let problem = match self.answered.contains(&id) {
                true => "it has come before, expected one answer for each request",
                false => "it was not asked for, or its id is another's",
            };
            return Err(RolloutError::Answer { id, problem: problem.into() });
        };
        request.check_answer(group)?;
        self.came += request.group_size;
        self.open.remove(&id);
        self.answered.insert(id);
        Ok(())
    }

    /// Passes on what an engine says has ended: once, although some are lost and come again, and no
    /// more than were asked for.
    fn hear(&mut self, count: usize, finished: &mut dyn FnMut(usize)) {
        self.heard = self.heard.saturating_add(count).min(self.asked);
        // None is told too: whoever hears it knows that somebody waits.
        finished(self.heard.saturating_sub(self.told));
        self.told = self.told.max(self.heard);
    }
}
