//! Requests in flight between a caller and an engine.

use std::collections::{BTreeMap, BTreeSet};

use firebrick_core::Group;

use crate::{GroupRequest, RequestId, RolloutEngine, RolloutError, Wait};

/// How many times in a row an [`InFlight`] submits again the work that an engine lost.
pub const RETRIES: usize = 3;

/// Requests that an engine has not answered. More can be added while others are being answered.
///
/// Answers are checked ([`GroupRequest::check_answer`]). If an engine lost its work ([`RolloutError::Engine`]) and
/// that is `retryable`, the work is submitted again, up to [`RETRIES`] times in a row without an answer between them.
/// A completion depends on its seed, so the second time it is the same.
#[derive(Default)]
pub struct InFlight {
    /// Requests without an answer.
    open: BTreeMap<RequestId, GroupRequest>,
    /// Open requests that the engine has not been given.
    waiting: Vec<GroupRequest>,
    answered: BTreeSet<RequestId>,
    /// How many completions were asked for, and how many the engine returned.
    asked: usize,
    returned: usize,
    /// How many completions ended, as the engine says, and how many of these were reported.
    ended: usize,
    reported: usize,
    /// How many times in a row the engine has lost its work.
    lost: usize,
}

impl InFlight {
    /// Adds requests, which the engine gets when it is next asked for groups.
    ///
    /// # Errors
    /// Fails if a request asks for nothing, or has the id of another; then none of them is added.
    pub fn ask(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        let mut ids = BTreeSet::new();
        for request in &requests {
            request.check()?;
            let known = self.open.contains_key(&request.id) || self.answered.contains(&request.id);
            if known || !ids.insert(request.id) {
                let problem = "has the id of another request, expected an id of its own".into();
                return Err(RolloutError::Request { id: request.id, problem });
            }
        }

        self.asked += requests.iter().map(|request| request.group_size).sum::<usize>();
        self.open.extend(requests.iter().map(|request| (request.id, request.clone())));
        self.waiting.extend(requests);
        Ok(())
    }

    /// Counts the requests that have no answer.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Returns the smallest id without an answer.
    pub fn first_open(&self) -> Option<RequestId> {
        self.open.keys().next().copied()
    }

    /// Waits until at least one request is answered; returns nothing, without waiting, if no request is open.
    /// `finished` is called with the number of completions that have ended since its last call, each of them once.
    ///
    /// # Errors
    /// Fails if an answer does not fit its request, or the engine fails. Everything in flight is then cancelled
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
                    // Completions that ended without their group being answered are sampled and counted again.
                    self.waiting = self.open.values().cloned().collect();
                    self.ended = self.returned;
                }
                Err(other) => {
                    self.cancel(engine);
                    return Err(other);
                }
            }
        }
        Ok(Vec::new())
    }

    /// Forgets the open requests, and has the engine forget them.
    pub fn cancel<M>(&mut self, engine: &mut dyn RolloutEngine<M>) {
        *self = InFlight::default();
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
        let answers = engine.poll(Wait::ForGroup, &mut |count| self.report(count, finished))?;

        // An engine that returns nothing without waiting would be polled forever.
        if answers.is_empty()
            && let Some((&id, _)) = self.open.first_key_value()
        {
            let problem = "the engine says that nothing is in flight, expected a group".into();
            return Err(RolloutError::Answer { id, problem });
        }
        answers.iter().try_for_each(|(id, group)| self.take(*id, group))?;

        // The engine has answered these completions without reporting their end.
        if self.returned > self.ended {
            self.report(self.returned - self.ended, finished);
        }
        Ok(answers)
    }

    fn take(&mut self, id: RequestId, group: &Group) -> Result<(), RolloutError> {
        let Some(request) = self.open.get(&id) else {
            let problem = if self.answered.contains(&id) {
                "it has been answered already, expected one answer for each request"
            } else {
                "it was not asked for, or its id is another request's"
            };
            return Err(RolloutError::Answer { id, problem: problem.into() });
        };

        request.check_answer(group)?;
        self.returned += request.group_size;
        self.open.remove(&id);
        self.answered.insert(id);
        Ok(())
    }

    /// Reports the number of completions that ended, as the engine says. Each is counted once, although some are lost
    /// and sampled again, and never more than were asked for.
    fn report(&mut self, count: usize, finished: &mut dyn FnMut(usize)) {
        self.ended = self.ended.saturating_add(count).min(self.asked);
        // A count of 0 is reported too: it shows that the engine is being waited for.
        finished(self.ended.saturating_sub(self.reported));
        self.reported = self.reported.max(self.ended);
    }
}
