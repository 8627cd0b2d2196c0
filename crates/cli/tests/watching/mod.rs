//! `firebrick watch --web` as a process, and its answers to callers other than its page.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command},
    sync::mpsc::channel,
    thread,
    time::{Duration, Instant},
};

use crate::{browser::PATIENCE, scratch::Scratch};

/// A program that is killed when dropped.
pub(crate) struct Watching(Child);

impl Watching {
    /// Interrupts the program, as Ctrl-C does.
    pub(crate) fn interrupt(&self) {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    }

    /// Waits until the program ends by itself, and returns its exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(began.elapsed() < PATIENCE, "the program has not ended within {PATIENCE:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Watches a run, and reads the page's address from the first line.
pub(crate) fn watch(scratch: &Scratch, run: &str) -> (Watching, String) {
    let mut watching = Watching(scratch.command(&["watch", run, "--web"]).spawn().unwrap());
    let stdout = watching.0.stdout.take().unwrap();
    let (send, line) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            let _ = send.send(line.unwrap());
        }
    });

    let address = line.recv_timeout(PATIENCE).expect("no address came");
    assert!(address.starts_with("http://127.0.0.1:") && address.ends_with('/'), "{address}");
    (watching, address)
}

/// Returns the part `127.0.0.1:PORT` of an address.
pub(crate) fn host(address: &str) -> &str {
    address.split('/').nth(2).unwrap()
}

pub(crate) fn nobody_else_is_answered(address: &str) {
    let host = host(address);
    let token = address.split('/').nth(3).unwrap();
    let port: u16 = host.split_once(':').unwrap().1.parse().unwrap();

    // Returns the answer to a request: its status line and headers, and the text.
    let ask = |method: &str, path: &str, headers: &str| {
        let mut stream = TcpStream::connect(host).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "{method} {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };

    let status = |answer: &str| answer.split(' ').nth(1).unwrap().parse::<u16>().unwrap();
    let own = format!("Host: {host}\r\n");
    let page = format!("/{token}/");
    let state = format!("/{token}/state");

    let answer = ask("GET", &page, &own);
    assert_eq!(status(&answer), 200);
    for header in
        ["X-Frame-Options: DENY", "X-Content-Type-Options: nosniff", "Cache-Control: no-store"]
    {
        assert!(answer.contains(header), "{header} is missing");
    }

    // A tunnel may have another port.
    for host in [format!("localhost:{port}"), "localhost:8080".into(), "127.0.0.1".into()] {
        assert_eq!(status(&ask("GET", &state, &format!("Host: {host}\r\n"))), 200, "{host}");
    }

    let link = format!(
        "{own}Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n"
    );
    assert_eq!(status(&ask("GET", &page, &link)), 200);
    assert_eq!(
        status(&ask(
            "GET",
            &state,
            &format!("{own}Origin: http://{host}\r\nSec-Fetch-Site: same-origin\r\n")
        )),
        200
    );

    for (host, more) in [
        ("Host: evil.example\r\n", ""),
        (&format!("Host: evil.example:{port}\r\n"), ""),
        ("", ""),
        (&own, "Origin: http://evil.example\r\n"),
        (&own, "Origin: null\r\n"),
        (&own, "Origin: http://localhost:3000\r\n"),
        (
            &own,
            "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n",
        ),
        (&own, "Sec-Fetch-Site: cross-site\r\n"),
        (&own, "Sec-Fetch-Site: Cross-Site\r\n"),
        (&own, "Sec-Fetch-Site: elsewhere\r\n"),
        ("Host: 127.0.0.1:evil\r\n", ""),
        ("Host: localhost:8080.evil.example\r\n", ""),
        (&own, "Host: evil.example\r\n"),
        (&own, &own),
        (&own, &format!("Origin: http://{host}\r\nOrigin: http://evil.example\r\n")),
    ] {
        let answer = ask("GET", &state, &format!("{host}{more}"));
        assert_eq!(status(&answer), 403, "{host}{more}");
        assert!(!answer.contains("rows") && !answer.contains("Access-Control"), "{answer}");
    }

    // A head has 16 KiB, and not a byte more.
    let head = format!("GET {state} HTTP/1.1\r\n{own}X: \r\nConnection: close\r\n\r\n").len();
    for (length, expected) in [((16 << 10) - head, 200), ((16 << 10) - head + 1, 431)] {
        let long = "x".repeat(length);
        assert_eq!(status(&ask("GET", &state, &format!("{own}X: {long}\r\n"))), expected);
    }

    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let answer = ask(method, &page, &format!("{own}Content-Length: 0\r\n"));
        assert_eq!(status(&answer), 405, "{method}");
    }

    let wrong: String = token.chars().rev().collect();
    let mut nowhere: BTreeSet<String> =
        ["/", "/recipe.toml", "/../recipe.toml"].map(Into::into).into();
    for token in [&wrong, &token[..31], &format!("{token}0")] {
        nowhere.extend([format!("/{token}/"), format!("/{token}/state")]);
    }

    for part in [
        "../../recipe.toml",
        "run.db",
        "../run.db",
        "%2e%2e/run.db",
        "block/-1",
        "block/99",
        "block/0",
        "block/0?id=7",
        "block/0/../../run.db",
    ] {
        nowhere.insert(format!("/{token}/{part}"));
    }

    for path in nowhere {
        let answer = ask("GET", &path, &own);
        assert_eq!(status(&answer), 404, "{path}");
        assert!(!answer.contains(token), "{path} tells the address: {answer}");
    }

    nobody_is_in_the_way(host, &|| assert_eq!(status(&ask("GET", &state, &own)), 200));
    if cfg!(target_os = "linux") {
        assert_eq!(
            listeners(port),
            [format!("{:08X}", 0x7f00_0001_u32.to_be())],
            "it listens on 127.0.0.1 alone"
        );
    }
}

/// Checks that callers do not block others by being slow, silent or many, or by announcing more than they send.
fn nobody_is_in_the_way(host: &str, others_are_answered: &dyn Fn()) {
    let call = |text: &str| {
        let mut stream = TcpStream::connect(host).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    };

    let long = "x".repeat(40_000);
    let calls = [
        "POST / HTTP/1.1\r\nHost: evil\r\nContent-Length: 9000000000000000000\r\n\r\n".to_owned(),
        "POST / HTTP/1.1\r\nHost: evil\r\nContent-Length: 100000\r\n\r\nbut no more".to_owned(),
        "POST / HTTP/1.1\r\nHost: evil\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n"
            .to_owned(),
        format!("GET /{long}"),
        "GET / HTTP/9.9\r\n\r\n".to_owned(),
        "\0\u{1}\u{2}\r\n\r\n".to_owned(),
        "GET / HT".to_owned(),
    ];

    let mut kept = Vec::new();
    for text in calls {
        kept.push(call(&text));
        others_are_answered();
    }
    drop(kept);

    // There are more callers than are answered at once. The surplus is closed, and room comes back.
    let idle: Vec<TcpStream> = (0..60).map(|_| TcpStream::connect(host).unwrap()).collect();
    drop(idle);

    let began = Instant::now();
    while TcpStream::connect(host).is_ok_and(|mut stream| {
        let _ = write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let mut answer = String::new();
        !(stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 404"))
    }) {
        assert!(began.elapsed() < PATIENCE, "nobody is answered any more");
    }

    others_are_answered();
}

/// Returns the addresses on which somebody listens at this port, as Linux writes them.
fn listeners(port: u16) -> Vec<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"]
        .map(|table| fs::read_to_string(table).unwrap_or_default());
    let rows = tables.iter().flat_map(|table| table.lines().skip(1));

    let listening = rows.filter_map(|row| {
        let mut cells = row.split_whitespace().skip(1);
        let (address, at) = cells.next()?.split_once(':')?;
        let is_open = cells.nth(1)? == "0A" && at == format!("{port:04X}");
        is_open.then(|| address.to_owned())
    });
    listening.collect()
}
