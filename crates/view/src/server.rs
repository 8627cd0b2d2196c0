//! A server of one page, for browsers on the same machine.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rand::RngExt as _;

use crate::{
    ViewError,
    live::{HTML, Live},
    run::{Run, distinguish},
};

/// A server of the page of runs, for browsers on this machine. A random word is part of the page's address, so
/// nobody gets the page without knowing the address. Nothing else is served.
///
/// The server speaks as much HTTP as that takes: it reads the head of a GET or HEAD request, answers, and closes
/// the connection. It never reads a body, and drops slow clients.
pub struct Watched {
    listener: TcpListener,
    address: SocketAddr,
    token: String,
    live: Arc<Mutex<Live>>,
}

/// The number of requests that are answered at once. Further ones are closed.
const AT_ONCE: usize = 32;

/// The largest head of a request, in bytes.
const HEAD: usize = 16 << 10;

/// The time that a request's head may take.
const TO_ASK: Duration = Duration::from_secs(5);

/// The time that a browser may take to read the next part of an answer.
const TO_READ: Duration = Duration::from_secs(20);

/// The time between two looks for a new request.
const PAUSE: Duration = Duration::from_millis(20);

impl Watched {
    /// Listens on 127.0.0.1 at `port`; 0 stands for any free port. `book` is the address of the book, to which
    /// charts and findings link.
    ///
    /// # Errors
    /// Fails if the port can't be had.
    pub fn listen(mut runs: Vec<Run>, port: u16, book: Option<String>) -> Result<Self, ViewError> {
        distinguish(&mut runs);
        let failed = |error| ViewError::Listen { port, error };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let token = format!("{:032x}", rand::rng().random::<u128>());
        Ok(Watched { listener, address, token, live: Arc::new(Mutex::new(Live::new(runs, book))) })
    }

    /// Returns the page's address.
    pub fn address(&self) -> String {
        format!("http://{}/{}/", self.address, self.token)
    }

    /// Answers requests until `stop` is set. If a record can't be read, the browser gets the error.
    ///
    /// # Errors
    /// Fails if the socket fails.
    pub fn serve(&self, stop: &AtomicBool) -> Result<(), ViewError> {
        let open = Arc::new(AtomicUsize::new(0));
        while !stop.load(Ordering::Relaxed) {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if is_of_one_caller(&error) => {
                    thread::sleep(PAUSE);
                    continue;
                }
                Err(error) => {
                    return Err(ViewError::Listen { port: self.address.port(), error });
                }
            };
            if open.load(Ordering::Relaxed) >= AT_ONCE {
                continue;
            }
            let (token, live) = (self.token.clone(), Arc::clone(&self.live));
            let taken = Taken::of(&open);
            // If no other thread can be started, the connection is closed.
            let _ = thread::Builder::new().spawn(move || {
                let _taken = taken;
                // A browser that went away has no use for an answer.
                let _ = answer(stream, &token, &live);
            });
        }
        Ok(())
    }
}

/// Tells whether an error passes by itself: nobody asks at the moment, the caller has gone, or too many files are
/// open for now.
fn is_of_one_caller(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted | ConnectionAborted | ConnectionReset)
        // EMFILE and ENFILE have no kind.
        || matches!(error.raw_os_error(), Some(23 | 24))
}

/// One of the requests that are being answered.
struct Taken(Arc<AtomicUsize>);

impl Taken {
    fn of(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Taken(Arc::clone(open))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The parts of a request that matter here.
struct Asked {
    method: String,
    path: String,
    query: String,
    /// The headers, with names in lower case.
    headers: Vec<(String, String)>,
}

impl Asked {
    fn of(request: &httparse::Request<'_, '_>) -> Self {
        let target = request.path.unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let headers = request.headers.iter().map(|header| {
            let value = String::from_utf8_lossy(header.value).into_owned();
            (header.name.to_ascii_lowercase(), value)
        });
        Asked {
            method: request.method.unwrap_or_default().to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            headers: headers.collect(),
        }
    }
}

fn answer(mut stream: TcpStream, token: &str, live: &Mutex<Live>) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(TO_READ))?;
    let Some(asked) = read(&mut stream)? else {
        return respond(
            &mut stream,
            400,
            TEXT,
            "This is no request that the page understands.",
            true,
        );
    };
    let body = asked.method != "HEAD";
    let (status, kind, text) = content(&asked, token, live);
    respond(&mut stream, status, kind, &text, body)
}

/// Returns the answer: a status, a media type and a text.
fn content(asked: &Asked, token: &str, live: &Mutex<Live>) -> (u16, &'static str, String) {
    if let Err(refusal) = check(asked) {
        return (403, TEXT, refusal);
    }
    if !matches!(&*asked.method, "GET" | "HEAD") {
        return (405, TEXT, "The page only reads.".into());
    }
    let Some(part) = asked.path.strip_prefix(&format!("/{token}/")) else {
        let elsewhere = "Nothing is here. The terminal shows the page's full address.";
        return (404, TEXT, elsewhere.into());
    };
    // A part that panicked leaves nothing half done, so a poisoned lock is no problem.
    let mut live = live.lock().unwrap_or_else(PoisonError::into_inner);
    match live.content(part, &asked.query) {
        Ok(Some((kind, text))) => (200, kind, text),
        Ok(None) => (404, TEXT, "The page has no such part.".into()),
        Err(error) => (500, TEXT, error.to_string()),
    }
}

/// Refuses requests from other sites. Their pages may ask in the name of the browser's user, and a name of theirs
/// may point to this machine. So the request has to use one of the machine's own names. The port does not matter,
/// because a tunnel may change it. Pages of other origins are refused.
fn check(asked: &Asked) -> Result<(), String> {
    let header = |name: &str| {
        asked.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    };
    let host = header("host").unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    if !["127.0.0.1", "localhost"].contains(&name) {
        return Err("The page answers to 127.0.0.1 and localhost alone.".into());
    }
    let foreign = Err("The request comes from another site's page.".into());
    if header("origin").is_some_and(|origin| origin != format!("http://{host}")) {
        return foreign;
    }
    // A link to the page may stand on any site. It shows the page to the reader, and tells the site nothing.
    let shows = header("sec-fetch-mode") == Some("navigate")
        && header("sec-fetch-dest") == Some("document");
    match header("sec-fetch-site") {
        Some("cross-site" | "same-site") if !shows => foreign,
        _ => Ok(()),
    }
}

/// Reads the head of a request; `None` if it is no head of a request, is too long, or does not come.
fn read(stream: &mut TcpStream) -> io::Result<Option<Asked>> {
    let until = Instant::now() + TO_ASK;
    let mut head = Vec::new();
    let mut bytes = [0; 2048];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() > HEAD {
            return Ok(None);
        }
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut bytes)?;
        if count == 0 {
            return Ok(None);
        }
        head.extend(&bytes[..count]);
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&head) {
            Ok(httparse::Status::Partial) => {}
            Ok(httparse::Status::Complete(_)) => return Ok(Some(Asked::of(&request))),
            Err(_) => return Ok(None),
        }
    }
}

const TEXT: &str = "text/plain; charset=utf-8";

fn respond(
    stream: &mut TcpStream,
    status: u16,
    kind: &str,
    text: &str,
    body: bool,
) -> io::Result<()> {
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        _ => "Internal Server Error",
    };
    let framing = if kind == HTML { "X-Frame-Options: DENY\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\n{framing}\r\n",
        text.len()
    );
    stream.write_all(head.as_bytes())?;
    if body {
        stream.write_all(text.as_bytes())?;
    }
    stream.flush()?;
    // The server needs no more than the head, but to close at once might take the answer back.
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    let _ = stream.read(&mut [0; 2048]);
    Ok(())
}
