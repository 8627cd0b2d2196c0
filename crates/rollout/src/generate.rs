use std::collections::BTreeMap;

use firebrick_core::Group;

use crate::{GroupRequest, RequestId, RolloutEngine, RolloutError, Wait};

/// How often in a row [`generate`] submits again what an engine lost.
pub const RETRIES: usize = 3;

/// Submits `requests`, waits until all are answered, and gives the groups in the order of the
/// requests: for callers who have nothing else to do meanwhile, and nothing else in flight.
///
/// An engine's answers are checked ([`GroupRequest::check_answer`]). Work that it lost
/// ([`RolloutError::Engine`], where that is `retryable`) is submitted again, up to [`RETRIES`] times in
/// a row without an answer between them: a completion follows from its seed, so the second time it is the same. `finished` hears how many
/// completions have come to their end since it was last called, each of them once.
///
/// # Errors
/// When a request asks for nothing or has the id of another, an answer is none to it, or the engine
/// fails. What is in flight then is cancelled ([`RolloutEngine::cancel`]).
pub fn generate<M>(
    engine: &mut dyn RolloutEngine<M>,
    requests: Vec<GroupRequest>,
    finished: &mut dyn FnMut(usize),
) -> Result<Vec<Group>, RolloutError> {
    let mut asked = Asked::new(requests, finished)?;
    let (mut lost, mut answered) = (0, 0);
    while let Err(error) = asked.fetch(engine) {
        let before = std::mem::replace(&mut answered, asked.answered());
        lost = if answered > before { 1 } else { lost + 1 };
        match error {
            RolloutError::Engine { retryable: true, .. } if lost <= RETRIES => {}
            RolloutError::Engine { retryable: true, source } => {
                return Err(RolloutError::GivenUp { times: lost, source });
            }
            other => {
                engine.cancel();
                return Err(other);
            }
        }
    }
    Ok(asked.groups.into_iter().flatten().collect())
}

/// Requests, and what has come of them.
struct Asked<'a> {
    requests: Vec<GroupRequest>,
    /// Beside the requests.
    groups: Vec<Option<Group>>,
    places: BTreeMap<RequestId, usize>,
    finished: &'a mut dyn FnMut(usize),
    /// Completions that have ended since the last time of submitting, and those of answered requests.
    heard: usize,
    /// How many of them were passed on.
    told: usize,
}

impl<'a> Asked<'a> {
    fn new(
        requests: Vec<GroupRequest>,
        finished: &'a mut dyn FnMut(usize),
    ) -> Result<Self, RolloutError> {
        let mut places = BTreeMap::new();
        for (place, request) in requests.iter().enumerate() {
            request.check()?;
            if places.insert(request.id, place).is_some() {
                let problem = "has the id of another request, expected one of its own".into();
                return Err(RolloutError::Request { id: request.id, problem });
            }
        }
        let groups = vec![None; requests.len()];
        Ok(Asked { requests, groups, places, finished, heard: 0, told: 0 })
    }

    /// Submits what has no answer yet, and waits for it.
    fn fetch<M>(&mut self, engine: &mut dyn RolloutEngine<M>) -> Result<(), RolloutError> {
        let pairs = self.requests.iter().zip(&self.groups);
        let open: Vec<GroupRequest> = pairs
            .filter(|(_, group)| group.is_none())
            .map(|(request, _)| request.clone())
            .collect();
        if open.is_empty() {
            return Ok(());
        }
        self.heard = self.answered();
        engine.submit(open)?;
        while let Some(place) = self.groups.iter().position(Option::is_none) {
            let answers = engine.poll(Wait::ForGroup, &mut |count| self.hear(count))?;
            // It would be asked for ever.
            if answers.is_empty() {
                let id = self.requests[place].id;
                let problem = "the engine says that nothing is in flight, expected a group".into();
                return Err(RolloutError::Answer { id, problem });
            }
            for (id, group) in answers {
                self.take(id, group)?;
            }
            self.hear(self.answered().saturating_sub(self.heard));
        }
        Ok(())
    }

    fn take(&mut self, id: RequestId, group: Group) -> Result<(), RolloutError> {
        let wrong = |problem: &str| Err(RolloutError::Answer { id, problem: problem.into() });
        let Some(&place) = self.places.get(&id) else {
            return wrong("it was not asked for, or its id is another's");
        };
        if self.groups[place].is_some() {
            return wrong("it has come before, expected one answer for each request");
        }
        self.requests[place].check_answer(&group)?;
        self.groups[place] = Some(group);
        Ok(())
    }

    /// Passes on what an engine says has ended: once, although some are lost and come again, and no
    /// more than were asked for.
    fn hear(&mut self, count: usize) {
        let total = self.requests.iter().map(|request| request.group_size).sum();
        self.heard = self.heard.saturating_add(count).min(total);
        if self.heard > self.told {
            (self.finished)(self.heard - self.told);
            self.told = self.heard;
        }
    }

    /// Completions of the requests that have an answer.
    fn answered(&self) -> usize {
        let pairs = self.requests.iter().zip(&self.groups).filter(|(_, group)| group.is_some());
        pairs.map(|(request, _)| request.group_size).sum()
    }
}
