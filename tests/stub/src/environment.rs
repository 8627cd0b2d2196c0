//! An environment's server that misbehaves on demand: a guessing game in OpenEnv's words.

use std::{
    io::{self, Read, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tungstenite::{
    Message, WebSocket, accept_hdr,
    handshake::server::{ErrorResponse, Request, Response},
};

use crate::http;

/// How a server of episodes fails at a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// It answers after 100 ms.
    Delay,
    /// It closes the connection without a word.
    Drop,
    /// It closes the connection in the middle of its answer.
    Half,
    /// It never answers, and keeps the connection.
    Hang,
    /// It sends its answer a byte at a time.
    Trickle,
    /// It sends more than anybody reads.
    Huge,
    /// It sends bytes instead of text.
    Binary,
    /// Its answer is no JSON.
    Nonsense,
    /// Its answer has no observation.
    Empty,
    /// Its reward is no number.
    NotANumber,
    /// Its reward is too large for a number.
    TooLarge,
    /// Its `done` is neither true nor false.
    Perhaps,
    /// It asks again and again whether somebody is there.
    Pings,
    /// It says that its session is broken, and closes the connection.
    Broken,
    /// It says that it is at its capacity, and closes the connection.
    Full,
    /// It says that the environment raised an exception.
    Failed,
    /// It says that the message has the wrong form.
    Invalid,
}

impl Trouble {
    /// Troubles after which an episode can be played again elsewhere.
    pub const PASSING: [Trouble; 15] = [
        Trouble::Delay,
        Trouble::Drop,
        Trouble::Half,
        Trouble::Hang,
        Trouble::Trickle,
        Trouble::Huge,
        Trouble::Binary,
        Trouble::Nonsense,
        Trouble::Empty,
        Trouble::NotANumber,
        Trouble::TooLarge,
        Trouble::Perhaps,
        Trouble::Pings,
        Trouble::Broken,
        Trouble::Full,
    ];
}

/// Settings of a [`Games`].
pub struct GameOptions {
    /// Trouble with each message, by the message's number.
    pub troubles: Box<dyn Fn(u64) -> Option<Trouble> + Send + Sync>,
    /// Number of episodes that it plays at once.
    pub sessions: usize,
    /// Key that a client has to name, if any.
    pub key: Option<String>,
    /// True if every reset draws a new secret, whatever the seed is.
    pub fickle: bool,
    /// Splits of its tasks, each with the number of its tasks, if it lists tasks. The secret of a task is the last digit
    /// of its index.
    pub tasks: Vec<(&'static str, u64)>,
}

impl Default for GameOptions {
    fn default() -> Self {
        GameOptions {
            troubles: Box::new(|_| None),
            sessions: usize::MAX,
            key: None,
            fickle: false,
            tasks: Vec::new(),
        }
    }
}

/// A server of guessing games, on a port of its own, until it is dropped. A reset names the `secret`, or a
/// `seed` whose last digit is the secret.
pub struct Games {
    address: SocketAddr,

    shared: Arc<Shared>,
}

struct Shared {
    options: GameOptions,
    messages: AtomicU64,
    open: AtomicUsize,
    most_open: AtomicUsize,
    ended: AtomicBool,
    /// Messages of clients, as they came.
    seen: Mutex<Vec<String>>,
    pongs: AtomicU64,
}

impl Games {
    /// Starts a server at a free port.
    ///
    /// # Panics
    /// If no port is free.
    pub fn start(options: GameOptions) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");

        let shared = Arc::new(Shared {
            options,
            messages: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            most_open: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            seen: Mutex::default(),
            pongs: AtomicU64::new(0),
        });

        let all = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if all.ended.load(Ordering::Relaxed) {
                    break;
                }
                let shared = all.clone();
                thread::spawn(move || drop(play(stream, &shared)));
            }
        });

        Games { address, shared }
    }

    /// Returns its address.
    pub fn address(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the largest number of episodes that it played at once.
    pub fn most_open(&self) -> usize {
        self.shared.most_open.load(Ordering::Relaxed)
    }

    /// Returns the number of episodes that it plays now.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Counts the answers to its pings.
    pub fn pongs(&self) -> u64 {
        self.shared.pongs.load(Ordering::Relaxed)
    }

    /// Lists all messages that it was sent.
    pub fn seen(&self) -> Vec<String> {
        self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Games {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // The server waits for a connection, and only then sees that it has ended.
        drop(TcpStream::connect(self.address));
    }
}

/// Counts an episode until it is dropped.
struct Counted<'a>(&'a Shared);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

type Failed = Box<dyn std::error::Error>;

/// Plays episodes over one connection.
fn play(stream: TcpStream, shared: &Shared) -> Result<(), Failed> {
    #[allow(clippy::result_large_err, reason = "the handshake wants it so")]
    let admit = |request: &Request, response: Response| {
        let refuse = |status: u16| {
            let mut refused = ErrorResponse::new(None);
            *refused.status_mut() = status.try_into().expect("a status");
            Err(refused)
        };

        let key = request.headers().get("authorization").and_then(|key| key.to_str().ok());
        let wanted = shared.options.key.as_ref().map(|key| format!("Bearer {key}"));
        match (request.uri().path(), wanted) {
            ("/ws", None) => Ok(response),
            ("/ws", Some(wanted)) if key == Some(wanted.as_str()) => Ok(response),
            ("/ws", Some(_)) => refuse(401),
            _ => refuse(403),
        }
    };

    // Whoever asks for tasks speaks plain HTTP.
    let mut begins = [0; 7];
    loop {
        match stream.peek(&mut begins)? {
            0 => return Ok(()),
            7.. => break,
            _ => thread::sleep(Duration::from_millis(1)),
        }
    }
    if &begins != b"GET /ws" && !shared.options.tasks.is_empty() {
        return list_tasks(stream, shared);
    }

    let mut socket = accept_hdr(stream, admit).map_err(|error| error.to_string())?;
    // Counting before the check keeps two connections from taking the last session together.
    let open = shared.open.fetch_add(1, Ordering::Relaxed) + 1;
    let _counted = Counted(shared);
    if open > shared.options.sessions {
        return full(&mut socket);
    }
    shared.most_open.fetch_max(open, Ordering::Relaxed);

    let mut secret = 0;
    loop {
        let text = match socket.read()? {
            Message::Text(text) => text.to_string(),
            Message::Pong(_) => {
                shared.pongs.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            Message::Close(_) => return Ok(()),
            _ => continue,
        };

        let message: Value = serde_json::from_str(&text)?;
        shared.seen.lock().unwrap_or_else(PoisonError::into_inner).push(text);

        let data = &message["data"];
        let mut answer = match message["type"].as_str() {
            Some("reset") => {
                let seed = data["seed"].as_u64().map(|seed| (seed % 10) as i64);
                secret = data["secret"].as_i64().or(seed).unwrap_or(0);
                if shared.options.fickle {
                    secret = (shared.messages.load(Ordering::Relaxed) % 10) as i64;
                }
                let (split, index) = (data["split"].as_str(), data["index"].as_u64());
                let known = &shared.options.tasks;
                match (split, index) {
                    (None, _) => observation(&format!("Guess digit {}.", secret / 10), None, false),
                    (Some(split), Some(index))
                        if known.iter().any(|it| it.0 == split && index < it.1) =>
                    {
                        secret = (index % 10) as i64;
                        observation(&format!("Guess digit {index}: {split}."), None, false)
                    }
                    _ => error("EXECUTION_ERROR", "no such task"),
                }
            }
            Some("step") => match data["message"].as_str().map(|it| it.trim().parse::<i64>()) {
                None => error("VALIDATION_ERROR", "Invalid message"),
                Some(Err(_)) => observation("?", None, false),
                Some(Ok(guess)) if guess == secret => observation("=", Some(1.0), true),
                Some(Ok(guess)) => observation(if guess < secret { ">" } else { "<" }, None, false),
            },
            _ => return Ok(()),
        };

        let trouble = (shared.options.troubles)(shared.messages.fetch_add(1, Ordering::Relaxed));
        match trouble {
            None => {}
            Some(Trouble::Delay) => thread::sleep(Duration::from_millis(100)),
            Some(Trouble::Drop) => return Ok(()),
            Some(Trouble::Half) => {
                let text = answer.to_string();
                return raw(&mut socket, &text, &text.as_bytes()[..text.len() / 2], Duration::ZERO);
            }
            Some(Trouble::Hang) => {
                let mut buffer = [0; 64];
                while socket.get_mut().read(&mut buffer)? > 0 {}
                return Ok(());
            }
            Some(Trouble::Trickle) => {
                let text = answer.to_string();
                return raw(&mut socket, &text, text.as_bytes(), Duration::from_millis(20));
            }
            Some(Trouble::Huge) => {
                answer["data"]["observation"]["message"] = " ".repeat(2 << 20).into();
            }
            Some(Trouble::Binary) => {
                socket.send(Message::binary(vec![1, 2, 3]))?;
                return Ok(());
            }
            Some(Trouble::Nonsense) => {
                socket.send(Message::text("{\"type\": "))?;
                continue;
            }
            Some(Trouble::Empty) => answer = json!({"type": "observation", "data": {}}),
            Some(Trouble::NotANumber) => answer["data"]["reward"] = "much".into(),
            Some(Trouble::TooLarge) => answer["data"]["reward"] = json!(1e300),
            Some(Trouble::Perhaps) => answer["data"]["done"] = "perhaps".into(),
            Some(Trouble::Pings) => {
                while !shared.ended.load(Ordering::Relaxed) {
                    socket.send(Message::Ping("here?".into()))?;
                }
                return Ok(());
            }
            Some(Trouble::Broken) => {
                socket.send(Message::text(error("SESSION_ERROR", "it broke").to_string()))?;
                return Ok(socket.close(None)?);
            }
            Some(Trouble::Full) => return full(&mut socket),
            Some(Trouble::Failed) => answer = error("EXECUTION_ERROR", "division\u{1b}[2J by zero"),
            Some(Trouble::Invalid) => answer = error("VALIDATION_ERROR", "Invalid message"),
        }

        socket.send(Message::text(answer.to_string()))?;
        // The ping comes after the answer, where a client that waits for the answer does not read it.
        socket.send(Message::Ping("here?".into()))?;
    }
}

/// Answers a question of OpenEnv's task API.
fn list_tasks(mut stream: TcpStream, shared: &Shared) -> Result<(), Failed> {
    let (path, key, body) = http::read(&mut stream)?;
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let tasks = &shared.options.tasks;
    let count = tasks.iter().find(|it| asked["split"] == it.0).map(|it| it.1);
    let splits = || tasks.iter().map(|it| json!({"name": it.0, "type": "train"})).collect();

    let wanted = shared.options.key.as_ref().map(|key| format!("Bearer {key}"));
    let (status, answer) = match path.as_str() {
        _ if wanted.is_some_and(|wanted| wanted != key) => (401, Value::Null),
        "/list_environments" => (200, json!(["guessing"])),
        "/guessing/splits" => (200, Value::Array(splits())),
        "/guessing/num_tasks" => (200, json!({ "num_tasks": count })),
        _ => (403, Value::Null),
    };
    let answer = answer.to_string();
    let length = answer.len();
    let head =
        format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    Ok(stream.write_all(format!("{head}{answer}").as_bytes())?)
}

fn observation(message: &str, reward: Option<f64>, done: bool) -> Value {
    json!({"type": "observation", "data": {"observation": {"message": message}, "reward": reward, "done": done}})
}

fn error(code: &str, message: &str) -> Value {
    json!({"type": "error", "data": {"message": message, "code": code}})
}

fn full(socket: &mut WebSocket<TcpStream>) -> Result<(), Failed> {
    socket.send(Message::text(error("CAPACITY_REACHED", "Server at capacity").to_string()))?;
    Ok(socket.close(None)?)
}

/// Announces `text` and sends these bytes of it, one by one if there is a pause.
fn raw(
    socket: &mut WebSocket<TcpStream>,
    text: &str,
    bytes: &[u8],
    pause: Duration,
) -> Result<(), Failed> {
    let stream = socket.get_mut();
    let length = u16::try_from(text.len())?.to_be_bytes();
    // A whole text frame, whose length takes 16 bits (RFC 6455).
    stream.write_all(&[0x81, 126, length[0], length[1]])?;
    if pause.is_zero() {
        return Ok(stream.write_all(bytes)?);
    }

    let began = Instant::now();
    for byte in bytes {
        stream.write_all(&[*byte])?;
        thread::sleep(pause);
        if began.elapsed() > Duration::from_secs(20) {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
    }
    Ok(())
}
