//! A server of one page, for browsers on the same machine.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use firebrick_core::printable_lines;
use rand::RngExt as _;

use crate::{
    ViewError,
    live::{HTML, LivePage},
    run::{Run, distinguish},
};

/// A server of the page of runs, for browsers on this machine. A random token is part of the page's address, so nobody
/// gets the page without knowing the address. Nothing else is served.
///
/// The server implements only the HTTP that this requires: it reads the head of a GET or HEAD request, answers, and
/// closes the connection. It never reads a body, drops slow readers, and gives their slots to others who wait.
pub struct PageServer {
    listener: TcpListener,
    address: SocketAddr,
    token: String,
    live: Arc<Mutex<LivePage>>,
}

/// Number of requests that are answered concurrently.
const AT_ONCE: usize = 32;

/// Number of connections whose requests have not arrived yet.
const ASKING: usize = 128;

/// Maximum size of a request's head, in bytes.
const HEAD: usize = 16 << 10;

/// Time that a request's head may take.
const TO_ASK: Duration = Duration::from_secs(5);

/// Time that a browser may take to read the next part of an answer.
const TO_READ: Duration = Duration::from_secs(20);

/// Time that a browser may take to read an answer.
const TO_READ_ALL: Duration = Duration::from_secs(60);

/// Bytes of an answer that are written in one call.
const PART: usize = 64 << 10;

/// Limit of the bytes of all answers that are being read. An answer that is as large as this is read alone.
const BYTES: usize = 256 << 20;

/// Time for which a silent caller's slot is not given to another. A browser asks within it.
const KEPT: Duration = Duration::from_millis(50);

/// Time for which a reader's slot is not given to another.
const KEPT_TO_READ: Duration = Duration::from_secs(2);

/// Time between two polls for a new request.
const PAUSE: Duration = Duration::from_millis(20);

impl PageServer {
    /// Listens on 127.0.0.1 at `port`; 0 means any free port. `book` is the address of the book, to which charts and
    /// findings link.
    ///
    /// # Errors
    /// Fails if the port is not available.
    pub fn listen(mut runs: Vec<Run>, port: u16, book: Option<String>) -> Result<Self, ViewError> {
        distinguish(&mut runs);
        let failed = |error| ViewError::Listen { port, error };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        // Accepting must not block, because `serve` looks at its flag in between.
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let token = format!("{:032x}", rand::rng().random::<u128>());
        Ok(PageServer {
            listener,
            address,
            token,
            live: Arc::new(Mutex::new(LivePage::new(runs, book))),
        })
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
        let callers = Arc::new(Connections::default());
        while !stop.load(Ordering::Relaxed) {
            // A caller for whom there is no slot stays in the system's queue.
            if !callers.make_room() {
                thread::sleep(PAUSE);
                continue;
            }

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

            let token = self.token.clone();
            let live = Arc::clone(&self.live);
            let Ok(caller) = ConnectionHandle::new(&callers, &stream) else { continue };
            // If no other thread can be started, the connection is closed.
            let _ = thread::Builder::new().spawn(move || {
                // A browser that disconnected does not need an answer.
                let _ = answer(stream, &token, &live, &caller);
            });
        }
        Ok(())
    }
}

/// Tells whether an error is temporary: nobody asks at the moment, the caller has gone, or too many files are open for
/// now.
fn is_of_one_caller(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted | ConnectionAborted | ConnectionReset)
        // EMFILE and ENFILE have no kind.
        || matches!(error.raw_os_error(), Some(23 | 24))
}

/// All open connections.
#[derive(Default)]
struct Connections {
    open: Mutex<Vec<Connection>>,
    next: AtomicUsize,
    /// Bytes of the answers that are being read.
    bytes: AtomicUsize,
}

/// An open connection, as the others see it.
struct Connection {
    id: usize,
    stream: TcpStream,
    /// True once the head of its request has been read.
    has_asked: bool,
    /// Since when it asks or reads.
    since: Instant,
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whether one more connection has a slot. If there is none, those that have been silent for longest are
    /// closed, so that they don't keep others out.
    fn make_room(&self) -> bool {
        let open = self.open();
        let mut asking: Vec<&Connection> =
            open.iter().filter(|connection| !connection.has_asked).collect();
        if asking.len() < ASKING {
            return true;
        }

        asking.sort_by_key(|connection| connection.since);
        let oldest = asking.iter().take(ASKING / 2);
        oldest.filter(|oldest| oldest.since.elapsed() > KEPT).for_each(|oldest| oldest.close());
        false
    }

    /// Waits until `take` has what it needs. Meanwhile the reader that has read for longest loses its slot, unless it
    /// is `own` or has only just begun to read. Returns `None` if `take` gets nothing in time.
    fn wait_for<T>(
        &self,
        own: usize,
        mut take: impl FnMut(&mut Vec<Connection>) -> Option<T>,
    ) -> Option<T> {
        let until = Instant::now() + TO_ASK;
        loop {
            let mut connections = self.open();
            if let Some(taken) = take(&mut connections) {
                return Some(taken);
            }

            let others = connections.iter().filter(|other| other.has_asked && other.id != own);
            let oldest = others.min_by_key(|connection| connection.since);
            if let Some(oldest) = oldest.filter(|oldest| oldest.since.elapsed() > KEPT_TO_READ) {
                oldest.close();
            }
            // Other threads need the list while this one sleeps.
            drop(connections);

            if Instant::now() > until {
                return None;
            }
            thread::sleep(PAUSE);
        }
    }
}

impl Connection {
    /// Closes the connection. Its thread gets an error, and ends.
    fn close(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// A connection among the open ones.
struct ConnectionHandle {
    callers: Arc<Connections>,
    id: usize,
}

impl ConnectionHandle {
    fn new(callers: &Arc<Connections>, stream: &TcpStream) -> io::Result<Self> {
        let id = callers.next.fetch_add(1, Ordering::Relaxed);
        let stream = stream.try_clone()?;
        let since = Instant::now();
        callers.open().push(Connection { id, stream, has_asked: false, since });
        Ok(ConnectionHandle { callers: Arc::clone(callers), id })
    }

    /// Waits for a slot among those that are answered; `None` if none becomes free in time.
    fn slot(&self) -> Option<()> {
        self.callers.wait_for(self.id, |open| {
            // The list stays locked from the count to the entry, so no slot is taken twice.
            if open.iter().filter(|connection| connection.has_asked).count() >= AT_ONCE {
                return None;
            }
            let own = open.iter_mut().find(|connection| connection.id == self.id)?;
            own.has_asked = true;
            own.since = Instant::now();
            Some(())
        })
    }

    /// Waits for room in memory for an answer, which is held until the value is dropped; `None` if there is none
    /// in time.
    fn room(&self, bytes: usize) -> Option<MemoryReservation> {
        self.callers.wait_for(self.id, |_| {
            // Only one thread at a time holds the list of connections and takes room.
            let taken = self.callers.bytes.load(Ordering::Relaxed);
            let fits = taken == 0 || taken.saturating_add(bytes) <= BYTES;
            fits.then(|| {
                self.callers.bytes.fetch_add(bytes, Ordering::Relaxed);
                MemoryReservation { callers: Arc::clone(&self.callers), bytes }
            })
        })
    }
}

impl Drop for ConnectionHandle {
    fn drop(&mut self) {
        self.callers.open().retain(|connection| connection.id != self.id);
    }
}

/// Room in memory for an answer.
struct MemoryReservation {
    callers: Arc<Connections>,
    bytes: usize,
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.callers.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The parts of a request that matter here.
struct Request {
    method: String,
    path: String,
    query: String,
    /// Headers, with names in lower case.
    headers: Vec<(String, String)>,
}

impl Request {
    fn of_request(request: &httparse::Request<'_, '_>) -> Self {
        let target = request.path.unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let headers = request.headers.iter().map(|header| {
            let value = String::from_utf8_lossy(header.value).into_owned();
            (header.name.to_ascii_lowercase(), value)
        });
        Request {
            method: request.method.unwrap_or_default().to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            headers: headers.collect(),
        }
    }
}

fn answer(
    mut stream: TcpStream,
    token: &str,
    live: &Mutex<LivePage>,
    caller: &ConnectionHandle,
) -> io::Result<()> {
    // On some systems an accepted stream does not block either, like its listener.
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(TO_READ))?;

    let request = match read(&mut stream)? {
        RequestHead::Request(request) => request,
        RequestHead::TooLong => {
            let text = "The head of the request is longer than 16 KiB.";
            return respond(&mut stream, 431, TEXT, text, true);
        }
        RequestHead::Nonsense => {
            let text = "The page does not understand this request.";
            return respond(&mut stream, 400, TEXT, text, true);
        }
    };

    let busy = "The page is busy with other readers. Ask again in a moment.";
    if caller.slot().is_none() {
        return respond(&mut stream, 503, TEXT, busy, true);
    }

    let body = request.method != "HEAD";
    let (status, kind, text) = content(&request, token, live);
    match caller.room(text.len()) {
        Some(_room) => respond(&mut stream, status, kind, &text, body),
        None => respond(&mut stream, 503, TEXT, busy, body),
    }
}

/// Returns the answer: a status, a media type and a text.
fn content(
    request: &Request,
    token: &str,
    live: &Mutex<LivePage>,
) -> (u16, &'static str, Arc<str>) {
    if let Err(refusal) = check(request) {
        return (403, TEXT, refusal.into());
    }
    if !matches!(&*request.method, "GET" | "HEAD") {
        return (405, TEXT, "The page only reads.".into());
    }
    let Some(part) = request.path.strip_prefix(&format!("/{token}/")) else {
        let elsewhere = "There is nothing here. The terminal shows the page's full address.";
        return (404, TEXT, elsewhere.into());
    };

    // A part that panicked leaves no inconsistent state, so a poisoned lock is not a problem.
    let mut live = live.lock().unwrap_or_else(PoisonError::into_inner);
    match live.content(part, &request.query) {
        Ok(Some((kind, text))) => (200, kind, text),
        Ok(None) => (404, TEXT, "The page has no such part.".into()),
        Err(error) => (500, TEXT, printable_lines(&error.to_string()).into()),
    }
}

/// Refuses requests from other sites. Their pages may send requests as the browser's user, and one of their host names
/// may point to this machine. So the request has to use one of the machine's own names. The port does not matter,
/// because a tunnel may change it. Pages of other origins are refused.
fn check(request: &Request) -> Result<(), String> {
    let header = |name: &str| {
        let mut values = request.headers.iter().filter(|(known, _)| known == name);
        let first = values.next().map(|(_, value)| value.as_str());
        match values.next() {
            Some(_) => Err(format!("The request has the header {name} more than once.")),
            None => Ok(first),
        }
    };

    let host = header("host")?.unwrap_or_default();
    let (name, port) = host.split_once(':').unwrap_or((host, "0"));
    if !["127.0.0.1", "localhost"].contains(&name) || port.parse::<u16>().is_err() {
        return Err("The page answers only to 127.0.0.1 and localhost.".into());
    }

    let foreign = Err("The request comes from another site's page.".into());
    if header("origin")?.is_some_and(|origin| origin != format!("http://{host}")) {
        return foreign;
    }

    // Any site may have a link to the page. It shows the page to the reader, and tells the site nothing.
    let shows = header("sec-fetch-mode")? == Some("navigate")
        && header("sec-fetch-dest")? == Some("document");
    match header("sec-fetch-site")?.map(str::to_ascii_lowercase).as_deref() {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) if shows => Ok(()),
        Some(_) => foreign,
    }
}

/// What was received as the head of a request.
enum RequestHead {
    Request(Request),
    TooLong,
    /// Not the head of a request, or none in time.
    Nonsense,
}

/// Reads the head of a request.
fn read(stream: &mut TcpStream) -> io::Result<RequestHead> {
    let until = Instant::now() + TO_ASK;
    let mut head = Vec::new();
    let mut bytes = [0; 2048];

    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(RequestHead::Nonsense);
        }
        if head.len() >= HEAD {
            return Ok(RequestHead::TooLong);
        }

        stream.set_read_timeout(Some(left))?;
        // At most the size of a head is read, so a longer one is never complete.
        let most = bytes.len().min(HEAD - head.len());
        let count = stream.read(&mut bytes[..most])?;
        if count == 0 {
            return Ok(RequestHead::Nonsense);
        }
        head.extend(&bytes[..count]);

        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&head) {
            Ok(httparse::Status::Partial) => {}
            Ok(httparse::Status::Complete(_)) => {
                return Ok(RequestHead::Request(Request::of_request(&request)));
            }
            Err(_) => return Ok(RequestHead::Nonsense),
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
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
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
        send(stream, text.as_bytes(), Instant::now() + TO_READ_ALL)?;
    }
    stream.flush()?;

    // The server needs no more than the head, but closing immediately might discard the answer.
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    let _ = stream.read(&mut [0; 2048]);
    Ok(())
}

/// Writes an answer until it is written or the time is over. A reader that takes a byte now and then keeps within
/// the time for each part, but not within this one.
fn send(stream: &mut TcpStream, mut text: &[u8], until: Instant) -> io::Result<()> {
    while !text.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left.min(TO_READ)))?;
        match stream.write(&text[..text.len().min(PART)])? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => text = &text[count..],
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use firebrick_core::{
        Completion, FinishReason, Group, Metrics, Prompt, RewardScale, RewardedGroup, Score,
        Tracker as _,
    };
    use firebrick_runs::Store;

    use super::*;

    /// Calls the server and asks for a part of the page.
    fn ask(watched: &PageServer, part: &str) -> TcpStream {
        let mut stream = TcpStream::connect(watched.address).unwrap();
        let host = watched.address;
        let token = &watched.token;
        write!(stream, "GET /{token}/{part} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    fn read_response(mut stream: TcpStream) -> String {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn slow_readers_and_silent_callers_keep_nobody_waiting() {
        // A record whose list is larger than what the system keeps between a server and a reader.
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(&folder.path().join("run.db")).unwrap();
        let prompt = Prompt { text: "x".repeat(30 << 20), ..Prompt::default() };
        let completion = Completion::written(vec![1], vec![-0.5], FinishReason::Stop);
        let scale = RewardScale { right: 1.0, wrong: -1.0 };
        let group = RewardedGroup {
            group: Group { prompt, completions: vec![completion], step: 0, draw: 0 }.into(),
            rewards: vec![scale.reward(Score::right("7"))],
        };
        store.log_groups(1, &[group]).unwrap();
        store.log(1, &Metrics([("reward/mean".to_owned(), 1.0)].into())).unwrap();
        drop(store);

        let run = Run::open(folder.path()).unwrap();
        let watched = PageServer::listen(vec![run], 0, None).unwrap();
        let stop = AtomicBool::new(false);

        thread::scope(|scope| {
            scope.spawn(|| watched.serve(&stop));
            let end = End(&stop);
            let slow: Vec<TcpStream> = (0..40).map(|_| ask(&watched, "index")).collect();
            for _ in 0..3 {
                let begun = Instant::now();
                let silent: Vec<_> =
                    (0..300).map(|_| TcpStream::connect(watched.address)).collect();
                assert!(read_response(ask(&watched, "state")).starts_with("HTTP/1.1 200"));
                assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
                drop(silent);
            }

            // A client that reads gets everything.
            assert!(read_response(ask(&watched, "index")).len() > 30 << 20);
            drop((slow, end));
        });
    }

    /// Ends the server, even if a check fails.
    struct End<'a>(&'a AtomicBool);

    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_reader_of_a_byte_now_and_then_is_dropped() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let stop = AtomicBool::new(false);
        let started = Instant::now();

        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ = reader.read(&mut [0]);
                    thread::sleep(Duration::from_millis(20));
                }
            });
            let end = End(&stop);
            let text = vec![b'x'; 64 << 20];
            assert!(send(&mut stream, &text, started + Duration::from_secs(1)).is_err());
            assert!(started.elapsed() < Duration::from_secs(10));
            drop((stream, end));
        });
    }
}
