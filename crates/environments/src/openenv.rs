//! Other people's environments on OpenEnv servers, reached over a WebSocket.

mod keeper;
mod session;
mod tasks;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use firebrick_core::{
    Environment, EnvironmentFailed, Episode, Key, Prompt, Reason, Reply, TaskCounts,
};
use firebrick_data::{DataError, TextTemplate};
use serde_json::{Map, Value, json};

use self::{
    keeper::Keeper,
    session::{Address, Answer, LARGEST, RequestError, Session},
    tasks::Tasks,
};

pub use tasks::TaskSplits;

/// Addresses of an environment's servers, and how to talk with them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// At least one server's address, such as `http://a:8000`.
    pub servers: Vec<String>,
    /// Number of episodes that each server plays concurrently, at least 1.
    pub sessions: usize,
    /// Templates that turn texts into messages and back.
    pub templates: Templates,
    /// Time that a server may take for a message. The system resolves the server's name, and has its own limit for
    /// that.
    pub time_limit: Duration,
    /// Time for which no episode may be played although one is wanted, before the run ends.
    pub patience: Duration,
    /// Key for access to the servers, if they ask for one.
    pub key: Option<Key>,
    /// True if prompts are the openings of episodes. An episode's opening is then compared with its prompt.
    pub asks: bool,
    /// The environment's tasks, if episodes are of tasks that it lists.
    pub tasks: Option<TaskSplits>,
}

/// Templates of the messages that are sent and observed, in the language of chat templates.
#[derive(Clone, Debug)]
pub struct Templates {
    /// JSON object with which an episode is reset. Variables: `id` and `seed`, two numbers that depend on the prompt,
    /// the second below 2³¹; `reference` and `question`, two texts; `split` and `index` of the episode's task, if it
    /// has one.
    pub reset: String,
    /// JSON object of an action. Variables: `completion`, the policy's text in its turn; `turn`, counted from 1.
    pub action: String,
    /// Text that the policy observes. Variables: `observation`, an object; `reward`, a number or none; `done`.
    pub observation: String,
    /// Text with which an episode begins. Variables: those of `observation`.
    pub opening: String,
}

/// Why an environment of servers can't be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenEnvError {
    /// An address is not a server's address.
    #[error(
        "`{address}` is not a server's address, expected one such as http://127.0.0.1:8000, without name, password or `?`"
    )]
    Address {
        /// Address as it was given.
        address: String,
    },
    /// The key can't be sent.
    #[error(
        "the environment's API key has characters that an HTTP header can't have, such as a line break"
    )]
    Key,
    /// A template is not valid.
    #[error(transparent)]
    Template(#[from] DataError),
    /// The thread for the connections can't be started.
    #[error("cannot start a thread for the environment's connections: {0}")]
    Thread(#[from] std::io::Error),
}

/// How often an episode is replayed because its connection was lost.
const RETRIES: usize = 2;

/// Time that servers have to close their connections.
const FAREWELL: Duration = Duration::from_millis(500);

/// How many characters of a server's text are kept for a message.
const WORDS: usize = 300;

/// Environments on servers that speak OpenEnv (as its version 0.10.0 does). Each connection to `/ws` has its own
/// environment, in which one episode is played after the other.
///
/// An episode begins with `{"type": "reset"}` and continues with `{"type": "step"}`, each with its `data`. The same
/// servers' plain HTTP paths, `/reset` and `/step`, create an environment for every request, so they can't hold an
/// episode of several turns.
///
/// If a server does not answer, or plays as many episodes as it can, others are asked while it gets no requests for
/// some time ([`EnvironmentFailed::Busy`]). An episode whose connection breaks is replayed from its beginning with the
/// same actions, because an environment should depend on them alone. If it then answers differently, the completion has
/// no verdict.
pub struct OpenEnv(Arc<Inner>);

struct Inner {
    servers: Vec<Server>,
    sessions: usize,
    reset: Template,
    action: Template,
    observation: Template,
    opening: Template,
    time_limit: Duration,
    patience: Duration,
    key: Option<Key>,
    asks: bool,
    tasks: Option<Tasks>,
    keeper: Keeper,
    /// Number of episodes that have begun and hold their slots.
    playing: AtomicUsize,
    /// Since when no episode could be played although one was wanted; `None` while one is played.
    nobody_since: Mutex<Option<Instant>>,
    /// True once an action had the format that the environment expects.
    understood: AtomicBool,
    tell: Box<dyn Fn(String) + Send + Sync>,
}

/// A template. As long as it has never rendered a text, a failure is the recipe's fault, and every episode would fail.
struct Template {
    template: TextTemplate,
    worked: AtomicBool,
}

struct Server {
    address: Address,
    /// Number of episodes that the server plays.
    open: AtomicUsize,
    /// Number of consecutive failures of the server.
    failures: AtomicUsize,
    /// True once the server had no room for an episode within `sessions`.
    full: AtomicBool,
    /// Connections whose episodes are over. The next episodes begin there.
    idle: Mutex<Vec<Session>>,
}

impl OpenEnv {
    /// Checks addresses and templates without asking a server. `tell` is called about servers that fail and that
    /// recover.
    ///
    /// # Errors
    /// When an address, the key or a template is not valid, or the thread can't be started.
    pub fn new(
        settings: Settings,
        tell: impl Fn(String) + Send + Sync + 'static,
    ) -> Result<Self, OpenEnvError> {
        let Settings { servers, sessions, templates, time_limit, patience, key, asks, tasks } =
            settings;
        let server = |base: String| {
            let address = Address::new(&base, key.as_ref())?;
            Ok(Server {
                address,
                open: AtomicUsize::new(0),
                failures: AtomicUsize::new(0),
                full: AtomicBool::new(false),
                idle: Mutex::default(),
            })
        };
        let text = |name: &str, text: &str| -> Result<Template, OpenEnvError> {
            let template = TextTemplate::new(format!("environment.{name}"), text)?;
            Ok(Template { template, worked: AtomicBool::new(false) })
        };

        Ok(OpenEnv(Arc::new(Inner {
            servers: servers.into_iter().map(server).collect::<Result<_, OpenEnvError>>()?,
            sessions: sessions.max(1),
            reset: text("reset", &templates.reset)?,
            action: text("action", &templates.action)?,
            observation: text("observation", &templates.observation)?,
            opening: text("opening", &templates.opening)?,
            time_limit,
            patience,
            key,
            asks,
            tasks: tasks.map(Tasks::new),
            keeper: Keeper::new()?,
            playing: AtomicUsize::new(0),
            nobody_since: Mutex::default(),
            understood: AtomicBool::new(false),
            tell: Box::new(tell),
        })))
    }
}

impl Environment for OpenEnv {
    fn begin(&self, prompt: &Prompt) -> Result<Box<dyn Episode>, EnvironmentFailed> {
        let inner = &self.0;
        let mut variables = Map::new();
        variables.insert("id".into(), prompt.id.into());
        // The seed fits a signed number of 32 bits.
        variables.insert("seed".into(), (prompt.id % (1 << 31)).into());
        variables.insert("reference".into(), prompt.reference.clone().into());
        variables.insert("question".into(), prompt.question_text().into());
        if let Some(tasks) = &inner.tasks {
            let (split, index) = match tasks.of(prompt.id) {
                (split, Some(index)) => (split, index),
                (split, None) => {
                    self.tasks()?;
                    (split, tasks.of(prompt.id).1.unwrap_or_default())
                }
            };
            variables.insert("split".into(), split.into());
            variables.insert("index".into(), index.into());
        }

        let reset = object(&inner.reset.fill(&variables)?);
        let reset = reset.map_err(|why| {
            let why = format!("environment.reset of prompt {}: {why}", prompt.id);
            EnvironmentFailed::Episode(why.into())
        })?;

        let (slot, begun) = inner.begin_in_slot(&reset)?;
        // An observation needs an opening text only if prompts are openings.
        let opening =
            if inner.asks { inner.render(&inner.opening, &begun)? } else { String::new() };

        // A prompt without text is yet to be made from the opening.
        if inner.asks && !prompt.question_text().is_empty() && opening != prompt.question_text() {
            let [prompt, opening] =
                [prompt.question_text(), &opening].map(|text| shown(text, inner.key.as_ref()));
            let sentence = format!(
                "{} began an episode with \"{opening}\" that had begun with \"{prompt}\" before: episodes can be compared only if \
                 the reset alone decides them; let environment.reset give a seed or a task",
                inner.servers[slot.server].address
            );
            return Err(EnvironmentFailed::Environment(sentence.into()));
        }

        let begun = begun.digest();
        Ok(Box::new(OpenEnvEpisode {
            inner: inner.clone(),
            reset,
            opening,
            begun,
            slot: Some(slot),
            played: Vec::new(),
        }))
    }

    fn tasks(&self) -> Result<Option<TaskCounts>, EnvironmentFailed> {
        let Inner { tasks, servers, time_limit, .. } = &*self.0;
        let addresses = servers.iter().map(|server| &server.address);
        tasks.as_ref().map(|tasks| tasks.count(addresses, *time_limit)).transpose()
    }

    fn sessions(&self) -> usize {
        self.0.sessions.saturating_mul(self.0.servers.len())
    }
}

impl Inner {
    /// Begins an episode at a server that has room for it: the one that has failed least and, among equals, plays the
    /// fewest episodes.
    fn begin_in_slot(self: &Arc<Self>, reset: &Value) -> Result<(Slot, Answer), EnvironmentFailed> {
        let mut failed =
            Reason::from("every server plays all the episodes that environment.sessions allows");

        let mut order: Vec<usize> = (0..self.servers.len()).collect();
        order.sort_by_key(|&server| {
            let Server { open, failures, .. } = &self.servers[server];
            (failures.load(Ordering::Relaxed), open.load(Ordering::Relaxed))
        });

        for server in order {
            let Some(mut slot) = self.take_slot(server) else { continue };
            match slot.begin(reset) {
                Ok(answer) => {
                    self.note_success(server);
                    begins(&answer).map_err(|why| {
                        let address = &self.servers[server].address;
                        let sentence = format!("{address} answered environment.reset {why}");
                        EnvironmentFailed::Episode(sentence.into())
                    })?;
                    slot.plays = true;
                    self.playing.fetch_add(1, Ordering::AcqRel);
                    return Ok((slot, answer));
                }
                Err(RequestError::Refused(why) | RequestError::Malformed(why)) => {
                    let address = &self.servers[server].address;
                    let sentence = format!("{address} refused environment.reset: {why}");
                    return Err(EnvironmentFailed::Episode(why.reworded(sentence)));
                }
                Err(RequestError::Full(why)) => {
                    self.note_full(server, &why);
                    let sentence = format!("{}: {why}", self.servers[server].address);
                    failed = why.reworded(sentence);
                }
                Err(RequestError::Connection(why)) => {
                    self.note_failure(server, &why);
                    let sentence = format!("{}: {why}", self.servers[server].address);
                    failed = why.reworded(sentence);
                }
            }
        }

        let mut since = lock(&self.nobody_since);
        // Episodes that are being played will end, and leave room.
        if self.playing.load(Ordering::Acquire) > 0 {
            *since = None;
            return Err(EnvironmentFailed::Busy(failed));
        }

        if since.get_or_insert_with(Instant::now).elapsed() < self.patience {
            return Err(EnvironmentFailed::Busy(failed));
        }
        let sentence = format!(
            "no server of the environment could be used for {:.0} s; the last failure: {failed}",
            self.patience.as_secs_f64()
        );
        Err(EnvironmentFailed::Environment(failed.reworded(sentence)))
    }

    /// Takes a slot at a server, if it has a free one.
    fn take_slot(self: &Arc<Self>, server: usize) -> Option<Slot> {
        let free = |open: usize| (open < self.sessions).then_some(open + 1);
        let open = &self.servers[server].open;
        open.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).ok()?;
        Some(Slot { inner: self.clone(), server, session: None, plays: false })
    }

    fn note_success(&self, server: usize) {
        *lock(&self.nobody_since) = None;
        let Server { failures, address, .. } = &self.servers[server];
        if failures.swap(0, Ordering::Relaxed) > 0 {
            (self.tell)(format!("{address}: the environment answers again"));
        }
    }

    /// Notes that the server is full. It plays other episodes, which is not a failure and is reported only once.
    fn note_full(&self, server: usize, why: &Reason) {
        let Server { full, address, .. } = &self.servers[server];
        if !full.swap(true, Ordering::Relaxed) {
            (self.tell)(format!(
                "{address}: the server plays fewer episodes at once than environment.sessions = {}, which you may lower: {why}",
                self.sessions
            ));
        }
    }

    fn note_failure(&self, server: usize, why: &Reason) {
        let Server { failures, address, .. } = &self.servers[server];
        if failures.fetch_add(1, Ordering::Relaxed) == 0 {
            (self.tell)(format!("{address}: the environment can't be used now: {why}"));
        }
    }

    /// Turns an answer into text with a template.
    fn render(&self, template: &Template, answer: &Answer) -> Result<String, EnvironmentFailed> {
        let Answer { observation, reward, done } = answer;
        let mut variables = Map::new();
        variables.insert("observation".into(), Value::Object(observation.clone()));
        variables.insert("reward".into(), json!(reward));
        variables.insert("done".into(), json!(done));

        let rendered = template.fill(&variables).map_err(|failed| {
            let fields: Vec<&str> = observation.keys().map(String::as_str).collect();
            let fields = shown(&fields.join(", "), self.key.as_ref());
            let explained = |error: Reason| {
                let sentence = format!("{error}; the template's variables are observation, reward and done; the observation has: {fields}");
                error.reworded(sentence)
            };
            match failed {
                EnvironmentFailed::Environment(error) => {
                    EnvironmentFailed::Environment(explained(error))
                }
                EnvironmentFailed::Episode(error) | EnvironmentFailed::Busy(error) => {
                    EnvironmentFailed::Episode(explained(error))
                }
            }
        })?;

        if rendered.len() <= LARGEST {
            Ok(rendered)
        } else {
            let sentence = format!(
                "the environment's words are {} bytes long, expected at most {LARGEST}",
                rendered.len()
            );
            Err(EnvironmentFailed::Episode(sentence.into()))
        }
    }
}

impl Template {
    fn fill(&self, variables: &Map<String, Value>) -> Result<String, EnvironmentFailed> {
        match self.template.fill(variables) {
            Ok(text) => {
                self.worked.store(true, Ordering::Relaxed);
                Ok(text)
            }
            Err(error) if self.worked.load(Ordering::Relaxed) => {
                Err(EnvironmentFailed::Episode(Reason::with_source(error.to_string(), error)))
            }
            Err(error) => {
                Err(EnvironmentFailed::Environment(Reason::with_source(error.to_string(), error)))
            }
        }
    }
}

/// A slot at a server, which is freed when it is dropped.
struct Slot {
    inner: Arc<Inner>,
    server: usize,
    session: Option<Session>,
    /// True once the slot's episode has begun.
    plays: bool,
}

impl Slot {
    fn begin(&mut self, reset: &Value) -> Result<Answer, RequestError> {
        let Inner { servers, time_limit, keeper, .. } = &*self.inner;
        let Server { address, idle, .. } = &servers[self.server];
        let waiting = || lock(idle).pop();
        while let Some(mut session) = waiting() {
            match session.ask("reset", reset) {
                // The connection was closed while it was idle, and the others have been idle as long. That is not the
                // server's fault.
                Err(RequestError::Connection(_)) => lock(idle).clear(),
                answer => {
                    self.session = Some(session);
                    return answer;
                }
            }
        }

        let mut session = Session::open(address, *time_limit)?;
        let answer = session.ask("reset", reset)?;
        keeper.keep(&session);
        self.session = Some(session);
        Ok(answer)
    }

    fn step(&mut self, action: &Value) -> Result<Answer, RequestError> {
        match &mut self.session {
            Some(session) => session.ask("step", action),
            None => Err(RequestError::Connection("the connection was closed".into())),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Server { idle, open, .. } = &self.inner.servers[self.server];

        // The connection is returned before the slot is, so the next user of the slot finds it.
        if let Some(session) = self.session.take().filter(Session::is_sound) {
            lock(idle).push(session);
        }
        open.fetch_sub(1, Ordering::AcqRel);
        self.inner.playing.fetch_sub(usize::from(self.plays), Ordering::AcqRel);
    }
}

impl Drop for Inner {
    /// Closes the idle connections together, so that all servers share one deadline.
    fn drop(&mut self) {
        let idle = self.servers.iter_mut().map(|server| std::mem::take(&mut *lock(&server.idle)));
        let mut sessions: Vec<Session> = idle.flatten().collect();
        sessions.iter_mut().for_each(Session::say_farewell);

        let until = Instant::now() + FAREWELL;
        sessions.iter_mut().for_each(|session| session.hear_farewell(until));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An episode, with everything that a replay needs.
struct OpenEnvEpisode {
    inner: Arc<Inner>,
    reset: Value,
    opening: String,
    /// Digest of the answer with which the episode began.
    begun: u64,
    /// Slot of the episode, or `None` after a failure.
    slot: Option<Slot>,
    /// Actions so far, each with the digest of its answer.
    played: Vec<(Value, u64)>,
}

impl Episode for OpenEnvEpisode {
    fn opening(&self) -> &str {
        &self.opening
    }

    fn step(&mut self, action: &str) -> Result<Reply, EnvironmentFailed> {
        let mut variables = Map::new();
        variables.insert("completion".into(), action.into());
        variables.insert("turn".into(), (self.played.len() + 1).into());

        // If the policy writes the action itself, a malformed one is its own mistake.
        let foul = |why: String| Reply { observation: why, reward: None, over: true };
        let action = match object(&self.inner.action.fill(&variables)?) {
            Ok(action) => action,
            // A template that has made a JSON object before is sound.
            Err(why) if self.inner.understood.load(Ordering::Relaxed) => return Ok(foul(why)),
            Err(why) => {
                let sentence = format!("environment.action: {why}");
                return Err(EnvironmentFailed::Episode(sentence.into()));
            }
        };

        let answer = match self.play(&action)? {
            Ok(answer) => answer,
            Err(why) => return Ok(foul(why)),
        };

        let observation = self.inner.render(&self.inner.observation, &answer)?;
        self.played.push((action, answer.digest()));
        Ok(Reply { observation, reward: answer.reward, over: answer.done })
    }
}

impl OpenEnvEpisode {
    /// Returns the answer to an action, from a new connection if the old one is lost. If the action has the wrong
    /// format for the environment, the inner error says why.
    fn play(&mut self, action: &Value) -> Result<Result<Answer, String>, EnvironmentFailed> {
        let mut lost = 0;
        loop {
            let answer = match &mut self.slot {
                Some(slot) => slot.step(action),
                None => self.replayed()?.step(action),
            };

            match answer {
                Ok(answer) => {
                    self.inner.understood.store(true, Ordering::Relaxed);
                    return Ok(Ok(answer));
                }
                // An environment that has understood an action before is sound, and so is environment.action.
                Err(RequestError::Malformed(why))
                    if self.inner.understood.load(Ordering::Relaxed) =>
                {
                    return Ok(Err(why.to_string()));
                }
                Err(RequestError::Malformed(why)) => {
                    let sentence = format!(
                        "the environment has not accepted any environment.action yet: {why}"
                    );
                    return Err(EnvironmentFailed::Episode(why.reworded(sentence)));
                }
                Err(RequestError::Refused(why)) => {
                    let sentence = format!("the environment failed: {why}");
                    return Err(EnvironmentFailed::Episode(why.reworded(sentence)));
                }
                // Any server may replay the episode from its beginning.
                Err(RequestError::Full(why) | RequestError::Connection(why)) => {
                    self.slot = None;
                    lost += 1;
                    if lost > RETRIES {
                        let sentence = format!(
                            "the connection was lost {lost} times, the last time because {why}"
                        );
                        return Err(EnvironmentFailed::Episode(why.reworded(sentence)));
                    }
                }
            }
        }
    }

    /// Replays the episode, up to its current state.
    fn replayed(&mut self) -> Result<&mut Slot, EnvironmentFailed> {
        let otherwise = || {
            EnvironmentFailed::Episode(
                "the connection was lost, and the environment answered differently when the episode was played again".into(),
            )
        };

        let (mut slot, begun) = self.inner.begin_in_slot(&self.reset)?;
        if begun.digest() != self.begun {
            return Err(otherwise());
        }

        for (action, answer) in &self.played {
            match slot.step(action) {
                Ok(again) if again.digest() == *answer => {}
                Ok(_) => return Err(otherwise()),
                Err(
                    RequestError::Refused(why)
                    | RequestError::Malformed(why)
                    | RequestError::Full(why)
                    | RequestError::Connection(why),
                ) => {
                    let sentence = format!(
                        "the connection was lost, and the episode could not be played again: {why}"
                    );
                    return Err(EnvironmentFailed::Episode(why.reworded(sentence)));
                }
            }
        }

        Ok(self.slot.insert(slot))
    }
}

/// Checks that an answer to a reset begins an episode, or says why not. The policy has not acted yet, so nothing can be
/// over, and there is no reward. Many environments express that with a reward of 0.
fn begins(answer: &Answer) -> Result<(), String> {
    match *answer {
        Answer { done: true, .. } => {
            Err("with `done` true, expected an episode in which the policy can act".into())
        }
        Answer { reward: Some(reward), .. } if reward != 0.0 => Err(format!(
            "with a reward of {reward}, expected none before the policy acts: let the environment give it with the \
             answer to a step"
        )),
        _ => Ok(()),
    }
}

/// Reads a text as a JSON object.
fn object(text: &str) -> Result<Value, String> {
    let none = |why: String| {
        let text: String = text.chars().take(WORDS).collect();
        format!("{text:?} is not a JSON object{why}")
    };

    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(Value::Object(object)),
        Ok(_) => Err(none(String::new())),
        Err(why) => Err(none(format!(": {why}"))),
    }
}

/// Makes an untrusted text fit for a message: short, on one line, and without the key, which a server may repeat.
fn shown(text: &str, key: Option<&Key>) -> String {
    let text = match key {
        Some(key) => text.replace(key.word(), "***"),
        None => text.to_owned(),
    };
    text.chars().take(WORDS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_episode_begins_before_anything_is_over_or_earned() {
        let begins = |reward: Option<f32>, done: bool| {
            begins(&Answer { observation: Map::new(), reward, done })
        };
        for reward in [None, Some(0.0), Some(-0.0)] {
            assert_eq!(begins(reward, false), Ok(()));
            assert!(begins(reward, true).unwrap_err().contains("`done` true"));
        }

        for reward in [1.0, -0.5, f32::MIN_POSITIVE] {
            assert!(begins(Some(reward), false).unwrap_err().contains("before the policy acts"));
        }
    }
}
