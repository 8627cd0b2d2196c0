//! The local engine against its promises: a completion is its own seed's, the two samplers agree,
//! frequencies are those of the softmax, and log-probabilities are those that training sees.

#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
};

use burn::tensor::{Device, Tensor, TensorData};
use firebrick_core::{Completion, FinishReason, Seed, TokenId};
use firebrick_models::Decoder;
use firebrick_rollout::{
    GroupRequest, LocalEngine, RolloutEngine, RolloutError, SampleOn, Sampling, sample_on_device,
    sample_on_host, stream,
};
use firebrick_tests::{
    close::{Tolerance, nested_pairs},
    tiny::{numbers, policy, request},
};
use firebrick_train::{Aggregation, CrossEntropy, Cut, Objective, Sample, Updater};

const LOGPROBS: Tolerance = Tolerance { absolute: 1e-4, relative: 0.0 };

#[test]
fn a_completion_depends_on_its_seed_and_not_on_its_neighbours() {
    let policy = policy(1, &Device::flex());
    // Lengths from 1 to 40, so that prompts of one prefill differ, and join a running batch.
    let requests: Vec<GroupRequest> =
        (0..20).map(|id| request(id, 1 + (id as usize * 17) % 40, 5)).collect();
    let sampling = spread(0.05, 150, vec![7, 23]);

    let mut alone = Completions::default();
    for request in &requests {
        alone.extend(generate(
            &policy,
            std::slice::from_ref(request),
            &sampling,
            64,
            SampleOn::Host,
        ));
    }
    let lengths: BTreeSet<usize> =
        alone.values().map(|completion| completion.tokens.len()).collect();
    // Else the batches below would not be rearranged, or not grow beyond their first block.
    assert!(lengths.len() > 20 && lengths.contains(&150), "completions of {lengths:?} tokens");

    let mut reversed = requests.clone();
    reversed.reverse();
    let every_third: Vec<GroupRequest> = requests.iter().step_by(3).cloned().collect();
    let mut smaller = requests.clone();
    for (index, request) in smaller.iter_mut().enumerate() {
        request.group_size = 1 + index % 4;
    }
    for max_sequences in [3, 7, 64] {
        for (name, requests) in [
            ("in order", &requests),
            ("reversed", &reversed),
            ("every third", &every_third),
            ("smaller groups", &smaller),
        ] {
            let place = format!("{name}, {max_sequences} at once");
            let together = generate(&policy, requests, &sampling, max_sequences, SampleOn::Host);
            let asked: usize = requests.iter().map(|request| request.group_size).sum();
            assert_eq!(together.len(), asked, "{place}");
            assert_same(&place, &together, &alone);
        }
    }
}

/// Overlong filtering masks what was cut off, and not what came to its end with its last token.
#[test]
fn a_stop_token_at_the_limit_is_an_end() {
    let policy = policy(1, &Device::flex());
    let requests: Vec<GroupRequest> = (0..8).map(|id| request(id, 3, 4)).collect();
    let vocabulary = policy.config().vocab_size as TokenId;
    let sampling = spread(0.05, 2, (0..vocabulary / 2).collect());
    let mut ends = BTreeSet::new();
    for completion in generate(&policy, &requests, &sampling, 16, SampleOn::Host).values() {
        let stopped = completion.tokens.last().is_some_and(|last| sampling.stop.contains(last));
        assert_eq!(completion.finish == FinishReason::Stop, stopped);
        ends.insert((completion.tokens.len(), stopped));
    }
    assert!(ends.contains(&(2, true)) && ends.contains(&(2, false)), "{ends:?}");
}

#[test]
fn a_stream_is_the_completion_of_its_seed() {
    let policy = policy(1, &Device::flex());
    // Some stop, some are cut off, and some outgrow the first block of the cache.
    let sampling = spread(0.05, 150, vec![7, 23]);
    let run = |request: &GroupRequest, most: usize| {
        let seed = request.completion_seed(Seed::run(9), 0);
        let mut heard = Vec::new();
        let streamed = stream(
            &policy,
            &request.prompt.tokens,
            &sampling,
            seed,
            512,
            SampleOn::Host,
            &mut |token, logprob| {
                heard.push((token, logprob));
                if heard.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        )
        .unwrap();
        (streamed, heard)
    };
    let mut ends = BTreeSet::new();
    for id in 0..12 {
        let request = request(id, 1 + (id as usize * 17) % 40, 1);
        let requests = std::slice::from_ref(&request);
        let whole = generate(&policy, requests, &sampling, 1, SampleOn::Host);
        let completion = whole.into_values().next().unwrap();
        let (streamed, heard) = run(&request, usize::MAX);
        assert_eq!(streamed.tokens, completion.tokens);
        assert_eq!(streamed.logprobs, completion.logprobs);
        assert_eq!(streamed.finish, Some(completion.finish));
        assert_eq!(heard.iter().map(|heard| heard.0).collect::<Vec<_>>(), completion.tokens);
        ends.insert((completion.finish == FinishReason::Stop, completion.tokens.len() > 64));

        let (cut, _) = run(&request, 1);
        assert_eq!(cut.tokens, completion.tokens[..1]);
    }
    assert!(ends.contains(&(true, true)) && ends.contains(&(false, true)), "{ends:?}");
}

#[test]
fn sampling_on_the_device_gives_the_same_completions() {
    let policy = policy(2, &Device::flex());
    let requests: Vec<GroupRequest> = (0..6).map(|id| request(id, 3 + id as usize, 3)).collect();
    for (top_k, top_p) in [(0, 1.0), (10, 0.8)] {
        let sampling = Sampling { top_k, top_p, ..spread(0.05, 100, vec![7, 23]) };
        let host = generate(&policy, &requests, &sampling, 7, SampleOn::Host);
        let device = generate(&policy, &requests, &sampling, 7, SampleOn::Device);
        assert_same(&format!("top-k {top_k}, top-p {top_p}"), &device, &host);
    }
}

#[test]
fn every_draw_and_every_index_is_another_completion() {
    let policy = policy(3, &Device::flex());
    let mut again = request(1, 4, 6);
    again.draw += 1;
    let sampling = spread(1.0, 20, Vec::new());
    let completions = generate(&policy, &[request(1, 4, 6), again], &sampling, 64, SampleOn::Host);
    let texts: BTreeSet<&str> =
        completions.values().map(|completion| completion.text.as_str()).collect();
    assert_eq!(texts.len(), 12, "{texts:?}");
}

#[test]
fn new_weights_write_something_else_once_published() {
    let (old, new) = (policy(4, &Device::flex()), policy(5, &Device::flex().autodiff()));
    let mut engine = LocalEngine::new(&old, numbers(), 8, 512, SampleOn::Host);
    let sampling = Sampling::greedy(12, Vec::new());
    let write = |engine: &mut LocalEngine<Decoder>| {
        let groups = engine.generate(&[request(1, 5, 1)], &sampling, Seed::run(0), &mut |_| {});
        groups.unwrap()[0].completions[0].tokens.clone()
    };
    let before = write(&mut engine);
    engine.publish(&new).unwrap();
    let after = write(&mut engine);
    assert_ne!(before, after);
    let mut fresh = LocalEngine::new(&new, numbers(), 8, 512, SampleOn::Host);
    assert_eq!(after, write(&mut fresh));
}

#[test]
fn rollout_logprobs_are_those_of_the_update() {
    let policy = policy(6, &Device::flex().autodiff());
    let requests: Vec<GroupRequest> =
        (0..8).map(|id| request(id, 1 + (id as usize * 7) % 30, 3)).collect();
    for sample_on in [SampleOn::Host, SampleOn::Device] {
        // Greedy completions are reported at temperature 1; top-k and top-p do not count.
        for (sampling, temperature) in [
            (spread(1.0, 90, vec![7]), 1.0),
            (spread(0.05, 90, vec![7, 23]), 0.05),
            (Sampling { top_k: 5, top_p: 0.9, ..spread(0.7, 90, vec![7]) }, 0.7),
            (Sampling::greedy(90, vec![7]), 1.0),
        ] {
            let completions = generate(&policy, &requests, &sampling, 7, sample_on);
            let sample = |(&(id, _), completion): (&(u64, usize), &Completion)| {
                Sample::new(&requests[id as usize].prompt.tokens, completion, id)
            };
            let samples: Vec<Sample> = completions.iter().map(sample).collect();
            let updater = Updater {
                objective: Objective {
                    policy: Box::new(CrossEntropy),
                    entropy_coef: 0.0,
                    kl: None,
                },
                aggregation: Aggregation::TokenMean,
                constant_length: 1,
                temperature,
                cut: Cut { micro_batch_tokens: 4096, logits_chunk: 100 },
            };
            let rollout: Vec<Vec<f32>> =
                samples.iter().map(|sample| sample.old_logprobs.clone()).collect();
            LOGPROBS.check(
                &format!("log-probs, {sample_on:?}, {sampling:?}"),
                nested_pairs(&rollout, &updater.logprobs(&policy, &samples).unwrap()),
            );
            // The trunk is tracked here and was not there; the update reports the difference.
            let report = updater.gradients(&policy, &samples).unwrap();
            assert!(report.metrics.get("loss/logprob_change").unwrap() < 1e-4);
        }
    }
}

#[test]
fn completions_end_at_a_stop_token_or_at_their_length() {
    let policy = policy(7, &Device::flex());
    let requests: Vec<GroupRequest> = (0..5).map(|id| request(id, 2 + id as usize, 4)).collect();
    // 64 columns are the cache's first block: one less, just that, one more, and several blocks.
    for most in [1, 2, 63, 64, 65, 66, 140] {
        let sampling = spread(0.5, most, vec![11, 12]);
        let mut finished = 0;
        let mut engine = LocalEngine::new(&policy, numbers(), 6, 512, SampleOn::Host);
        let groups = engine
            .generate(&requests, &sampling, Seed::run(5), &mut |count| finished += count)
            .unwrap();
        assert_eq!(finished, 20);
        for (group, request) in groups.iter().zip(&requests) {
            assert_eq!((group.prompt.id, group.draw), (request.prompt.id, request.draw));
            assert_eq!(group.completions.len(), 4);
            for Completion { tokens, logprobs, text, finish, .. } in &group.completions {
                assert_eq!(tokens.len(), logprobs.len());
                assert!(logprobs.iter().all(|&logprob| logprob <= 0.0), "{logprobs:?}");
                let (last, before) = tokens.split_last().unwrap();
                assert!(!before.contains(&11) && !before.contains(&12), "{tokens:?}");
                let stopped = [11, 12].contains(last);
                assert_eq!(*finish == FinishReason::Stop, stopped);
                assert!(stopped && tokens.len() <= most || tokens.len() == most, "{tokens:?}");
                // The stop token is a token, and not part of what was said.
                let said = if stopped { before } else { tokens };
                assert_eq!(*text, numbers().detokenize(said));
            }
        }
    }
}

#[test]
fn a_prompt_that_leaves_no_room_is_refused_before_anything_is_sampled() {
    let policy = policy(8, &Device::flex());
    let mut engine = LocalEngine::new(&policy, numbers(), 4, 50, SampleOn::Host);
    let mut heard = 0;
    let mut try_length = |length| {
        let requests = [request(1, 2, 2), request(9, length, 2)];
        engine.generate(&requests, &spread(1.0, 20, Vec::new()), Seed::run(0), &mut |count| {
            heard += count;
        })
    };
    assert_eq!(try_length(30).unwrap().len(), 2);
    match try_length(31).unwrap_err() {
        RolloutError::TooLong { id, prompt, completion, limit } => {
            assert_eq!((id, prompt, completion, limit), (9, 31, 20, 50));
        }
        other => panic!("{other}"),
    }
    assert_eq!(heard, 4);
}

#[test]
fn no_requests_are_no_groups() {
    let policy = policy(8, &Device::flex());
    assert!(generate(&policy, &[], &spread(1.0, 5, vec![]), 4, SampleOn::Host).is_empty());
}

#[test]
fn both_samplers_draw_the_same_tokens() {
    const ROWS: usize = 64;
    const VOCAB: usize = 97;
    /// More than the rounding of a cumulative sum of 97 terms in f32.
    const EDGE: f64 = 1e-6;
    let logits = normals(11, ROWS * VOCAB, 3.0);
    let mut stream = Seed::run(12).stream();
    let mut uniforms: Vec<f32> =
        (0..ROWS as u64).map(|row| stream.uniform_at(row) as f32).collect();
    // The ends of the interval: the largest f32 below 1 is the one that rounding could push out.
    uniforms[0] = 0.0;
    uniforms[1] = 1.0 - f32::EPSILON / 2.0;
    for temperature in [0.0, 0.3, 1.0, 2.0] {
        for top_k in [0, 1, 5, VOCAB, 200] {
            for top_p in [1.0, 0.9, 0.3] {
                let sampling = Sampling { top_k, top_p, ..spread(temperature, 1, Vec::new()) };
                let device = Device::flex();
                let (tokens, logprobs) = sample_on_device(
                    Tensor::from_data(TensorData::new(logits.clone(), [ROWS, VOCAB]), &device),
                    Tensor::from_floats(uniforms.as_slice(), &device),
                    &sampling,
                );
                let tokens: Vec<i32> = tokens.try_into_vec_as::<i32>().unwrap();
                let logprobs: Vec<f32> = logprobs.try_into_vec_as::<f32>().unwrap();
                let host = |shift: f64| {
                    let shifted: Vec<f64> = uniforms
                        .iter()
                        .map(|&uniform| (f64::from(uniform) + shift).clamp(0.0, 1.0 - EDGE / 10.0))
                        .collect();
                    sample_on_host(&logits, &shifted, &sampling)
                };
                // Where the uniform number lies on the edge of two tokens, either is right.
                let (below, at, above) = (host(-EDGE), host(0.0), host(EDGE));
                for row in 0..ROWS {
                    let right = [below[row], at[row], above[row]];
                    let drawn = right.iter().find(|(token, _)| *token == tokens[row] as TokenId);
                    let &(_, logprob) = drawn.unwrap_or_else(|| {
                        panic!("row {row}, {sampling:?}: {} and not {right:?}", tokens[row])
                    });
                    assert!(
                        (logprob - logprobs[row]).abs() < 1e-5,
                        "row {row}, {sampling:?}: {logprob} and {}",
                        logprobs[row]
                    );
                }
            }
        }
    }
}

#[test]
fn tokens_come_as_often_as_the_softmax_says() {
    const DRAWS: usize = 40_000;
    let logits = normals(13, 12, 1.5);
    for (temperature, top_k, top_p) in
        [(1.0, 0, 1.0), (0.7, 0, 1.0), (1.6, 4, 1.0), (1.0, 0, 0.8), (1.0, 6, 0.85), (0.5, 2, 0.99)]
    {
        let sampling = Sampling { top_k, top_p, ..spread(temperature, 1, Vec::new()) };
        let expected = probabilities(&logits, &sampling);
        let rows = logits.repeat(DRAWS);
        let mut stream = Seed::run(14).derive("draws", &[top_k as u64]).stream();
        let uniforms: Vec<f64> =
            (0..DRAWS as u64).map(|position| stream.uniform_at(position)).collect();
        let mut counts = vec![0.0; logits.len()];
        for (token, _) in sample_on_host(&rows, &uniforms, &sampling) {
            counts[token as usize] += 1.0;
        }
        let mut chi_square = 0.0;
        for (token, (&count, &share)) in counts.iter().zip(&expected).enumerate() {
            if share == 0.0 {
                assert_eq!(count, 0.0, "{sampling:?}: token {token} was excluded");
            } else {
                let mean = share * DRAWS as f64;
                chi_square += (count - mean).powi(2) / mean;
            }
        }
        // With at most 11 degrees of freedom, one seed in 100,000 would be beyond 43.
        assert!(chi_square < 43.0, "{sampling:?}: χ² = {chi_square}, counts {counts:?}");
    }
}

/// Completions by prompt and index in the group; draws are told apart by their number.
type Completions = BTreeMap<(u64, usize), Completion>;

fn generate(
    policy: &Decoder,
    requests: &[GroupRequest],
    sampling: &Sampling,
    max_sequences: usize,
    sample_on: SampleOn,
) -> Completions {
    let mut engine = LocalEngine::new(policy, numbers(), max_sequences, 512, sample_on);
    let groups = engine.generate(requests, sampling, Seed::run(9), &mut |_| {}).unwrap();
    let mut completions = Completions::new();
    for (position, group) in groups.into_iter().enumerate() {
        assert_eq!(group.prompt.id, requests[position].prompt.id, "the order of the requests");
        for completion in group.completions {
            let id = group.prompt.id;
            let index = completions.range((id, 0)..=(id, usize::MAX)).count();
            completions.insert((id, index), completion);
        }
    }
    completions
}

/// `came` may be only a part of `reference`.
fn assert_same(place: &str, came: &Completions, reference: &Completions) {
    for (key, completion) in came {
        assert_eq!(completion.tokens, reference[key].tokens, "{place}: {key:?}");
        assert_eq!(completion.finish, reference[key].finish, "{place}: {key:?}");
    }
    let logprobs = |completions: &Completions| -> Vec<Vec<f32>> {
        came.keys().map(|key| completions[key].logprobs.clone()).collect()
    };
    LOGPROBS.check(place, nested_pairs(&logprobs(came), &logprobs(reference)));
}

/// What each token's probability should be, from the definitions of top-k and top-p.
fn probabilities(logits: &[f32], sampling: &Sampling) -> Vec<f64> {
    let exp = |&logit: &f32| (f64::from(logit) / sampling.temperature).exp();
    let weights: Vec<f64> = logits.iter().map(exp).collect();
    let total: f64 = weights.iter().sum();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]));
    let mut kept = vec![0.0; weights.len()];
    let mut mass = 0.0;
    for (rank, &token) in order.iter().enumerate() {
        if mass >= sampling.top_p || (sampling.top_k > 0 && rank >= sampling.top_k) {
            break;
        }
        mass += weights[token] / total;
        kept[token] = weights[token];
    }
    let total: f64 = kept.iter().sum();
    kept.iter().map(|weight| weight / total).collect()
}

/// Draws from every token.
fn spread(temperature: f64, max_completion_tokens: usize, stop: Vec<TokenId>) -> Sampling {
    Sampling { temperature, top_k: 0, top_p: 1.0, max_completion_tokens, stop }
}

fn normals(seed: u64, count: usize, deviation: f64) -> Vec<f32> {
    let mut stream = Seed::run(seed).stream();
    let normal = |position: u64| {
        let radius = (-2.0 * (1.0 - stream.uniform_at(2 * position)).ln()).sqrt();
        let angle = std::f64::consts::TAU * stream.uniform_at(2 * position + 1);
        (deviation * radius * angle.cos()) as f32
    };
    (0..count as u64).map(normal).collect()
}
