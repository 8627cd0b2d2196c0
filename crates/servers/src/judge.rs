//! A language model as a judge, behind an address that speaks OpenAI's protocol for chats.

mod answer;

use std::{
    collections::HashMap,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use firebrick_core::{
    Completion, Key, Metrics, Prompt, Reason, Score, Verdict, Verifier, VerifierFailed,
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

pub use answer::AnswerForm;

use crate::{
    errands::{Complaints, Errand, Settle, spread},
    error::{PoolError, ServerError},
    http::Address,
};

/// A verifier that asks a language model.
///
/// An answer that is not understood, even after some more tries, is no verdict. So is a question that the servers refuse,
/// or fail again and again although they are there. If no server answers at all, the run ends. Equal questions are asked
/// once.
///
/// The completion is untrusted: it may tell the judge what to answer. Nothing can keep a model from listening, but
/// nothing in the completion is ever taken for the judge's own words, and a rubric can put it between two lines that it
/// cannot foresee.
pub struct ChatJudge {
    settings: JudgeSettings,
    servers: Arc<[Address]>,
    rubric: Rubric,
    answers: Arc<dyn Answers>,
    costs: Arc<Mutex<Metrics>>,
    complaints: Arc<Complaints>,
    cancelled: AtomicBool,
}

/// Whom a judge asks, and how.
#[derive(Clone, Debug)]
pub struct JudgeSettings {
    /// Addresses of servers of the same model, such as `http://127.0.0.1:8000/v1`; at least one.
    pub servers: Vec<String>,
    /// Key for access to the servers, if they ask for one.
    pub key: Option<Key>,
    /// Name of the model.
    pub model: String,
    /// Message of the system, if there is one.
    pub system: Option<String>,
    /// What the model is to answer.
    pub answer: AnswerForm,
    /// Smallest credit of a completion that counts as right.
    pub threshold: f64,
    /// Temperature that the answer is sampled at; by default the server decides.
    pub temperature: Option<f64>,
    /// Limit of the answer's tokens.
    pub max_tokens: usize,
    /// Further fields of the request, or other values for those that it has.
    pub extra_body: Map<String, Value>,
    /// How many completions a server judges concurrently.
    pub at_once: usize,
    /// How long an answer may take.
    pub deadline: Duration,
    /// How often an answer that is not understood is asked for again.
    pub retries: u32,
    /// How long no server may answer before the run ends.
    pub patience: Duration,
    /// Prices of a million tokens, of the questions and of the answers, in any currency.
    pub prices: [f64; 2],
}

/// Makes a judge's question of a prompt and a completion. The third argument is the [`fence`] of the completion.
///
/// # Errors
/// Says why there is none.
pub type Rubric = Box<dyn Fn(&Prompt, &Completion, &str) -> Result<String, String> + Send + Sync>;

/// Answers that a judge has given before, so that it is asked nothing twice.
pub trait Answers: Send + Sync {
    /// Returns the answer to the question of this name.
    fn find(&self, question: &str) -> Option<String>;

    /// Keeps an answer, which is a line of at most 200 characters.
    fn keep(&self, question: &str, answer: &str);
}

/// Returns a word that a completion cannot contain but by chance, because it is made from the completion itself.
pub fn fence(prompt: &Prompt, completion: &Completion) -> String {
    let mut hash = Sha256::new();
    hash.update(prompt.id.to_le_bytes());
    hash.update(completion.text.as_bytes());
    let hash: [u8; 32] = hash.finalize().into();
    hash[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Path of a request, after an address that ends in `/v1`.
const CHAT: &str = "/chat/completions";

/// How long servers may fail before a run.
pub const TRIAL: Duration = Duration::from_secs(20);

/// Limit in bytes of an answer. Judges think aloud.
const LARGEST: u64 = 4 << 20;

/// The line of an answer that says the verdict, or why there is none.
type Outcome = Result<String, String>;

impl ChatJudge {
    /// Makes a judge. Nobody is asked anything yet. Failures that are waited out, and the first completion without a
    /// verdict, are notes for the user, through `tell`.
    ///
    /// # Errors
    /// When an address is not that of a server.
    pub fn new(
        settings: JudgeSettings,
        rubric: Rubric,
        answers: Arc<dyn Answers>,
        tell: impl Fn(String) + Send + Sync + 'static,
    ) -> Result<Self, PoolError> {
        let address = |base: &String| Address::new(base, settings.key.clone());
        let servers = settings.servers.iter().map(address).collect::<Result<_, _>>()?;
        let costs = Arc::default();
        let cancelled = AtomicBool::new(false);
        let complaints = Arc::new(Complaints::new(Box::new(tell)));
        Ok(ChatJudge { settings, servers, rubric, answers, costs, complaints, cancelled })
    }

    fn judge(
        &self,
        pairs: &[(&Prompt, &Completion)],
        patience: Duration,
    ) -> Result<Vec<Score>, VerifierFailed> {
        // A judgement that was cancelled is over by the time that the next one begins.
        self.cancelled.store(false, Ordering::Relaxed);

        // The name of each pair's question, or why it has none.
        let mut names = Vec::with_capacity(pairs.len());
        let mut outcomes: HashMap<String, Outcome> = HashMap::new();
        let mut open: Vec<(String, Value)> = Vec::new();
        for &(prompt, completion) in pairs {
            let question = (self.rubric)(prompt, completion, &fence(prompt, completion));
            let body = question.map(|question| self.settings.body(&question));
            let name = body.as_ref().map(name_of).map_err(String::clone);
            if let (Ok(name), Ok(body)) = (&name, body)
                && !outcomes.contains_key(name)
                && !open.iter().any(|(other, _)| other == name)
            {
                match self.answers.find(name) {
                    Some(line) if self.settings.answer.read(&line).is_ok() => {
                        outcomes.insert(name.clone(), Ok(line));
                    }
                    _ => open.push((name.clone(), body)),
                }
            }
            names.push(name);
        }

        let asked = open.len();
        count(&self.costs, "judge/cached", (names.iter().flatten().count() - asked) as f64);
        let open_names: Vec<String> = open.iter().map(|(name, _)| name.clone()).collect();
        for (name, outcome) in open_names.into_iter().zip(self.ask(open, patience)?) {
            if let Err(why) = &outcome {
                self.complaints.say(|| format!("a completion has no verdict: {why}"));
            }
            outcomes.insert(name, outcome);
        }

        let score = |name: Result<String, String>| {
            let outcome = name.and_then(|name| outcomes[&name].clone());
            match outcome.and_then(|line| self.settings.answer.read(&line)) {
                Ok(credit) => {
                    let right = credit >= self.settings.threshold;
                    let verdict = if right { Verdict::Right } else { Verdict::Wrong };
                    Score::partial(verdict, credit as f32, "")
                }
                Err(problem) => Score::partial(Verdict::Error, 0.0, problem),
            }
        };
        Ok(names.into_iter().map(score).collect())
    }

    /// Asks all questions, which differ from each other and come with their names. Each answer is kept when it comes, so
    /// that none is lost if the run ends meanwhile.
    fn ask(
        &self,
        open: Vec<(String, Value)>,
        patience: Duration,
    ) -> Result<Vec<Outcome>, VerifierFailed> {
        let at_once = self.settings.at_once;
        let (count, settings, costs) = (open.len(), self.settings.clone(), self.costs.clone());
        let answers = self.answers.clone();
        let ask: Arc<Errand<Address, Outcome>> = Arc::new(move |server, question| {
            let (name, body) = &open[question];
            let outcome = settings.ask(server, body, &costs)?;
            if let Ok(line) = &outcome {
                answers.keep(name, line);
            }
            Ok(outcome)
        });
        let (complaints, bases) = (self.complaints.clone(), self.settings.servers.clone());
        let settle: Arc<Settle<Outcome>> = Arc::new(move |server, error, own_fault| match error {
            // A wrong key or an unknown model does not become right.
            ServerError::Refused { status: 401 | 403 | 404, .. } => Some(Err(error.clone())),
            // Other questions may be answered, so the run goes on without this verdict.
            ServerError::Refused { .. } => Some(Ok(Err(error.to_string()))),
            _ if own_fault => Some(Ok(Err(error.to_string()))),
            _ => {
                complaints.say(|| {
                    let (base, seconds) = (&bases[server], patience.as_secs());
                    format!(
                        "the judge at {base}: {error}; it is asked again, for {seconds} s at most"
                    )
                });
                None
            }
        });

        let cancelled = || self.cancelled.load(Ordering::Relaxed);
        let asked = spread(&self.servers, count, at_once, patience, &ask, &settle, &cancelled);
        let asked = asked.map_err(|failure| {
            let server = self.servers[failure.server].base();
            let hint = match failure.source.has_forgotten() && !server.ends_with("/v1") {
                true => " (such an address usually ends in /v1)",
                false => "",
            };
            let sentence =
                format!("the judge at {server} can't be asked: {}{hint}", failure.source);
            VerifierFailed::Failed(Reason::with_source(sentence, failure.source))
        })?;
        asked.ok_or(VerifierFailed::Interrupted)
    }
}

impl JudgeSettings {
    /// Makes the request. Equal questions make equal requests.
    fn body(&self, question: &str) -> Value {
        let system = self.system.iter().map(|it| json!({"role": "system", "content": it}));
        let messages: Vec<Value> =
            system.chain([json!({"role": "user", "content": question})]).collect();

        let mut body = json!({"model": self.model, "messages": messages});
        if let Some(temperature) = self.temperature {
            body["temperature"] = temperature.into();
        }
        // Some services have another name for it, and refuse both.
        if !self.extra_body.contains_key("max_completion_tokens") {
            body["max_tokens"] = self.max_tokens.into();
        }
        for (field, value) in &self.extra_body {
            body[field] = value.clone();
        }
        body
    }

    /// Asks one question until its answer is understood, or there were enough tries.
    fn ask(
        &self,
        server: &Address,
        body: &Value,
        costs: &Mutex<Metrics>,
    ) -> Result<Outcome, ServerError> {
        let mut problem = String::new();
        for attempt in 0..=self.retries {
            count(costs, "judge/requests", 1.0);
            count(costs, "judge/retries", f64::from(u8::from(attempt > 0)));
            let reply = server.post(CHAT, body, self.deadline, LARGEST)?;

            let kinds = ["prompt_tokens", "completion_tokens"];
            for (kind, price) in kinds.into_iter().zip(self.prices) {
                let tokens = reply["usage"][kind].as_u64().unwrap_or(0) as f64;
                count(costs, &format!("judge/{kind}"), tokens);
                count(costs, "judge/cost", tokens * price / 1e6);
            }

            let choice = &reply["choices"][0];
            if !choice.is_object() {
                let problem = "it has no choices".to_owned();
                return Err(ServerError::Answer { request: CHAT, problem });
            }
            if choice["finish_reason"] == "length" {
                problem = "the judge's answer was cut off: raise max_tokens".into();
                continue;
            }
            // A model that only thought, or that refused, has no text.
            let text = choice["message"]["content"].as_str().unwrap_or_default();
            let line = self.answer.last_line(text);
            match self.answer.read(&line) {
                Ok(_) => return Ok(Ok(line)),
                Err(unclear) => problem = unclear,
            }
        }
        Ok(Err(problem))
    }
}

/// Returns a name for a request, which no other request has.
fn name_of(body: &Value) -> String {
    let hash: [u8; 32] = Sha256::digest(body.to_string()).into();
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn count(costs: &Mutex<Metrics>, name: &str, number: f64) {
    lock(costs).add(name, number);
}

fn lock(costs: &Mutex<Metrics>) -> MutexGuard<'_, Metrics> {
    costs.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Verifier for ChatJudge {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        let patience = self.settings.patience;
        match self.judge(&[(prompt, completion)], patience).map(|mut scores| scores.pop()) {
            Ok(Some(score)) => score,
            Ok(None) => Score::none(Verdict::Error),
            Err(failed) => Score::partial(Verdict::Error, 0.0, failed.to_string()),
        }
    }

    fn score_all(&self, pairs: &[(&Prompt, &Completion)]) -> Result<Vec<Score>, VerifierFailed> {
        self.judge(pairs, self.settings.patience)
    }

    /// Waits for no more than [`TRIAL`] for a server: before a run somebody watches.
    fn probe(&self, prompt: &Prompt, completion: &Completion) -> Result<(), VerifierFailed> {
        match self.judge(&[(prompt, completion)], self.settings.patience.min(TRIAL))?.pop() {
            Some(Score { verdict: Verdict::Wrong, .. }) if !completion.text.is_empty() => {
                self.complaints.say(|| {
                    format!(
                        "the judge does not find the first reference right: {:?}",
                        completion.text
                    )
                });
                Ok(())
            }
            Some(Score { verdict: Verdict::Error, extracted, .. }) => {
                Err(VerifierFailed::Failed(extracted.into()))
            }
            _ => Ok(()),
        }
    }

    fn take_costs(&self) -> Metrics {
        mem::take(&mut *lock(&self.costs))
    }

    fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}
