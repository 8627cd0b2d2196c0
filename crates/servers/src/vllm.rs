//! vLLM's language, as in version 0.32 (`vllm/entrypoints`: `scale_out/token_in_token_out`, `openai/completion`,
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
    Form, ServerError,
    answer::{Expected, Sampled, numbers, of_probe},
    dialect::{Ask, Loadable, SHORT, Speaks},
    http::{Address, SMALL},
};

const TOKENS: &str = "/inference/v1/generate";
const COMPLETIONS: &str = "/v1/completions";

pub(crate) struct Vllm {
    address: Address,
    /// True once the token endpoint has turned out to be switched off.
    without_tokens: AtomicBool,
    /// The name of the model that the server began with, which the completions endpoint asks for.
    model: OnceLock<String>,
}

impl Vllm {
    pub(crate) fn at(address: Address) -> Self {
        Vllm { address, without_tokens: AtomicBool::new(false), model: OnceLock::new() }
    }

    /// Gives the parameters of a group. Every field is sent, because the server takes missing fields from the
    /// model's `generation_config.json`. The trainer's stop tokens end a completion, and not the server's.
    fn sampling(ask: &Ask<'_>) -> Value {
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

    fn by_tokens(&self, ask: &Ask<'_>) -> Result<Vec<Sampled>, ServerError> {
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

    fn by_completions(&self, ask: &Ask<'_>) -> Result<Vec<Sampled>, ServerError> {
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
        ask: &Ask<'_>,
        request: &'static str,
        answer: &Value,
        logprobs: impl Fn(&Value) -> Vec<f64>,
    ) -> Result<Vec<Sampled>, ServerError> {
        let Ask { sampling, vocabulary, .. } = *ask;
        let expected = Expected { request, sampling, vocabulary };
        let choices = answer["choices"].as_array();
        let choices = choices.ok_or_else(|| expected.wrong("it has no choices".into()))?;
        let read = |choice: &Value| {
            let index = choice["index"].as_u64().unwrap_or(u64::MAX) as usize;
            let label = &choice["weight_versions"];
            if let Some(other) = other_version(label, ask) {
                return Err(expected.wrong(format!(
                    "completion {index} is from the weights {other}, expected {}",
                    ask.label
                )));
            }
            let (tokens, finish) = (&choice["token_ids"], choice["finish_reason"].as_str());
            Ok((index, expected.check(index, tokens, logprobs(choice), finish)?))
        };
        // One completion that ended early spoils the whole answer, so the others are not looked at.
        let came = choices.iter().take(ask.count + 1).map(read).collect::<Result<_, _>>()?;
        expected.in_order(ask.count, came)
    }

    /// Asks which weights the server has, if its completions don't say it: a restarted server has those that
    /// it began with.
    fn check_version(&self, ask: &Ask<'_>) -> Result<(), ServerError> {
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

    /// Gives the model that a request is for, as the completions endpoint wants it.
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

    /// Asks by tokens. If that is switched off, asks by completions from then on.
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
        // If both refuse, the first may have refused a wrong key.
        if answer.is_ok() {
            self.without_tokens.store(true, Ordering::Relaxed);
        }
        answer
    }
}

/// Gives the version that a completion was sampled with, if it is not the version that was asked for. An
/// adapter's weights have no version, and older servers don't say it.
fn other_version(spans: &Value, ask: &Ask<'_>) -> Option<String> {
    let spans = spans.as_array().filter(|_| ask.adapter.is_none())?;
    let other = spans.iter().map(|span| &span["version"]).find(|it| it.as_str() != Some(ask.label));
    other.map(Value::to_string)
}

impl Speaks for Vllm {
    fn address(&self) -> &Address {
        &self.address
    }

    fn sample(&self, ask: &Ask<'_>) -> Result<Vec<Sampled>, ServerError> {
        self.either(|| self.by_tokens(ask), || self.by_completions(ask))
    }

    fn score(
        &self,
        adapter: Option<&str>,
        tokens: &[TokenId],
        deadline: Duration,
    ) -> Result<Vec<f32>, ServerError> {
        let of = |request, answer: &Value| {
            let entries = answer["prompt_logprobs"].as_array();
            let logprob = |(token, entry): (&TokenId, &Value)| {
                entry[token.to_string().as_str()]["logprob"].as_f64()
            };
            let entries = entries.into_iter().flatten();
            // The first token has nothing before it.
            let behind = tokens.iter().zip(entries).skip(1).map(logprob);
            of_probe(request, tokens.len() - 1, numbers(behind))
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
                of(TOKENS, &self.address.post(TOKENS, &body, deadline, limit)?)
            },
            || {
                let mut body = plain("prompt_logprobs");
                body["model"] = self.model_or(adapter)?.into();
                body["prompt"] = json!(tokens);
                let answer = self.address.post(COMPLETIONS, &body, deadline, limit)?;
                of(COMPLETIONS, &answer["choices"][0])
            },
        )
    }

    fn abort(&self, names: &[String]) -> Result<(), ServerError> {
        // vLLM puts words of its own around the names of each endpoint's requests.
        let by_completions = self.without_tokens.load(Ordering::Relaxed);
        let named = |name: &String| match by_completions {
            true => format!("cmpl-{name}-0"),
            false => format!("generate-tokens-{name}"),
        };
        let body = json!({"request_ids": names.iter().map(named).collect::<Vec<String>>()});
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

    fn load(&self, weights: &Loadable<'_>, deadline: Duration) -> Result<(), ServerError> {
        let Loadable { folder, label, form } = weights;
        let path = folder.to_string_lossy();
        if *form == Form::Adapter {
            let body = json!({"lora_name": label, "lora_path": path});
            return self.address.post("/v1/load_lora_adapter", &body, deadline, SMALL).map(drop);
        }
        let body = json!({"method": "reload_weights", "kwargs": {"weights_path": path}});
        self.address.post("/collective_rpc", &body, deadline, SMALL)?;
        self.address.post("/reset_prefix_cache", &json!({}), SHORT, SMALL)?;
        let body = json!({"new_version": label});
        self.address.post("/update_weight_version", &body, SHORT, SMALL).map(drop)
    }

    fn unload(&self, adapter: &str) -> Result<(), ServerError> {
        let body = json!({"lora_name": adapter});
        self.address.post("/v1/unload_lora_adapter", &body, SHORT, SMALL).map(drop)
    }
}
