//! Sends a request to one server and reads its answer, both bounded in time and size.

use std::{io, time::Duration};

use firebrick_core::Key;
use serde_json::Value;
use ureq::{Agent, Body, Error, RequestBuilder, Timeout, http::Response};

use crate::{PoolError, ServerError};

/// How many characters of a server's text are kept for a message.
const WORDS: usize = 300;

/// Failures before anything is sent.
const NOT_SENT: [io::ErrorKind; 4] = [
    io::ErrorKind::ConnectionRefused,
    io::ErrorKind::HostUnreachable,
    io::ErrorKind::NetworkUnreachable,
    io::ErrorKind::AddrNotAvailable,
];

/// Limit in bytes of a short answer.
pub(crate) const SMALL: u64 = 1 << 20;

/// Address of one server, with its access key.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    agent: Agent,
    base: String,
    key: Option<Key>,
    /// True if the key is also sent as Tinker's servers want it.
    api_key_header: bool,
}

impl Address {
    /// Makes an address. Only the syntax of `base` is checked.
    pub(crate) fn new(base: &str, key: Option<Key>) -> Result<Self, PoolError> {
        let refuse = || {
            let address = base.rsplit_once('@').map_or(base, |(_, address)| address);
            PoolError::Address { address: address.into() }
        };

        let uri: ureq::http::Uri = base.parse().map_err(|_| refuse())?;
        let scheme = uri.scheme_str().is_some_and(|scheme| matches!(scheme, "http" | "https"));
        // A name and a password before the host would be in every message.
        let named = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        if !scheme || uri.host().is_none() || uri.query().is_some() || named {
            return Err(refuse());
        }

        let config = Agent::config_builder()
            .user_agent(concat!("firebrick/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            // Redirects are not followed, because the key must not be sent elsewhere, nor samples be taken from there.
            .max_redirects(0)
            .timeout_connect(Some(Duration::from_secs(10)))
            // A restarted server may have another address, and an idle connection may be dead.
            .max_idle_connections(0)
            // Servers are in the trainer's own network.
            .proxy(None);

        let base = base.trim_end_matches('/').to_owned();
        Ok(Address { agent: config.build().into(), base, key, api_key_header: false })
    }

    /// Sends the key in the header `X-API-Key` as well.
    pub(crate) fn with_api_key_header(self) -> Self {
        Address { api_key_header: true, ..self }
    }

    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Sends `body` to `path`, and reads an answer of at most `limit` bytes. Both together may take `deadline`.
    pub(crate) fn post(
        &self,
        path: &'static str,
        body: &Value,
        deadline: Duration,
        limit: u64,
    ) -> Result<Value, ServerError> {
        self.post_bytes(path, &serde_json::to_vec(body).unwrap_or_default(), deadline, limit)
    }

    /// Does the same with a body in JSON.
    pub(crate) fn post_bytes(
        &self,
        path: &'static str,
        body: &[u8],
        deadline: Duration,
        limit: u64,
    ) -> Result<Value, ServerError> {
        let request = self.prepared(self.agent.post(format!("{}{path}", self.base)), deadline);
        let request = request.header("content-type", "application/json");
        self.read(path, request.send(body), deadline, limit)
    }

    /// Asks for `path`.
    pub(crate) fn get(&self, path: &'static str, deadline: Duration) -> Result<Value, ServerError> {
        let request = self.prepared(self.agent.get(format!("{}{path}", self.base)), deadline);
        self.read(path, request.call(), deadline, SMALL)
    }

    /// Downloads a file of at most `limit` bytes. One redirection is followed, to the same host; `None` if the file is on
    /// another.
    pub(crate) fn download(
        &self,
        request: &'static str,
        path: &str,
        deadline: Duration,
        limit: u64,
    ) -> Result<Option<Vec<u8>>, ServerError> {
        let get = |url: String| self.prepared(self.agent.get(url), deadline).call();
        let response = get(format!("{}{path}", self.base));
        let location = match &response {
            Ok(response) if response.status().is_redirection() => {
                response.headers().get("location").and_then(|location| location.to_str().ok())
            }
            _ => None,
        };
        let Some(location) = location else {
            return self.read_bytes(request, response, deadline, limit).map(Some);
        };

        // A proxy may have another scheme than the server behind it.
        let after_scheme = |url: &str| url.split_once("://").map(|(_, rest)| rest.to_owned());
        let base = after_scheme(&self.base).unwrap_or_default();
        let there = match after_scheme(location) {
            Some(there) => there.strip_prefix(&base).map(str::to_owned),
            None => Some(location.to_owned()),
        };
        let there = there.filter(|there| there.starts_with('/') && !there.starts_with("//"));
        let Some(there) = there else { return Ok(None) };
        let response = get(format!("{}{there}", self.base));
        self.read_bytes(request, response, deadline, limit).map(Some)
    }

    /// Sets a request's deadline, and adds the server's access key.
    fn prepared<B>(&self, request: RequestBuilder<B>, deadline: Duration) -> RequestBuilder<B> {
        let request = request.config().timeout_global(Some(deadline)).build();
        let Some(key) = &self.key else { return request };
        let request = request.header("authorization", format!("Bearer {}", key.word()));
        if self.api_key_header { request.header("x-api-key", key.word()) } else { request }
    }

    /// Reads the JSON of an answer. Returns null if the answer is not JSON, because some servers answer with nothing
    /// but their status.
    fn read(
        &self,
        request: &'static str,
        response: Result<Response<Body>, Error>,
        deadline: Duration,
        limit: u64,
    ) -> Result<Value, ServerError> {
        let bytes = self.read_bytes(request, response, deadline, limit)?;
        Ok(serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// Makes a short line of a server's text, without control characters.
    pub(crate) fn words(&self, text: &[u8]) -> String {
        let text = String::from_utf8_lossy(text);
        // A server, or a proxy before it, may repeat the key.
        let text = match &self.key {
            Some(key) => text.replace(key.word(), "***").into(),
            None => text,
        };
        text.chars().take(WORDS).map(|c| if c.is_control() { ' ' } else { c }).collect()
    }

    /// Reads the bytes of an answer.
    fn read_bytes(
        &self,
        request: &'static str,
        response: Result<Response<Body>, Error>,
        deadline: Duration,
        limit: u64,
    ) -> Result<Vec<u8>, ServerError> {
        let failed = |error: Error| match error {
            Error::Timeout(Timeout::Connect | Timeout::Resolve) => {
                ServerError::Unreachable(error.to_string())
            }
            Error::Timeout(_) => ServerError::Silent { seconds: deadline.as_secs() },
            Error::BodyExceedsLimit(limit) => {
                let problem = format!("it is larger than {limit} bytes");
                ServerError::Answer { request, problem }
            }
            Error::HostNotFound | Error::ConnectionFailed => {
                ServerError::Unreachable(error.to_string())
            }
            Error::Tls(_) | Error::Rustls(_) => ServerError::Unreachable(error.to_string()),
            Error::Io(error) if NOT_SENT.contains(&error.kind()) => {
                ServerError::Unreachable(error.to_string())
            }
            error => ServerError::Lost(error.to_string()),
        };

        let mut response = response.map_err(failed)?;
        let status = response.status().as_u16();
        let limit = if status == 200 { limit } else { SMALL };
        let text = response.body_mut().with_config().limit(limit).read_to_vec();

        let words = |text: &[u8]| self.words(text);
        match status {
            200 => text.map_err(failed),
            429 | 503 => Err(ServerError::Busy { status }),
            400..=499 => {
                let words = words(&text.unwrap_or_default());
                Err(ServerError::Refused { request, status, words })
            }
            _ => Err(ServerError::Failed {
                request,
                status,
                words: words(&text.unwrap_or_default()),
            }),
        }
    }
}
