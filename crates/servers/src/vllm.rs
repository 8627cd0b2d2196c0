//! vLLM's protocol, as in version 0.32 (`vllm/entrypoints`: `scale_out/token_in_token_out`, `openai/completion`,
//! `rl/online`, `serve/lora`, `serve/dev`).

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use firebrick_core::TokenId;
use serde_json::{Value, json};

use crate::{
    answer::{CompletionRules, SampledCompletion, numbers, of_probe},
    dialect::{LoadRequest, SHORT, SampleRequest, ServerApi},
    error::ServerError,
    http::{Address, SMALL},
    weights::WeightsKind,
};

const TOKENS: &str = "/inference/v1/generate";
const COMPLETIONS: &str = "/v1/completions";

pub(crate) struct Vllm {
    address: Address,
    /// Set once the token endpoint is known to be switched off.
    without_tokens: AtomicBool,
    /// Name of the model that the server began with, which the completions endpoint asks for.
    model: OnceLock<String>,
}

impl Vllm {
    pub(crate) fn at(address: Address) -> Self {
        Vllm { address, without_tokens: AtomicBool::new(false), model: OnceLock::new() }
    }

    /// Returns the parameters of a group. Every field is sent, because the server takes missing fields from the
    /// model's `generation_config.json`. A completion ends at the trainer's stop tokens, not at the server's.
    fn sampling(ask: &SampleRequest<'_>) -> Value {
        let sampling = ask.sampling;
        json!({
            "n": ask.count,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "min_p": 0.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
            "max_tokens": sampling.max_completion_tokens,
            "min_tokens": 0,
            "logprobs": 0,
            "seed": ask.seed,
            "stop": [],
            "stop_token_ids": sampling.stop,
            "ignore_eos": true,
            "skip_special_tokens": false,
        })
    }

    fn by_tokens(&self, ask: &SampleRequest<'_>) -> Result<Vec<SampledCompletion>, ServerError> {
        let mut body = json!({
            "request_id": ask.name,
            "token_ids": ask.prompt,
            "sampling_params": Vllm::sampling(ask),
            "cache_salt": ask.label,
            "stream": false,
        });
        if let Some(adapter) = ask.adapter {
            body["model"] = adapter.into();
        }

        let answer = self.address.post(TOKENS, &body, ask.deadline, ask.limit())?;
        let logprob = |entry: &Value| entry["logprob"].as_f64();
        self.read(ask, TOKENS, &answer, |choice| {
            numbers(choice["logprobs"]["content"].as_array().into_iter().flatten().map(logprob))
        })
    }

    fn by_completions(
        &self,
        ask: &SampleRequest<'_>,
    ) -> Result<Vec<SampledCompletion>, ServerError> {
        let mut body = Vllm::sampling(ask);
        body["model"] = self.model_or(ask.adapter)?.into();
        body["prompt"] = json!(ask.prompt);
        body["request_id"] = ask.name.into();
        body["return_token_ids"] = true.into();
        body["cache_salt"] = ask.label.into();
        body["stream"] = false.into();

        let answer = self.address.post(COMPLETIONS, &body, ask.deadline, ask.limit())?;
        self.check_version(ask)?;

        self.read(ask, COMPLETIONS, &answer, |choice| {
            let list = choice["logprobs"]["token_logprobs"].as_array();
            numbers(list.into_iter().flatten().map(Value::as_f64))
        })
    }

    fn read(
        &self,
        ask: &SampleRequest<'_>,
        request: &'static str,
        answer: &Value,
        logprobs: impl Fn(&Value) -> Vec<f64>,
    ) -> Result<Vec<SampledCompletion>, ServerError> {
        let SampleRequest { sampling, vocabulary, .. } = *ask;
        let expected = CompletionRules { request, sampling, vocabulary };
        let choices = answer["choices"].as_array();
        let choices = choices.ok_or_else(|| expected.wrong("it has no choices".into()))?;

        let read = |choice: &Value| {
            let index = choice["index"].as_u64().unwrap_or(u64::MAX) as usize;
            let label = &choice["weight_versions"];
            if let Some(other) = other_version(label, ask) {
                return Err(expected.wrong(format!(
                    "completion {index} was sampled with the weights {other}, expected {}",
                    ask.label
                )));
            }
            let tokens = &choice["token_ids"];
            let finish = choice["finish_reason"].as_str();
            Ok((index, expected.check(index, tokens, logprobs(choice), finish)?))
        };

        // One completion that ended early spoils the entire answer, so the others are not read.
        let actual = choices.iter().take(ask.count + 1).map(read).collect::<Result<_, _>>()?;
        expected.in_order(ask.count, actual)
    }

    /// Asks which weights the server has, if its completions don't say it: after a restart, it has those that it began
    /// with.
    fn check_version(&self, ask: &SampleRequest<'_>) -> Result<(), ServerError> {
        const INFO: &str = "/weight_info";
        let version = match self.address.get(INFO, SHORT) {
            Ok(info) => info["weight_version"].clone(),
            // An older server has no such path.
            Err(ServerError::Refused { status: 404, .. }) => return Ok(()),
            Err(error) => return Err(error),
        };

        match version.as_str() {
            Some(version) if ask.adapter.is_none() && version != ask.label => {
                let problem = format!("it has the weights {version}, expected {}", ask.label);
                Err(ServerError::Answer { request: INFO, problem })
            }
            _ => Ok(()),
        }
    }

    /// Returns the model that a request is for, as the completions endpoint expects it.
    fn model_or(&self, adapter: Option<&str>) -> Result<String, ServerError> {
        if let Some(adapter) = adapter {
            return Ok(adapter.to_owned());
        }
        if let Some(model) = self.model.get() {
            return Ok(model.clone());
        }

        const MODELS: &str = "/v1/models";
        let answer = self.address.get(MODELS, SHORT)?;
        let model = answer["data"][0]["id"].as_str().ok_or_else(|| ServerError::Answer {
            request: MODELS,
            problem: "it names no model".into(),
        })?;
        Ok(self.model.get_or_init(|| model.to_owned()).clone())
    }

    /// Asks the token endpoint. If that is switched off, asks the completions endpoint, now and in later calls.
    fn either<T>(
        &self,
        by_tokens: impl Fn() -> Result<T, ServerError>,
        by_completions: impl Fn() -> Result<T, ServerError>,
    ) -> Result<T, ServerError> {
        if !self.without_tokens.load(Ordering::Relaxed) {
            match by_tokens() {
                Err(ServerError::Refused { status: 403..=405, .. }) => {}
                answer => return answer,
            }
        }

        let answer = by_completions();
        // If both refuse, a wrong key may have been the first one's reason.
        if answer.is_ok() {
            self.without_tokens.store(true, Ordering::Relaxed);
        }
        answer
    }
}

/// Returns the version that a completion was sampled with, if it is not the version that was asked for. An adapter's
/// weights have no version, and older servers don't report it.
fn other_version(spans: &Value, ask: &SampleRequest<'_>) -> Option<String> {
    let spans = spans.as_array().filter(|_| ask.adapter.is_none())?;
    let other = spans.iter().map(|span| &span["version"]).find(|it| it.as_str() != Some(ask.label));
    other.map(Value::to_string)
}

impl ServerApi for Vllm {
    fn address(&self) -> &Address {
        &self.address
    }

    fn sample(&self, ask: &SampleRequest<'_>) -> Result<Vec<SampledCompletion>, ServerError> {
        self.either(|| self.by_tokens(ask), || self.by_completions(ask))
    }

    fn score(
        &self,
        adapter: Option<&str>,
        tokens: &[TokenId],
        deadline: Duration,
    ) -> Result<Vec<f32>, ServerError> {
        let logprobs_of = |request, answer: &Value| {
            let entries = answer["prompt_logprobs"].as_array();
            let logprob = |(token, entry): (&TokenId, &Value)| {
                entry[token.to_string().as_str()]["logprob"].as_f64()
            };

            let entries = entries.into_iter().flatten();
            // The first token has nothing before it.
            let logprobs = tokens.iter().zip(entries).skip(1).map(logprob);
            of_probe(request, tokens.len() - 1, numbers(logprobs))
        };

        let limit = (tokens.len() as u64) * 400 + SMALL;
        let plain = |prompt_logprobs: &'static str| {
            let mut body = json!({"max_tokens": 1, "temperature": 1.0, "top_p": 1.0, "seed": 0});
            body[prompt_logprobs] = 0.into();
            body
        };

        self.either(
            || {
                let mut body =
                    json!({"token_ids": tokens, "sampling_params": plain("prompt_logprobs")});
                if let Some(adapter) = adapter {
                    body["model"] = adapter.into();
                }
                logprobs_of(TOKENS, &self.address.post(TOKENS, &body, deadline, limit)?)
            },
            || {
                let mut body = plain("prompt_logprobs");
                body["model"] = self.model_or(adapter)?.into();
                body["prompt"] = json!(tokens);
                let answer = self.address.post(COMPLETIONS, &body, deadline, limit)?;
                logprobs_of(COMPLETIONS, &answer["choices"][0])
            },
        )
    }

    fn abort(&self, names: &[String]) -> Result<(), ServerError> {
        // vLLM adds its own prefixes and suffixes to the names of each endpoint's requests.
        let by_completions = self.without_tokens.load(Ordering::Relaxed);
        let request_id = |name: &String| {
            if by_completions {
                format!("cmpl-{name}-0")
            } else {
                format!("generate-tokens-{name}")
            }
        };

        let body = json!({"request_ids": names.iter().map(request_id).collect::<Vec<String>>()});
        let request =
            if by_completions { "/abort_requests" } else { "/inference/v1/abort_requests" };
        self.address.post(request, &body, SHORT, SMALL).map(drop)
    }

    fn health(&self) -> Result<(), ServerError> {
        self.address.get("/health", SHORT).map(drop)
    }

    fn pause(&self) -> Result<(), ServerError> {
        self.address.post("/pause?mode=abort", &json!({}), SHORT, SMALL).map(drop)
    }

    fn resume(&self) -> Result<(), ServerError> {
        self.address.post("/resume", &json!({}), SHORT, SMALL).map(drop)
    }

    fn load(&self, weights: &LoadRequest<'_>, deadline: Duration) -> Result<(), ServerError> {
        let LoadRequest { folder, label, kind } = weights;
        let path = folder.to_string_lossy();

        if *kind == WeightsKind::Adapter {
            let body = json!({"lora_name": label, "lora_path": path});
            return self.address.post("/v1/load_lora_adapter", &body, deadline, SMALL).map(drop);
        }

        let body = json!({"method": "reload_weights", "kwargs": {"weights_path": path}});
        self.address.post("/collective_rpc", &body, deadline, SMALL)?;
        // Keys and values of the old weights must be removed before the new version has a name.
        self.address.post("/reset_prefix_cache", &json!({}), SHORT, SMALL)?;
        let body = json!({"new_version": label});
        self.address.post("/update_weight_version", &body, SHORT, SMALL).map(drop)
    }

    fn unload(&self, adapter: &str) -> Result<(), ServerError> {
        let body = json!({"lora_name": adapter});
        self.address.post("/v1/unload_lora_adapter", &body, SHORT, SMALL).map(drop)
    }
}
