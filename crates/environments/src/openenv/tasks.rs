//! An environment's own tasks, which it lists and counts over HTTP: OpenEnv's task API.

use std::{sync::OnceLock, time::Duration};

use firebrick_core::{EnvironmentFailed, TaskCounts};
use serde_json::{Value, json};
use ureq::{Agent, RequestBuilder, http::Response};

use super::{
    session::{Address, LARGEST},
    shown,
};

/// Largest number of tasks that a split may have.
const LARGEST_SPLIT: u64 = 1 << 40;

/// The tasks that episodes are of.
#[derive(Clone, Debug)]
pub struct TaskSplits {
    /// Split of the training tasks.
    pub train: String,
    /// Split of the held-out tasks. If it is left out, they are the last of the training split.
    pub heldout: Option<String>,
    /// Number of training tasks, if there are so many. Prompts with smaller ids are theirs.
    pub train_size: usize,
    /// Number of held-out tasks, if there are so many.
    pub heldout_size: usize,
}

/// Tasks whose number is known once a server was asked for it.
pub(super) struct Tasks {
    splits: TaskSplits,
    /// Index of the first held-out task in its split.
    first_heldout: OnceLock<u64>,
}

impl Tasks {
    pub(super) fn new(splits: TaskSplits) -> Self {
        Tasks { splits, first_heldout: OnceLock::new() }
    }

    /// Returns the split and the index of a prompt's task; no index before the tasks were counted.
    pub(super) fn of(&self, id: u64) -> (&str, Option<u64>) {
        let TaskSplits { train, heldout, train_size, .. } = &self.splits;
        match id.checked_sub(*train_size as u64) {
            None => (train, Some(id)),
            Some(place) => {
                let first = self.first_heldout.get();
                (heldout.as_ref().unwrap_or(train), first.map(|first| first + place))
            }
        }
    }

    /// Asks the servers, one after the other until one answers, how many tasks there are.
    pub(super) fn count<'a>(
        &self,
        servers: impl Iterator<Item = &'a Address>,
        time_limit: Duration,
    ) -> Result<TaskCounts, EnvironmentFailed> {
        let mut failed = String::new();
        for address in servers {
            match self.count_at(&TaskApi::new(address, time_limit)) {
                Ok(counts) => return Ok(counts),
                Err(why) => failed = format!("{address}: {why}"),
            }
        }
        Err(EnvironmentFailed::Environment(failed.into()))
    }

    fn count_at(&self, api: &TaskApi<'_>) -> Result<TaskCounts, String> {
        let TaskSplits { train, heldout, train_size, heldout_size } = &self.splits;
        let name = api.name()?;
        let splits = api.splits(&name)?;

        let count = |split: &String| {
            if !splits.contains(split) {
                let known = shown(&splits.join(", "), api.address.key());
                return Err(format!("there is no split \"{split}\" among its tasks, but: {known}"));
            }
            api.num_tasks(&name, split)
        };
        let all = count(train)?;

        let (train, heldout, first) = match heldout {
            Some(heldout) => (all, count(heldout)?.min(*heldout_size as u64), 0),
            None if all <= *heldout_size as u64 => {
                return Err(format!(
                    "its split \"{train}\" has {all} tasks, expected more than the {heldout_size} of data.heldout_size"
                ));
            }
            None => (all - *heldout_size as u64, *heldout_size as u64, all - *heldout_size as u64),
        };
        if all == 0 || heldout == 0 {
            return Err("one of the splits has no task".into());
        }
        let _ = self.first_heldout.set(first);
        Ok(TaskCounts { train: train.min(*train_size as u64) as usize, heldout: heldout as usize })
    }
}

/// The task API of one server.
struct TaskApi<'a> {
    address: &'a Address,
    agent: Agent,
}

impl<'a> TaskApi<'a> {
    fn new(address: &'a Address, time_limit: Duration) -> Self {
        let config = Agent::config_builder()
            .user_agent(concat!("firebrick/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            // Redirects are not followed, because the key must not be sent elsewhere.
            .max_redirects(0)
            // Servers are in the trainer's own network, as those of episodes are.
            .proxy(None)
            .timeout_global(Some(time_limit));
        TaskApi { address, agent: config.build().into() }
    }

    /// Returns the environment's name, which is a part of the other paths.
    fn name(&self) -> Result<String, String> {
        let answer = self.ask("list_environments", None)?;
        let name = answer.get(0).and_then(Value::as_str).unwrap_or_default();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > 200 || !name.chars().all(is_plain) {
            return Err(self.odd("list_environments", "a list with a plain name", &answer));
        }
        Ok(name.to_owned())
    }

    fn splits(&self, name: &str) -> Result<Vec<String>, String> {
        let path = format!("{name}/splits");
        let answer = self.ask(&path, None)?;
        let name = |split: &Value| split["name"].as_str().map(str::to_owned);
        let names = answer.as_array().and_then(|splits| splits.iter().map(name).collect());
        names.ok_or_else(|| self.odd(&path, "a list of splits with names", &answer))
    }

    fn num_tasks(&self, name: &str, split: &str) -> Result<u64, String> {
        let path = format!("{name}/num_tasks");
        let answer = self.ask(&path, Some(&json!({ "split": split })))?;
        let count = answer["num_tasks"].as_u64().filter(|&count| count <= LARGEST_SPLIT);
        let expected = format!("`num_tasks` from 0 to {LARGEST_SPLIT}");
        count.ok_or_else(|| self.odd(&path, &expected, &answer))
    }

    /// Asks for `path`, by POST if there is a body.
    fn ask(&self, path: &str, body: Option<&Value>) -> Result<Value, String> {
        let url = self.address.http(path);
        // A server may have its key as the environment's name, which is in the path.
        let path = shown(path, self.address.key());
        let answer = match body {
            None => self.with_key(self.agent.get(&url)).call(),
            Some(body) => {
                let request = self.agent.post(&url).header("content-type", "application/json");
                self.with_key(request).send(body.to_string())
            }
        };

        let read = |mut response: Response<ureq::Body>| {
            let text = response.body_mut().with_config().limit(LARGEST as u64).read_to_string();
            text.map(|text| (response.status().as_u16(), text))
        };
        let (status, text) = answer.and_then(read).map_err(|error| format!("/{path}: {error}"))?;
        match status {
            200 => serde_json::from_str(&text)
                .map_err(|error| format!("its answer to /{path} is not JSON: {error}")),
            404 | 405 | 501 => Err(format!(
                "it lists no tasks (HTTP {status} for /{path}): leave out data.task.split, and its episodes are numbered by seeds"
            )),
            _ => {
                let words = shown(&text, self.address.key());
                Err(format!("/{path} has the status {status}: {words}"))
            }
        }
    }

    fn with_key<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match self.address.key() {
            Some(key) => request.header("authorization", format!("Bearer {}", key.word())),
            None => request,
        }
    }

    fn odd(&self, path: &str, expected: &str, answer: &Value) -> String {
        let path = shown(path, self.address.key());
        let actual = shown(&answer.to_string(), self.address.key());
        format!("its answer to /{path} is {actual}, expected {expected}")
    }
}
