//! Models and data by their names, from a server on this machine that plays the Hub.

#![cfg(feature = "hub")]
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod scratch;

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    sync::{Arc, Mutex},
    thread,
};

use scratch::{Outcome, Scratch, repository};
use serde_json::{Value, json};
use sha1::{Digest as _, Sha1};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

type Files = Vec<(String, Vec<u8>)>;

/// Serves the model `kiln/tiny` and the data set `kiln/rows`. Returns the endpoint, and the paths that are asked
/// for.
fn serve() -> (String, Arc<Mutex<Vec<String>>>) {
    let folder = fs::read_dir(repository("tests/fixtures/qwen2-f32")).unwrap();
    let model: Files = folder
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();

    let rows = fs::read(repository("crates/cli/tests/data/gsm8k-style.jsonl")).unwrap();
    let rows: Files = vec![("train.jsonl".to_owned(), rows)];

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let log = Arc::new(Mutex::new(Vec::new()));
    let seen = log.clone();

    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> =
                lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            let Some(path) = head.first().and_then(|line| line.split(' ').nth(1)) else { continue };
            seen.lock().unwrap().push(path.to_owned());

            let answer = match path {
                "/api/models/kiln/tiny/revision/main?blobs=true" => Some(listing(&model)),
                "/api/datasets/kiln/rows/revision/main?blobs=true" => Some(listing(&rows)),
                path => {
                    file(path, &format!("/kiln/tiny/resolve/{COMMIT}/"), &model).or_else(|| {
                        file(path, &format!("/datasets/kiln/rows/resolve/{COMMIT}/"), &rows)
                    })
                }
            };

            let (status, body) = match answer {
                Some(body) => ("200 OK", body),
                None => ("404 Not Found", Vec::new()),
            };
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
            );
            let _ = stream.write_all(&[head.as_bytes(), &body].concat());
        }
    });

    (endpoint, log)
}

fn listing(files: &Files) -> Vec<u8> {
    let sibling = |(name, bytes): &(String, Vec<u8>)| json!({"rfilename": name, "size": bytes.len(), "blobId": blob_id(bytes)});
    let siblings: Vec<Value> = files.iter().map(sibling).collect();
    json!({"sha": COMMIT, "siblings": siblings}).to_string().into_bytes()
}

/// Returns Git's hash of a file.
fn blob_id(bytes: &[u8]) -> String {
    let whole = [format!("blob {}\0", bytes.len()).as_bytes(), bytes].concat();
    Sha1::digest(whole).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn file(path: &str, folder: &str, files: &Files) -> Option<Vec<u8>> {
    let name = path.strip_prefix(folder)?;
    files.iter().find(|(is, _)| is == name).map(|(_, bytes)| bytes.clone())
}

#[test]
fn a_run_finds_its_model_and_data_by_name_and_then_needs_no_network() {
    let scratch = Scratch::new();
    let (endpoint, log) = serve();
    let recipe = "model = {path = 'kiln/tiny', lora = {rank = 2}}\n\
                  [data]\ntrain = 'kiln/rows'\nheldout_size = 4\n\
                  [rollout]\ngroup_size = 4\nmax_completion_tokens = 8\n\
                  [sampling]\nprompts_per_step = 2\nmax_rounds = 1\n\
                  [reward]\nkind = 'regex'\npattern = 'e'\nmatches = true\n\
                  [train]\nsteps = 1\nmini_batch = 8\n";
    scratch.write("r.toml", recipe);

    let run = |offline: &str, arguments: &[&str]| {
        let mut command = scratch.command(arguments);
        for name in ["HF_TOKEN", "HF_HUB_CACHE"] {
            command.env_remove(name);
        }
        command.env("HF_HOME", scratch.path("hf")).env("HF_ENDPOINT", &endpoint);
        Outcome::of(command.env("HF_HUB_OFFLINE", offline).output().unwrap())
    };
    let succeed = |offline: &str, arguments: &[&str]| {
        let outcome = run(offline, arguments);
        assert_eq!(outcome.code, Some(0), "{arguments:?}: {}", outcome.stderr);
        outcome
    };

    let asked = |name: &str| {
        let log = log.lock().unwrap();
        log.iter().filter(|path| path.ends_with(name)).count()
    };

    let refused = run("1", &["train", "r.toml"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("HF_HUB_OFFLINE"), "{}", refused.stderr);

    // A plan needs only the model's sizes, and a run begins with them.
    succeed("0", &["plan", "r.toml", "--memory", "8GiB"]);
    assert_eq!((asked("/config.json"), asked("/model.safetensors")), (1, 0));
    let outcome = succeed("0", &["train", "r.toml", "--set", "name=first"]);
    assert!(outcome.stderr.contains("downloading model.safetensors"), "{}", outcome.stderr);
    for name in ["/config.json", "/model.safetensors", "/tokenizer.json", "/train.jsonl"] {
        assert_eq!(asked(name), 1, "{name}");
    }

    // From here on the cache answers everything.
    let before = log.lock().unwrap().len();
    for offline in ["0", "1"] {
        let name = format!("name=again-{offline}");
        let outcome = succeed(offline, &["train", "r.toml", "--set", &name]);
        assert!(!outcome.stderr.contains("downloading"), "{}", outcome.stderr);
    }

    // The adapter says the model's name, and the model is found again by this name.
    let checkpoint = "runs/again-1/checkpoints/step-000001";
    let config = scratch.json(&format!("{checkpoint}/adapter_config.json"));
    assert_eq!(config["base_model_name_or_path"], "kiln/tiny");
    let card = fs::read_to_string(scratch.path(&format!("{checkpoint}/README.md"))).unwrap();
    let front = "---\nbase_model: \"kiln/tiny\"\ndatasets:\n- \"kiln/rows\"\nlibrary_name: peft\n";
    assert!(card.starts_with(front), "{card}");

    succeed("1", &["eval", checkpoint, "--samples", "1"]);
    succeed(
        "1",
        &["train", "r.toml", "--set", "name=again-1", "--set", "train.steps=2", "--resume"],
    );
    succeed("1", &["eval", "kiln/tiny", "--samples", "1", "--recipe", "r.toml"]);
    succeed("1", &["inspect", "kiln/tiny"]);
    assert_eq!(log.lock().unwrap().len(), before, "the cache has all of it");
}
