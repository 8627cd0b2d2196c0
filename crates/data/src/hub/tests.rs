//! Tests against a server on this machine that plays the Hub.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    path::Path,
    sync::{Arc, Mutex},
    thread,
};

use serde_json::{Value, json};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

use super::*;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const TOKEN: &str = "hf_secret";

/// A request's path, its `Authorization` and the start of its `Range`.
#[derive(Clone, Debug, PartialEq)]
struct Asked {
    path: String,
    token: bool,
    from: usize,
}

type Log = Arc<Mutex<Vec<Asked>>>;

/// Starts a server on `host`. `reply` makes the whole response to a request.
fn serve(host: &str, reply: impl Fn(&Asked) -> Vec<u8> + Send + 'static) -> (String, Log) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{host}:{}", listener.local_addr().unwrap().port());
    let log = Log::default();
    let seen = log.clone();

    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            // The head of a request ends with an empty line.
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> =
                lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();

            let Some(path) = head.first().and_then(|line| line.split(' ').nth(1)) else { continue };
            let field = |name: &str| {
                let field = head.iter().filter_map(|line| line.split_once(": "));
                field.filter(|(is, _)| is.eq_ignore_ascii_case(name)).map(|(_, text)| text).next()
            };

            let from =
                field("range").and_then(|text| text.strip_prefix("bytes=")?.strip_suffix('-'));
            let asked = Asked {
                path: path.to_owned(),
                token: field("authorization") == Some("Bearer hf_secret"),
                from: from.map_or(0, |from| from.parse().unwrap()),
            };

            seen.lock().unwrap().push(asked.clone());
            let _ = stream.write_all(&reply(&asked));
        }
    });
    (endpoint, log)
}

fn respond(status: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n{fields}\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// Returns Git's hash of a file.
fn blob_id(bytes: &[u8]) -> String {
    let whole = [format!("blob {}\0", bytes.len()).as_bytes(), bytes].concat();
    Sha1::digest(whole).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes the Hub's answer about a repository with these files. The Parquet files among them are large files.
fn info(files: &[(&str, &[u8])]) -> Vec<u8> {
    let sibling = |(name, bytes): &(&str, &[u8])| {
        let mut sibling = json!({"rfilename": name, "size": bytes.len(), "blobId": blob_id(bytes)});
        if name.ends_with(".parquet") {
            let hash: String = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
            sibling["lfs"] = json!({"sha256": hash, "size": bytes.len(), "pointerSize": 130});
        }
        sibling
    };

    let siblings: Vec<Value> = files.iter().map(sibling).collect();
    let text = json!({"sha": COMMIT, "siblings": siblings, "gated": false}).to_string();
    respond("200 OK", "Content-Type: application/json\r\n", text.as_bytes())
}

/// Makes a Hub whose every repository has these files.
fn whole(files: &'static [(&'static str, &'static [u8])]) -> impl Fn(&Asked) -> Vec<u8> + Send {
    move |asked| {
        if asked.path.starts_with("/api/") {
            return info(files);
        }

        let file =
            files.iter().find(|(name, _)| asked.path.ends_with(&format!("/{COMMIT}/{name}")));
        match file {
            Some((_, bytes)) if asked.from > 0 => {
                respond("206 Partial Content", "", &bytes[asked.from..])
            }
            Some((_, bytes)) => respond("200 OK", "", bytes),
            None => respond("404 Not Found", "X-Error-Code: EntryNotFound\r\n", b""),
        }
    }
}

fn hub(cache: &Path, endpoint: &str) -> Hub {
    let token = Some(TOKEN.into());
    Hub { cache: cache.into(), token, endpoint: endpoint.into(), offline: false }
}

fn name() -> HubName {
    HubName::parse("owner/name").unwrap()
}

fn data_set(hub: &Hub) -> Result<Vec<PathBuf>, HubError> {
    let part = Part { default_split: "train", ..Part::default() };

    hub.data_set(&name(), &part, &mut |_| {})
}

fn refused(reply: impl Fn(&Asked) -> Vec<u8> + Send + 'static) -> String {
    let cache = tempfile::tempdir().unwrap();
    let (endpoint, _) = serve("127.0.0.1", reply);

    let message = data_set(&hub(cache.path(), &endpoint)).unwrap_err().to_string();
    assert!(!message.contains(TOKEN), "{message}");
    let snapshots = cache.path().join("datasets--owner--name/snapshots");
    assert!(!snapshots.exists() || fs::read_dir(snapshots).unwrap().next().is_none());
    message.replace(&endpoint, "HUB")
}

const MODEL: &[(&str, &[u8])] = &[
    ("README.md", b"A model."),
    ("config.json", b"{}"),
    ("model-00001-of-00002.safetensors", b"one"),
    ("model-00002-of-00002.safetensors", b"two, with more"),
    ("model.safetensors.index.json", b"{\"weight_map\": {}}"),
    ("modeling.py", b"import os"),
    ("original/model.safetensors", b"again"),
    ("pytorch_model.bin", b"pickled"),
    ("tokenizer.json", b"{\"model\": 1}"),
];

const ROWS: &[(&str, &[u8])] =
    &[("README.md", b"Rows."), ("data/train.parquet", b"0123456789"), ("data/test.parquet", b"x")];

#[test]
fn a_model_is_downloaded_once_and_then_needs_no_network() {
    let cache = tempfile::tempdir().unwrap();
    let (endpoint, log) = serve("127.0.0.1", whole(MODEL));
    let hub = hub(cache.path(), &endpoint);
    // The model's sizes alone take one small file, and leave nothing that would pass for the model.
    let sizes = hub.model_config(&name(), &mut |_| {}).unwrap();
    assert_eq!(fs::read_dir(&sizes).unwrap().count(), 1);
    let offline = Hub { offline: true, ..hub.clone() };
    assert_eq!(offline.model_config(&name(), &mut |_| {}).unwrap(), sizes);
    assert!(offline.model(&name(), &mut |_| {}).is_err());

    let mut bytes = 0;
    let folder = hub
        .model(&name(), &mut |progress| {
            if let Progress::Advance(more) = progress {
                bytes += more;
            }
        })
        .unwrap();
    assert_eq!(folder, cache.path().join("models--owner--name/snapshots").join(COMMIT));
    let mut files: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();

    files.sort();
    let expected = [
        "config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
    ];
    assert_eq!(files, expected);

    assert_eq!(folder, sizes);
    assert_eq!(bytes, 3 + 14 + 18 + 12);
    assert_eq!(fs::read(folder.join(expected[2])).unwrap(), b"two, with more");
    let reference = fs::read_to_string(cache.path().join("models--owner--name/refs/main"));
    assert_eq!(reference.unwrap(), COMMIT);

    let asked = log.lock().unwrap().clone();
    assert_eq!(asked[0].path, "/api/models/owner/name/revision/main?blobs=true");
    assert!(asked.iter().all(|asked| asked.token));
    let downloads = asked.len();

    assert_eq!(hub.model(&name(), &mut |_| {}).unwrap(), folder);
    assert_eq!(offline.model(&name(), &mut |_| {}).unwrap(), folder);
    let pinned = name().at(COMMIT).unwrap();
    assert_eq!(offline.model(&pinned, &mut |_| {}).unwrap(), folder);
    assert_eq!(log.lock().unwrap().len(), downloads);

    // A lost file is fetched again, alone.
    fs::remove_file(folder.join("config.json")).unwrap();
    let missing = offline.model(&name(), &mut |_| {}).unwrap_err().to_string();
    assert!(missing.contains("is missing or incomplete in the cache"), "{missing}");
    hub.model(&name(), &mut |_| {}).unwrap();
    assert!(log.lock().unwrap().len() <= downloads + 2);
}

#[test]
fn what_python_downloaded_is_found() {
    let cache = tempfile::tempdir().unwrap();
    let folder = cache.path().join("datasets--owner--name");
    let snapshot = folder.join("snapshots").join(COMMIT);
    fs::create_dir_all(snapshot.join("data")).unwrap();
    fs::create_dir_all(folder.join("refs")).unwrap();
    fs::write(folder.join("refs/main"), COMMIT).unwrap();
    fs::write(snapshot.join("data/train-00000-of-00001.parquet"), "rows").unwrap();

    // Nobody listens at this address.
    let unreachable = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let hub = hub(cache.path(), &format!("http://{unreachable}"));
    let found = [snapshot.join("data/train-00000-of-00001.parquet")];
    assert_eq!(data_set(&Hub { offline: true, ..hub.clone() }).unwrap(), found);

    let mut notes = String::new();
    let part = Part { default_split: "train", ..Part::default() };
    let files = hub.data_set(&name(), &part, &mut |progress| {
        if let Progress::Note(note) = progress {
            notes += note;
        }
    });

    assert_eq!(files.unwrap(), found);
    assert!(notes.contains("continuing with the files in the cache"), "{notes}");

    fs::create_dir(folder.join("trees")).unwrap();
    let tree = json!({"format_version": 1, "files": {
        "data/train-00000-of-00001.parquet": {"size": 4, "blob_id": COMMIT, "xet_hash": "0"},
    }});
    fs::write(folder.join(format!("trees/{COMMIT}.json")), tree.to_string()).unwrap();
    notes.clear();
    assert_eq!(data_set(&hub).unwrap(), found);

    let other = Hub { cache: cache.path().join("empty"), ..hub };
    assert!(data_set(&other).unwrap_err().to_string().contains("can't reach http://127.0.0.1"));
    let offline = data_set(&Hub { offline: true, ..other }).unwrap_err().to_string();
    assert!(offline.contains("HF_HUB_OFFLINE forbids"), "{offline}");
}

#[test]
fn a_download_that_breaks_off_continues() {
    let cache = tempfile::tempdir().unwrap();
    let (endpoint, log) = serve("127.0.0.1", |asked| {
        let mut reply = whole(ROWS)(asked);
        if asked.path.ends_with("/train.parquet") && asked.from < 8 {
            reply.truncate(reply.len() - 2);
            if asked.from == 0 {
                reply.truncate(reply.len() - 4);
            }
        }
        reply
    });

    let files = data_set(&hub(cache.path(), &endpoint)).unwrap();
    assert_eq!(fs::read(&files[0]).unwrap(), b"0123456789");
    let starts: Vec<usize> = log.lock().unwrap().iter().map(|asked| asked.from).collect();
    assert_eq!(starts, [0, 0, 4, 8]);
}

#[test]
fn a_download_that_stays_broken_leaves_nothing_under_the_final_name() {
    let cut = refused(|asked| {
        if asked.path.starts_with("/api/") {
            info(ROWS)
        } else {
            respond("200 OK", "", b"01234").replace_length(10)
        }
    });

    assert!(cut.contains("HUB/datasets/owner/name/resolve/"), "{cut}");
    let wrong = refused(|asked| {
        if asked.path.starts_with("/api/") {
            info(ROWS)
        } else {
            respond("200 OK", "", b"9876543210")
        }
    });

    assert!(wrong.contains("SHA-256"), "{wrong}");
    let small = refused(|asked| {
        if asked.path.starts_with("/api/") {
            info(&[("train.jsonl", b"0123456789")])
        } else {
            respond("200 OK", "", b"9876543210")
        }
    });

    assert!(small.contains("the file's Git hash is"), "{small}");
    let long = refused(|asked| {
        if asked.path.starts_with("/api/") {
            info(ROWS)
        } else {
            respond("200 OK", "", b"0123456789 and more")
        }
    });

    assert!(long.contains("more than the 10 bytes"), "{long}");
}

trait ReplaceLength {
    /// Announces another length than the body has.
    fn replace_length(self, length: usize) -> Self;
}

impl ReplaceLength for Vec<u8> {
    fn replace_length(self, length: usize) -> Self {
        let text = String::from_utf8(self).unwrap();
        text.replace("Content-Length: 5", &format!("Content-Length: {length}")).into_bytes()
    }
}

#[test]
fn the_token_goes_to_the_endpoint_alone() {
    let (elsewhere, seen) = serve("localhost", |_| respond("200 OK", "", b"0123456789"));

    let cache = tempfile::tempdir().unwrap();
    let (endpoint, log) = serve("127.0.0.1", move |asked| {
        if asked.path.starts_with("/api/") {
            info(ROWS)
        } else {
            respond("302 Found", &format!("Location: {elsewhere}/blob\r\n"), b"")
        }
    });

    let hub = hub(cache.path(), &endpoint);
    let files = data_set(&hub).unwrap();
    assert_eq!(fs::read(&files[0]).unwrap(), b"0123456789");
    assert!(log.lock().unwrap().iter().all(|asked| asked.token));

    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen, [Asked { path: "/blob".into(), token: false, from: 0 }]);
    assert!(!format!("{hub:?}").contains(TOKEN));
}

#[test]
fn refusals_say_what_to_do() {
    let status = |status: &'static str, code: &str| {
        let field = format!("X-Error-Code: {code}\r\n");
        refused(move |_| respond(status, &field, b"no"))
    };
    let gated = status("403 Forbidden", "GatedRepo");
    assert!(
        gated.contains("accept its licence at HUB/datasets/owner/name, and set HF_TOKEN"),
        "{gated}"
    );
    let private = status("401 Unauthorized", "RepoNotFound");
    assert!(private.contains("the Hub has no owner/name, or it is private"), "{private}");
    assert_eq!(status("404 Not Found", "RepoNotFound"), private);

    let revision = status("404 Not Found", "RevisionNotFound");
    assert!(revision.contains("owner/name has no revision main"), "{revision}");
    assert!(status("503 Busy", "").contains("it answers 503"));
    let page = refused(|_| respond("200 OK", "", b"<html>"));
    assert!(page.contains("expected value at line 1 column 1; is HF_ENDPOINT right?"), "{page}");

    let file = |path: &'static str| refused(move |_| info(&[(path, b"rows")]));
    for path in
        ["../train.jsonl", "/etc/train.jsonl", "a/../../train.jsonl", "a\\train.jsonl", "a//b"]
    {
        assert!(file(path).contains("leads out of its folder"), "{path}");
    }
    assert!(
        file("model.bin").contains("it has no .parquet, .jsonl or .csv file; it has model.bin")
    );
}

#[test]
fn only_what_may_pass_is_tried_again() {
    // `printf 'blob 3\0one' | sha1sum` prints this hash, and so does `git hash-object`.
    assert_eq!(blob_id(b"one"), "43dd47ea691c90a5fa7827892c70241913351963");

    let cache = tempfile::tempdir().unwrap();
    let (endpoint, log) =
        serve("127.0.0.1", |_| respond("302 Found", "Location: /around\r\n", b""));
    let around = data_set(&hub(cache.path(), &endpoint)).unwrap_err().to_string();
    assert!(around.contains("is HF_ENDPOINT right?"), "{around}");
    assert_eq!(log.lock().unwrap().iter().filter(|asked| asked.path != "/around").count(), 1);

    let busy = std::sync::atomic::AtomicBool::new(true);
    let (endpoint, _) = serve("127.0.0.1", move |asked| {
        if busy.swap(false, std::sync::atomic::Ordering::Relaxed) {
            respond("429 Too Many Requests", "Retry-After: 1\r\n", b"")
        } else {
            whole(ROWS)(asked)
        }
    });

    let begin = std::time::Instant::now();
    assert!(data_set(&hub(cache.path(), &endpoint)).is_ok());
    assert!(begin.elapsed().as_millis() >= 1000);
}
