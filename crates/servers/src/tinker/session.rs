//! A session with a server: the server forgets its models unless it hears from their client.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use firebrick_core::Key;
use serde_json::json;

use super::{
    client::{Call, Client},
    error::TinkerError,
};
use crate::http::{Address, SMALL};

/// Where a server is, and what is asked of it.
#[derive(Clone, Debug)]
pub struct TinkerSettings {
    /// Address of the server, such as `http://cluster:8000`.
    pub url: String,
    /// Name of the server's base model.
    pub base_model: String,
    /// Key for access to the server, if it asks for one.
    pub key: Option<Key>,
    /// How long the server may take for a request.
    pub deadline: Duration,
    /// How long the server may be away.
    pub patience: Duration,
    /// Size of the base model's vocabulary: ids start at 0 and are below it.
    pub vocabulary: usize,
}

/// A session with a server. It is kept alive until it is dropped.
pub struct TinkerSession {
    pub(super) client: Client,
    pub(super) settings: TinkerSettings,
    pub(super) id: String,
    /// Number of sampling sessions and models so far.
    count: AtomicU64,
}

/// Time between two signs of life.
const BEAT: Duration = Duration::from_secs(10);

/// Version of Tinker's own client whose dialect this is.
const DIALECT: &str = "0.24.1";

impl TinkerSession {
    /// Opens a session with a server that has the base model. Failures that are waited out are notes for the user,
    /// through `tell`.
    ///
    /// # Errors
    /// If the server can't be reached, or has another model.
    pub fn open(
        settings: TinkerSettings,
        tell: impl Fn(String) + Send + Sync + 'static,
    ) -> Result<Arc<Self>, TinkerError> {
        let address = Address::new(&settings.url, settings.key.clone())?.with_api_key_header();
        let times = [settings.deadline, settings.patience];
        let client = Client::new(address, times, Box::new(tell));

        let body = json!({
            "type": "create_session",
            "tags": ["firebrick"],
            "user_metadata": {},
            "sdk_version": DIALECT,
        });
        let call = Call::new("open a session", "/api/v1/create_session");
        let opened = client.post(call, &body).map_err(|error| match error {
            TinkerError::Gone { base, .. } => TinkerError::Unfit {
                base,
                problem: format!(
                    "it has no {}, so it does not speak Tinker's API: engine.url is its address, without a path",
                    call.path
                ),
            },
            error => error,
        })?;
        let Some(id) = opened["session_id"].as_str().map(str::to_owned) else {
            return Err(client.wrong(call, "it has no session_id"));
        };

        // A server need not say what it has, and refuses the model later then.
        let abilities = client.address().get("/api/v1/get_server_capabilities", BEAT);
        let models = abilities.unwrap_or_default()["supported_models"].clone();
        let names: Vec<&str> = models
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|it| it["model_name"].as_str())
            .collect();
        if !names.is_empty() && !names.contains(&&*settings.base_model) {
            return Err(TinkerError::Unfit {
                base: client.base().to_owned(),
                problem: format!(
                    "it has no model {:?}, but {}: set engine.model",
                    settings.base_model,
                    client.address().words(names.join(", ").as_bytes())
                ),
            });
        }

        let session = TinkerSession { client, settings, id, count: AtomicU64::new(0) };
        let session = Arc::new(session);
        let alive = Arc::downgrade(&session);
        thread::spawn(move || keep_alive(&alive));
        Ok(session)
    }

    /// Makes waits for the server end when the flag is set, except for those in which something is saved.
    pub fn interrupted_by(&self, flag: Arc<AtomicBool>) {
        self.client.interrupted_by(flag);
    }

    /// Returns the address of the server.
    pub fn url(&self) -> &str {
        self.client.base()
    }

    /// Makes the server forget a model, which may be one of an earlier session. A failure costs the server memory and
    /// is ignored.
    pub fn unload_model(&self, model_id: &str) {
        let body = json!({"model_id": model_id, "type": "unload_model"});
        let call = Call::new("unload a model", "/api/v1/unload_model");
        let _ = self.client.run(call, &body);
    }

    /// Returns the next number of a model or a sampling session.
    pub(super) fn next(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }
}

/// Gives signs of life for as long as the session is there. A server that has none anyway says so at the next request.
fn keep_alive(session: &Weak<TinkerSession>) {
    loop {
        {
            let Some(session) = session.upgrade() else { break };
            let body = json!({"session_id": session.id, "type": "session_heartbeat"});
            let _ = session.client.address().post("/api/v1/session_heartbeat", &body, BEAT, SMALL);
        }
        thread::sleep(BEAT);
    }
}
