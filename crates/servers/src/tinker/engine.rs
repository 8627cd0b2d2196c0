//! The engine `TinkerEngine`, which samples from an adapter on the server that trains it.

use std::{
    collections::{BTreeMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use firebrick_core::{Completion, Detokenizer, Group, Version};
use firebrick_rollout::{GroupRequest, RequestId, RolloutEngine, RolloutError, Wait};
use serde_json::{Value, json};

use super::{
    client::{Call, Ends, Repeat, no_thread},
    error::TinkerError,
    model::TinkerModel,
    session::TinkerSession,
    wire::ModelInput,
};
use crate::{
    answer::{CompletionRules, SampledCompletion, numbers},
    dialect::seed_of,
    error::ServerError,
    http::SMALL,
};

/// Samples from a [`TinkerModel`].
///
/// A completion depends on weights, prompt, sampling and seed, as far as the server is deterministic.
/// [`RolloutEngine::publish`] makes the server keep the weights of now for sampling, unless it has them already.
pub struct TinkerEngine {
    detokenizer: Arc<dyn Detokenizer>,
    /// Number of completions that the server works on concurrently, unless a single group has more.
    at_once: usize,
    tolerance: f64,
    published: Option<Published>,
    version: Version,
    queue: VecDeque<Arc<GroupRequest>>,
    /// Requests that the server works on.
    open: BTreeMap<RequestId, Arc<GroupRequest>>,
    /// Set when what is open now is forgotten. Answers that come later are dropped.
    forgotten: Arc<AtomicBool>,
    answers: (Sender<Answer>, Receiver<Answer>),
}

/// Weights that are sampled from.
struct Published {
    session: Arc<TinkerSession>,
    model: String,
    changes: u64,
    sampler: Arc<str>,
}

struct Answer {
    forgotten: Arc<AtomicBool>,
    id: RequestId,
    result: Result<Vec<SampledCompletion>, TinkerError>,
}

const SAMPLE: Call<'_> = Call {
    task: "sample",
    path: "/api/v1/asample",
    repeat: Repeat::Always,
    ends: Ends::WithRun,
    limit: SMALL,
};

/// How long a waiting engine waits for one answer until it looks again.
const BEAT: Duration = Duration::from_millis(50);

impl TinkerEngine {
    /// Makes an engine that has no weights yet. The server gets requests for up to `at_once` completions at a time.
    /// Their log-probabilities may be `tolerance` nats from the model's, in the mean.
    pub fn new(detokenizer: Arc<dyn Detokenizer>, at_once: usize, tolerance: f64) -> Self {
        TinkerEngine {
            detokenizer,
            at_once,
            tolerance,
            published: None,
            version: 0,
            queue: VecDeque::new(),
            open: BTreeMap::new(),
            forgotten: Arc::default(),
            answers: channel(),
        }
    }

    /// Sends as many requests as the server may have.
    fn send(&mut self) {
        let Some(published) = &self.published else { return };
        loop {
            let running: usize = self.open.values().map(|request| request.group_size).sum();
            let fits = |request: &&Arc<GroupRequest>| {
                running == 0 || running + request.group_size <= self.at_once
            };
            let Some(request) = self.queue.front().filter(fits).cloned() else { break };
            self.queue.pop_front();
            self.open.insert(request.id, request.clone());

            let (session, sampler) = (published.session.clone(), published.sampler.clone());
            let (forgotten, answers) = (self.forgotten.clone(), self.answers.0.clone());
            let (id, failures) = (request.id, answers.clone());
            let work = {
                let forgotten = forgotten.clone();
                move || {
                    // Whoever polls must hear of a panic, too.
                    let sampled = || sample(&session, &sampler, &request, &forgotten);
                    let result = catch_unwind(AssertUnwindSafe(sampled)).unwrap_or_else(|_| {
                        let source = ServerError::Lost("the request's thread has died".into());
                        Err(session.client.failed(SAMPLE.task, source))
                    });
                    let _ = answers.send(Answer { forgotten, id, result });
                }
            };
            if let Err(error) = thread::Builder::new().spawn(work) {
                let result = Err(published.session.client.failed(SAMPLE.task, no_thread(&error)));
                let _ = failures.send(Answer { forgotten, id, result });
            }
        }
    }

    fn take(&mut self, answer: Answer) -> Result<Option<(RequestId, Group)>, TinkerError> {
        if answer.forgotten.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Some(request) = self.open.remove(&answer.id) else { return Ok(None) };
        let completion = |sampled: SampledCompletion| {
            let text = self.detokenizer.detokenize(&sampled.tokens);
            let written = Completion::written(sampled.tokens, sampled.logprobs, sampled.finish);
            written.with_text(text).with_version(self.version)
        };
        let completions = answer.result?.into_iter().map(completion).collect();
        Ok(Some(Arc::unwrap_or_clone(request).into_group(completions)))
    }

    fn forget(&mut self) {
        std::mem::take(&mut self.forgotten).store(true, Ordering::Relaxed);
        self.queue.clear();
        self.open.clear();
    }
}

/// Asks for a group and waits for it.
fn sample(
    session: &TinkerSession,
    sampler: &str,
    request: &GroupRequest,
    forgotten: &AtomicBool,
) -> Result<Vec<SampledCompletion>, TinkerError> {
    let sampling = &request.sampling;
    // Without randomness all completions are the same.
    let greedy = sampling.temperature == 0.0;
    let count = if greedy { 1 } else { request.group_size };
    let top_k = if sampling.top_k == 0 { -1 } else { sampling.top_k as i64 };
    // Seeds count up from it, and servers keep them in 31 bits.
    let seed = seed_of(request) >> 32;
    let body = json!({
        "sampling_session_id": sampler,
        "seq_id": session.next(),
        "num_samples": count,
        "prompt": ModelInput::new(request.prompt.tokens.iter().copied()),
        "sampling_params": {
            "max_tokens": sampling.max_completion_tokens,
            "seed": seed,
            "stop": sampling.stop,
            "temperature": sampling.temperature,
            "top_k": top_k,
            "top_p": sampling.top_p,
        },
        "type": "sample",
    });

    let tokens = count.saturating_mul(sampling.max_completion_tokens);
    let limit = SMALL + tokens.saturating_mul(100) as u64;
    let call = Call { ends: Ends::With(forgotten), limit, ..SAMPLE };
    let result = session.client.run(call, &body)?;
    let vocabulary = session.settings.vocabulary;
    let rules = CompletionRules { request: SAMPLE.path, sampling, vocabulary };
    let mut completions =
        read(&rules, &result, count).map_err(|error| session.client.failed(SAMPLE.task, error))?;
    if let (true, Some(one)) = (greedy, completions.first().cloned()) {
        completions.resize(request.group_size, one);
    }
    Ok(completions)
}

fn read(
    rules: &CompletionRules<'_>,
    result: &Value,
    count: usize,
) -> Result<Vec<SampledCompletion>, ServerError> {
    let sequences = result["sequences"].as_array();
    let sequences = sequences.ok_or_else(|| rules.wrong("it has no sequences".into()))?;
    let read = |(index, sequence): (usize, &Value)| {
        let logprobs = sequence["logprobs"].as_array();
        let logprobs = numbers(logprobs.into_iter().flatten().map(Value::as_f64));
        let finish = sequence["stop_reason"].as_str();
        Ok((index, rules.check(index, &sequence["tokens"], logprobs, finish)?))
    };
    let read = sequences.iter().take(count + 1).enumerate().map(read);
    rules.in_order(count, read.collect::<Result<_, _>>()?)
}

impl<P: AsRef<TinkerModel>> RolloutEngine<P> for TinkerEngine {
    fn publish(&mut self, policy: &P, version: Version) -> Result<(), RolloutError> {
        let policy = policy.as_ref();
        self.version = version;
        let changes = policy.changes();
        let has = |it: &Published| it.model == policy.id() && it.changes == changes;
        if self.published.as_ref().is_some_and(has) {
            return Ok(());
        }

        self.published = None;
        let sampler = policy.publish().map_err(|error| RolloutError::engine(error, false))?.into();
        let (session, model) = (policy.session().clone(), policy.id().to_owned());
        self.published = Some(Published { session, model, changes, sampler });
        Ok(())
    }

    fn submit(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        if self.published.is_none() {
            return Err(RolloutError::NoWeights);
        }
        for request in &requests {
            request.check()?;
            let waits = self.queue.iter().any(|other| other.id == request.id);
            if waits || self.open.contains_key(&request.id) {
                let problem = "has the id of another request in flight".into();
                return Err(RolloutError::Request { id: request.id, problem });
            }
        }
        self.queue.extend(requests.into_iter().map(Arc::new));
        self.send();
        Ok(())
    }

    fn poll(
        &mut self,
        wait: Wait,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<(RequestId, Group)>, RolloutError> {
        let mut groups = Vec::new();
        loop {
            let first = match wait {
                Wait::ForGroup if groups.is_empty() && !self.open.is_empty() => {
                    self.answers.1.recv_timeout(BEAT).ok()
                }
                _ => None,
            };
            let answers: Vec<Answer> = first.into_iter().chain(self.answers.1.try_iter()).collect();
            for answer in answers {
                match self.take(answer) {
                    Ok(group) => groups.extend(group),
                    Err(error) => {
                        self.forget();
                        return Err(match error {
                            TinkerError::Interrupted => RolloutError::Interrupted,
                            error => {
                                let again = error.may_pass();
                                RolloutError::engine(error, again)
                            }
                        });
                    }
                }
            }
            self.send();
            if wait == Wait::Never || !groups.is_empty() || self.open.is_empty() {
                break;
            }
        }

        if !groups.is_empty() {
            finished(groups.iter().map(|(_, group)| group.completions.len()).sum());
        }
        Ok(groups)
    }

    fn tolerance(&self) -> Option<f64> {
        Some(self.tolerance)
    }

    fn cancel(&mut self) {
        self.forget();
    }
}
