//! One connection to an environment's server, bounded in time and in size.

use std::{
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{self, ErrorKind, Read, Write},
    net::{TcpStream, ToSocketAddrs as _},
    sync::{Arc, Mutex, MutexGuard, Once, PoisonError},
    time::{Duration, Instant},
};

use firebrick_core::{Key, Reason};
use rustls::InvalidMessage;
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

/// Maximum size of a server's message, in bytes.
pub(super) const LARGEST: usize = 1 << 20;

/// How many pings are answered at a time.
const PINGS: usize = 4;

/// How many characters of a server's error code are kept.
const CODE: usize = 40;

/// Address of a server, with its access key.
#[derive(Clone, Debug)]
pub(super) struct Address {
    /// Address as people write it.
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
    /// Checks only the syntax of `base`.
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

    /// Returns the address of a path of plain HTTP.
    pub(super) fn http(&self, path: &str) -> String {
        // Name, port and prefix are those of the connection, whose path ends with `/ws`.
        let uri = self.uri.to_string();
        let (scheme, rest) = uri.split_once("://").unwrap_or_default();
        let scheme = if scheme == "wss" { "https" } else { "http" };
        format!("{scheme}://{}/{path}", rest.strip_suffix("/ws").unwrap_or(rest))
    }

    /// Returns the key for access, if there is one.
    pub(super) fn key(&self) -> Option<&Key> {
        self.key.as_ref().map(|(key, _)| key)
    }

    fn uri(base: &str) -> Option<Uri> {
        let (scheme, rest) = base.trim_end_matches('/').split_once("://")?;
        // The connection's path is added below, once.
        let rest = rest.strip_suffix("/ws").unwrap_or(rest);
        let scheme = match scheme {
            "http" | "ws" => "ws",
            "https" | "wss" => "wss",
            _ => return None,
        };

        let uri: Uri = format!("{scheme}://{rest}/ws").parse().ok()?;
        let host = uri.host()?;
        let authority = uri.authority()?;
        // Only a port may follow the host, because another port must not get the key.
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

        let mut last_error = io::Error::new(ErrorKind::NotFound, "the name has no address");

        // All addresses of the name are tried, within one limit.
        for address in (host, port).to_socket_addrs()? {
            let left = until.saturating_duration_since(Instant::now());
            // A time limit of zero would be an error.
            match TcpStream::connect_timeout(&address, left.max(Duration::from_millis(1))) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Err(error) => last_error = error,
            }
        }

        Err(last_error.into())
    }
}

/// Why a message has no answer.
#[derive(Debug)]
pub(super) enum RequestError {
    /// The connection failed, or delivered something that is not an answer.
    Connection(Reason),
    /// The server plays as many episodes as it can.
    Full(Reason),
    /// The environment says that the message has the wrong format.
    Malformed(Reason),
    /// The environment says that it failed.
    Refused(Reason),
}

/// What an environment answers to a reset or a step.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) observation: Map<String, Value>,
    pub(super) reward: Option<f32>,
    pub(super) done: bool,
}

impl Answer {
    /// Hashes the answer, so that equal answers have equal digests.
    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let Answer { observation, reward, done } = self;
        (json!(observation).to_string(), reward.map(f32::to_bits), done).hash(&mut hasher);
        hasher.finish()
    }
}

/// A connection on which one episode is played after the other.
pub(super) struct Session {
    socket: Arc<Mutex<Socket>>,
    time_limit: Duration,
    key: Option<Key>,
    /// True while every message was answered.
    sound: bool,
}

impl Session {
    /// Connects. The server then creates an environment for this connection.
    pub(super) fn open(address: &Address, time_limit: Duration) -> Result<Self, RequestError> {
        // If other crates add a second provider, there is no default.
        static RING: Once = Once::new();
        RING.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));

        let until = Instant::now() + time_limit;
        let config = WebSocketConfig::default()
            .read_buffer_size(4 << 10)
            .write_buffer_size(0)
            .max_message_size(Some(LARGEST))
            .max_frame_size(Some(LARGEST));

        let connect = || {
            let stream = TimedStream { stream: address.connect(until)?, until };
            client_tls_with_config(address.request()?, stream, Some(config), None).map_err(
                |error| match error {
                    HandshakeError::Failure(error) => error,
                    HandshakeError::Interrupted(_) => silent(),
                },
            )
        };

        let failed = |error| RequestError::Connection(explained(error, time_limit));
        let (socket, _) = connect().map_err(failed)?;
        let socket = Arc::new(Mutex::new(Socket(socket)));
        let key = address.key().cloned();
        Ok(Session { socket, time_limit, key, sound: true })
    }

    /// Sends a message of the given kind, and returns the answer to it.
    pub(super) fn ask(&mut self, kind: &str, data: &Value) -> Result<Answer, RequestError> {
        let answer = self.answer(kind, data);
        self.sound &= !matches!(answer, Err(RequestError::Connection(_) | RequestError::Full(_)));
        answer
    }

    /// Tells whether another episode may begin here.
    pub(super) fn is_sound(&self) -> bool {
        self.sound
    }

    fn answer(&self, kind: &str, data: &Value) -> Result<Answer, RequestError> {
        let message = json!({ "type": kind, "data": data }).to_string();
        let text = self.socket().ask(message, self.time_limit);
        let text =
            text.map_err(|error| RequestError::Connection(explained(error, self.time_limit)))?;

        let value: Value = serde_json::from_str(&text).map_err(|error| {
            let sentence = format!("its answer to {kind} is not JSON: {error}");
            RequestError::Connection(Reason::with_source(sentence, error))
        })?;

        let malformed = |what: &str| {
            let actual = self.shown(&text);
            RequestError::Connection(format!("its answer to {kind} {what}, but is {actual}").into())
        };
        let data =
            value["data"].as_object().ok_or_else(|| malformed("should have an object `data`"))?;

        match value["type"].as_str() {
            Some("observation") => {}
            Some("error") => {
                let text = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or_default();
                let code: String = text("code").chars().take(CODE).collect();
                let mut words = self.shown(text("message"));
                if let Some(errors) = data.get("errors") {
                    words = format!("{words}: {}", self.shown(&errors.to_string()));
                }
                let words = format!("{words} ({code})").into();
                return Err(match code.as_str() {
                    "CAPACITY_REACHED" => RequestError::Full(words),
                    "FACTORY_ERROR" | "SESSION_ERROR" => RequestError::Connection(words),
                    "VALIDATION_ERROR" => RequestError::Malformed(words),
                    _ => RequestError::Refused(words),
                });
            }
            _ => return Err(malformed("should have the type `observation` or `error`")),
        }

        let observation = match data.get("observation") {
            Some(Value::Object(observation)) => observation.clone(),
            _ => return Err(malformed("should have an object `observation`")),
        };
        let reward = match data.get("reward") {
            None | Some(Value::Null) => None,
            // A verdict is a reward of 0 or 1.
            Some(Value::Bool(right)) => Some(f32::from(u8::from(*right))),
            Some(reward) => {
                let reward = reward.as_f64().map(|reward| reward as f32);
                let finite = reward.filter(|reward| reward.is_finite());
                Some(finite.ok_or_else(|| malformed("should have a number as `reward`"))?)
            }
        };
        let done = match data.get("done") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(done)) => *done,
            Some(_) => return Err(malformed("should have `done` true or false")),
        };

        Ok(Answer { observation, reward, done })
    }

    /// Announces that there are no more messages.
    pub(super) fn say_farewell(&mut self) {
        let mut socket = self.socket();
        socket.limit(Duration::from_millis(20));
        // If the server does not receive this, it finds the connection closed.
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

pub(super) struct Socket(WebSocket<MaybeTlsStream<TimedStream>>);

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

    /// Answers a server's pings. If it sends them continuously, only some are answered, so that this does not delay
    /// others.
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

    /// Sets a common deadline for all following operations.
    fn limit(&mut self, time: Duration) {
        let until = Instant::now() + time;
        match self.0.get_mut() {
            MaybeTlsStream::Plain(timed) => timed.until = until,
            MaybeTlsStream::Rustls(stream) => stream.sock.until = until,
            _ => {}
        }
    }
}

/// A stream with one deadline for everything, because a server that sends a byte now and then counts as silent too.
#[derive(Debug)]
pub(super) struct TimedStream {
    stream: TcpStream,
    until: Instant,
}

impl TimedStream {
    fn left(&self) -> io::Result<Option<Duration>> {
        match self.until.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => Ok(Some(left)),
            _ => Err(ErrorKind::TimedOut.into()),
        }
    }
}

impl Read for TimedStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for TimedStream {
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

/// Tells whether a server answered the beginning of TLS with something else.
fn answers_without_tls(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    matches!(cause, Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)))
}

/// Explains an error to the user.
fn explained(error: Error, time_limit: Duration) -> Reason {
    let sentence = match &error {
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
        Error::Io(error) if answers_without_tls(error) => {
            "it does not speak TLS: should the address begin with http://?".into()
        }
        Error::ConnectionClosed | Error::AlreadyClosed => "it closed the connection".into(),
        error => error.to_string(),
    };
    Reason::with_source(sentence, error)
}
