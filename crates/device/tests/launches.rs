//! Counts the launches that a GPU is asked for, and checks the host's part between them. They are counted on the
//! device of `FIREBRICK_TEST_DEVICE`, in f32. The bounds are those of software Vulkan. Other devices differ a little:
//! in 16 bits some numbers are cast in launches of their own, and CUDA's kernels lay factors along the sum, add up the
//! parts of a product, and in short contexts need not join the parts of an attention.

#![cfg(feature = "gpu")]
#![allow(clippy::print_stderr)] // the counts are what a run is for

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use burn::tensor::{Device, Distribution, Int, Tensor};
use firebrick_core::{Detokenizer, Prompt, Seed, TokenId};
use firebrick_device::{Name, Precision, open};
use firebrick_kernels::{Choice, Graph, Launched, launches, sample_on_device};
use firebrick_models::{
    DecodeCache, Decoder, DecoderConfig, Family, GradientSum, KvCache, Lora, Padding, PolicyModel,
    Sizes, TokenBatch, head_logits, random,
};
use firebrick_rollout::{GroupRequest, LocalEngine, SampleOn, Sampling, generate};

/// Rows of a decode step. The product of up to 16 rows is a kernel of its own, which adds bias and stream itself.
const ROWS: [usize; 2] = [16, 64];

/// Upper bounds on the launches of one layer.
const PLAIN: Bounds = Bounds { decoding: [10, 12], preparing: 0, updating: 39 };

/// Those with adapters of rank 16 on all projections. In a decode step each of the four products of a layer has two
/// more, and from 17 rows on all are added up in a launch. An update joins each of the seven adapters by a launch, has
/// one micro-batch, and copies the parameters' gradients out of the joined ones.
const ADAPTED: Bounds = Bounds { decoding: [18, 22], preparing: 7, updating: 78 };

/// Upper bounds on the launches of one layer.
struct Bounds {
    /// In a decode step, for each of [`ROWS`].
    decoding: [usize; 2],
    /// For the copy of the policy that an update computes with.
    preparing: usize,
    /// In an update, forward and back.
    updating: usize,
}

/// Upper bound on the bytes that are read for each row and step.
const READ: usize = 8;

/// Lets one test run at a time, because launches are counted, and recorded, for the entire process.
static ALONE: Mutex<()> = Mutex::new(());

/// Opens the device, for one test at a time.
fn device() -> Option<(Device, MutexGuard<'static, ()>)> {
    let Ok(name) = std::env::var("FIREBRICK_TEST_DEVICE") else {
        eprintln!("SKIPPED: FIREBRICK_TEST_DEVICE names no GPU");
        return None;
    };
    let name: Name = name.parse().unwrap_or_else(|error| panic!("FIREBRICK_TEST_DEVICE: {error}"));
    let device = open(name, Precision::F32);
    let device = device.unwrap_or_else(|error| panic!("{error}; {}", error.remedy()));
    Some((device, ALONE.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// Makes a model of a family with norms of queries and keys, or with biases.
fn decoder(family: Family, layers: usize, device: &Device) -> Decoder {
    let sizes = Sizes {
        vocab_size: 257,
        hidden_size: 64,
        layers,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        intermediate_size: 96,
        max_position_embeddings: 512,
        rope_theta: 10_000.0,
        tied: true,
    };

    let config = DecoderConfig::new(family, sizes);
    random(&config, Seed::run(3), device).unwrap_or_else(|error| panic!("{error}"))
}

/// Adds adapters to all projections, with the strength that recipes give them.
fn adapted(policy: Decoder) -> Decoder {
    let targets = Lora::PROJECTIONS.map(str::to_owned).to_vec();
    let lora = Lora { rank: 16, alpha: 32.0, targets, ..Lora::default() };
    policy.with_lora(lora, Seed::run(5))
}

fn total(counts: &BTreeMap<&'static str, Launched>) -> usize {
    counts.values().map(|of| of.count).sum()
}

/// Finds how many launches a layer adds to a pass: the difference between passes of three layers and of two.
fn of_layer(what: &str, count: impl Fn(usize) -> BTreeMap<&'static str, Launched>) -> usize {
    let two = count(2);
    let three = count(3);
    for (name, more) in &three {
        let more = more.count - two.get(name).map_or(0, |of| of.count);
        if more > 0 {
            eprintln!("  {more} of {name}");
        }
    }

    // What two layers take beyond twice a layer belongs to the rest of the pass.
    let layer = total(&three) - total(&two);
    eprintln!("{what}: {layer} launches for each layer, {} besides", total(&two) - 2 * layer);
    layer
}

/// Rows that continue from two prompts and are decoded step by step.
struct Decoding {
    policy: Decoder,
    cache: KvCache,
    tokens: Tensor<1, Int>,
    uniforms: Tensor<1>,
}

impl Decoding {
    fn new(policy: Decoder, rows: usize, device: &Device) -> Self {
        // Two prompts of different lengths, so that rows are padded.
        let prompt = [3, 1, 4, 1, 5, 9, 2, 6];
        let batch = TokenBatch::new(&[&prompt, &prompt[..3]], Padding::Left, device);
        let (_, cache) = policy.prefill(&batch);
        Decoding {
            policy,
            cache: cache.arrange(&(0..rows).map(|row| row % 2).collect::<Vec<_>>(), None, 20),
            tokens: Tensor::arange(0..rows as i64, device),
            uniforms: Tensor::full([rows], 0.3, device),
        }
    }

    /// Draws the next tokens, as a rollout does.
    fn step(&mut self) -> Tensor<1, Int> {
        let hidden = self.policy.decode(self.tokens.clone(), &mut self.cache);
        let logits = head_logits(hidden, &self.policy.lm_head());
        let choice = Choice { temperature: 0.2, top_k: 0, top_p: 1.0 };
        let (tokens, logprobs) = sample_on_device(logits, self.uniforms.clone(), &choice);

        // A rollout reads these and nothing else.
        let bytes = tokens.dtype().size() + logprobs.dtype().size();
        assert!(bytes <= READ && tokens.dims() == logprobs.dims(), "{bytes} bytes for a row");

        self.tokens = tokens.clone();
        tokens
    }
}

fn read(tokens: &Tensor<1, Int>) -> Vec<i32> {
    tokens.clone().try_into_vec_as().unwrap_or_else(|error| panic!("{error:?}"))
}

/// Checks that a recording of a step makes the same tokens. While launches are recorded, a device of wgpu takes
/// nothing from the host and returns nothing, so a step that can be recorded uploads nothing.
#[test]
fn device_decodes_by_itself() {
    let Some((device, _alone)) = device() else { return };
    let new = || Decoding::new(decoder(Family::Qwen3, 2, &device).sampler(), 2, &device);
    let mut one_by_one = new();
    let expected: Vec<Vec<i32>> = (0..2).map(|_| read(&one_by_one.step())).collect();

    // The first step is done, and the second step is recorded.
    let mut recorded = new();
    let (_, graph) =
        Graph::record(&device, (), |()| recorded.step()).unwrap_or_else(|error| panic!("{error}"));
    graph.replay().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(read(graph.made()), expected[1]);
}

/// Checks that a row's numbers are the same bits whatever rows stand next to it, as long as there are at most 16 rows.
/// Products of so few rows are kernels of our own.
#[test]
fn device_rows_have_bits_of_their_own() {
    let Some((device, _alone)) = device() else { return };
    let policy = decoder(Family::Qwen3, 2, &device).sampler();
    let (long, short): (Vec<u32>, _) = ((0..300).map(|token| token % 250).collect(), [7, 8, 9]);

    let batch = TokenBatch::new(&[&long, &short], Padding::Left, &device);
    let (_, prefilled) = policy.prefill(&batch);

    let hidden = |rows: &[usize]| -> Vec<Vec<f32>> {
        let mut cache = prefilled.clone().arrange(rows, None, 20);
        let ids: Vec<i32> = rows.iter().map(|&row| 40 + row as i32).collect();
        let hidden = policy.decode(Tensor::from_ints(ids.as_slice(), &device), &mut cache);
        let width = hidden.dims()[1];
        let numbers: Vec<f32> =
            hidden.try_into_vec_as().unwrap_or_else(|error| panic!("{error:?}"));
        numbers.chunks(width).map(<[f32]>::to_vec).collect()
    };

    let together = hidden(&[0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    let long = hidden(&[0]).remove(0);
    let short = hidden(&[1]).remove(0);
    for (row, numbers) in together.iter().enumerate() {
        let alone = if [0, 3].contains(&row) { &long } else { &short };
        assert_eq!(numbers, alone, "row {row}");
    }
}

struct Silent;

impl Detokenizer for Silent {
    fn detokenize(&self, _: &[TokenId]) -> String {
        String::new()
    }
}

/// Checks that completions are the same whether the device repeats recorded steps or gets the steps one by one. Some
/// completions are longer than the keys that one cube goes through. Some end early, so that the rows are arranged
/// again, and others take their slots.
#[test]
fn device_repeats_what_was_recorded() {
    let Some((device, _alone)) = device() else { return };
    let policy = decoder(Family::Qwen2, 1, &device);

    let sampling = Sampling {
        temperature: 0.1,
        top_k: 0,
        top_p: 1.0,
        max_completion_tokens: 300,
        stop: vec![3, 7],
    };

    // Prompts of different lengths, for four completions each.
    let prompts = [5u32, 40, 11].map(|length| {
        let tokens = (10..10 + length).collect();
        let id = u64::from(length);
        (id, Prompt { id, tokens, ..Prompt::default() })
    });

    let written = |repeat| {
        let requests = GroupRequest::of_prompts(prompts.clone(), 4, &sampling, Seed::run(7));
        let mut engine = LocalEngine::new(&policy, Arc::new(Silent), 6, 512, SampleOn::Device);
        engine = engine.graphs(repeat);
        let (groups, counts) = launches(|| generate(&mut engine, requests, &mut |_| {}));
        let groups = groups.unwrap_or_else(|error| panic!("{error}"));

        let of_groups = groups.iter().flat_map(|group| &group.completions);
        let tokens: Vec<Vec<TokenId>> = of_groups.map(|one| one.tokens.clone()).collect();
        (tokens, total(&counts))
    };

    let (one_by_one, _) = written(false);
    let (repeated, less) = written(true);
    // The kernels were chosen by the runs before.
    let (_, asked) = written(false);

    let lengths: Vec<usize> = one_by_one.iter().map(Vec::len).collect();
    assert!(lengths.contains(&300) && lengths.iter().any(|&tokens| tokens < 100), "{lengths:?}");
    assert_eq!(repeated, one_by_one);
    eprintln!("{less} launches where steps are repeated, {asked} where they are not");
    assert!(2 * less < asked, "{less} launches instead of {asked}");
}

/// Compares the time of a sampler over 152 thousand entries of a vocabulary with its time over a thousand.
#[test]
fn device_sampler_grows_with_the_vocabulary() {
    let Some((device, _alone)) = device() else { return };
    for (top_k, top_p) in [(0, 1.0), (20, 1.0), (0, 0.9)] {
        let choice = Choice { temperature: 1.0, top_k, top_p };
        let drawing = |vocab: usize| {
            let logits = Tensor::<2>::random([4, vocab], Distribution::Default, &device);
            let uniforms = Tensor::<1>::from_floats([0.1, 0.4, 0.5, 0.9], &device);
            let draw = || read(&sample_on_device(logits.clone(), uniforms.clone(), &choice).0);
            seconds(|| drop(draw()))
        };

        let times = drawing(152_000) / drawing(1_000);
        eprintln!(
            "152,000 entries take {times:.1} times as long as 1,000, top_k {top_k}, top_p {top_p}"
        );
        assert!(times <= 160.0, "{times} times as long");
    }
}

/// Returns the shortest of three times, in seconds: what else the machine does only adds to a time.
fn seconds(mut work: impl FnMut()) -> f64 {
    work();
    let times = [(); 3].map(|()| {
        let began = Instant::now();
        work();
        began.elapsed().as_secs_f64()
    });
    times.into_iter().fold(f64::INFINITY, f64::min)
}

/// Checks a step and an update that have many times as much to do. They must launch as often, and may take at most one
/// and a half times that many times as long.
#[test]
fn device_work_grows_in_proportion() {
    let Some((device, _alone)) = device() else { return };
    let policy = || decoder(Family::Qwen2, 1, &device).sampler();

    // Returns the number of launches and the seconds.
    let step = |rows: usize, tokens: usize| {
        let prompt: Vec<u32> = (0..tokens as u32).map(|token| token % 250).collect();
        let batch = TokenBatch::new(&[&prompt], Padding::Left, &device);
        let policy = policy();
        let (_, cache) = policy.prefill(&batch);
        let mut decoding = Decoding {
            policy,
            cache: cache.arrange(&vec![0; rows], None, 20),
            tokens: Tensor::arange(0..rows as i64, &device),
            uniforms: Tensor::full([rows], 0.3, &device),
        };

        decoding.step();
        let count = total(&launches(|| decoding.step()).1);
        (count, seconds(|| drop(read(&decoding.step()))))
    };

    let update = |texts: usize| {
        let device = device.clone().autodiff();
        let policy = decoder(Family::Qwen2, 1, &device);
        let row: Vec<u32> = (0..200).collect();
        let batch = TokenBatch::new(&vec![row.as_slice(); texts], Padding::Right, &device);

        let pass = || {
            let context = policy.context(&batch);
            let (x, saved) = policy.forward_saving(0, policy.embed(&batch).inner(), &context);
            let mut sum = GradientSum::default();
            (saved.backward(x.ones_like(), &mut sum), sum.finish())
        };

        // Reading a number waits for all of the pass.
        let wait = || {
            let _: f32 = pass().0.sum().into_scalar();
        };

        wait();
        (total(&launches(|| drop(pass())).1), seconds(wait))
    };

    for (what, times, few, many) in [
        ("a step's rows", 8, step(20, 64), step(160, 64)),
        ("a step's tokens", 8, step(20, 250), step(20, 2000)),
        // More than 4,096 tokens are gone through in pieces.
        ("an update's texts", 8, update(2), update(16)),
    ] {
        let grown = many.1 / few.1;
        eprintln!("{what}, {times} times as many: {} launches, {grown:.1} times as long", many.0);

        assert_eq!(few.0, many.0, "{what}: launches");
        assert!(grown <= 1.5 * f64::from(times), "{what}: {grown} times as long");
    }
}

/// Counts the launches that a layer adds to a decode step of so many rows.
fn decoding(what: &str, rows: usize, device: &Device, policy: impl Fn(usize) -> Decoder) -> usize {
    of_layer(&format!("a token of {rows} rows, {what}"), |layers| {
        let mut decoding = Decoding::new(policy(layers).sampler(), rows, device);
        // The first step chooses the kernels.
        decoding.step();
        launches(|| decoding.step()).1
    })
}

/// Counts the launches that a layer adds to the copy of a policy that an update computes with.
fn preparing(what: &str, policy: impl Fn(usize) -> Decoder) -> usize {
    of_layer(&format!("preparing an update, {what}"), |layers| {
        let policy = policy(layers);
        launches(|| drop(policy.prepared())).1
    })
}

/// Counts the launches that a layer adds to an update of one micro-batch, forward and back.
fn updating(what: &str, device: &Device, policy: impl Fn(usize) -> Decoder) -> usize {
    of_layer(&format!("an update, {what}"), |layers| {
        let policy = policy(layers).prepared();
        let row: Vec<u32> = (0..40).collect();
        let batch = TokenBatch::new(&[&row, &row[..23]], Padding::Right, device);
        let pass = || {
            let context = policy.context(&batch);
            let mut x = policy.embed(&batch).inner();
            let mut all_saved = Vec::new();
            for index in 0..layers {
                let (y, saved) = policy.forward_saving(index, x, &context);
                all_saved.push(saved);
                x = y;
            }

            let mut sum = GradientSum::default();
            let mut d = x.ones_like();
            for saved in all_saved.into_iter().rev() {
                d = saved.backward(d, &mut sum);
            }
            (d, sum.finish())
        };

        drop(pass());
        launches(|| drop(pass())).1
    })
}

#[test]
fn device_launches() {
    let Some((device, _alone)) = device() else { return };
    for (family, with_adapters) in [
        (Family::Qwen2, false),
        (Family::Qwen3, false),
        (Family::Qwen2, true),
        (Family::Qwen3, true),
    ] {
        let what = format!("{family:?}{}", if with_adapters { " with adapters" } else { "" });
        let bounds = if with_adapters { ADAPTED } else { PLAIN };
        let policy = |layers, device: &Device| {
            let policy = decoder(family, layers, device);
            if with_adapters { adapted(policy) } else { policy }
        };

        for (rows, bound) in ROWS.into_iter().zip(bounds.decoding) {
            let counted = decoding(&what, rows, &device, |layers| policy(layers, &device));
            assert!(counted <= bound, "{what}: {counted} launches for a layer and {rows} rows");
        }

        let device = device.clone().autodiff();
        let counted = preparing(&what, |layers| policy(layers, &device));
        let bound = bounds.preparing;
        assert!(counted <= bound, "{what}: {counted} launches to prepare a layer for an update");

        let counted = updating(&what, &device, |layers| policy(layers, &device));
        let bound = bounds.updating;
        assert!(counted <= bound, "{what}: {counted} launches for a layer of an update");
    }
}
