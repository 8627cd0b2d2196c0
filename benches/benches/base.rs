//! Measures the cost of frozen weights in fewer bits, and of sampling from adapters next to them or merged.
//! Prints a JSON object on stdout.
//!
//! ```text
//! cargo bench -p firebrick-benches --bench base -- MODEL TEXT
//! ```
//!
//! MODEL is a Hugging Face folder. TEXT is a file of plain text, of which the first 8,192 tokens are read, 512
//! at a time. For each format the bench measures the perplexity of the text, the distance of its tokens'
//! log-probabilities from those of f32, in nats, the seconds to load and to read, and the tokens per second
//! while 16 completions are sampled. The adapters have rank 16, are on all projections, and move the weights
//! about as far as a short training does.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its result")]

mod dapo;

use std::{path::Path, sync::Arc, time::Instant};

use burn::{
    module::{Module, ModuleMapper, Param},
    tensor::{Device, Tensor, TensorData},
};
use firebrick_core::{Completion, Detokenizer, FinishReason, Prompt, Seed, TokenId};
use firebrick_data::Tokenizer;
use firebrick_models::{Decoder, FrozenFormat, Lora, load_noting};
use firebrick_rollout::{GroupRequest, LocalEngine, SampleOn, Sampling, generate};
use firebrick_train::{Sample, learner::MicroBatching};
use serde_json::{Value, json};

const TOKENS: usize = 8192;
const WINDOW: usize = 512;
const ROWS: usize = 16;
const PROMPT: usize = 128;
const COMPLETION: usize = 32;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let [model, text] = words.as_slice() else { panic!("expected MODEL TEXT") };
    let model = Path::new(model);
    let tokenizer = Tokenizer::from_folder(model).expect("a tokenizer");
    let text = std::fs::read_to_string(text).expect("a text");
    let mut tokens = tokenizer.encode(&text, false).expect("its tokens");
    tokens.truncate(TOKENS);

    let mut whole: Option<Vec<f32>> = None;
    let mut rows = Vec::new();
    for base in [FrozenFormat::F32, FrozenFormat::Bf16, FrozenFormat::Int8, FrozenFormat::Int4] {
        eprintln!("{base:?} …");
        let began = Instant::now();
        let loaded = load_noting(model, base, &Device::flex().autodiff()).expect("a model");
        let loading = began.elapsed().as_secs_f64();
        let adapted = adapted(loaded.decoder);

        let (mut row, logprobs) = measure(&adapted, &tokens, whole.as_deref());
        row["base"] = format!("{base:?}").into();
        row["seconds_loading"] = loading.into();

        let (merged, _) = measure(&adapted.merged(), &tokens, Some(&logprobs));
        row["merged"] = merged;
        rows.push(row);
        // The first format is f32, with which the others are compared.
        whole.get_or_insert(logprobs);
    }

    println!("{:#}", json!({ "tokens": tokens.len(), "window": WINDOW, "formats": rows }));
}

/// Measures a text's perplexity and speed, its log-probabilities, and their distance from others.
fn measure(policy: &Decoder, tokens: &[TokenId], others: Option<&[f32]>) -> (Value, Vec<f32>) {
    let samples: Vec<Sample> =
        tokens.chunks(WINDOW).filter(|window| window.len() > 1).map(sample).collect();
    let began = Instant::now();
    let updater = dapo::updater(MicroBatching {
        micro_batch_tokens: 2 * WINDOW,
        max_logits: 1 << 21,
        ..MicroBatching::default()
    });

    let logprobs = updater.logprobs(policy, &samples).expect("the device computes").concat();
    let seconds = began.elapsed().as_secs_f64();
    let mean = |values: &dyn Fn(usize) -> f64| {
        (0..logprobs.len()).map(values).sum::<f64>() / logprobs.len() as f64
    };

    let off = others.map(|others| {
        let off = |at: usize| f64::from((logprobs[at] - others[at]).abs());
        let most = (0..logprobs.len()).map(off).fold(0.0, f64::max);
        json!({ "mean": mean(&off), "most": most })
    });

    let row = json!({
        "perplexity": (-mean(&|at| f64::from(logprobs[at]))).exp(),
        "off": off,
        "seconds_reading": seconds,
        "sampled_per_second": sampled(policy, tokens),
    });
    (row, logprobs)
}

fn sample(window: &[TokenId]) -> Sample {
    let (first, rest) = window.split_at(1);
    let completion = Completion::written(rest.to_vec(), vec![0.0; rest.len()], FinishReason::Stop);
    Sample::new(first, &completion, 0)
}

/// Samples, and returns the tokens per second.
fn sampled(policy: &Decoder, tokens: &[TokenId]) -> f64 {
    let mut engine = LocalEngine::new(policy, Arc::new(Silent), ROWS, 2048, SampleOn::Host);
    let sampling = Sampling {
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        max_completion_tokens: COMPLETION,
        stop: Vec::new(),
    };
    let prompt = Prompt { id: 0, tokens: tokens[..PROMPT].to_vec(), ..Prompt::default() };
    let requests = GroupRequest::of_prompts([(0, prompt)], ROWS, &sampling, Seed::run(17));

    let began = Instant::now();
    generate(&mut engine, requests, &mut |_| ()).expect("the device computes");
    (ROWS * COMPLETION) as f64 / began.elapsed().as_secs_f64()
}

/// Adds adapters that are no zeros.
fn adapted(decoder: Decoder) -> Decoder {
    let targets = Lora::PROJECTIONS.map(str::to_owned).to_vec();
    let lora = Lora { rank: 16, alpha: 32.0, targets, ..Lora::default() };
    decoder.with_lora(lora, Seed::run(17)).map(&mut Nudge(Seed::run(18)))
}

/// Adds up to a thousandth to every value that is trained.
struct Nudge(Seed);

impl ModuleMapper for Nudge {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !param.is_require_grad() {
            return param;
        }
        self.0 = self.0.derive("next", &[]);
        let mut stream = self.0.stream();
        param.map(|values| {
            let shape = values.shape();
            let device = values.device();
            let more: Vec<f32> = (0..shape.num_elements() as u64)
                .map(|at| 2e-3 * stream.uniform_at(at) as f32 - 1e-3)
                .collect();
            let more = Tensor::from_data(TensorData::new(more, shape), &device.inner());
            Tensor::from_inner(values.inner() + more).require_grad()
        })
    }
}

struct Silent;

impl Detokenizer for Silent {
    fn detokenize(&self, _: &[TokenId]) -> String {
        String::new()
    }
}
