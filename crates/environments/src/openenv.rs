//! Environments of other people, on OpenEnv's servers, reached over a WebSocket.

mod keeper;
mod session;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use firebrick_core::{Environment, EnvironmentFailed, Episode, Key, Prompt, Reply};
use firebrick_data::{DataError, TextTemplate};
use serde_json::{Map, Value, json};

use self::{
    keeper::Keeper,
    session::{Address, Answer, LARGEST, Lost, Session},
};

/// The addresses of an environment's servers, and the way of talking with them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The addresses of the servers, such as `http://a:8000`; at least one.
    pub servers: Vec<String>,
    /// The number of episodes that each server plays at once; at least 1.
    pub sessions: usize,
    /// The templates that turn texts into messages and back.
    pub words: Words,
    /// The time that a server may take for a message. The system finds the address of the server's name, and
    /// has its own limit for that.
    pub time_limit: Duration,
    /// The time that may pass while no episode is played although one is wanted, before the run ends.
    pub patience: Duration,
    /// The key that lets the trainer in, if the servers ask for one.
    pub key: Option<Key>,
    /// True if prompts are the openings of episodes. The opening that an episode begins with is then compared
    /// with its prompt.
    pub asks: bool,
}

/// The templates of the messages that are sent and observed, in the language of chat templates.
#[derive(Clone, Debug)]
pub struct Words {
    /// The JSON object that an episode is reset with. Variables: `id` and `seed`, two numbers that depend on
    /// the prompt, the second below 2³¹; `reference` and `question`, two texts.
    pub reset: String,
    /// The JSON object of an action. Variables: `completion`, the policy's words in its turn; `turn`, counted
    /// from 1.
    pub action: String,
    /// The words that the policy observes. Variables: `observation`, an object; `reward`, a number or none;
    /// `done`.
    pub observation: String,
    /// The words that an episode begins with. Variables: those of `observation`.
    pub opening: String,
}

/// The reasons why an environment of servers can't be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenEnvError {
    /// An address is no server's address.
    #[error(
        "`{address}` is not a server's address, expected one such as http://127.0.0.1:8000, without name, password or `?`"
    )]
    Address {
        /// The address as it was given.
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
    /// There is no thread for the connections.
    #[error("cannot start a thread for the environment's connections: {0}")]
    Thread(#[from] std::io::Error),
}

/// The number of times that an episode is played again because its connection was lost.
const RETRIES: usize = 2;

/// The time that servers have to say farewell.
const FAREWELL: Duration = Duration::from_millis(500);

/// The number of letters of a server's words that are kept for a message.
const WORDS: usize = 300;

/// Environments on servers that speak OpenEnv (as its version 0.3.0 does). A connection to `/ws` has an
/// environment of its own, in which one episode is played after the other.
///
/// An episode begins with `{"type": "reset"}` and continues with `{"type": "step"}`, each with its `data`. The
/// plain HTTP paths of the same servers, `/reset` and `/step`, make a new environment for every request, so
/// they can't hold an episode of several turns.
///
/// If a server does not answer, or plays as many episodes as it can, it is asked again later, and others are
/// asked meanwhile ([`EnvironmentFailed::Busy`]). An episode whose connection breaks is played again from its
/// beginning, with the same actions, because an environment should depend on them alone. If it then answers
/// otherwise, the completion has no verdict.
pub struct OpenEnv(Arc<Inner>);

struct Inner {
    servers: Vec<Server>,
    sessions: usize,
    reset: Text,
    action: Text,
    observation: Text,
    opening: Text,
    time_limit: Duration,
    patience: Duration,
    key: Option<Key>,
    asks: bool,
    keeper: Keeper,
    /// The number of episodes that have begun and hold their seats.
    playing: AtomicUsize,
    /// The time since when no episode could be played although one was wanted; `None` while one is played.
    nobody_since: Mutex<Option<Instant>>,
    /// True once an action had the form that the environment wants.
    understood: AtomicBool,
    tell: Box<dyn Fn(String) + Send + Sync>,
}

/// A template. If it has never made a text, the fault is the recipe's, and the same for every episode.
struct Text {
    template: TextTemplate,
    worked: AtomicBool,
}

struct Server {
    address: Address,
    /// The number of episodes that the server plays.
    open: AtomicUsize,
    /// The number of times in a row that the server could not be used.
    failures: AtomicUsize,
    /// True once the server had no room for an episode within `sessions`.
    full: AtomicBool,
    /// The connections whose episodes are over. The next episodes begin there.
    idle: Mutex<Vec<Session>>,
}

impl OpenEnv {
    /// Checks addresses and templates; no server is asked. `tell` hears of servers that fail, and that are
    /// well again.
    ///
    /// # Errors
    /// When an address, the key or a template is not valid, or there is no thread.
    pub fn new(
        settings: Settings,
        tell: impl Fn(String) + Send + Sync + 'static,
    ) -> Result<Self, OpenEnvError> {
        let Settings { servers, sessions, words, time_limit, patience, key, asks } = settings;
        let server = |base: String| {
            let address = Address::new(&base, key.as_ref())?;
            let (open, failures) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let (full, idle) = (AtomicBool::new(false), Mutex::default());
            Ok(Server { address, open, failures, full, idle })
        };
        let text = |name: &str, text: &str| -> Result<Text, OpenEnvError> {
            let template = TextTemplate::new(format!("environment.{name}"), text)?;
            Ok(Text { template, worked: AtomicBool::new(false) })
        };
        Ok(OpenEnv(Arc::new(Inner {
            servers: servers.into_iter().map(server).collect::<Result<_, OpenEnvError>>()?,
            sessions: sessions.max(1),
            reset: text("reset", &words.reset)?,
            action: text("action", &words.action)?,
            observation: text("observation", &words.observation)?,
            opening: text("opening", &words.opening)?,
            time_limit,
            patience,
            key,
            asks,
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
        variables.insert("seed".into(), (prompt.id % (1 << 31)).into());
        variables.insert("reference".into(), prompt.reference.clone().into());
        variables.insert("question".into(), prompt.asked().into());
        let reset = object(&inner.reset.fill(&variables)?);
        let reset = reset.map_err(|why| {
            let why = format!("environment.reset of prompt {}: {why}", prompt.id);
            EnvironmentFailed::Episode(why)
        })?;
        let (seat, begun) = inner.seated(&reset)?;
        // An observation needs opening words only if prompts are openings.
        let opening = match inner.asks {
            true => inner.words(&inner.opening, &begun)?,
            false => String::new(),
        };
        // A prompt without words is about to be made of the opening.
        if inner.asks && !prompt.asked().is_empty() && opening != prompt.asked() {
            let [prompt, opening] =
                [prompt.asked(), &opening].map(|text| shown(text, inner.key.as_ref()));
            return Err(EnvironmentFailed::Environment(format!(
                "{} began an episode with \"{opening}\" that had begun with \"{prompt}\" before: episodes can be compared only if \
                 the reset alone decides them; let environment.reset give a seed or a task",
                inner.servers[seat.server].address
            )));
        }
        let begun = begun.digest();
        Ok(Box::new(Game {
            inner: inner.clone(),
            reset,
            opening,
            begun,
            seat: Some(seat),
            played: Vec::new(),
        }))
    }

    fn sessions(&self) -> usize {
        self.0.sessions.saturating_mul(self.0.servers.len())
    }
}

impl Inner {
    /// Begins an episode at a server that has room for it: the one that has failed least and, among equals,
    /// plays least.
    fn seated(self: &Arc<Self>, reset: &Value) -> Result<(Seat, Answer), EnvironmentFailed> {
        let mut failed =
            "every server plays all the episodes that environment.sessions allows".to_owned();
        let mut order: Vec<usize> = (0..self.servers.len()).collect();
        order.sort_by_key(|&server| {
            let Server { open, failures, .. } = &self.servers[server];
            (failures.load(Ordering::Relaxed), open.load(Ordering::Relaxed))
        });
        for server in order {
            let Some(mut seat) = self.take_seat(server) else { continue };
            match seat.begin(reset) {
                Ok(answer) => {
                    self.is_well(server);
                    begins(&answer).map_err(|why| {
                        let address = &self.servers[server].address;
                        EnvironmentFailed::Episode(format!(
                            "{address} answered environment.reset {why}"
                        ))
                    })?;
                    seat.plays = true;
                    self.playing.fetch_add(1, Ordering::AcqRel);
                    return Ok((seat, answer));
                }
                Err(Lost::Refused(why) | Lost::Malformed(why)) => {
                    let address = &self.servers[server].address;
                    let why = format!("{address} refused environment.reset: {why}");
                    return Err(EnvironmentFailed::Episode(why));
                }
                Err(Lost::Full(why)) => {
                    self.is_full(server, &why);
                    failed = format!("{}: {why}", self.servers[server].address);
                }
                Err(Lost::Connection(why)) => {
                    self.is_ill(server, &why);
                    failed = format!("{}: {why}", self.servers[server].address);
                }
            }
        }
        let mut since = lock(&self.nobody_since);
        // The episodes that are being played will end, and leave room.
        if self.playing.load(Ordering::Acquire) > 0 {
            *since = None;
            return Err(EnvironmentFailed::Busy(failed));
        }
        if since.get_or_insert_with(Instant::now).elapsed() < self.patience {
            return Err(EnvironmentFailed::Busy(failed));
        }
        Err(EnvironmentFailed::Environment(format!(
            "no server of the environment could be used for {:.0} s; the last failure: {failed}",
            self.patience.as_secs_f64()
        )))
    }

    /// Takes a place at a server, if it has a free one.
    fn take_seat(self: &Arc<Self>, server: usize) -> Option<Seat> {
        let free = |open: usize| (open < self.sessions).then_some(open + 1);
        let open = &self.servers[server].open;
        open.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).ok()?;
        Some(Seat { inner: self.clone(), server, session: None, plays: false })
    }

    fn is_well(&self, server: usize) {
        *lock(&self.nobody_since) = None;
        let Server { failures, address, .. } = &self.servers[server];
        if failures.swap(0, Ordering::Relaxed) > 0 {
            (self.tell)(format!("{address}: the environment answers again"));
        }
    }

    /// Notes that the server is full. It plays others, which is no fault, and is told once.
    fn is_full(&self, server: usize, why: &str) {
        let Server { full, address, .. } = &self.servers[server];
        if !full.swap(true, Ordering::Relaxed) {
            (self.tell)(format!(
                "{address}: the server plays fewer episodes at once than environment.sessions = {}, which you may lower: {why}",
                self.sessions
            ));
        }
    }

    fn is_ill(&self, server: usize, why: &str) {
        let Server { failures, address, .. } = &self.servers[server];
        if failures.fetch_add(1, Ordering::Relaxed) == 0 {
            (self.tell)(format!("{address}: the environment can't be used now: {why}"));
        }
    }

    /// Makes words of an answer, with a template.
    fn words(&self, text: &Text, answer: &Answer) -> Result<String, EnvironmentFailed> {
        let Answer { observation, reward, done } = answer;
        let mut variables = Map::new();
        variables.insert("observation".into(), Value::Object(observation.clone()));
        variables.insert("reward".into(), json!(reward));
        variables.insert("done".into(), json!(done));
        let words = text.fill(&variables).map_err(|failed| {
            let fields: Vec<&str> = observation.keys().map(String::as_str).collect();
            let fields = shown(&fields.join(", "), self.key.as_ref());
            let explained = |error| {
                format!("{error}; the template's variables are observation, reward and done; the observation has: {fields}")
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
        match words.len() <= LARGEST {
            true => Ok(words),
            false => Err(EnvironmentFailed::Episode(format!(
                "the environment's words are {} bytes long, expected at most {LARGEST}",
                words.len()
            ))),
        }
    }
}

impl Text {
    fn fill(&self, variables: &Map<String, Value>) -> Result<String, EnvironmentFailed> {
        match self.template.fill(variables) {
            Ok(text) => {
                self.worked.store(true, Ordering::Relaxed);
                Ok(text)
            }
            Err(error) if self.worked.load(Ordering::Relaxed) => {
                Err(EnvironmentFailed::Episode(error.to_string()))
            }
            Err(error) => Err(EnvironmentFailed::Environment(error.to_string())),
        }
    }
}

/// A place at a server, which is given up when it is dropped.
struct Seat {
    inner: Arc<Inner>,
    server: usize,
    session: Option<Session>,
    /// True once the seat's episode has begun.
    plays: bool,
}

impl Seat {
    fn begin(&mut self, reset: &Value) -> Result<Answer, Lost> {
        let Inner { servers, time_limit, keeper, .. } = &*self.inner;
        let Server { address, idle, .. } = &servers[self.server];
        let waiting = || lock(idle).pop();
        while let Some(mut session) = waiting() {
            match session.ask("reset", reset) {
                // The connection was closed while it waited, and the others have waited as long. The server
                // is not at fault.
                Err(Lost::Connection(_)) => lock(idle).clear(),
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

    fn step(&mut self, action: &Value) -> Result<Answer, Lost> {
        match &mut self.session {
            Some(session) => session.ask("step", action),
            None => Err(Lost::Connection("the connection was closed".into())),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Server { idle, open, .. } = &self.inner.servers[self.server];
        if let Some(session) = self.session.take().filter(Session::is_sound) {
            lock(idle).push(session);
        }
        open.fetch_sub(1, Ordering::AcqRel);
        self.inner.playing.fetch_sub(usize::from(self.plays), Ordering::AcqRel);
    }
}

impl Drop for Inner {
    /// Takes leave of the servers.
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

/// An episode, with everything that is needed to play it again.
struct Game {
    inner: Arc<Inner>,
    reset: Value,
    opening: String,
    /// The digest of the answer that the episode began with.
    begun: u64,
    /// The episode's seat; `None` after a failure.
    seat: Option<Seat>,
    /// The actions, each with the digest of its answer.
    played: Vec<(Value, u64)>,
}

impl Episode for Game {
    fn opening(&self) -> &str {
        &self.opening
    }

    fn step(&mut self, action: &str) -> Result<Reply, EnvironmentFailed> {
        let mut variables = Map::new();
        variables.insert("completion".into(), action.into());
        variables.insert("turn".into(), (self.played.len() + 1).into());
        // If the policy itself writes the action, a bad one is its move, too.
        let foul = |why: String| Reply { observation: why, reward: None, over: true };
        let action = match object(&self.inner.action.fill(&variables)?) {
            Ok(action) => action,
            // A template that has made a JSON object before is sound.
            Err(why) if self.inner.understood.load(Ordering::Relaxed) => return Ok(foul(why)),
            Err(why) => {
                return Err(EnvironmentFailed::Episode(format!("environment.action: {why}")));
            }
        };
        let answer = match self.play(&action)? {
            Ok(answer) => answer,
            Err(why) => return Ok(foul(why)),
        };
        let observation = self.inner.words(&self.inner.observation, &answer)?;
        self.played.push((action, answer.digest()));
        Ok(Reply { observation, reward: answer.reward, over: answer.done })
    }
}

impl Game {
    /// Gives the answer to an action, from a new connection if the old one is lost. If the action does not
    /// have the form that the environment wants, gives the reason.
    fn play(&mut self, action: &Value) -> Result<Result<Answer, String>, EnvironmentFailed> {
        let mut lost = 0;
        loop {
            let answer = match &mut self.seat {
                Some(seat) => seat.step(action),
                None => self.again()?.step(action),
            };
            match answer {
                Ok(answer) => {
                    self.inner.understood.store(true, Ordering::Relaxed);
                    return Ok(Ok(answer));
                }
                // An environment that has understood an action before is sound, and so is environment.action.
                Err(Lost::Malformed(why)) if self.inner.understood.load(Ordering::Relaxed) => {
                    return Ok(Err(why));
                }
                Err(Lost::Malformed(why)) => {
                    return Err(EnvironmentFailed::Episode(format!(
                        "the environment has understood no environment.action yet: {why}"
                    )));
                }
                Err(Lost::Refused(why)) => {
                    return Err(EnvironmentFailed::Episode(format!(
                        "the environment failed: {why}"
                    )));
                }
                Err(Lost::Full(why) | Lost::Connection(why)) => {
                    self.seat = None;
                    lost += 1;
                    if lost > RETRIES {
                        return Err(EnvironmentFailed::Episode(format!(
                            "the connection was lost {lost} times, the last time because {why}"
                        )));
                    }
                }
            }
        }
    }

    /// Plays the episode again, up to its present state.
    fn again(&mut self) -> Result<&mut Seat, EnvironmentFailed> {
        let otherwise = || {
            EnvironmentFailed::Episode(
                "the connection was lost, and the environment answered differently when the episode was played again".into(),
            )
        };
        let (mut seat, begun) = self.inner.seated(&self.reset)?;
        if begun.digest() != self.begun {
            return Err(otherwise());
        }
        for (action, answer) in &self.played {
            match seat.step(action) {
                Ok(again) if again.digest() == *answer => {}
                Ok(_) => return Err(otherwise()),
                Err(
                    Lost::Refused(why)
                    | Lost::Malformed(why)
                    | Lost::Full(why)
                    | Lost::Connection(why),
                ) => {
                    return Err(EnvironmentFailed::Episode(format!(
                        "the connection was lost, and the episode could not be played again: {why}"
                    )));
                }
            }
        }
        Ok(self.seat.insert(seat))
    }
}

/// Tells why an answer to a reset begins no episode. The policy has not acted yet, so nothing can be over, and nothing
/// was earned. Many environments say so with a reward of 0.
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

/// Makes a stranger's words fit for a message: short, in one line, and without the key, which a server may
/// repeat.
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
