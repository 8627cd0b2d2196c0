//! One adapter on a server: its passes, its steps, and its weights.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    archive::AdapterFiles,
    client::{Call, Client, Ends, Repeat},
    error::TinkerError,
    session::TinkerSession,
    traits::ServerTraits,
    wire::{Datum, Pass, PassRequest, Text, read_logprobs},
};
use crate::http::SMALL;

/// An adapter that a server trains. Copies of it are the same adapter.
#[derive(Clone)]
pub struct TinkerModel(Arc<Inner>);

struct Inner {
    session: Arc<TinkerSession>,
    id: String,
    /// Number of the last request. The server handles requests in the order of their numbers.
    number: Mutex<u64>,
    /// How often the weights have changed.
    changes: AtomicU64,
    /// Paths of the weights that were saved, by the number of changes.
    saved: Mutex<HashMap<u64, String>>,
    /// Names of the weights that were exported, by the number of changes.
    exported: Mutex<HashMap<u64, String>>,
}

impl AsRef<TinkerModel> for TinkerModel {
    fn as_ref(&self) -> &TinkerModel {
        self
    }
}

/// Settings of a step of Adam, with decoupled weight decay.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Adam {
    /// Learning rate.
    pub learning_rate: f64,
    /// Decay rate of the first moment.
    pub beta1: f64,
    /// Decay rate of the second moment.
    pub beta2: f64,
    /// Summand of the denominator.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Largest global norm of the gradient; `None` leaves it as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grad_clip_norm: Option<f64>,
}

const FORWARD: Call<'_> = Call {
    task: "compute log-probabilities",
    path: "/api/v1/forward",
    repeat: Repeat::Always,
    ends: Ends::WithRun,
    limit: SMALL,
};

/// A second gradient would count twice.
const BACKWARD: Call<'_> = Call {
    task: "compute a gradient",
    path: "/api/v1/forward_backward",
    repeat: Repeat::IfNumbered,
    ..FORWARD
};

/// How often something is asked for under new names.
const TRIES: usize = 4;

/// Largest number of texts of a request, and of bytes in them.
const CHUNK: (usize, usize) = (1024, 4_000_000);

/// Bytes of an answer for each target, at most: a few numbers in decimal.
const ANSWER_BYTES: u64 = 200;

impl TinkerModel {
    /// Makes an adapter of the session's base model, which changes nothing yet.
    ///
    /// # Errors
    /// If the server does not make it.
    pub fn create(
        session: &Arc<TinkerSession>,
        rank: usize,
        seed: u64,
    ) -> Result<TinkerModel, TinkerError> {
        let call = Call::new("make a model", "/api/v1/create_model");
        let body = json!({
            "session_id": session.id,
            "model_seq_id": session.next(),
            "base_model": session.settings.base_model,
            "lora_config": {"rank": rank, "seed": seed},
            "model_role": "policy",
            "user_metadata": {},
            "type": "create_model",
        });
        // A second model is never used, and ends with the session.
        let made = session.client.post(call, &body)?;
        let result = session.client.wait(call, &made)?;
        let Some(id) = made["model_id"].as_str().or(result["model_id"].as_str()) else {
            return Err(session.client.wrong(call, "it has no model_id"));
        };
        Ok(TinkerModel(Arc::new(Inner {
            session: session.clone(),
            id: id.to_owned(),
            number: Mutex::new(0),
            changes: AtomicU64::new(0),
            saved: Mutex::default(),
            exported: Mutex::default(),
        })))
    }

    /// Returns the server's name of the adapter.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// Returns the session that the adapter belongs to.
    pub fn session(&self) -> &Arc<TinkerSession> {
        &self.0.session
    }

    /// Returns how often the weights have changed: two copies with the same number have the same weights.
    pub fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::Acquire)
    }

    /// Computes the log-probability of each token of the texts' completions, at temperature 1.
    ///
    /// # Errors
    /// If the server fails.
    pub fn logprobs(&self, texts: &[Text<'_>]) -> Result<Vec<Vec<f32>>, TinkerError> {
        let chunks: Vec<&[Text<'_>]> = chunks(texts, |text| text).collect();
        let accepted = chunks.iter().map(|chunk| {
            let data = chunk.iter().map(Datum::forward).collect();
            let pass = Pass { data, loss_fn: "cross_entropy" };
            self.post(FORWARD, |seq_id| PassRequest::forward(self.id(), seq_id, &pass))
        });
        let accepted = accepted.collect::<Result<Vec<Value>, TinkerError>>()?;

        let mut logprobs = Vec::with_capacity(texts.len());
        for (chunk, accepted) in chunks.into_iter().zip(accepted) {
            logprobs.extend(self.read(FORWARD, chunk, &accepted)?);
        }
        Ok(logprobs)
    }

    /// Takes a step of Adam uphill along Σ cₜ · ∇log pₜ, the sum over all tokens of the texts' completions. Each text
    /// comes with the log-probabilities of its completion now, and with its coefficients. Returns the norm of the
    /// gradient, if the server says it.
    ///
    /// # Errors
    /// If the server fails. It may have taken the step, or hold a part of its gradient.
    pub fn ascend(
        &self,
        texts: &[(Text<'_>, &[f32], &[f32])],
        traits: &ServerTraits,
        adam: &Adam,
    ) -> Result<Option<f64>, TinkerError> {
        let chunks: Vec<_> = chunks(texts, |(text, ..)| text).collect();
        let count = |texts: &[(Text<'_>, &[f32], &[f32])]| {
            [texts.len(), texts.iter().map(|(text, ..)| text.targets()).sum()]
        };
        let of_step = count(texts);
        let mut accepted = Vec::new();
        for chunk in &chunks {
            let of_request = count(chunk);
            let data = chunk.iter().map(|(text, logprobs, coefficients)| {
                let scale = traits.reduction.scale(text.targets(), of_step, of_request);
                Datum::backward(text, logprobs, coefficients, scale)
            });
            accepted.push(self.backward(data.collect())?);
        }
        for (chunk, accepted) in chunks.iter().zip(&accepted) {
            let texts: Vec<Text<'_>> = chunk.iter().map(|(text, ..)| *text).collect();
            self.read(BACKWARD, &texts, accepted)?;
        }
        self.step(adam)
    }

    /// Adds the gradient of a pass to those since the last step. The pass is accepted, and may not be done.
    pub(super) fn backward(&self, data: Vec<Datum>) -> Result<Value, TinkerError> {
        let pass = Pass { data, loss_fn: "importance_sampling" };
        self.post(BACKWARD, |seq_id| PassRequest::backward(self.id(), seq_id, &pass))
    }

    /// Does what [`TinkerModel::backward`] does, and waits until it is done.
    pub(super) fn finish_backward(&self, data: Vec<Datum>) -> Result<(), TinkerError> {
        let targets: usize = data.iter().map(Datum::targets).sum();
        let accepted = self.backward(data)?;
        self.client().wait(sized(BACKWARD, targets), &accepted).map(drop)
    }

    /// Takes a step along the gradients that were added up.
    pub(super) fn step(&self, adam: &Adam) -> Result<Option<f64>, TinkerError> {
        let call =
            Call { repeat: Repeat::IfNumbered, ..Call::new("take a step", "/api/v1/optim_step") };
        self.0.changes.fetch_add(1, Ordering::AcqRel);
        let accepted = self.post(call, |number| {
            json!({"model_id": self.id(), "seq_id": number, "adam_params": adam, "type": "optim_step"})
        })?;
        let result = self.client().wait(call, &accepted)?;
        let metrics = result["metrics"].as_object().into_iter().flatten();
        let mut norms = metrics.filter(|(name, _)| name.contains("grad_norm"));
        match norms.next() {
            Some((_, norm)) if norm.as_f64().is_none_or(|norm| !norm.is_finite()) => {
                Err(self.client().wrong(call, &format!("its gradient has the norm {norm}")))
            }
            norm => Ok(norm.and_then(|(_, norm)| norm.as_f64())),
        }
    }

    /// Saves weights and optimizer on the server, and returns their path there. It is not interrupted.
    ///
    /// # Errors
    /// If the server fails.
    pub fn save(&self) -> Result<String, TinkerError> {
        let call = Call::new("save the weights", "/api/v1/save_weights");
        self.once(
            "weights",
            &self.0.saved,
            call,
            |name| json!({"model_id": self.id(), "path": name, "type": "save_weights"}),
        )
        .map(|(path, _)| path)
    }

    /// Loads weights and optimizer that were [saved](TinkerModel::save), by an adapter of any session. It has to be the
    /// adapter's first request, and if it fails the adapter is of no use.
    ///
    /// # Errors
    /// If the server has no such weights; [`TinkerError::Unsure`] if the answer was lost.
    pub fn load(&self, path: &str) -> Result<(), TinkerError> {
        let call =
            Call { repeat: Repeat::Never, ..Call::new("load the weights", "/api/v1/load_weights") };
        let body = json!({
            "model_id": self.id(),
            "path": path,
            "optimizer": true,
            "type": "load_weights",
        });
        self.0.changes.fetch_add(1, Ordering::AcqRel);
        self.client().run(call, &body).map(drop).map_err(|error| match error {
            TinkerError::Gone { base, .. } => TinkerError::Unfit {
                base,
                problem: format!(
                    "it has no {path}: start it with the folder and the database that it had when they were saved, or begin a \
                     new run"
                ),
            },
            error => error,
        })
    }

    /// Downloads the adapter in PEFT's format; `None` if the server offers no such file. It is not interrupted.
    ///
    /// # Errors
    /// If the server fails, or its file is none of PEFT's.
    pub fn adapter_files(&self) -> Result<Option<AdapterFiles>, TinkerError> {
        let call = Call::new("export the adapter", "/api/v1/save_weights_for_sampler");
        let body = |name: &str| json!({"model_id": self.id(), "path": name, "type": "save_weights_for_sampler"});
        let (_, name) = self.once("adapter", &self.0.exported, call, body)?;

        let call = Call {
            path: "/api/v1/training_runs/…/archive",
            ends: Ends::Never,
            limit: AdapterFiles::LIMIT,
            ..call
        };
        let path = format!("/api/v1/training_runs/{}/checkpoints/{name}/archive", self.id());
        let Some(archive) = self.client().download(call, &path)? else { return Ok(None) };
        let unpacked = AdapterFiles::unpack(&archive);
        unpacked.map(Some).map_err(|problem| self.client().wrong(call, &problem))
    }

    /// Makes the server keep the weights of now under a name, unless it has done so. Returns their path and their name. A
    /// request whose answer is lost is followed by one for another name, because a name that is there may be that of
    /// half a file.
    fn once(
        &self,
        kind: &str,
        done: &Mutex<HashMap<u64, String>>,
        call: Call<'_>,
        body: impl Fn(&str) -> Value,
    ) -> Result<(String, String), TinkerError> {
        let changes = self.changes();
        let path_of = |name: &str| format!("tinker://{}/weights/{name}", self.id());
        let known = lock(done).get(&changes).cloned();
        if let Some(name) = known {
            return Ok((path_of(&name), name));
        }

        let call = Call { repeat: Repeat::Never, ends: Ends::Never, ..call };
        let mut lost = None;
        for attempt in 0..TRIES {
            let name = match attempt {
                0 => format!("{kind}-{changes}"),
                _ => format!("{kind}-{changes}-{attempt}"),
            };
            match self.client().run(call, &body(&name)) {
                Err(error @ TinkerError::Unsure { .. }) => lost = Some(error),
                result => {
                    result?;
                    lock(done).insert(changes, name.clone());
                    return Ok((path_of(&name), name));
                }
            }
        }
        Err(lost.unwrap_or(TinkerError::Interrupted))
    }

    /// Makes the weights of now those of a new sampling session, and returns its name.
    pub(super) fn publish(&self) -> Result<String, TinkerError> {
        let call = Call::new("publish the weights", "/api/v1/save_weights_for_sampler");
        let call = Call { repeat: Repeat::Never, ..call };
        let publish = || {
            self.post(call, |number| {
                json!({
                    "model_id": self.id(),
                    "sampling_session_seq_id": self.0.session.next(),
                    "seq_id": number,
                    "type": "save_weights_for_sampler",
                })
            })
        };
        // A repeated request has another number, because weights of the same name would be refused.
        let mut accepted = publish();
        for _ in 1..TRIES {
            match accepted {
                Err(TinkerError::Unsure { .. }) => accepted = publish(),
                _ => break,
            }
        }
        let result = self.client().wait(call, &accepted?)?;
        let id = result["sampling_session_id"].as_str().map(str::to_owned);
        id.ok_or_else(|| self.client().wrong(call, "it has no sampling_session_id"))
    }

    /// Makes the server forget the adapter.
    pub fn unload(&self) {
        self.0.session.unload_model(self.id());
    }

    /// Asks twice for the same, under the same number, and finds out whether the server knows requests by their
    /// numbers.
    pub(super) fn knows_numbers(&self, text: &Text<'_>) -> Result<bool, TinkerError> {
        let mut number = lock(&self.0.number);
        *number += 1;
        let pass = Pass { data: vec![Datum::forward(text)], loss_fn: "cross_entropy" };
        let body = PassRequest::forward(self.id(), *number, &pass);
        let ask = || self.client().post(FORWARD, &body);
        let (first, second) = (ask()?, ask()?);
        for accepted in [&first, &second] {
            self.read(FORWARD, &[*text], accepted)?;
        }
        Ok(first["request_id"] == second["request_id"])
    }

    fn client(&self) -> &Client {
        &self.0.session.client
    }

    /// Posts the next request. No other one gets between a request and its number.
    fn post<B: Serialize>(
        &self,
        call: Call<'_>,
        body: impl FnOnce(u64) -> B,
    ) -> Result<Value, TinkerError> {
        let mut number = lock(&self.0.number);
        *number += 1;
        self.client().post(call, &body(*number))
    }

    /// Waits for the result of a pass.
    fn read(
        &self,
        call: Call<'_>,
        texts: &[Text<'_>],
        accepted: &Value,
    ) -> Result<Vec<Vec<f32>>, TinkerError> {
        let call = sized(call, texts.iter().map(Text::targets).sum());
        let result = self.client().wait(call, accepted)?;
        read_logprobs(&result, texts).map_err(|problem| self.client().wrong(call, &problem))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the limit of a pass's result.
fn sized(call: Call<'_>, targets: usize) -> Call<'_> {
    Call { limit: SMALL + targets as u64 * ANSWER_BYTES, ..call }
}

/// Cuts texts into requests that servers accept.
fn chunks<'a, T>(
    texts: &'a [T],
    text: impl Fn(&'a T) -> &'a Text<'a>,
) -> impl Iterator<Item = &'a [T]> {
    let mut rest = texts;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |item: &&'a T| {
            bytes += text(item).targets() * Datum::TARGET_BYTES;
            bytes <= CHUNK.1
        };
        let count = rest.iter().take(CHUNK.0).take_while(fits).count();
        // A text that is too long is a request of its own, which the server may refuse.
        let (chunk, others) = rest.split_at(count.max(1).min(rest.len()));
        rest = others;
        (!chunk.is_empty()).then_some(chunk)
    })
}
