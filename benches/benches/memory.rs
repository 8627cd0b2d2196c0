//! Measures the most memory that an update holds, and how long it takes: one sequence, one update, one process.
//! Prints a JSON object on stdout.
//!
//! ```text
//! cargo bench -p firebrick-benches --bench memory -- SHAPE TOKENS all|lora WHOLE_LAYERS [UPDATES]
//! cargo bench -p firebrick-benches --bench memory -- smollm2 2048 lora 0
//! ```
//!
//! `recurrent` and `experts` are four layers of some width with a small vocabulary, so that the memory of one
//! layer's pass shows.
//!
//! The weights are random, and so are the tokens: a prompt of 128, and the rest completion. The peak is the
//! process's own, as Linux counts it, from the loaded model to the end of AdamW's last step. There are two
//! updates unless another number is asked for: the first touches memory that the second finds.

#![expect(clippy::print_stdout, reason = "a bench prints its result")]

mod dapo;

use std::time::Instant;

use burn::{module::Module as _, tensor::Device};
use firebrick_core::{Completion, FinishReason, Seed, TokenId};
use firebrick_models::{
    ChunkSizes, DecoderConfig, ExpertSizes, Family, GatedDeltaSizes, Lora, Sizes, random,
};
use firebrick_train::{
    Sample,
    learner::{AdamW, MicroBatching, OptimConfig},
};
use serde_json::json;

const PROMPT: usize = 128;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let [shape, tokens, trained, whole_layers, more @ ..] = words.as_slice() else {
        panic!("expected SHAPE TOKENS all|lora WHOLE_LAYERS [UPDATES]");
    };
    let tokens: usize = tokens.parse().expect("a number of tokens");
    let whole_layers: usize = whole_layers.parse().expect("a number of layers");

    let seed = Seed::run(17);
    let config = config(shape, tokens);
    let mut policy =
        random(&config, seed, &Device::flex().autodiff()).expect("the sizes fit together");

    if trained == "lora" {
        let targets = Lora::PROJECTIONS.map(str::to_owned).to_vec();
        let lora = Lora { rank: 16, alpha: 32.0, targets, ..Lora::default() };
        policy = policy.with_lora(lora, seed);
    }
    // The book's table was measured with these chunks.
    policy = policy.with_chunk_sizes(ChunkSizes { tokens: 1024, ..ChunkSizes::default() });

    let weights = resident("VmRSS");
    // The peak counts from here on, because reading or making weights has a peak of its own.
    std::fs::write("/proc/self/clear_refs", "5").expect("Linux forgets the peak");

    let updater = dapo::updater(MicroBatching {
        layers_without_recompute: whole_layers,
        max_logits: 1 << 21,
        max_saved_logits: 0,
        ..MicroBatching::default()
    });

    let mut stream = seed.derive("tokens", &[]).stream();
    let all: Vec<TokenId> = (0..tokens as u64)
        .map(|at| (stream.uniform_at(at) * config.vocab_size as f64) as TokenId)
        .collect();
    let (prompt, written) = all.split_at(PROMPT);
    let completion =
        Completion::written(written.to_vec(), vec![-10.0; written.len()], FinishReason::Stop);
    let samples = [Sample::new(prompt, &completion, 0).with_advantage(1.0)];

    let mut optimizer = AdamW::new(OptimConfig::default());
    let parameters = policy.num_params();
    let mut seconds = Vec::new();
    let mut loss = 0.0;
    let updates = more.first().map_or(2, |word| word.parse().expect("a number of updates"));

    for _ in 0..updates {
        let began = Instant::now();
        let (moved, report, _) =
            updater.step(policy, &mut optimizer, &samples, 1e-6).expect("the device computes");
        policy = moved;
        loss = report.loss;
        seconds.push(began.elapsed().as_secs_f64());
    }

    println!(
        "{}",
        json!({
            "shape": shape, "parameters": parameters, "tokens": tokens, "trained": trained,
            "whole_layers": whole_layers, "seconds": seconds, "loss": loss,
            "weights_gib": weights, "peak_gib": resident("VmHWM"),
        })
    );
}

/// Reads a memory size of this process, in GiB, from `/proc/self/status`.
fn resident(key: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    kilobytes.expect("a number of kB") / f64::from(1 << 20)
}

fn config(shape: &str, tokens: usize) -> DecoderConfig {
    // vocabulary, hidden, layers, heads, kv_heads, head_dim, inner, rope's base.
    let (family, [vocab, hidden, layers, heads, kv_heads, head_dim, inner], rope_theta) =
        match shape {
            "smollm2" => (Family::Llama, [49_152, 576, 30, 9, 3, 64, 1536], 1e5),
            "0.5b" => (Family::Qwen2, [151_936, 896, 24, 14, 2, 64, 4864], 1e6),
            "recurrent" => (Family::Qwen35, [4096, 1024, 4, 8, 2, 256, 3584], 1e7),
            "experts" => (Family::Qwen3Moe, [4096, 1024, 4, 16, 4, 128, 768], 1e6),
            other => panic!("{other} is no shape: expected smollm2, 0.5b, recurrent or experts"),
        };

    let sizes = Sizes {
        vocab_size: vocab,
        hidden_size: hidden,
        layers,
        heads,
        kv_heads,
        head_dim,
        intermediate_size: inner,
        max_position_embeddings: tokens,
        rope_theta,
        tied: true,
    };

    let mut config = DecoderConfig::new(family, sizes);
    if let Some(delta) = &mut config.delta {
        *delta = GatedDeltaSizes {
            key_heads: 16,
            value_heads: 16,
            key_dim: 128,
            value_dim: 128,
            kernel: 4,
        };
    }
    if let Some(experts) = &mut config.experts {
        *experts = ExpertSizes {
            count: 32,
            chosen: 8,
            inner: 768,
            normalised: true,
            ..ExpertSizes::default()
        };
    }
    config
}
