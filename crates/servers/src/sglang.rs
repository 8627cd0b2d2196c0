//! SGLang's protocol, as in the sources of version 0.5.23.

use std::time::Duration;

use firebrick_core::TokenId;
use serde_json::{Value, json};

use crate::{
    answer::{CompletionRules, SampledCompletion, numbers, of_probe},
    dialect::{LoadRequest, SHORT, SampleRequest, ServerApi},
    error::ServerError,
    http::{Address, SMALL},
    weights::WeightsKind,
};

const GENERATE: &str = "/generate";

pub(crate) struct Sglang {
    address: Address,
}

impl Sglang {
    pub(crate) fn at(address: Address) -> Self {
        Sglang { address }
    }

    /// Returns the parameters of each completion. Each is a separate request in one message, because `n` would give all
    /// of them the same seed.
    fn sampling(ask: &SampleRequest<'_>) -> Vec<Value> {
        let sampling = ask.sampling;
        let top_k = if sampling.top_k == 0 { json!(-1) } else { json!(sampling.top_k) };
        let parameters = |index: u64| {
            json!({
                "n": 1,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": top_k,
                "min_p": 0.0,
                "frequency_penalty": 0.0,
                "presence_penalty": 0.0,
                "repetition_penalty": 1.0,
                "max_new_tokens": sampling.max_completion_tokens,
                "min_new_tokens": 0,
                "stop": [],
                "stop_token_ids": sampling.stop,
                "ignore_eos": true,
                "skip_special_tokens": false,
                "no_stop_trim": true,
                "sampling_seed": ask.seed + index,
            })
        };
        (0..ask.count as u64).map(parameters).collect()
    }
}

/// Returns the names of the requests that make up a group in this dialect.
fn names(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|index| format!("{name}-{index}")).collect()
}

impl ServerApi for Sglang {
    fn address(&self) -> &Address {
        &self.address
    }

    fn sample(&self, ask: &SampleRequest<'_>) -> Result<Vec<SampledCompletion>, ServerError> {
        let mut body = json!({
            "input_ids": vec![ask.prompt; ask.count],
            "sampling_params": Sglang::sampling(ask),
            "return_logprob": true,
            "logprob_start_len": -1,
            "rid": names(ask.name, ask.count),
            "stream": false,
        });

        if let Some(adapter) = ask.adapter {
            body["lora_path"] = json!(vec![adapter; ask.count]);
        }

        let answer = self.address.post(GENERATE, &body, ask.deadline, ask.limit())?;
        let SampleRequest { sampling, vocabulary, .. } = *ask;
        let expected = CompletionRules { request: GENERATE, sampling, vocabulary };
        let list = answer.as_array();
        let list = list.ok_or_else(|| expected.wrong("it is not a list of completions".into()))?;

        let read = |(index, one): (usize, &Value)| {
            let about = &one["meta_info"];
            let version = &about["weight_version"];
            if ask.adapter.is_none() && version.as_str().is_some_and(|it| it != ask.label) {
                return Err(expected.wrong(format!(
                    "completion {index} was sampled with the weights {version}, expected {}",
                    ask.label
                )));
            }

            let pairs = about["output_token_logprobs"].as_array();
            let logprobs = numbers(pairs.into_iter().flatten().map(|pair| pair[0].as_f64()));
            let finish = about["finish_reason"]["type"].as_str();
            Ok((index, expected.check(index, &one["output_ids"], logprobs, finish)?))
        };

        let actual =
            list.iter().take(ask.count + 1).enumerate().map(read).collect::<Result<_, _>>()?;
        expected.in_order(ask.count, actual)
    }

    fn score(
        &self,
        adapter: Option<&str>,
        tokens: &[TokenId],
        deadline: Duration,
    ) -> Result<Vec<f32>, ServerError> {
        let mut body = json!({
            "input_ids": tokens,
            "sampling_params": {"max_new_tokens": 1, "temperature": 1.0, "top_p": 1.0},
            "return_logprob": true,
            "logprob_start_len": 0,
        });

        if let Some(adapter) = adapter {
            body["lora_path"] = adapter.into();
        }

        let limit = (tokens.len() as u64) * 400 + SMALL;
        let answer = self.address.post(GENERATE, &body, deadline, limit)?;
        let pairs = answer["meta_info"]["input_token_logprobs"].as_array();
        let pairs = pairs.into_iter().flatten().zip(tokens).skip(1);

        let logprob = |(pair, token): (&Value, &TokenId)| {
            pair[0].as_f64().filter(|_| pair[1].as_u64() == Some(u64::from(*token)))
        };
        of_probe(GENERATE, tokens.len() - 1, numbers(pairs.map(logprob)))
    }

    fn abort(&self, names_of_groups: &[String]) -> Result<(), ServerError> {
        // A request is found by the prefix of its name, which is the name of its group.
        for name in names_of_groups {
            let body = json!({"rid": name});
            self.address.post("/abort_request", &body, SHORT, SMALL)?;
        }
        Ok(())
    }

    fn health(&self) -> Result<(), ServerError> {
        self.address.get("/health", SHORT).map(drop)
    }

    fn pause(&self) -> Result<(), ServerError> {
        let body = json!({"mode": "abort"});
        self.address.post("/pause_generation", &body, SHORT, SMALL).map(drop)
    }

    fn resume(&self) -> Result<(), ServerError> {
        self.address.post("/continue_generation", &json!({}), SHORT, SMALL).map(drop)
    }

    fn load(&self, weights: &LoadRequest<'_>, deadline: Duration) -> Result<(), ServerError> {
        let LoadRequest { folder, label, kind } = weights;
        let path = folder.to_string_lossy();

        let (request, body) = match kind {
            WeightsKind::Adapter => {
                ("/load_lora_adapter", json!({"lora_name": label, "lora_path": path}))
            }
            WeightsKind::Model => (
                "/update_weights_from_disk",
                json!({
                    "model_path": path,
                    "weight_version": label,
                    "flush_cache": true,
                    "abort_all_requests": true,
                    "keep_pause": true,
                }),
            ),
        };
        let answer = self.address.post(request, &body, deadline, SMALL)?;

        // Failures are reported in the answer, and not always by its status.
        match answer["success"].as_bool() {
            Some(false) => {
                let problem = answer["message"].as_str().unwrap_or("it gives no reason").into();
                Err(ServerError::Answer { request, problem })
            }
            _ => Ok(()),
        }
    }

    fn unload(&self, adapter: &str) -> Result<(), ServerError> {
        let body = json!({"lora_name": adapter});
        self.address.post("/unload_lora_adapter", &body, SHORT, SMALL).map(drop)
    }
}
