//! The page of runs, served to a browser on the same machine.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use rand::RngExt as _;
use serde_json::json;
use tiny_http::{Header, Method, Request, Response, Server};

use crate::{
    ViewError,
    curves::curves,
    index::Index,
    page::{findings, page, status},
    run::{Run, distinguish},
};

/// Serves the page of runs to browsers on this machine, and to nobody who does not know its address: a random word is part of
/// it. Nothing is served but what the page shows.
pub struct Watched {
    server: Server,
    address: SocketAddr,
    token: String,
    runs: Vec<Run>,
    book: Option<String>,
    index: Option<Index>,
}

/// How long a request is waited for, before the one who stops is asked.
const PATIENCE: Duration = Duration::from_millis(200);

impl Watched {
    /// Listens on 127.0.0.1, at `port` or with 0 at any that is free.
    ///
    /// # Errors
    /// When the port can't be had.
    pub fn listen(mut runs: Vec<Run>, port: u16, book: Option<String>) -> Result<Self, ViewError> {
        distinguish(&mut runs);
        let failed = |error| ViewError::Listen { port, error };
        let server = Server::http((Ipv4Addr::LOCALHOST, port))
            .map_err(|error| failed(io::Error::other(error)))?;
        let address = server.server_addr().to_ip();
        let address = address.ok_or_else(|| failed(io::ErrorKind::AddrNotAvailable.into()))?;
        let token = format!("{:032x}", rand::rng().random::<u128>());
        Ok(Watched { server, address, token, runs, book, index: None })
    }

    /// Where the page is.
    pub fn address(&self) -> String {
        format!("http://{}/{}/", self.address, self.token)
    }

    /// Answers requests until `stop` is set.
    ///
    /// # Errors
    /// When the socket fails. A record that can't be read is told to the browser.
    pub fn serve(&mut self, stop: &AtomicBool) -> Result<(), ViewError> {
        while !stop.load(Ordering::Relaxed) {
            let request = self.server.recv_timeout(PATIENCE);
            let port = self.address.port();
            if let Some(request) = request.map_err(|error| ViewError::Listen { port, error })? {
                let answer = self.answer(&request);
                // A browser that went away has no use for it.
                let _ = request.respond(answer);
            }
        }
        Ok(())
    }

    fn answer(&mut self, request: &Request) -> Response<io::Cursor<Vec<u8>>> {
        if let Err(refusal) = self.check(request) {
            return text(403, refusal);
        }
        if !matches!(request.method(), Method::Get | Method::Head) {
            return text(405, "The page only reads.");
        }
        let (path, query) = request.url().split_once('?').unwrap_or((request.url(), ""));
        let begin = format!("/{}/", self.token);
        let Some(asked) = path.strip_prefix(&begin) else {
            return text(
                404,
                "Nothing is here: the address of the page has a word in it that the terminal shows.",
            );
        };
        match self.content(asked, query) {
            Ok(Some((kind, body))) => content(200, kind, body),
            Ok(None) => text(404, "The page has no such part."),
            Err(error) => text(500, &error.to_string()),
        }
    }

    /// Other sites' pages may ask, as the browser's user; and another name for this machine may be theirs.
    fn check(&self, request: &Request) -> Result<(), &'static str> {
        let header = |name: &'static str| {
            let header = request.headers().iter().find(|header| header.field.equiv(name));
            header.map(|header| header.value.as_str())
        };
        let port = self.address.port();
        let own = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
        if !header("Host").is_some_and(|host| own.iter().any(|own| own == host)) {
            return Err("The page is asked for by another name than 127.0.0.1 or localhost.");
        }
        let from_here = |origin: &str| {
            origin.strip_prefix("http://").is_some_and(|host| own.iter().any(|own| own == host))
        };
        if header("Origin").is_some_and(|origin| !from_here(origin)) {
            return Err("Another site's page asked.");
        }
        match header("Sec-Fetch-Site") {
            Some("cross-site" | "same-site") => Err("Another site's page asked."),
            _ => Ok(()),
        }
    }

    /// A part of the page with its media type; none where there is no such part.
    fn content(
        &mut self,
        asked: &str,
        query: &str,
    ) -> Result<Option<(&'static str, String)>, ViewError> {
        let book = self.book.as_deref();
        Ok(Some(match asked {
            "" => (HTML, page(&self.runs, book, Some(&self.version()?), "")?),
            "state" => (JSON, self.state()?),
            "curves" => (HTML, curves(&self.runs, book)?),
            "findings" => (HTML, findings(&self.runs, book)?),
            "index" => (JSON, json(self.index.insert(Index::of(&self.runs)?))),
            _ => {
                let Some(Ok(number)) = asked.strip_prefix("block/").map(str::parse) else {
                    return Ok(None);
                };
                let index = match self.index.take() {
                    Some(index) => index,
                    None => Index::of(&self.runs)?,
                };
                let index = self.index.insert(index);
                // The blocks of another list than the page has would put texts beside other completions.
                if query.strip_prefix("rows=").is_some_and(|rows| rows != index.len().to_string()) {
                    return Ok(None);
                }
                match index.block(&self.runs, number)? {
                    Some(block) => (JSON, json(&block)),
                    None => return Ok(None),
                }
            }
        }))
    }

    fn state(&self) -> Result<String, ViewError> {
        let mut going = false;
        for run in &self.runs {
            going |= run.status()?.ended.is_none();
        }
        let state = json!({
            "version": self.version()?, "rows": self.rows()?, "status": status(&self.runs)?, "going": going,
        });
        Ok(state.to_string())
    }

    /// A text that changes with new numbers and new lines.
    fn version(&self) -> Result<String, ViewError> {
        let of_run =
            |run: &Run| Ok(format!("{}.{}", run.store.last_step()?, run.store.told(0)?.len()));
        Ok(self.runs.iter().map(of_run).collect::<Result<Vec<_>, ViewError>>()?.join("-"))
    }

    fn rows(&self) -> Result<u64, ViewError> {
        let mut rows = 0;
        for run in &self.runs {
            rows += run.store.completions()?;
        }
        Ok(rows)
    }
}

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".into())
}

fn text(status: u16, text: &str) -> Response<io::Cursor<Vec<u8>>> {
    content(status, "text/plain; charset=utf-8", text.to_owned())
}

fn content(status: u16, kind: &str, body: String) -> Response<io::Cursor<Vec<u8>>> {
    let headers = [
        ("Content-Type", kind),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("X-Frame-Options", "DENY"),
    ];
    let mut response = Response::from_string(body).with_status_code(status);
    for (name, value) in headers {
        if let Ok(header) = Header::from_bytes(name, value) {
            response.add_header(header);
        }
    }
    response
}
