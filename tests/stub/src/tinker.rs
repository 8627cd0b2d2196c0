//! A server that speaks Tinker's API, as far as a run does, and computes with a real model.

use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use burn::{
    module::Module as _,
    tensor::{Device, Tensor},
};
use firebrick_core::{Completion, FinishReason, Seed, TokenId, config::Aggregation};
use firebrick_models::{Decoder, Lora, load, save_adapter};
use firebrick_servers::{Over, Reduction};
use firebrick_train::{
    Sample,
    algorithm::{LossInput, LossOutput, Objective, PolicyLoss},
    learner::{AdamW, CrossEntropy, OptimConfig, Optimizer, Updater},
};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};

use crate::{
    Fault, Served, StubModel as _, Wanted,
    http::{read, send},
};

/// A server of adapters, on a port of its own, until it is dropped.
pub struct Tinker {
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// Chooses the fault of a request, by its number and its path.
pub type TinkerFaults = dyn Fn(u64, &str) -> Option<Fault> + Send + Sync;

/// Settings of a [`Tinker`].
pub struct TinkerOptions {
    /// Fault of each request. A status is answered before anything is done, and every other fault after it.
    pub faults: Box<TinkerFaults>,
    /// How gradients become one.
    pub reduction: Reduction,
    /// True if Adam's settings are those of a model's first step.
    pub takes_adam: bool,
    /// True if a step limits the gradient's norm as it is asked to.
    pub clips: bool,
    /// True if a request with the number of another is taken for that other.
    pub numbered: bool,
    /// What is done with each log-probability of a pass.
    pub distort: Box<dyn Fn(f32) -> f32 + Send + Sync>,
}

impl Default for TinkerOptions {
    fn default() -> Self {
        TinkerOptions {
            faults: Box::new(|_, _| None),
            reduction: Reduction::default(),
            takes_adam: true,
            clips: true,
            numbered: true,
            distort: Box::new(|logprob| logprob),
        }
    }
}

/// Strength of the server's adapters.
const ALPHA: f64 = 32.0;

/// What they adapt.
const TARGETS: [&str; 7] =
    ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];

struct Shared {
    options: TinkerOptions,
    state: Mutex<State>,
    ended: AtomicBool,
}

struct State {
    base: Decoder,
    models: HashMap<String, Adapter>,
    /// Weights that were saved, by their paths.
    saved: HashMap<String, Adapter>,
    samplers: HashMap<String, Decoder>,
    /// Results of requests.
    results: HashMap<String, Value>,
    /// Requests by model and number.
    numbers: HashMap<(String, u64), String>,
    requests: u64,
    /// Names given so far.
    names: u64,
    /// Steps that were taken, by model.
    steps: HashMap<String, u64>,
}

/// An adapter, its optimizer, and the samples since the last step with the factor of each.
#[derive(Clone)]
struct Adapter {
    policy: Decoder,
    adamw: Option<AdamW>,
    pending: Vec<(Sample, f64)>,
}

impl Tinker {
    /// Starts a server whose base model is in `folder`.
    ///
    /// # Panics
    /// If there is no model, or no port is free.
    pub fn of(folder: &Path, options: TinkerOptions) -> Tinker {
        let base = load(folder, &Device::flex().autodiff()).expect("a model to begin with");
        Tinker::start(base, options)
    }

    /// Starts a server whose base model is `base`, on a device with autodiff.
    ///
    /// # Panics
    /// If no port is free.
    pub fn start(base: Decoder, options: TinkerOptions) -> Tinker {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of its own");
        let address = listener.local_addr().expect("a port has an address");
        let state = State {
            base,
            models: HashMap::new(),
            saved: HashMap::new(),
            samplers: HashMap::new(),
            results: HashMap::new(),
            numbers: HashMap::new(),
            requests: 0,
            names: 0,
            steps: HashMap::new(),
        };
        let ended = AtomicBool::new(false);
        let shared = Arc::new(Shared { options, state: Mutex::new(state), ended });

        let served = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                if served.ended.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), served) = (stream, served.clone()) else { continue };
                thread::spawn(move || drop(answer(stream, &served)));
            }
        });
        Tinker { address, shared }
    }

    /// Returns the server's address.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the weights of a model that it still has.
    ///
    /// # Panics
    /// If it has no such model.
    pub fn policy(&self, model: &str) -> Decoder {
        self.shared.lock().models[model].policy.clone()
    }

    /// Returns the weights that were saved under this path.
    ///
    /// # Panics
    /// If there are none.
    pub fn saved(&self, path: &str) -> Decoder {
        self.shared.lock().saved[path].policy.clone()
    }

    /// Returns the number of models that it has.
    pub fn models(&self) -> usize {
        self.shared.lock().models.len()
    }

    /// Returns the number of steps that all models have taken.
    pub fn all_steps(&self) -> u64 {
        self.shared.lock().steps.values().sum()
    }

    /// Returns the number of steps that a model has taken.
    pub fn steps(&self, model: &str) -> u64 {
        self.shared.lock().steps.get(model).copied().unwrap_or_default()
    }

    /// Forgets everything but what was saved, as a server that is restarted does.
    pub fn restart(&self) {
        let mut state = self.shared.lock();
        state.models.clear();
        state.samplers.clear();
        state.results.clear();
    }
}

impl Drop for Tinker {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A status and a body.
type Reply = (u16, Vec<u8>);

fn answer(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let (path, _, body) = read(&mut stream)?;
    let fault = {
        let mut state = shared.lock();
        state.requests += 1;
        (shared.options.faults)(state.requests, &path)
    };
    if let Some(Fault::Delay(time)) = fault {
        thread::sleep(time);
    }
    let (status, mut body) = match fault {
        Some(Fault::Status(status)) => (status, b"{\"detail\":\"a fault\"}".to_vec()),
        _ => {
            let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
            shared.lock().reply(&shared.options, &path, &body)
        }
    };
    if fault == Some(Fault::Nonsense) {
        body = b"<html>".to_vec();
    }
    send(&mut stream, status, &body, fault, &shared.ended)
}

fn json_reply(value: &Value) -> Reply {
    (200, value.to_string().into_bytes())
}

fn refused(status: u16, detail: &str) -> Reply {
    (status, json!({"detail": detail}).to_string().into_bytes())
}

impl State {
    fn reply(&mut self, options: &TinkerOptions, path: &str, body: &Value) -> Reply {
        let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
        if let Some(rest) = path.strip_prefix("/api/v1/training_runs/") {
            return self.archive(rest);
        }
        match path.strip_prefix("/api/v1/").unwrap_or_default() {
            "get_server_capabilities" => {
                return json_reply(&json!({"supported_models": [{"model_name": "tiny"}]}));
            }
            "create_session" => return json_reply(&json!({"session_id": self.name("session")})),
            "session_heartbeat" => return json_reply(&json!({"type": "session_heartbeat"})),
            "retrieve_future" => {
                return match self.results.get(&text("request_id")) {
                    Some(Value::String(error)) => refused(400, error),
                    Some(result) => json_reply(result),
                    None => refused(404, "Future not found"),
                };
            }
            _ => {}
        }

        let model = text("model_id");
        // Each model and each sampling session counts its own requests.
        let owner = [model, text("sampling_session_id")].concat();
        let number = (owner, body["seq_id"].as_u64().unwrap_or(0));
        // As in SkyRL, whose other requests take no notice of their numbers.
        let counts = ["forward", "forward_backward", "optim_step"];
        let counts = counts.iter().any(|call| path.ends_with(&format!("/{call}")));
        if options.numbered
            && counts
            && number.1 > 0
            && let Some(id) = self.numbers.get(&number)
        {
            return json_reply(&json!({"request_id": id}));
        }
        let (made, result) = match self.work(options, path, body) {
            Ok(result) => result,
            Err((status, detail)) => return refused(status, &detail),
        };
        let id = self.name("request");
        self.results.insert(id.clone(), result);
        self.numbers.insert(number, id.clone());
        json_reply(&json!({"request_id": id, "model_id": made}))
    }

    fn name(&mut self, kind: &str) -> String {
        self.names += 1;
        format!("{kind}_{}", self.names)
    }

    /// Does what a request asks for. Returns the name of what it made, and its result.
    fn work(
        &mut self,
        options: &TinkerOptions,
        path: &str,
        body: &Value,
    ) -> Result<(String, Value), (u16, String)> {
        let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
        let id = text("model_id");
        let call = path.strip_prefix("/api/v1/").unwrap_or_default();
        if !matches!(call, "create_model" | "unload_model" | "asample")
            && !self.models.contains_key(&id)
        {
            return Err((404, "Model not found".into()));
        }

        let result = match call {
            "create_model" => {
                let made = self.name("model");
                let lora = Lora {
                    rank: body["lora_config"]["rank"].as_u64().unwrap_or(1) as usize,
                    alpha: ALPHA,
                    targets: TARGETS.map(str::to_owned).to_vec(),
                    ..Lora::default()
                };
                let seed = Seed::run(body["lora_config"]["seed"].as_u64().unwrap_or(0));
                let policy = self.base.clone().with_lora(lora, seed);
                self.models
                    .insert(made.clone(), Adapter { policy, adamw: None, pending: Vec::new() });
                return Ok((made.clone(), json!({"model_id": made})));
            }
            "unload_model" => {
                self.models.remove(&id);
                json!({})
            }
            "forward" => {
                let samples = samples(&body["forward_input"])?;
                passed(options, &self.models[&id].policy, &samples)
            }
            "forward_backward" => {
                let samples = samples(&body["forward_backward_input"])?;
                let adapter = self.models.get_mut(&id).expect("it was looked for");
                let result = passed(options, &adapter.policy, &samples);
                let count = samples.len() as f64;
                let all: usize = samples.iter().map(|sample| sample.completion.len()).sum();
                adapter.pending.extend(samples.into_iter().map(|sample| {
                    let targets = sample.completion.len() as f64;
                    let per_text = if options.reduction.per_text { targets } else { 1.0 };
                    let over = match options.reduction.over {
                        Over::Request => count,
                        Over::RequestTargets => all as f64,
                        Over::One | Over::Step | Over::StepTargets => 1.0,
                    };
                    (sample, 1.0 / (per_text * over))
                }));
                result
            }
            "optim_step" => {
                *self.steps.entry(id.clone()).or_default() += 1;
                let adapter = self.models.get_mut(&id).expect("it was looked for");
                step(options, adapter, &body["adam_params"])
            }
            "save_weights" => {
                let path = format!("tinker://{id}/weights/{}", text("path"));
                if self.saved.contains_key(&path) {
                    return Err((409, "it exists".into()));
                }
                self.saved.insert(path.clone(), self.models[&id].clone());
                json!({"path": path, "type": "save_weights"})
            }
            "load_weights" => {
                let saved = self.saved.get(&text("path")).cloned();
                let saved = saved.ok_or((404, "Checkpoint not found".to_owned()))?;
                self.models.insert(id, saved);
                json!({"type": "load_weights"})
            }
            "save_weights_for_sampler" => {
                let policy = self.models[&id].policy.valid();
                let name = match body["path"].as_str() {
                    Some(name) => format!("{id}/{name}"),
                    None => self.name("sampling"),
                };
                if self.samplers.contains_key(&name) {
                    return Err((409, "it exists".into()));
                }
                self.samplers.insert(name.clone(), policy);
                json!({"sampling_session_id": name})
            }
            "asample" => {
                let sampler = self.samplers.get(&text("sampling_session_id"));
                let sampler = sampler.ok_or((404, "Sampling session not found".to_owned()))?;
                sampled(sampler, body)
            }
            _ => return Err((404, "Not Found".into())),
        };
        Ok((String::new(), result))
    }

    /// Answers with an adapter's archive, or where it is.
    fn archive(&self, path: &str) -> Reply {
        let parts: Vec<&str> = path.split('/').collect();
        let [model, "checkpoints", name, kind] = parts[..] else {
            return refused(404, "Not Found");
        };
        let Some(policy) = self.samplers.get(&format!("{model}/{name}")) else {
            return refused(404, "Checkpoint not found");
        };
        if kind == "archive" {
            let there = format!("/api/v1/training_runs/{model}/checkpoints/{name}/download");
            return (302, there.into_bytes());
        }

        let folder =
            std::env::temp_dir().join(format!("firebrick-stub-{model}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        save_adapter(policy, &"tiny".into(), &folder).expect("an adapter");
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        archive.append_dir_all(".", &folder).expect("an archive");
        let bytes = archive.into_inner().and_then(GzEncoder::finish).expect("an archive");
        std::fs::remove_dir_all(&folder).expect("a folder");
        (200, bytes)
    }
}

/// Reads the texts of a pass: a sample for each, whose prompt is its first token.
fn samples(pass: &Value) -> Result<Vec<Sample>, (u16, String)> {
    let wrong = |what: &str| (422, format!("{what} is missing"));
    let list = |value: &Value| -> Option<Vec<f64>> {
        value["data"].as_array()?.iter().map(Value::as_f64).collect()
    };
    let read = |datum: &Value| {
        let tokens = datum["model_input"]["chunks"][0]["tokens"].as_array();
        let first = tokens.and_then(|tokens| tokens.first()?.as_u64());
        let first = first.ok_or_else(|| wrong("model_input"))? as TokenId;
        let inputs = &datum["loss_fn_inputs"];
        let targets = list(&inputs["target_tokens"]).ok_or_else(|| wrong("target_tokens"))?;
        if tokens.map(Vec::len) != Some(targets.len()) {
            return Err((422, "targets and tokens differ in length".to_owned()));
        }

        let numbers = |name: &str| match pass["loss_fn"].as_str() {
            Some("importance_sampling") => list(&inputs[name])
                .filter(|list| list.len() == targets.len())
                .ok_or_else(|| wrong(name)),
            _ => Ok(vec![0.0; targets.len()]),
        };
        let floats = |list: Vec<f64>| list.into_iter().map(|number| number as f32).collect();
        let logprobs = floats(numbers("logprobs")?);
        let completion = targets.iter().map(|&token| token as TokenId).collect();
        let written = Completion::written(completion, logprobs, FinishReason::Length);
        let mut sample = Sample::new(&[first], &written, 0);
        sample.advantages = floats(numbers("advantages")?);
        Ok(sample)
    };
    pass["data"].as_array().into_iter().flatten().map(read).collect()
}

/// Computes the log-probabilities of texts.
fn passed(options: &TinkerOptions, policy: &Decoder, samples: &[Sample]) -> Value {
    let updater = Updater::new(Objective::new(Box::new(CrossEntropy)));
    let logprobs = updater.logprobs(policy, samples).expect("the device computes");
    let output = |logprobs: Vec<f32>| {
        let data: Vec<f32> = logprobs.into_iter().map(&options.distort).collect();
        json!({"logprobs": {"data": data, "dtype": "float32", "shape": [data.len()]}})
    };
    let outputs: Vec<Value> = logprobs.into_iter().map(output).collect();
    json!({"loss_fn_output_type": "scalar", "loss_fn_outputs": outputs, "metrics": {}})
}

/// The loss −Σ p / p′ · A, whose sum over all tokens is minimised.
struct ImportanceSampling;

impl PolicyLoss for ImportanceSampling {
    fn loss(&self, input: &LossInput) -> LossOutput {
        let ratio = (input.logprobs.clone() - input.old_logprobs.clone()).exp();
        let token_loss: Tensor<2> = (ratio * input.advantages.clone())
            .neg()
            .mask_fill(input.mask.clone().equal_elem(0.0), 0.0);
        LossOutput { token_loss, metrics: Vec::new() }
    }
}

fn step(options: &TinkerOptions, adapter: &mut Adapter, asked: &Value) -> Value {
    let asked = |key: &str| asked[key].as_f64();
    let own = OptimConfig {
        beta1: 0.9,
        beta2: 0.95,
        epsilon: 1e-8,
        weight_decay: 0.0,
        decay_vectors: false,
        max_grad_norm: f64::INFINITY,
        ..OptimConfig::default()
    };
    let config = OptimConfig {
        beta1: asked("beta1").filter(|_| options.takes_adam).unwrap_or(own.beta1),
        beta2: asked("beta2").filter(|_| options.takes_adam).unwrap_or(own.beta2),
        epsilon: asked("eps").filter(|_| options.takes_adam).unwrap_or(own.epsilon),
        weight_decay: asked("weight_decay").filter(|_| options.takes_adam).unwrap_or(0.0),
        max_grad_norm: asked("grad_clip_norm").filter(|_| options.clips).unwrap_or(f64::INFINITY),
        ..own
    };
    let adamw = adapter.adamw.get_or_insert_with(|| AdamW::new(config));

    // Rows weigh 1 / rows in the sum over sequences, which is made good here.
    let pending = std::mem::take(&mut adapter.pending);
    let targets: usize = pending.iter().map(|(sample, _)| sample.completion.len()).sum();
    let rows = match options.reduction.over {
        Over::Step => 1.0,
        Over::StepTargets => pending.len() as f64 / targets as f64,
        Over::One | Over::Request | Over::RequestTargets => pending.len() as f64,
    };
    let samples = pending.into_iter().map(|(mut sample, factor)| {
        for advantage in &mut sample.advantages {
            *advantage = (f64::from(*advantage) * factor * rows) as f32;
        }
        sample
    });
    let samples: Vec<Sample> = samples.collect();

    let mut updater = Updater::new(Objective::new(Box::new(ImportanceSampling)));
    updater.aggregation = Aggregation::SequenceSum;
    let lr = asked("learning_rate").unwrap_or(0.0);
    let stepped =
        updater.step(adapter.policy.clone(), adamw as &mut dyn Optimizer<Decoder>, &samples, lr);
    let (policy, _, outcome) = stepped.expect("the device computes");
    adapter.policy = policy;
    json!({"metrics": {"stub/grad_norm": outcome.grad_norm}})
}

fn sampled(policy: &Decoder, body: &Value) -> Value {
    let asked = &body["sampling_params"];
    let ids = |value: &Value| -> Vec<TokenId> {
        let ids = value.as_array().into_iter().flatten().filter_map(Value::as_u64);
        ids.map(|id| id as TokenId).collect()
    };
    let seed = asked["seed"].as_u64().unwrap_or(0);
    let wanted = Wanted {
        seeds: (0..body["num_samples"].as_u64().unwrap_or(1)).map(|index| seed + index).collect(),
        temperature: asked["temperature"].as_f64().unwrap_or(1.0),
        most: asked["max_tokens"].as_u64().unwrap_or(1) as usize,
        stop: ids(&asked["stop"]),
    };
    let written =
        Served::now_of(policy.clone()).write(&ids(&body["prompt"]["chunks"][0]["tokens"]), &wanted);
    let sequences = written.into_iter().map(|one| {
        let reason = if one.stopped { "stop" } else { "length" };
        json!({"stop_reason": reason, "tokens": one.tokens, "logprobs": one.logprobs})
    });
    json!({"sequences": sequences.collect::<Vec<Value>>()})
}
