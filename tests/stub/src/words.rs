//! Requests of both dialects, and a stub's answers to them.

use std::{path::Path, sync::atomic::Ordering, thread};

use firebrick_core::TokenId;
use serde_json::{Value, json};

use crate::{Fault, Shared, Wanted, Written, http::Reply};

pub(crate) fn reply<'a>(shared: &'a Shared, path: &str, body: &Value) -> Reply<'a> {
    match path {
        "/health" => Reply::ok(&Value::Null),
        "/weight_info" => {
            let version = shared.seen().version.clone();
            Reply::ok(&json!({"weight_version": version}))
        }
        "/v1/models" => Reply::ok(&json!({"data": [{"id": "policy"}]})),

        "/inference/v1/generate" if shared.options.without_tokens => {
            Reply::status(403, "Scale-out endpoints are disabled")
        }
        "/inference/v1/generate" => {
            let prompt = tokens(&body["token_ids"]);
            if body["sampling_params"]["prompt_logprobs"].is_null() {
                group(shared, &prompt, &vllm(&body["sampling_params"]), token_words)
            } else {
                scoring(shared, || json!({"prompt_logprobs": scored(shared, &prompt)}))
            }
        }
        "/v1/chat/completions" => chat(shared, body),
        "/v1/completions" => {
            let prompt = tokens(&body["prompt"]);
            if body["prompt_logprobs"].is_null() {
                group(shared, &prompt, &vllm(body), completion_words)
            } else {
                scoring(
                    shared,
                    || json!({"choices": [{"prompt_logprobs": scored(shared, &prompt)}]}),
                )
            }
        }
        // A list of prompts asks for completions, a single prompt for its own log-probabilities.
        "/generate" if body["input_ids"][0].is_array() => {
            group(shared, &tokens(&body["input_ids"][0]), &sglang(body), sglang_words)
        }
        "/generate" => {
            let given = tokens(&body["input_ids"]);
            scoring(shared, || {
                let logprobs = shared.model().score(&given);
                let behind = logprobs.iter().zip(&given[1..]).map(|(it, id)| json!([it, id, null]));
                let all: Vec<Value> =
                    [json!([null, given[0], null])].into_iter().chain(behind).collect();
                json!({"meta_info": {"input_token_logprobs": all}})
            })
        }

        "/pause?mode=abort" | "/pause_generation" => {
            shared.seen().paused = true;
            Reply::ok(&json!({"status": "paused"}))
        }
        "/resume" | "/continue_generation" => {
            shared.seen().paused = false;
            Reply::ok(&json!({"status": "resumed"}))
        }
        "/collective_rpc" => load(shared, &body["kwargs"]["weights_path"], &Value::Null),
        "/update_weights_from_disk" => load(shared, &body["model_path"], &body["weight_version"]),
        "/reset_prefix_cache" => Reply::ok(&json!({"success": true})),
        "/update_weight_version" => {
            shared.seen().version = body["new_version"].as_str().unwrap_or_default().into();
            Reply::ok(&json!({"success": true}))
        }

        "/v1/load_lora_adapter" | "/load_lora_adapter"
            if shared
                .seen()
                .adapters
                .iter()
                .any(|name| Some(name.as_str()) == body["lora_name"].as_str()) =>
        {
            Reply::status(400, "the adapter has already been loaded")
        }
        "/v1/load_lora_adapter" | "/load_lora_adapter" => {
            let reply = load(shared, &body["lora_path"], &Value::Null);
            if reply.status == 200 {
                shared.seen().adapters.push(body["lora_name"].as_str().unwrap_or_default().into());
            }
            reply
        }
        "/v1/unload_lora_adapter" | "/unload_lora_adapter" => {
            shared.seen().adapters.retain(|name| Some(name.as_str()) != body["lora_name"].as_str());
            Reply::ok(&Value::Null)
        }

        "/inference/v1/abort_requests" => {
            let names = body["request_ids"].as_array().into_iter().flatten();
            shared.seen().aborted.extend(names.filter_map(Value::as_str).map(str::to_owned));
            Reply::ok(&Value::Null)
        }
        "/abort_request" => {
            shared.seen().aborted.extend(body["rid"].as_str().map(str::to_owned));
            Reply::ok(&Value::Null)
        }
        _ => Reply::status(404, "not found"),
    }
}

fn tokens(list: &Value) -> Vec<TokenId> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_u64)
        .map(|id| id as TokenId)
        .collect()
}

fn load(shared: &Shared, path: &Value, version: &Value) -> Reply<'static> {
    let path = Path::new(path.as_str().unwrap_or_default());

    if shared.options.keeps_weights {
        return Reply::ok(&json!({"results": [null], "success": true}));
    }
    // The model's lock is released before `seen` is locked.
    let loaded = shared.model().load(path);
    match loaded {
        Ok(()) => {
            let mut seen = shared.seen();
            seen.loaded.push(path.to_owned());
            if let Some(version) = version.as_str() {
                seen.version = version.into();
            }
            Reply::ok(&json!({"results": [null], "success": true}))
        }
        Err(problem) => Reply::status(500, &problem),
    }
}

/// Answers a chat, unless it is the turn of a fault.
fn chat<'a>(shared: &Shared, body: &Value) -> Reply<'a> {
    let asked = shared.chats.fetch_add(1, Ordering::Relaxed);
    let given = body["messages"].to_string().len();
    let reply = |answer: &str, finish: &str| {
        let message = json!({"role": "assistant", "content": answer});
        let usage = json!({"prompt_tokens": given, "completion_tokens": answer.len()});
        Reply::ok(&json!({
            "choices": [{"message": message, "finish_reason": finish}],
            "usage": usage,
        }))
    };

    let answer = (shared.options.chat)(body);
    // A byte is a token.
    let most = body["max_tokens"].as_u64().unwrap_or(u64::MAX) as usize;
    if answer.len() > most {
        return reply(&answer[..most], "length");
    }
    match (shared.options.chat_faults)(asked) {
        Some(Fault::Status(status)) => Reply::status(status, "out of order"),
        Some(Fault::Nonsense) => Reply::status(200, "{\"choices\": [NaN"),
        Some(Fault::Short) => reply(&answer[..answer.len() / 2], "length"),
        Some(Fault::Abort) => reply("It depends.", "stop"),
        // As from a model that only thought.
        Some(Fault::Half) => Reply::ok(&json!({
            "choices": [{"message": {"role": "assistant", "content": null}, "finish_reason": "stop"}],
        })),
        Some(Fault::Delay(time)) => {
            thread::sleep(time);
            reply(&answer, "stop")
        }
        fault @ Some(Fault::Hang | Fault::Drop | Fault::Endless) => {
            Reply { fault, ..Reply::ok(&Value::Null) }
        }
        _ => reply(&answer, "stop"),
    }
}

/// Answers with log-probabilities of given tokens, unless it is the turn of a fault.
fn scoring<'a>(shared: &Shared, answer: impl FnOnce() -> Value) -> Reply<'a> {
    let asked = shared.scored.fetch_add(1, Ordering::Relaxed);
    match (shared.options.score_faults)(asked) {
        Some(Fault::Status(status)) => Reply::status(status, "out of order"),
        Some(Fault::Nonsense) => Reply::status(200, "{\"choices\": [NaN"),
        Some(Fault::NotANumber) => Reply::ok(&json!({"prompt_logprobs": [null, "NaN"]})),
        fault @ Some(Fault::Hang | Fault::Drop | Fault::Endless) => {
            Reply { fault, ..Reply::ok(&Value::Null) }
        }
        _ => Reply::ok(&answer()),
    }
}

/// Writes the log-probabilities of given tokens as vLLM does.
fn scored(shared: &Shared, tokens: &[TokenId]) -> Value {
    let logprobs = shared.model().score(tokens);
    let behind = tokens[1..].iter().zip(logprobs);
    let behind = behind.map(|(token, it)| json!({token.to_string(): {"logprob": it, "rank": 1}}));
    [Value::Null].into_iter().chain(behind).collect()
}

fn vllm(params: &Value) -> Wanted {
    let seed = params["seed"].as_u64().unwrap_or(0);
    let count = params["n"].as_u64().unwrap_or(1);
    Wanted {
        seeds: (seed..seed + count).collect(),
        temperature: params["temperature"].as_f64().unwrap_or(1.0),
        most: params["max_tokens"].as_u64().unwrap_or(16) as usize,
        stop: tokens(&params["stop_token_ids"]),
    }
}

fn sglang(body: &Value) -> Wanted {
    let all = body["sampling_params"].as_array().cloned().unwrap_or_default();
    let first = all.first().cloned().unwrap_or_default();
    Wanted {
        seeds: all.iter().filter_map(|one| one["sampling_seed"].as_u64()).collect(),
        temperature: first["temperature"].as_f64().unwrap_or(1.0),
        most: first["max_new_tokens"].as_u64().unwrap_or(16) as usize,
        stop: tokens(&first["stop_token_ids"]),
    }
}

/// An answer to be sent: its index, the completion, and the word for its end.
type Answer = (usize, Written, &'static str);

fn group<'a>(
    shared: &'a Shared,
    prompt: &[TokenId],
    wanted: &Wanted,
    words: fn(&[Answer], &str) -> Value,
) -> Reply<'a> {
    let counted = Some(shared.count());
    let asked = shared.asked.fetch_add(1, Ordering::Relaxed);
    let fault = (shared.options.faults)(asked);

    match fault {
        Some(Fault::Status(status)) => return Reply::status(status, "out of order"),
        Some(Fault::Delay(time)) => thread::sleep(time),
        Some(Fault::Nonsense) => return Reply::status(200, "{\"choices\": [NaN"),
        Some(Fault::Hang | Fault::Drop | Fault::Endless) => {
            return Reply { fault, counted, ..Reply::ok(&Value::Null) };
        }
        _ => {}
    }

    shared.work();
    let written = shared.model().write(prompt, wanted);

    let word = |written: &Written| if written.stopped { "stop" } else { "length" };
    let mut answers: Vec<Answer> =
        written.into_iter().enumerate().map(|(at, it)| (at, it.clone(), word(&it))).collect();

    if shared.options.raw_logprobs {
        for (_, one, _) in &mut answers {
            let whole = [&prompt[prompt.len() - 1..], &one.tokens].concat();
            one.logprobs = shared.model().score(&whole);
        }
    }

    spoil(&mut answers, fault, wanted);
    let version = match fault {
        Some(Fault::OtherVersion) => "default".to_owned(),
        _ => shared.seen().version.clone(),
    };

    // A late answer is as good as any.
    if fault.is_none() || matches!(fault, Some(Fault::Delay(_))) {
        shared.answered.fetch_add(1, Ordering::Relaxed);
    }
    Reply { fault, counted, ..Reply::ok(&words(&answers, &version)) }
}

/// Makes a good answer a bad one.
fn spoil(answers: &mut Vec<Answer>, fault: Option<Fault>, wanted: &Wanted) {
    let last = answers.len() - 1;

    match fault {
        Some(Fault::Abort | Fault::Short) => {
            let (_, written, word) = &mut answers[last];
            let half = written.tokens.len() / 2;
            written.tokens.truncate(half.max(1));
            written.logprobs.truncate(half.max(1));
            // A completion of one token has no part.
            *word = if fault == Some(Fault::Abort) { "abort" } else { *word };
            if fault == Some(Fault::Short) && half == 0 {
                written.tokens.clear();
                written.logprobs.clear();
            }
        }
        Some(Fault::Duplicate) if last > 0 => answers[last] = answers[0].clone(),
        Some(Fault::OneMore) => answers.push((last + 1, answers[0].1.clone(), answers[0].2)),
        Some(Fault::ForeignToken) => answers[last].1.tokens[0] = 1 << 20,
        Some(Fault::NotANumber) => answers[last].1.logprobs[0] = -9999.0,
        Some(Fault::Positive) => answers[last].1.logprobs[0] = 0.5,
        Some(Fault::PastTheEnd) => {
            // The stop token comes first, and what was written follows behind it.
            let stop = wanted.stop.first().copied().unwrap_or(0);
            let (_, written, _) = &mut answers[last];
            written.tokens.insert(0, stop);
            written.logprobs.insert(0, -1.0);
            written.tokens.truncate(wanted.most);
            written.logprobs.truncate(wanted.most);
            if written.tokens.len() == 1 {
                written.tokens.push(stop);
                written.logprobs.push(-1.0);
            }
        }
        _ => {}
    }
}

fn token_words(answers: &[Answer], version: &str) -> Value {
    let choice = |(index, written, word): &Answer| {
        let Written { tokens, logprobs, .. } = written;

        let content: Vec<Value> = tokens
            .iter()
            .zip(logprobs)
            .map(|(token, logprob)| json!({"token_id": token, "logprob": logprob}))
            .collect();

        json!({
            "index": index,
            "token_ids": tokens,
            "finish_reason": word,
            "logprobs": {"content": content},
            "weight_versions": [{"version": version, "start": 0, "end": tokens.len()}],
        })
    };
    json!({"choices": answers.iter().map(choice).collect::<Vec<_>>()})
}

fn completion_words(answers: &[Answer], _: &str) -> Value {
    let choice = |(index, written, word): &Answer| {
        json!({
            "index": index,
            "token_ids": written.tokens,
            "finish_reason": word,
            "logprobs": {"token_logprobs": written.logprobs},
        })
    };
    json!({"choices": answers.iter().map(choice).collect::<Vec<_>>()})
}

fn sglang_words(answers: &[Answer], version: &str) -> Value {
    let one = |(_, written, word): &Answer| {
        let pairs = written.logprobs.iter().zip(&written.tokens);
        let pairs: Vec<Value> = pairs.map(|(it, token)| json!([it, token, null])).collect();
        json!({
            "output_ids": written.tokens,
            "meta_info": {
                "output_token_logprobs": pairs,
                "finish_reason": {"type": word},
                "weight_version": version,
            },
        })
    };
    answers.iter().map(one).collect()
}
