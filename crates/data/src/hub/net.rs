//! Makes the two requests that the Hub gets: for the list of a repository's files, and for a file.

use std::{
    cell::Cell,
    fs::{self, File},
    io::{self, Read, Write as _},
    path::Path,
    time::Duration,
};

use serde::Deserialize;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use ureq::{
    Agent, Body,
    config::RedirectAuthHeaders,
    http::{Response, Uri, header},
};

use super::{
    Hub, HubError, HubName, Kind, Progress,
    cache::{Entry, Listing, io_error, is_hash, stays_inside},
};

/// How often a request is attempted that gets no answer, or a download that gets no further.
const ATTEMPTS: u32 = 4;

/// Bytes that an attempt must bring for the download to get all its attempts back.
const PROGRESS: u64 = 1 << 20;

/// Limit on the wait between attempts that the Hub may ask for.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Limit on a list of files, in bytes, which is enough for some 200 000 files.
const MAX_LISTING: u64 = 64 << 20;

pub(super) struct Client<'a> {
    agent: Agent,
    hub: &'a Hub,
    kind: Kind,
    name: &'a HubName,
    /// Pause before the second attempt. It doubles for every further attempt.
    pause: Duration,
    /// Wait that the Hub asked for before the next attempt.
    asked: Cell<Duration>,
}

impl<'a> Client<'a> {
    pub(super) fn new(hub: &'a Hub, kind: Kind, name: &'a HubName) -> Self {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let config = Agent::config_builder()
            .user_agent(concat!("firebrick/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            // Large files are elsewhere, and the servers there need no token.
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .timeout_resolve(seconds(20))
            .timeout_connect(seconds(20))
            .timeout_recv_response(seconds(60))
            .timeout_per_read(seconds(60))
            .timeout_per_write(seconds(60));

        // A Hub on this machine is a mirror or a test, which the proxy of HTTPS_PROXY could not reach.
        let host = hub.endpoint.parse::<Uri>().ok();
        let host = host.as_ref().and_then(Uri::host).unwrap_or_default();
        let config = match host {
            "127.0.0.1" | "localhost" | "[::1]" => config.proxy(None),
            _ => config,
        };

        let pause = Duration::from_millis(if cfg!(test) { 1 } else { 1000 });
        Client { agent: config.build().into(), hub, kind, name, pause, asked: Cell::default() }
    }

    /// Asks for the commit of the revision, and for the files that it has.
    pub(super) fn listing(&self) -> Result<(String, Listing), HubError> {
        let kind = match self.kind {
            Kind::Model => "models",
            Kind::DataSet => "datasets",
        };
        let url = format!(
            "{}/api/{kind}/{}/revision/{}?blobs=true",
            self.endpoint(),
            self.name.repo,
            self.name.revision.replace('/', "%2F")
        );

        let mut attempts = 0;
        let text = loop {
            attempts += 1;
            let body = self.get(&url, 0).and_then(|mut response| {
                let read = response.body_mut().with_config().limit(MAX_LISTING).read_to_vec();
                read.map_err(|error| failure(&url, &error))
            });
            match body {
                Err(HubError::Unreachable { .. }) if attempts < ATTEMPTS => self.wait(attempts),
                body => break body?,
            }
        };

        let answer = |problem: String| HubError::Answer { url: url.clone(), problem };
        let info: Info =
            serde_json::from_slice(&text).map_err(|error| answer(error.to_string()))?;
        if !is_hash(&info.sha) {
            return Err(answer(format!("the commit {:?} is not a hash", info.sha)));
        }

        let mut listing = Listing::new();
        for Sibling { rfilename: path, size, blob_id, lfs } in info.siblings {
            if !stays_inside(&path) {
                return Err(answer(format!("the file name {path:?} leads out of its folder")));
            }
            // The Hub may give a large file's own size and hash under `lfs`, and those of its pointer elsewhere.
            let size = lfs.as_ref().map(|lfs| lfs.size).or(size);
            let sha256 = lfs.as_ref().map(|lfs| lfs.sha256.as_str());
            let entry = size.zip(blob_id).and_then(|(size, id)| Entry::new(size, &id, sha256));
            let entry =
                entry.ok_or_else(|| answer(format!("the size or a hash of {path} is missing")))?;
            listing.insert(path, entry);
        }

        Ok((info.sha, listing))
    }

    /// Downloads a file to `partial`, from the byte where an earlier attempt ended.
    pub(super) fn download(
        &self,
        commit: &str,
        path: &str,
        entry: &Entry,
        partial: &Path,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), HubError> {
        let folder = match self.kind {
            Kind::Model => "",
            Kind::DataSet => "datasets/",
        };
        let url = format!(
            "{}/{folder}{}/resolve/{commit}/{}",
            self.endpoint(),
            self.name.repo,
            percent_encoded(path)
        );

        progress(Progress::Begin { file: path, bytes: entry.size });
        let mut attempts = 0;
        let mut previous_length = fs::metadata(partial).map_or(0, |file| file.len());
        progress(Progress::Advance(previous_length.min(entry.size)));

        loop {
            attempts += 1;
            let error = match self.continue_download(&url, entry.size, partial, progress) {
                Ok(()) => break,
                Err(error @ HubError::Unreachable { .. }) => error,
                Err(other) => return Err(other),
            };

            // A download that gets further may keep trying: only attempts in a row without progress count.
            let length = fs::metadata(partial).map_or(0, |file| file.len());
            if length >= previous_length + PROGRESS {
                attempts = 1;
            }

            previous_length = length;
            if attempts >= ATTEMPTS {
                return Err(error);
            }
            self.wait(attempts);
        }

        check_hash(partial, entry, &url)?;
        progress(Progress::End);
        Ok(())
    }

    /// Makes one attempt at the rest of a file.
    fn continue_download(
        &self,
        url: &str,
        size: u64,
        partial: &Path,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), HubError> {
        // What an earlier attempt has written stays, and the rest is appended.
        let failed = |source| io_error(partial, source);
        let mut file = File::options().create(true).append(true).open(partial).map_err(failed)?;
        let mut length = file.metadata().map_err(failed)?.len();

        if length > size {
            file.set_len(0).map_err(failed)?;
            length = 0;
        }

        if length == size {
            return Ok(());
        }

        let response = self.get(url, length)?;
        if length > 0 && response.status().as_u16() != 206 {
            // The server ignored the range, so its answer begins at the file's first byte.
            file.set_len(0).map_err(failed)?;
            length = 0;
        }

        let mut body = response.into_body().into_reader();
        let mut buffer = vec![0; 1 << 18];

        loop {
            let read = match body.read(&mut buffer) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    let problem = error.to_string();
                    return Err(HubError::Unreachable { url: url.into(), problem });
                }
            };

            if read == 0 {
                break;
            }

            length += read as u64;
            if length > size {
                drop(file);
                let _ = fs::remove_file(partial);

                let problem =
                    format!("the server sends more than the {size} bytes that it announced");
                return Err(HubError::Answer { url: url.into(), problem });
            }
            file.write_all(&buffer[..read]).map_err(failed)?;
            progress(Progress::Advance(read as u64));
        }

        if length < size {
            let problem = format!("the connection ended after {length} of {size} bytes");
            return Err(HubError::Unreachable { url: url.into(), problem });
        }
        file.sync_all().map_err(failed)
    }

    /// Asks for `url`, starting at byte `start`.
    fn get(&self, url: &str, start: u64) -> Result<Response<Body>, HubError> {
        let mut request = self.agent.get(url);
        if let Some(token) = &self.hub.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if start > 0 {
            request = request.header(header::RANGE, format!("bytes={start}-"));
        }

        let response = request.call().map_err(|error| failure(url, &error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }

        let field = |name| response.headers().get(name).and_then(|text| text.to_str().ok());
        let code = field("x-error-code").unwrap_or_default();
        if let Some(seconds) = field("retry-after").and_then(|text| text.trim().parse().ok()) {
            self.asked.set(Duration::from_secs(seconds).min(MAX_WAIT));
        }

        let folder = if self.kind == Kind::DataSet { "datasets/" } else { "" };
        let page = format!("{}/{folder}{}", self.endpoint(), self.name.repo);
        let name = self.name.clone();
        let token = self.hub.token.is_some();

        Err(match (status.as_u16(), code) {
            (404, "RevisionNotFound") => {
                let what = format!("revision {}", self.name.revision);
                HubError::NoSuch { name, what, page }
            }
            (404, "EntryNotFound") => HubError::NoSuch { name, what: format!("file {url}"), page },
            (403, _) | (401, "GatedRepo") => HubError::Gated { name, page, token },
            (401 | 404, _) => HubError::NotFound { name, page, token },
            (408 | 429 | 500.., _) => {
                HubError::Unreachable { url: url.into(), problem: format!("it answers {status}") }
            }
            _ => HubError::Answer { url: url.into(), problem: format!("it answers {status}") },
        })
    }

    fn endpoint(&self) -> &str {
        self.hub.endpoint.trim_end_matches('/')
    }

    fn wait(&self, attempts: u32) {
        std::thread::sleep(self.asked.take().max(self.pause * 2u32.pow(attempts - 1)));
    }
}

/// Answer of the Hub about a repository, as far as it is read.
#[derive(Deserialize)]
struct Info {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
    size: u64,
}

/// Refuses a file whose content does not have its hash, and removes it, because it would be stored under that hash
/// and others trust the name.
fn check_hash(partial: &Path, entry: &Entry, url: &str) -> Result<(), HubError> {
    let failed = |source| io_error(partial, source);
    let mut file = File::open(partial).map_err(failed)?;

    let (name, expected, actual) = match &entry.lfs_sha256 {
        Some(expected) => ("SHA-256", expected, digest(Sha256::new(), &mut file)),
        // Git hashes a file in this way if it is not large.
        None => {
            let head = format!("blob {}\0", entry.size);
            ("Git hash", &entry.blob_id, digest(Sha1::new_with_prefix(head), &mut file))
        }
    };

    let actual = actual.map_err(failed)?;
    if actual == *expected {
        return Ok(());
    }

    let _ = fs::remove_file(partial);
    let problem = format!("the file's {name} is {actual}, expected {expected}; try again");
    Err(HubError::Answer { url: url.into(), problem })
}

/// Returns the hash of a file's content, in hexadecimal digits.
fn digest<D: Digest + io::Write>(mut hash: D, file: &mut File) -> io::Result<String> {
    io::copy(file, &mut hash)?;
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Makes the error of a request that failed. A problem with the connection may pass, so it is worth another attempt,
/// while an endless redirection, a certificate or an answer that is too long will stay as it is.
fn failure(url: &str, error: &ureq::Error) -> HubError {
    use ureq::Error::{ConnectionFailed, HostNotFound, Io, Protocol, Timeout};

    let url = url.to_owned();
    let problem = error.to_string();
    match error {
        Io(_) | Timeout(_) | HostNotFound | ConnectionFailed | Protocol(_) => {
            HubError::Unreachable { url, problem }
        }
        _ => HubError::Answer { url, problem },
    }
}

fn percent_encoded(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(char::from(byte));
            }
            other => encoded += &format!("%{other:02X}"),
        }
    }

    encoded
}
