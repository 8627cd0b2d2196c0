//! The engine `ServerPool`, which spreads requests over inference servers and repeats failed ones.

use std::{
    collections::{BTreeMap, VecDeque},
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use firebrick_core::{Completion, Detokenizer, Group, Version};
use firebrick_rollout::{GroupRequest, RequestId, RolloutEngine, RolloutError, Wait};

use crate::{
    answer::SampledCompletion,
    connect::connect,
    dialect::{SampleRequest, seed_of},
    error::{PoolError, ServerError},
    handshake::{Probe, Publication, load},
    member::{Member, State},
    settings::Settings,
    weights::Weights,
};

/// Samples on a pool of inference servers.
///
/// A group is sent to the server with the least work, and each server gets no more than its limit of concurrent
/// completions. If a server fails to answer, the group is requested elsewhere, with the same seed. A server that fails
/// three times in a row is set aside, asked again after a while, and used again once it has shown that it has the
/// weights. If a server is silent and another has nothing to do, the other is asked too, and the first complete answer
/// counts.
///
/// A completion depends on weights, prompt, sampling and seed, as far as the servers are deterministic: machines round
/// their sums differently, and a different token may be drawn. The log-probabilities of a completion are those of the
/// server that drew it.
///
/// [`RolloutEngine::publish`] writes the weights and waits for no server: the servers load them meanwhile. Groups are
/// sent, and received, when the pool is polled.
pub struct ServerPool<M> {
    settings: Settings,
    weights: Box<dyn Weights<M>>,
    detokenizer: Arc<dyn Detokenizer>,
    notify: Box<dyn FnMut(String) + Send>,
    members: Vec<Member>,
    current: Option<Arc<Publication>>,
    fingerprint: Option<[u8; 32]>,
    version: Version,
    /// Requests that are not assigned to a server, in the order in which they are sent.
    queue: VecDeque<RequestId>,
    open: BTreeMap<RequestId, OpenRequest>,
    /// Number of requests that were sent in the run; it is a part of their names.
    sent: u64,
    events: (Sender<Event>, Receiver<Event>),
    /// How long the latest answers took, the newest first.
    recent: VecDeque<Duration>,
    /// Time of the last success.
    progress: Instant,
    done: Vec<(RequestId, Group)>,
}

/// A request without an answer.
struct OpenRequest {
    request: Arc<GroupRequest>,
    /// Servers that work on the request.
    attempts: Vec<Attempt>,
    /// How often the request failed, not counting busy servers.
    failed: usize,
    /// Servers that refused the request.
    refused: Vec<usize>,
}

impl OpenRequest {
    /// Returns how many completions are requested.
    fn size(&self) -> usize {
        self.request.group_size
    }
}

/// A server that works on a request. The attempt is removed when the server is set aside or gets other weights.
struct Attempt {
    name: String,
    member: usize,
    began: Instant,
}

enum Event {
    /// A server has answered a request, or failed to.
    Answer {
        id: RequestId,
        name: String,
        took: Duration,
        result: Result<Vec<SampledCompletion>, ServerError>,
    },
    /// A server has loaded weights, or failed to.
    Loaded { member: usize, adapter: Option<String>, result: Result<f64, ServerError> },
}

/// Number of answers whose times are kept.
const RECENT: usize = 64;

/// Upper bound on the time for which a waiting pool checks nothing.
const BEAT: Duration = Duration::from_millis(10);

impl<M> ServerPool<M> {
    /// Makes a pool that has asked no server yet. `notify` is called with news for the user: servers that are set aside
    /// and that recover.
    ///
    /// # Errors
    /// When an address is not that of a server.
    pub fn new(
        settings: Settings,
        weights: impl Weights<M> + 'static,
        detokenizer: Arc<dyn Detokenizer>,
        notify: impl FnMut(String) + Send + 'static,
    ) -> Result<Self, PoolError> {
        let member =
            |base: &String| connect(settings.dialect, base, settings.key.clone()).map(Member::new);
        let members = settings.servers.iter().map(member).collect::<Result<_, _>>()?;

        Ok(ServerPool {
            settings,
            weights: Box::new(weights),
            detokenizer,
            notify: Box::new(notify),
            members,
            current: None,
            fingerprint: None,
            version: 0,
            queue: VecDeque::new(),
            open: BTreeMap::new(),
            sent: 0,
            events: channel(),
            recent: VecDeque::new(),
            progress: Instant::now(),
            done: Vec::new(),
        })
    }

    /// Writes the weights, and makes every server that can be asked now load them.
    fn publish_new(&mut self, policy: &M, version: Version) -> Result<(), PoolError> {
        let failed = |source| PoolError::Weights { version, source };
        let folder = self.weights.write(policy, version).map_err(failed)?;

        let previous = self.current.take();
        let mut probes = Vec::new();
        for (index, tokens) in self.settings.probes.iter().enumerate() {
            let (first, others) = tokens.split_at(1);
            let now = self.weights.logprobs(policy, first, others).map_err(failed)?;
            let before =
                previous.as_ref().map_or(&now, |previous| &previous.probes[index].now).clone();
            probes.push(Probe { tokens: tokens.clone(), now, before });
        }

        let label = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.current = Some(Arc::new(Publication {
            version,
            label,
            folder: self.weights.seen_by_servers(&folder),
            here: folder.clone(),
            kind: self.weights.kind(),
            probes,
            tolerance: self.settings.tolerance,
            vocabulary: self.settings.vocabulary,
            tempered: self.settings.tempered,
            load_deadline: self.settings.load_deadline,
            deadline: self.settings.deadline,
        }));

        self.members.iter_mut().for_each(Member::renew);
        // Open requests are sampled again with the new weights, from the start.
        self.queue = self.open.keys().copied().collect();
        self.open.values_mut().for_each(|open| open.attempts.clear());

        // A server may still be reading the weights that it was sent before.
        let loading = self.members.iter().filter_map(Member::loading);
        let mut in_use: Vec<PathBuf> = loading.map(|weights| weights.here.clone()).collect();
        in_use.push(folder);
        self.weights.keep_only(&in_use);

        self.progress = Instant::now();
        self.tend();
        Ok(())
    }

    /// Does everything that can be done now, without waiting.
    fn tend(&mut self) {
        let now = Instant::now();
        for index in 0..self.members.len() {
            if self.members[index].is_due(now) {
                self.give_weights(index);
            }
        }

        while let Some(&id) = self.queue.front() {
            let Some(member) = self.least_busy(id, now, None) else { break };
            self.queue.pop_front();
            self.send(id, member, now);
        }

        if self.queue.is_empty() {
            self.ask_again(now);
        }
    }

    /// Finds the server with the least work that may take this request, and is not `but`.
    fn least_busy(&self, id: RequestId, now: Instant, but: Option<usize>) -> Option<usize> {
        let count = self.open.get(&id).map_or(0, OpenRequest::size);
        let takes = |index: &usize| {
            Some(*index) != but && self.members[*index].takes(count, self.settings.at_once, now)
        };
        (0..self.members.len()).filter(takes).min_by_key(|&index| self.members[index].outstanding)
    }

    /// Asks another server too, if one is silent for longer than answers take and another has nothing to do.
    fn ask_again(&mut self, now: Instant) {
        let Some(slowest) = self.recent.iter().max() else { return };
        let patience = self.settings.silence.max(*slowest * 3);

        let silent = |open: &OpenRequest| match open.attempts.as_slice() {
            [one] if now.duration_since(one.began) > patience => Some(one.member),
            _ => None,
        };
        let silent: Vec<(RequestId, usize)> =
            self.open.iter().filter_map(|(&id, open)| Some((id, silent(open)?))).collect();

        for (id, member) in silent {
            if let Some(other) = self.least_busy(id, now, Some(member)) {
                self.send(id, other, now);
            }
        }
    }

    fn give_weights(&mut self, index: usize) {
        let Some(publication) = self.current.clone() else { return };
        let member = &mut self.members[index];
        member.state = State::Loading { weights: publication.clone(), newer: false };
        let server = member.server.clone();
        let events = self.events.0.clone();
        let old_adapter = member.adapter.take();
        let rounding = member.rounding;

        let work = move || {
            let result = load(&*server, &publication, rounding);
            if let Some(old_adapter) = old_adapter
                .filter(|old_adapter| Some(old_adapter.as_str()) != publication.adapter())
            {
                // An old adapter only costs memory there, so a failure to remove it is ignored.
                let _ = server.unload(&old_adapter);
            }

            let adapter = publication.adapter().map(str::to_owned);
            let _ = events.send(Event::Loaded { member: index, adapter, result });
        };

        if let Err(error) = thread::Builder::new().spawn(work) {
            let why = ServerError::Unreachable(format!("cannot start a thread to ask it: {error}"));
            self.members[index].suspend(why, Instant::now(), self.settings.pause);
        }
    }

    fn send(&mut self, id: RequestId, index: usize, now: Instant) {
        let Some(publication) = self.current.clone() else { return };
        let Some(open) = self.open.get_mut(&id) else { return };

        let member = &mut self.members[index];
        self.sent += 1;
        let name = format!("{}-{}-{}", publication.label, id, self.sent);

        open.attempts.push(Attempt { name: name.clone(), member: index, began: now });
        member.outstanding += open.size();

        let server = member.server.clone();
        let request = open.request.clone();
        let events = self.events.0.clone();
        let deadline = self.settings.deadline;
        let vocabulary = self.settings.vocabulary;
        let refusals = self.events.0.clone();

        let work = {
            let name = name.clone();
            move || {
                // Without randomness all completions are the same, and servers refuse requests for more than one.
                let greedy = request.sampling.temperature == 0.0;
                let result = server.sample(&SampleRequest {
                    name: &name,
                    prompt: &request.prompt.tokens,
                    count: if greedy { 1 } else { request.group_size },
                    sampling: &request.sampling,
                    seed: seed_of(&request),
                    label: &publication.label,
                    adapter: publication.adapter(),
                    vocabulary,
                    deadline,
                });

                let result = result.map(|mut sampled| {
                    if let (true, Some(one)) = (greedy, sampled.first().cloned()) {
                        sampled.resize(request.group_size, one);
                    }
                    sampled
                });

                let _ = events.send(Event::Answer { id, name, took: now.elapsed(), result });
            }
        };

        if let Err(error) = thread::Builder::new().spawn(work) {
            let why = ServerError::Unreachable(format!("cannot start a thread to ask it: {error}"));
            let took = Duration::ZERO;
            let _ = refusals.send(Event::Answer { id, name, took, result: Err(why) });
        }
    }

    fn take(&mut self, event: Event) -> Result<(), PoolError> {
        match event {
            Event::Loaded { member, adapter, result } => {
                self.take_loaded(member, adapter, result);
                Ok(())
            }
            Event::Answer { id, name, took, result } => self.take_answer(id, &name, took, result),
        }
    }

    fn take_loaded(
        &mut self,
        index: usize,
        adapter: Option<String>,
        result: Result<f64, ServerError>,
    ) {
        let now = Instant::now();
        let pause = self.settings.pause;
        let member = &mut self.members[index];
        // The adapter is noted even if it was refused, because it may be there.
        member.adapter = adapter;

        if let State::Loading { newer: true, .. } = member.state {
            member.state = State::Due;
            return;
        }

        let base = member.server.address().base().to_owned();
        let was_out = member.times_out() > 0;

        match result {
            Ok(distance) => {
                let rounding = member.rounding.map_or(distance, |rounding| rounding.min(distance));
                member.rounding = Some(rounding);
                member.state = State::Ready;
                member.succeed();
                self.progress = now;
                if was_out {
                    (self.notify)(format!("the server {base} is used again"));
                }
            }
            Err(why) => {
                if !was_out {
                    (self.notify)(format!("the server {base} is not used: {why}"));
                }
                member.suspend(why, now, pause);
            }
        }
    }

    fn take_answer(
        &mut self,
        id: RequestId,
        name: &str,
        took: Duration,
        result: Result<Vec<SampledCompletion>, ServerError>,
    ) -> Result<(), PoolError> {
        let now = Instant::now();
        // The request may have been cancelled, answered elsewhere, or repeated with other weights.
        let Some(open) = self.open.get_mut(&id) else { return Ok(()) };
        let Some(index) = open.attempts.iter().position(|attempt| attempt.name == name) else {
            return Ok(());
        };

        let attempt = open.attempts.remove(index);
        let member = &mut self.members[attempt.member];
        member.outstanding = member.outstanding.saturating_sub(open.size());

        match result {
            Ok(sampled) => {
                member.succeed();
                self.recent.truncate(RECENT - 1);
                self.recent.push_front(took);
                self.progress = now;

                if let Some(open) = self.open.remove(&id) {
                    self.finish(open, sampled, attempt.began, now);
                }
                Ok(())
            }
            Err(ServerError::Busy { .. }) => {
                member.rests_until = Some(now + self.settings.pause);
                self.requeue(id);
                Ok(())
            }
            Err(why) => {
                open.failed += 1;
                if why.is_refusal() && !open.refused.contains(&attempt.member) {
                    open.refused.push(attempt.member);
                }

                let enough = if self.members.len() == 1 { 1 } else { 2 };
                let most = 4 + 2 * self.members.len();
                if open.refused.len() >= enough || open.failed >= most {
                    let prompt = open.request.prompt.id;
                    let server = self.members[attempt.member].server.address().base().to_owned();
                    let times = open.failed;
                    return Err(PoolError::Unanswered { prompt, times, server, source: why });
                }

                if why.has_forgotten() {
                    self.suspend(attempt.member, &why, now);
                } else {
                    self.strike(attempt.member, &why, now);
                }
                self.requeue(id);
                Ok(())
            }
        }
    }

    /// Puts a request at the head of the queue, unless another server works on it.
    fn requeue(&mut self, id: RequestId) {
        let waits = self.open.get(&id).is_some_and(|open| open.attempts.is_empty());
        if waits && !self.queue.contains(&id) {
            self.queue.push_front(id);
        }
    }

    /// Counts a server's failure, and sets the server aside if it has failed too often.
    fn strike(&mut self, index: usize, why: &ServerError, now: Instant) {
        if self.members[index].fail() {
            self.suspend(index, why, now);
        }
    }

    /// Sets a server aside, and requeues its requests.
    fn suspend(&mut self, index: usize, why: &ServerError, now: Instant) {
        let member = &mut self.members[index];
        if !member.is_ready() {
            return;
        }

        member.suspend(why.clone(), now, self.settings.pause);
        let base = member.server.address().base();
        (self.notify)(format!("the server {base} is set aside for a while: {why}"));

        let mut names = Vec::new();
        let mut waiting = Vec::new();

        for (&id, open) in &mut self.open {
            let before = open.attempts.len();
            let (theirs, others): (Vec<_>, Vec<_>) =
                std::mem::take(&mut open.attempts).into_iter().partition(|it| it.member == index);
            open.attempts = others;
            names.extend(theirs.into_iter().map(|attempt| attempt.name));
            if before > 0 && open.attempts.is_empty() {
                waiting.push(id);
            }
        }

        // The last is put at the head of the queue first, so that the order is kept.
        for id in waiting.into_iter().rev() {
            self.requeue(id);
        }

        self.abort(index, names);
    }

    /// Makes a server abort requests, without waiting for it.
    fn abort(&self, index: usize, names: Vec<String>) {
        if names.is_empty() {
            return;
        }
        let server = self.members[index].server.clone();
        // If there is no thread, the requests run to their end there.
        let _ = thread::Builder::new().spawn(move || server.abort(&names));
    }

    /// Accepts a group, whose answer was requested at `begun`. A server that was asked before that has been silent for
    /// too long.
    fn finish(
        &mut self,
        open: OpenRequest,
        sampled: Vec<SampledCompletion>,
        begun: Instant,
        now: Instant,
    ) {
        let size = open.size();
        for attempt in open.attempts {
            let member = &mut self.members[attempt.member];
            member.outstanding = member.outstanding.saturating_sub(size);
            self.abort(attempt.member, vec![attempt.name]);
            if attempt.began < begun {
                let seconds = now.duration_since(attempt.began).as_secs();
                self.strike(attempt.member, &ServerError::Silent { seconds }, now);
            }
        }

        let completion = |SampledCompletion { tokens, logprobs, finish }: SampledCompletion| {
            let text = self.detokenizer.detokenize(&tokens);
            let completion = Completion::written(tokens, logprobs, finish);
            completion.with_text(text).with_version(self.version)
        };

        let completions = sampled.into_iter().map(completion).collect();
        let request = Arc::unwrap_or_clone(open.request);
        self.done.push(request.into_group(completions));
    }

    /// Fails if nothing will end the current wait.
    fn check(&self) -> Result<(), PoolError> {
        let version = self.current.as_ref().map_or(0, |publication| publication.version);

        let lasting = |member: &Member| {
            let why = member.reason();
            member.times_out() > 1 && why.is_some_and(lasts)
        };

        if self.members.iter().all(lasting) {
            return Err(PoolError::NoneReady { version, servers: self.reasons() });
        }

        // Servers that can be used may still be busy with other people's work.
        let ready = self.members.iter().any(Member::is_ready);
        let work = if ready { self.settings.deadline } else { Duration::ZERO };

        let waited = self.progress.elapsed();
        if waited > self.settings.patience + work {
            let seconds = waited.as_secs();
            let servers = self.reasons();
            Err(PoolError::NoneLeft { seconds, servers })
        } else {
            Ok(())
        }
    }

    /// Describes each server's state, a line for each.
    fn reasons(&self) -> String {
        let line = |member: &Member| {
            let why = match (member.reason(), member.is_ready()) {
                (Some(why), _) => why.to_string(),
                (None, true) => "it has the weights, but has not answered yet".into(),
                (None, false) => "it is loading the weights".into(),
            };
            format!("  {}: {why}", member.server.address().base())
        };
        self.members.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    fn forget(&mut self) {
        let mut names: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for open in std::mem::take(&mut self.open).into_values() {
            let size = open.size();
            for Attempt { name, member, .. } in open.attempts {
                names.entry(member).or_default().push(name);
                let member = &mut self.members[member];
                member.outstanding = member.outstanding.saturating_sub(size);
            }
        }

        for (member, names) in names {
            self.abort(member, names);
        }

        self.queue.clear();
        self.done.clear();
    }
}

/// Tells whether a server will answer the same when it is asked again.
fn lasts(why: &ServerError) -> bool {
    matches!(
        why,
        ServerError::Refused { .. }
            | ServerError::OtherWeights { .. }
            | ServerError::OldWeights { .. }
            | ServerError::OtherLogprobs { .. }
    )
}

impl<M> RolloutEngine<M> for ServerPool<M> {
    fn publish(&mut self, policy: &M, version: u64) -> Result<(), RolloutError> {
        let fingerprint = self.weights.fingerprint(policy);
        let same = fingerprint.is_some() && fingerprint == self.fingerprint;
        self.version = version;
        if same && self.current.is_some() {
            return Ok(());
        }

        // If this publication fails, the next one must not look as if it had been done.
        self.fingerprint = None;
        self.publish_new(policy, version).map_err(|error| RolloutError::engine(error, false))?;
        self.fingerprint = fingerprint;
        Ok(())
    }

    fn submit(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        for request in &requests {
            request.check()?;
            if self.open.contains_key(&request.id) {
                let problem = "has the id of another request in flight".into();
                return Err(RolloutError::Request { id: request.id, problem });
            }
        }

        if self.open.is_empty() {
            self.progress = Instant::now();
        }

        for request in requests {
            let id = request.id;
            let request = OpenRequest {
                request: Arc::new(request),
                attempts: Vec::new(),
                failed: 0,
                refused: Vec::new(),
            };
            self.open.insert(id, request);
            self.queue.push_back(id);
        }

        self.tend();
        Ok(())
    }

    fn poll(
        &mut self,
        wait: Wait,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<(RequestId, Group)>, RolloutError> {
        let mut first = None;
        loop {
            let events: Vec<Event> =
                first.take().into_iter().chain(self.events.1.try_iter()).collect();

            let taken = events.into_iter().try_for_each(|event| self.take(event));
            self.tend();

            let waits = self.done.is_empty() && !self.open.is_empty();
            let checked = taken.and_then(|()| if waits { self.check() } else { Ok(()) });
            if let Err(error) = checked {
                self.forget();
                return Err(RolloutError::engine(error, false));
            }

            if !waits || wait == Wait::Never {
                break;
            }
            first = self.events.1.recv_timeout(BEAT).ok();
        }

        let done = std::mem::take(&mut self.done);
        if !done.is_empty() {
            finished(done.iter().map(|(_, group)| group.completions.len()).sum());
        }
        Ok(done)
    }

    /// A server whose weights were checked may still sample with other numbers, or begin to do so later.
    fn tolerance(&self) -> Option<f64> {
        Some(self.settings.tolerance)
    }

    fn cancel(&mut self) {
        self.forget();
    }
}

impl<M> Drop for ServerPool<M> {
    fn drop(&mut self) {
        self.forget();
    }
}
