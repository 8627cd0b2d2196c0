//! The phases of a training step at three model sizes: one JSON object on stdout.
//!
//! ```text
//! cargo bench -p firebrick-benches                      all sizes
//! cargo bench -p firebrick-benches -- 1m 10m            some of them
//! FIREBRICK_BENCH_DEVICE=vulkan:0 cargo bench -p firebrick-cli -p firebrick-benches --features vulkan \
//!     --bench step                                     on another device than the CPU
//! ```
//!
//! Each phase is run once to warm up and then `RUNS` times; the figures are tokens per second of
//! the fastest, median and slowest run. Rollout: 64 prompts of 32 tokens, 128 sampled tokens each,
//! no stop token, no truncation. Update: those 64 rows of 160 tokens, forward and backward with
//! loss on the completion, and the AdamW step.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its result")]

mod dapo;

use std::{sync::Arc, time::Instant};

use burn::{module::Module as _, tensor::Device};
use firebrick_core::{Detokenizer, Group, Prompt, Seed, TokenId};
use firebrick_device::{Kind, Name, Precision, describe, open};
use firebrick_models::{Decoder, DecoderConfig, Family, Sizes, random};
use firebrick_rollout::{GroupRequest, LocalEngine, SampleOn, Sampling, generate};
use firebrick_train::{AdamW, Cut, OptimConfig, Sample};
use serde_json::{Value, json};

const RUNS: usize = 3;
const ROWS: usize = 64;
const PROMPT: usize = 32;
const COMPLETION: usize = 128;

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let shapes = shapes()
        .into_iter()
        .filter(|(name, ..)| asked.is_empty() || asked.iter().any(|asked| asked == name));
    let place = Place::of_environment();
    let mut results = Vec::new();
    for (name, config, micro_batch_rows) in shapes {
        eprintln!("{name} …");
        results.push(measure(name, &config, micro_batch_rows, &place));
    }
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let device = describe(place.name, &place.device);
    println!("{:#}", json!({ "device": device, "cores": cores, "runs": RUNS, "shapes": results }));
}

/// Where to compute.
struct Place {
    name: Name,
    device: Device,
}

impl Place {
    fn of_environment() -> Self {
        let name = std::env::var("FIREBRICK_BENCH_DEVICE").unwrap_or_else(|_| "cpu".into());
        let name: Name = name.parse().unwrap_or_else(|error| panic!("{error}"));
        let device = open(name, Precision::F32)
            .unwrap_or_else(|error| panic!("{error}; {}", error.remedy()));
        Place { name, device }
    }

    fn sample_on(&self) -> SampleOn {
        match self.name.kind {
            Kind::Cpu => SampleOn::Host,
            _ => SampleOn::Device,
        }
    }
}

/// Name, sizes, and rows per micro-batch.
fn shapes() -> Vec<(&'static str, DecoderConfig, usize)> {
    let shape = |vocab_size, hidden_size, layers, heads, intermediate_size| {
        DecoderConfig::new(
            Family::Qwen2,
            Sizes {
                vocab_size,
                hidden_size,
                layers,
                heads,
                kv_heads: 2,
                head_dim: hidden_size / heads,
                intermediate_size,
                max_position_embeddings: 2048,
                rope_theta: 1e6,
                tied: true,
            },
        )
    };
    vec![
        ("1m", shape(1024, 128, 4, 4, 448), 16),
        ("10m", shape(1024, 384, 6, 6, 1024), 16),
        ("50m", shape(32768, 512, 12, 8, 1408), 8),
    ]
}

fn measure(name: &str, config: &DecoderConfig, micro_batch_rows: usize, place: &Place) -> Value {
    let seed = Seed::run(17);
    let device = place.device.clone().autodiff();
    let policy = random(config, seed, &device).expect("the sizes fit together");
    let (rollout, groups) = rollout(&policy, config, seed, [ROWS, 1], place);
    let (shared, _) = self::rollout(&policy, config, seed, [ROWS / 8, 8], place);
    let parameters = policy.num_params();
    let update = update(policy, &groups, micro_batch_rows, place);
    json!({
        "shape": name,
        "parameters": parameters,
        "rollout_64x1": rollout,
        "rollout_8x8": shared,
        "update": update,
    })
}

fn rollout(
    policy: &Decoder,
    config: &DecoderConfig,
    seed: Seed,
    [prompts, group_size]: [usize; 2],
    place: &Place,
) -> (Value, Vec<Group>) {
    let mut engine = LocalEngine::new(policy, Arc::new(Silent), ROWS, 2048, place.sample_on());
    let sampling = Sampling {
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        max_completion_tokens: COMPLETION,
        stop: Vec::new(),
    };
    let prompts = (0..prompts as u64).map(|id| {
        let mut stream = seed.derive("prompt", &[id]).stream();
        let token = |at| (stream.uniform_at(at) * config.vocab_size as f64) as TokenId;
        let tokens = (0..PROMPT as u64).map(token).collect();
        (id, Prompt { id, tokens, ..Prompt::default() })
    });
    let requests = GroupRequest::of_prompts(prompts, group_size, &sampling, seed);
    let mut groups = Vec::new();
    let seconds = time(&place.device, || {
        groups = generate(&mut engine, requests.clone(), &mut |_| ()).expect("the device computes");
    });
    (rates(ROWS * COMPLETION, &seconds), groups)
}

fn update(policy: Decoder, groups: &[Group], micro_batch_rows: usize, place: &Place) -> Value {
    let samples: Vec<Sample> = groups
        .iter()
        .flat_map(|group| group.completions.iter().map(move |completion| (group, completion)))
        .enumerate()
        .map(|(index, (group, completion))| {
            let advantage = if index % 2 == 0 { 1.0 } else { -1.0 };
            Sample::new(&group.prompt.tokens, completion, group.draw).with_advantage(advantage)
        })
        .collect();
    let micro_batch_tokens = micro_batch_rows * (PROMPT + COMPLETION);
    let updater = dapo::updater(Cut { micro_batch_tokens, ..Cut::default() });
    let mut optimizer = AdamW::new(OptimConfig::default());
    let mut policy = Some(policy);
    let seconds = time(&place.device, || {
        let before = policy.take().expect("it was put back");
        let (after, ..) =
            updater.step(before, &mut optimizer, &samples, 1e-6).expect("the device computes");
        policy = Some(after);
    });
    rates(ROWS * (PROMPT + COMPLETION), &seconds)
}

/// Seconds of each run, ascending, after one that does not count: on a GPU it compiles kernels and
/// chooses among them.
fn time(device: &Device, mut work: impl FnMut()) -> Vec<f64> {
    let mut work = || {
        work();
        device.sync().expect("the device computes");
    };
    work();
    let mut seconds: Vec<f64> = (0..RUNS)
        .map(|_| {
            let began = Instant::now();
            work();
            began.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds
}

fn rates(tokens: usize, seconds: &[f64]) -> Value {
    let rate = |seconds: f64| (tokens as f64 / seconds).round();
    json!({
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_second": {
            "max": rate(seconds[0]),
            "median": rate(seconds[seconds.len() / 2]),
            "min": rate(seconds[seconds.len() - 1]),
        },
    })
}

/// Text is not what is timed.
struct Silent;

impl Detokenizer for Silent {
    fn detokenize(&self, _: &[TokenId]) -> String {
        String::new()
    }
}
