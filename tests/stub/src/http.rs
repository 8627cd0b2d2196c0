//! HTTP, as far as a pool of servers speaks it.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::{Counted, Fault, Shared, words};

/// A stub's answer to a request.
pub(crate) struct Reply<'a> {
    pub(crate) status: u16,
    pub(crate) body: String,
    pub(crate) fault: Option<Fault>,
    /// Count of the group that it is for. It ends before a complete answer is sent, because a client that has read
    /// the answer may ask for the next group sooner than this thread continues.
    pub(crate) counted: Option<Counted<'a>>,
}

impl Reply<'_> {
    pub(crate) fn ok(body: &Value) -> Self {
        Reply { status: 200, body: body.to_string(), fault: None, counted: None }
    }

    pub(crate) fn status(status: u16, words: &str) -> Self {
        Reply { status, body: words.to_owned(), fault: None, counted: None }
    }
}

/// Reads one request, and answers it.
pub(crate) fn answer(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let (path, key, body) = read(&mut stream)?;
    let reply = match &shared.options.key {
        Some(wanted) if key != format!("Bearer {wanted}") => {
            Reply::status(401, "{\"error\":\"Unauthorized\"}")
        }
        _ => words::reply(shared, &path, &serde_json::from_slice(&body).unwrap_or(Value::Null)),
    };

    let Reply { status, body, fault, counted } = reply;
    let fails = matches!(
        fault,
        Some(Fault::Drop | Fault::Hang | Fault::Half | Fault::Trickle | Fault::Endless)
    );
    let counted = counted.filter(|_| fails);
    let sent = send(&mut stream, status, body.as_bytes(), fault, &shared.ended);
    drop(counted);
    sent
}

/// Sends an answer, or what a fault makes of it. The body of a redirection is the place that it leads to.
pub(crate) fn send(
    stream: &mut TcpStream,
    status: u16,
    body: &[u8],
    fault: Option<Fault>,
    ended: &AtomicBool,
) -> io::Result<()> {
    let location = match status {
        302 => format!("Location: {}\r\n", String::from_utf8_lossy(body)),
        _ => String::new(),
    };
    let head = format!(
        "HTTP/1.1 {status} X\r\n{location}Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );

    match fault {
        Some(Fault::Drop) => Ok(()),
        Some(Fault::Hang) => {
            let mut buffer = [0];
            // The read returns when the client gives up.
            drop(stream.read(&mut buffer));
            Ok(())
        }
        Some(Fault::Half) => {
            stream.write_all(head.as_bytes())?;
            stream.write_all(&body[..body.len() / 2])
        }
        Some(Fault::Trickle) => {
            stream.write_all(head.as_bytes())?;
            for byte in body {
                stream.write_all(&[*byte])?;
                thread::sleep(Duration::from_millis(20));
            }
            Ok(())
        }
        Some(Fault::Endless) => {
            stream.write_all(b"HTTP/1.1 200 X\r\nConnection: close\r\n\r\n[")?;
            while !ended.load(Ordering::Relaxed) {
                stream.write_all(&[b' '; 1 << 16])?;
            }
            Ok(())
        }
        _ => {
            stream.write_all(head.as_bytes())?;
            stream.write_all(body)
        }
    }
}

/// Reads the path, the authorization and the body of a request.
pub(crate) fn read(stream: &mut TcpStream) -> io::Result<(String, String, Vec<u8>)> {
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    let mut bytes = Vec::new();
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut request = httparse::Request::new(&mut headers);
        let parsed = request.parse(&bytes).map_err(io::Error::other)?;
        if let httparse::Status::Complete(head) = parsed {
            let header = |name: &str| {
                let found = request.headers.iter().find(|it| it.name.eq_ignore_ascii_case(name));
                found.map(|it| String::from_utf8_lossy(it.value).into_owned()).unwrap_or_default()
            };

            let length: usize = header("content-length").parse().unwrap_or(0);
            let path = request.path.unwrap_or_default().to_owned();
            let key = header("authorization");

            // A part of the body may have come with the head.
            let mut body = bytes.split_off(head);
            let have = body.len();
            body.resize(length, 0);
            stream.read_exact(&mut body[have.min(length)..])?;
            return Ok((path, key, body));
        }

        let mut part = [0; 4096];
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend(&part[..count]),
        }
    }
}
