//! Environments of other people, behind a WebSocket.

mod keeper;
mod session;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use firebrick_core::{Environment, EnvironmentFailed, Episode, Key, Prompt, Reply};
use firebrick_data::{DataError, TextTemplate};
use serde_json::{Map, Value, json};

use self::{
    keeper::Keeper,
    session::{Address, Answer, Lost, Session},
};

/// Says where an environment's servers are, and how one talks with them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Their addresses, such as `http://a:8000`; at least one.
    pub servers: Vec<String>,
    /// Episodes that each of them plays at once; at least 1.
    pub sessions: usize,
    /// Templates that turn texts into messages and back.
    pub words: Words,
    /// The time that a server may take for a message.
    pub time_limit: Duration,
    /// The time that an episode waits while no server can be used, before the run ends.
    pub patience: Duration,
    /// The word that lets the trainer in, if the servers ask for one.
    pub key: Option<Key>,
    /// True where prompts are the openings of episodes: the one that an episode begins with is then held against its prompt.
    pub asks: bool,
}

/// Templates of what is sent and of what is heard, in the language of chat templates.
#[derive(Clone, Debug)]
pub struct Words {
    /// The JSON object that an episode is reset with. Variables: `id` and `seed`, two numbers that follow from the prompt,
    /// the second below 2³¹; `reference` and `question`, two texts.
    pub reset: String,
    /// The JSON object of an action. Variables: `completion`, the policy's words in its turn; `turn`, counted from 1.
    pub action: String,
    /// The words that the policy hears. Variables: `observation`, an object; `reward`, a number or none; `done`.
    pub heard: String,
    /// The words that an episode begins with. Variables: those of `heard`.
    pub opening: String,
}

/// Why an environment of servers can't be had.
#[derive(Debug, thiserror::Error)]
pub enum OpenEnvError {
    /// An address that is none.
    #[error(
        "`{address}` is no server's address, expected one such as http://127.0.0.1:8000, without name, password or `?`"
    )]
    Address {
        /// As it was given.
        address: String,
    },
    /// A template that is none.
    #[error(transparent)]
    Template(#[from] DataError),
    /// There is no thread for the connections.
    #[error("no thread can be had for the environment's connections: {0}")]
    Thread(#[from] std::io::Error),
}

/// How often an episode is played again whose connection was lost.
const RETRIES: usize = 2;

/// The time that servers have to take leave.
const FAREWELL: Duration = Duration::from_millis(500);

/// Letters of a server's words that are kept for a message.
const WORDS: usize = 300;

/// Environments on servers that speak OpenEnv (as its version 0.3.0 does): a connection to `/ws` has an environment of its own, in which
/// one episode is played after the other.
///
/// An episode begins with `{"type": "reset"}` and goes on with `{"type": "step"}`, each with its `data`. The plain HTTP paths of the same
/// servers, `/reset` and `/step`, make a new environment for every request, so they can't hold an episode of several turns.
///
/// A server that does not answer, or plays as many episodes as it can, is asked again later, and others meanwhile. An episode
/// whose connection breaks is played again from its beginning, with the same actions: an environment follows from them. If it
/// answers otherwise then, the completion has no verdict.
pub struct OpenEnv(Arc<Inner>);

struct Inner {
    servers: Vec<Server>,
    sessions: usize,
    reset: TextTemplate,
    action: TextTemplate,
    heard: TextTemplate,
    opening: TextTemplate,
    time_limit: Duration,
    patience: Duration,
    asks: bool,
    keeper: Keeper,
    tell: Box<dyn Fn(String) + Send + Sync>,
}

struct Server {
    address: Address,
    /// Episodes that it plays.
    open: AtomicUsize,
    /// How often in a row it could not be used.
    failures: AtomicUsize,
    /// Connections whose episodes are over: the next ones begin there.
    idle: Mutex<Vec<Session>>,
}

impl OpenEnv {
    /// Looks at addresses and templates; no server is asked. `tell` hears of servers that fail, and are well again.
    ///
    /// # Errors
    /// When an address or a template is none, or there is no thread.
    pub fn new(
        settings: Settings,
        tell: impl Fn(String) + Send + Sync + 'static,
    ) -> Result<Self, OpenEnvError> {
        let Settings { servers, sessions, words, time_limit, patience, key, asks } = settings;
        let server = |base: String| {
            let address = Address::new(&base, key.clone());
            let address = address.ok_or(OpenEnvError::Address { address: base })?;
            let (open, failures) = (AtomicUsize::new(0), AtomicUsize::new(0));
            Ok(Server { address, open, failures, idle: Mutex::default() })
        };
        let template =
            |name: &str, text: &str| TextTemplate::new(format!("environment.{name}"), text);
        Ok(OpenEnv(Arc::new(Inner {
            servers: servers.into_iter().map(server).collect::<Result<_, OpenEnvError>>()?,
            sessions: sessions.max(1),
            reset: template("reset", &words.reset)?,
            action: template("action", &words.action)?,
            heard: template("heard", &words.heard)?,
            opening: template("opening", &words.opening)?,
            time_limit,
            patience,
            asks,
            keeper: Keeper::new()?,
            tell: Box::new(tell),
        })))
    }
}

impl Environment for OpenEnv {
    fn begin(&self, prompt: &Prompt) -> Result<Box<dyn Episode>, EnvironmentFailed> {
        let inner = &self.0;
        let reset = json!({
            "id": prompt.id,
            "seed": prompt.id % (1 << 31),
            "reference": prompt.reference,
            "question": prompt.asked(),
        });
        let reset = object(&inner.reset, &reset).map_err(EnvironmentFailed::Episode)?;
        let (seat, begun) = inner.seated(&reset)?;
        let opening = inner.words(&inner.opening, &begun)?;
        // A prompt without words is about to be made of them.
        if inner.asks && !prompt.asked().is_empty() && opening != prompt.asked() {
            let texts =
                [prompt.asked(), &opening].map(|text| text.chars().take(WORDS).collect::<String>());
            return Err(EnvironmentFailed::Environment(format!(
                "{} began an episode with {:?} that had begun with {:?}: episodes that follow from more than what they are reset \
                 with can't be compared with each other; let environment.reset give a seed or a task",
                inner.servers[seat.server].address, texts[1], texts[0]
            )));
        }
        Ok(Box::new(Game { reset, opening, begun, seat: Some(seat), played: Vec::new() }))
    }

    fn sessions(&self) -> usize {
        self.0.sessions.saturating_mul(self.0.servers.len())
    }
}

impl Inner {
    /// Begins an episode at a server that has room for it.
    fn seated(self: &Arc<Self>, reset: &Value) -> Result<(Seat, Answer), EnvironmentFailed> {
        let began = Instant::now();
        let mut pause = Duration::from_millis(20);
        loop {
            let failed = match self.take_seat() {
                None => "every server plays as many episodes as it may".to_owned(),
                Some(mut seat) => {
                    let server = seat.server;
                    match seat.begin(reset) {
                        Ok(answer) => {
                            self.is_well(server);
                            return Ok((seat, answer));
                        }
                        Err(Lost::Refused(why)) => {
                            let address = &self.servers[server].address;
                            let why = format!("{address} refused to reset an episode: {why}");
                            return Err(EnvironmentFailed::Episode(why));
                        }
                        Err(Lost::Full(why) | Lost::Connection(why)) => {
                            self.is_ill(server, &why);
                            format!("{}: {why}", self.servers[server].address)
                        }
                    }
                }
            };
            if began.elapsed() >= self.patience {
                return Err(EnvironmentFailed::Environment(format!(
                    "no server of the environment could be used for {:.0} s, at last because: {failed}",
                    self.patience.as_secs_f64()
                )));
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_secs(2));
        }
    }

    /// A place at the server that has failed least and, among those, plays least; none when all are full.
    fn take_seat(self: &Arc<Self>) -> Option<Seat> {
        let mut order: Vec<usize> = (0..self.servers.len()).collect();
        order.sort_by_key(|&server| {
            let Server { open, failures, .. } = &self.servers[server];
            (failures.load(Ordering::Relaxed), open.load(Ordering::Relaxed))
        });
        let free = |open: usize| (open < self.sessions).then_some(open + 1);
        let take = |&server: &usize| {
            let open = &self.servers[server].open;
            open.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).is_ok()
        };
        let server = order.into_iter().find(take)?;
        Some(Seat { inner: self.clone(), server, session: None })
    }

    fn is_well(&self, server: usize) {
        let Server { failures, address, .. } = &self.servers[server];
        if failures.swap(0, Ordering::Relaxed) > 0 {
            (self.tell)(format!("{address}: the environment answers again"));
        }
    }

    fn is_ill(&self, server: usize, why: &str) {
        let Server { failures, address, .. } = &self.servers[server];
        if failures.fetch_add(1, Ordering::Relaxed) == 0 {
            (self.tell)(format!("{address}: the environment can't be used now, because {why}"));
        }
    }

    /// The words that a template makes of an answer.
    fn words(&self, template: &TextTemplate, answer: &Answer) -> Result<String, EnvironmentFailed> {
        let Answer { observation, reward, done } = answer;
        let mut variables = Map::new();
        variables.insert("observation".into(), Value::Object(observation.clone()));
        variables.insert("reward".into(), json!(reward));
        variables.insert("done".into(), json!(done));
        // A field that is not there is the recipe's fault, and the same for every episode.
        let filled = template.fill(&variables);
        filled.map_err(|error| {
            let fields: Vec<&str> = observation.keys().take(20).map(String::as_str).collect();
            EnvironmentFailed::Environment(format!(
                "{error}; the observation has: {}",
                fields.join(", ")
            ))
        })
    }
}

/// A place at a server, which is given up when it is dropped.
struct Seat {
    inner: Arc<Inner>,
    server: usize,
    session: Option<Session>,
}

impl Seat {
    fn begin(&mut self, reset: &Value) -> Result<Answer, Lost> {
        let Inner { servers, time_limit, keeper, .. } = &*self.inner;
        let Server { address, idle, .. } = &servers[self.server];
        let waiting = || lock(idle).pop();
        while let Some(mut session) = waiting() {
            match session.ask("reset", reset) {
                // It was closed while it waited: no fault of the server's.
                Err(Lost::Connection(_)) => {}
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

/// An episode, with everything that it is played again from.
struct Game {
    reset: Value,
    opening: String,
    begun: Answer,
    /// None after a failure.
    seat: Option<Seat>,
    played: Vec<(Value, Answer)>,
}

impl Episode for Game {
    fn opening(&self) -> &str {
        &self.opening
    }

    fn step(&mut self, said: &str) -> Result<Reply, EnvironmentFailed> {
        let Some(inner) = self.seat.as_ref().map(|seat| seat.inner.clone()) else {
            return Err(EnvironmentFailed::Episode("the episode is lost".into()));
        };
        let variables = json!({ "completion": said, "turn": self.played.len() + 1 });
        let action = match object(&inner.action, &variables) {
            Ok(action) => action,
            // The policy wrote it: that is its move.
            Err(why) => return Ok(Reply { heard: why, reward: None, over: true }),
        };
        let answer = self.play(&inner, &action)?;
        let heard = inner.words(&inner.heard, &answer)?;
        let Answer { reward, done: over, .. } = answer;
        self.played.push((action, answer));
        Ok(Reply { heard, reward, over })
    }
}

impl Game {
    /// The answer to an action, from a connection of its own if the one there was is lost.
    fn play(&mut self, inner: &Arc<Inner>, action: &Value) -> Result<Answer, EnvironmentFailed> {
        let mut lost = 0;
        loop {
            let answer = match &mut self.seat {
                Some(seat) => seat.step(action),
                None => self.again(inner)?.step(action),
            };
            match answer {
                Ok(answer) => return Ok(answer),
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
                            "its connection was lost {lost} times, at last because {why}"
                        )));
                    }
                }
            }
        }
    }

    /// Plays the episode again up to here.
    fn again(&mut self, inner: &Arc<Inner>) -> Result<&mut Seat, EnvironmentFailed> {
        let otherwise = || {
            EnvironmentFailed::Episode(
                "its connection was lost, and the environment answered otherwise when it was played again".into(),
            )
        };
        let (mut seat, begun) = inner.seated(&self.reset)?;
        if begun != self.begun {
            return Err(otherwise());
        }
        for (action, answer) in &self.played {
            match seat.step(action) {
                Ok(again) if again == *answer => {}
                Ok(_) => return Err(otherwise()),
                Err(Lost::Refused(why) | Lost::Full(why) | Lost::Connection(why)) => {
                    return Err(EnvironmentFailed::Episode(format!(
                        "its connection was lost, and so was the next one: {why}"
                    )));
                }
            }
        }
        Ok(self.seat.insert(seat))
    }
}

/// The JSON object that a template makes.
fn object(template: &TextTemplate, variables: &Value) -> Result<Value, String> {
    let none = Map::new();
    let text = template.fill(variables.as_object().unwrap_or(&none));
    let text = text.map_err(|error| error.to_string())?;
    let value = serde_json::from_str(&text).map_err(|error| error.to_string());
    match value {
        Ok(Value::Object(object)) => Ok(Value::Object(object)),
        Ok(_) => Err(format!("{text:?} is no JSON object")),
        Err(why) => Err(format!("{text:?} is no JSON object: {why}")),
    }
}
