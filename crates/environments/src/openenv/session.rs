//! One connection to an environment's server, bounded in time and in size.

use std::{
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{self, ErrorKind, Read, Write},
    net::{TcpStream, ToSocketAddrs as _},
    sync::{Arc, Mutex, MutexGuard, Once, PoisonError},
    time::{Duration, Instant},
};

use firebrick_core::Key;
use serde_json::{Map, Value, json};
use tungstenite::{
    Error, HandshakeError, Message, WebSocket,
    client::IntoClientRequest as _,
    client_tls_with_config,
    handshake::client::Request,
    http::{HeaderValue, Uri},
    protocol::WebSocketConfig,
    stream::MaybeTlsStream,
};

use super::{OpenEnvError, shown};

/// The largest message that a server may send, in bytes.
pub(super) const LARGEST: usize = 1 << 20;

/// The number of pings that are answered at a time.
const PINGS: usize = 4;

/// The number of letters of a server's error code that are kept.
const CODE: usize = 40;

/// A server's address, with the key that opens it.
#[derive(Clone, Debug)]
pub(super) struct Address {
    /// The address as people write it.
    base: String,
    uri: Uri,
    key: Option<(Key, HeaderValue)>,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)
    }
}

impl Address {
    /// Makes an address. Only the form of `base` is checked.
    pub(super) fn new(base: &str, key: Option<&Key>) -> Result<Self, OpenEnvError> {
        let key = key.map(|key| {
            let header = HeaderValue::from_str(&format!("Bearer {}", key.word()));
            let mut header = header.map_err(|_| OpenEnvError::Key)?;
            header.set_sensitive(true);
            Ok::<_, OpenEnvError>((key.clone(), header))
        });
        let uri =
            Address::uri(base).ok_or_else(|| OpenEnvError::Address { address: base.into() })?;
        Ok(Address { base: base.trim_end_matches('/').into(), uri, key: key.transpose()? })
    }

    fn uri(base: &str) -> Option<Uri> {
        let (scheme, rest) = base.trim_end_matches('/').split_once("://")?;
        // The path of the connection is added here.
        let rest = rest.strip_suffix("/ws").unwrap_or(rest);
        let scheme = match scheme {
            "http" | "ws" => "ws",
            "https" | "wss" => "wss",
            _ => return None,
        };
        let uri: Uri = format!("{scheme}://{rest}/ws").parse().ok()?;
        let (host, authority) = (uri.host()?, uri.authority()?);
        // Only a port may stand behind the host: another port must not get the key.
        let port = authority.as_str().len() == host.len() || uri.port_u16().is_some();
        // A name and a password before the host would be in every message.
        (!host.is_empty() && port && !rest.contains(['@', '?', '#'])).then_some(uri)
    }

    fn request(&self) -> Result<Request, Error> {
        let mut request = self.uri.clone().into_client_request()?;
        if let Some((_, header)) = &self.key {
            request.headers_mut().insert("authorization", header.clone());
        }
        Ok(request)
    }

    fn connect(&self, until: Instant) -> Result<TcpStream, Error> {
        let host = self.uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = self.uri.port_u16();
        let port = port.unwrap_or(if self.uri.scheme_str() == Some("wss") { 443 } else { 80 });
        let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in (host, port).to_socket_addrs()? {
            let left = until.saturating_duration_since(Instant::now());
            match TcpStream::connect_timeout(&address, left.max(Duration::from_millis(1))) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last.into())
    }
}

/// The reasons why a message has no answer.
#[derive(Debug)]
pub(super) enum Lost {
    /// The connection failed, or brought something that is no answer.
    Connection(String),
    /// The server plays as many episodes as it can.
    Full(String),
    /// The environment says that the message does not have the form that it wants.
    Malformed(String),
    /// The environment says that it failed.
    Refused(String),
}

/// An environment's answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) observation: Map<String, Value>,
    pub(super) reward: Option<f32>,
    pub(super) done: bool,
}

impl Answer {
    /// Gives a number that stands for the whole answer: equal answers have equal numbers.
    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let Answer { observation, reward, done } = self;
        (json!(observation).to_string(), reward.map(f32::to_bits), done).hash(&mut hasher);
        hasher.finish()
    }
}

/// A connection, in which one episode is played after the other.
pub(super) struct Session {
    socket: Arc<Mutex<Socket>>,
    time_limit: Duration,
    key: Option<Key>,
    /// True while every message has had an answer.
    sound: bool,
}

impl Session {
    /// Connects. The server then gives the episode an environment of its own.
    pub(super) fn open(address: &Address, time_limit: Duration) -> Result<Self, Lost> {
        // Other crates may bring a second provider, and then none is the default.
        static RING: Once = Once::new();
        RING.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
        let until = Instant::now() + time_limit;
        let config = WebSocketConfig::default()
            .read_buffer_size(4 << 10)
            .write_buffer_size(0)
            .max_message_size(Some(LARGEST))
            .max_frame_size(Some(LARGEST));
        let open = || {
            let stream = Timed { stream: address.connect(until)?, until };
            client_tls_with_config(address.request()?, stream, Some(config), None).map_err(
                |error| match error {
                    HandshakeError::Failure(error) => error,
                    HandshakeError::Interrupted(_) => silent(),
                },
            )
        };
        let failed = |error| Lost::Connection(said(error, time_limit));
        let (socket, _) = open().map_err(failed)?;
        let socket = Arc::new(Mutex::new(Socket(socket)));
        let key = address.key.as_ref().map(|(key, _)| key.clone());
        Ok(Session { socket, time_limit, key, sound: true })
    }

    /// Sends a message of the given kind, and gives the answer to it.
    pub(super) fn ask(&mut self, kind: &str, data: &Value) -> Result<Answer, Lost> {
        let answer = self.answer(kind, data);
        self.sound &= !matches!(answer, Err(Lost::Connection(_) | Lost::Full(_)));
        answer
    }

    /// Tells whether another episode may begin here.
    pub(super) fn is_sound(&self) -> bool {
        self.sound
    }

    fn answer(&self, kind: &str, data: &Value) -> Result<Answer, Lost> {
        let message = json!({ "type": kind, "data": data }).to_string();
        let text = self.socket().ask(message, self.time_limit);
        let text = text.map_err(|error| Lost::Connection(said(error, self.time_limit)))?;
        let value: Value = serde_json::from_str(&text).map_err(|error| {
            Lost::Connection(format!("its answer to {kind} is not JSON: {error}"))
        })?;
        let wrong = |what: &str| {
            let came = self.shown(&text);
            Lost::Connection(format!("its answer to {kind} {what}, but is {came}"))
        };
        let data =
            value["data"].as_object().ok_or_else(|| wrong("should have an object `data`"))?;
        match value["type"].as_str() {
            Some("observation") => {}
            Some("error") => {
                let text = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or_default();
                let code: String = text("code").chars().take(CODE).collect();
                let mut words = self.shown(text("message"));
                if let Some(errors) = data.get("errors") {
                    words = format!("{words}: {}", self.shown(&errors.to_string()));
                }
                let words = format!("{words} ({code})");
                return Err(match code.as_str() {
                    "CAPACITY_REACHED" => Lost::Full(words),
                    "FACTORY_ERROR" | "SESSION_ERROR" => Lost::Connection(words),
                    "VALIDATION_ERROR" => Lost::Malformed(words),
                    _ => Lost::Refused(words),
                });
            }
            _ => return Err(wrong("should have the type `observation` or `error`")),
        }
        let observation = match data.get("observation") {
            Some(Value::Object(observation)) => observation.clone(),
            _ => return Err(wrong("should have an object `observation`")),
        };
        let reward = match data.get("reward") {
            None | Some(Value::Null) => None,
            Some(Value::Bool(right)) => Some(f32::from(u8::from(*right))),
            Some(reward) => {
                let reward = reward.as_f64().map(|reward| reward as f32);
                let finite = reward.filter(|reward| reward.is_finite());
                Some(finite.ok_or_else(|| wrong("should have a number as `reward`"))?)
            }
        };
        let done = match data.get("done") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(done)) => *done,
            Some(_) => return Err(wrong("should have `done` true or false")),
        };
        Ok(Answer { observation, reward, done })
    }

    /// Says that no more messages come.
    pub(super) fn say_farewell(&mut self) {
        let mut socket = self.socket();
        socket.limit(Duration::from_millis(20));
        // A server that does not hear it finds the connection closed.
        let _ = socket.0.send(Message::text(r#"{"type": "close"}"#));
    }

    /// Waits for the server to close the connection.
    pub(super) fn hear_farewell(&mut self, until: Instant) {
        let mut socket = self.socket();
        socket.limit(until.saturating_duration_since(Instant::now()));
        while socket.0.read().is_ok() {}
    }

    pub(super) fn shared(&self) -> &Arc<Mutex<Socket>> {
        &self.socket
    }

    fn socket(&self) -> MutexGuard<'_, Socket> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shown(&self, text: &str) -> String {
        shown(text, self.key.as_ref())
    }
}

pub(super) struct Socket(WebSocket<MaybeTlsStream<Timed>>);

impl Socket {
    fn ask(&mut self, message: String, time_limit: Duration) -> Result<String, Error> {
        self.limit(time_limit);
        self.0.send(Message::text(message))?;
        loop {
            match self.0.read()? {
                Message::Text(text) => return Ok(text.to_string()),
                Message::Ping(_) | Message::Pong(_) => self.0.flush()?,
                Message::Close(_) => return Err(Error::ConnectionClosed),
                _ => return Err(io::Error::other("it sent bytes, expected text").into()),
            }
        }
    }

    /// Answers a server that asks whether somebody is there. If it asks again and again, only some pings are
    /// answered, so that nobody waits for it.
    pub(super) fn answer_pings(&mut self) {
        for _ in 0..PINGS {
            self.limit(Duration::from_millis(1));
            if !matches!(self.0.read(), Ok(Message::Ping(_) | Message::Pong(_))) {
                break;
            }
            self.limit(Duration::from_millis(10));
            if self.0.flush().is_err() {
                break;
            }
        }
    }

    /// Sets the time for everything that comes next, all of it together.
    fn limit(&mut self, time: Duration) {
        let until = Instant::now() + time;
        match self.0.get_mut() {
            MaybeTlsStream::Plain(timed) => timed.until = until,
            MaybeTlsStream::Rustls(stream) => stream.sock.until = until,
            _ => {}
        }
    }
}

/// A stream with a deadline for everything together: a server that sends a byte now and then is silent too.
#[derive(Debug)]
pub(super) struct Timed {
    stream: TcpStream,
    until: Instant,
}

impl Timed {
    fn left(&self) -> io::Result<Option<Duration>> {
        match self.until.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => Ok(Some(left)),
            _ => Err(ErrorKind::TimedOut.into()),
        }
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn silent() -> Error {
    Error::Io(ErrorKind::TimedOut.into())
}

/// Puts an error into words.
fn said(error: Error, time_limit: Duration) -> String {
    match error {
        Error::Io(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) => {
            format!("it gave no answer within {} s", time_limit.as_secs_f64())
        }
        Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
            "it refuses connections: is the server up?".into()
        }
        Error::Http(response) => {
            let status = response.status().as_u16();
            format!("it answered with status {status} at /ws below its address")
        }
        Error::Tls(error) => format!("{error}: does the server speak TLS?"),
        Error::Io(error) if error.to_string().contains("InvalidContentType") => {
            "it does not speak TLS: should the address begin with http://?".into()
        }
        Error::ConnectionClosed | Error::AlreadyClosed => "it closed the connection".into(),
        error => error.to_string(),
    }
}
