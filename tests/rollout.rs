//! The local engine keeps its promises: a completion depends on its own seed alone, the two samplers agree,
//! frequencies are those of the softmax, and log-probabilities are those that training sees.

#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use burn::{
    module::{Module, Param},
    tensor::{Device, Int, Tensor, TensorData},
};
use firebrick_core::{Completion, FinishReason, Group, Seed, TokenId};
use firebrick_kernels::{Kernels, kernels, sample_on_device, sample_on_host};
use firebrick_models::{
    Decoder, DecoderConfig, DecoderContext, Family, KvCache, PolicyModel, TokenBatch, random,
};
use firebrick_rollout::{
    GroupRequest, LocalEngine, RETRIES, RequestId, RolloutEngine, RolloutError, SampleOn, Sampling,
    ScriptedEngine, Wait, stream,
};
use firebrick_tests::{
    close::{Tolerance, nested_pairs},
    tiny::{numbers, policy, request, sizes},
};
use firebrick_train::{
    Sample,
    algorithm::Objective,
    learner::{CrossEntropy, Updater},
};

const LOGPROBS: Tolerance = Tolerance { absolute: 1e-4, relative: 0.0 };

#[test]
fn a_completion_depends_on_its_seed_and_not_on_its_neighbours() {
    let policy = policy(1, &Device::flex());
    // The prompts have 1 to 40 tokens, so that prompts of one prefill differ, and join a running batch.
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
    // Otherwise the batches below would not be rearranged, or not grow beyond their first block.
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
            let label = format!("{name}, {max_sequences} at once");
            let together = generate(&policy, requests, &sampling, max_sequences, SampleOn::Host);
            let asked: usize = requests.iter().map(|request| request.group_size).sum();
            assert_eq!(together.len(), asked, "{label}");
            assert_same(&label, &together, &alone);
        }
    }
}

/// Overlong filtering masks a completion that was cut off, but not one whose last token ended it.
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
    // Some completions stop, some are cut off, and some outgrow the first block of the cache.
    let sampling = spread(0.05, 150, vec![7, 23]);
    let run = |request: &GroupRequest, sample_on, most: usize| {
        let mut heard = Vec::new();
        let streamed = stream(
            &policy,
            &drawn(std::slice::from_ref(request), &sampling)[0],
            512,
            sample_on,
            &mut |token, logprob| {
                heard.push((token, logprob));
                if heard.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        )
        .unwrap();
        (streamed, heard)
    };
    let mut ends = BTreeSet::new();
    for (id, sample_on) in (0..12).flat_map(|id| [(id, SampleOn::Host), (id, SampleOn::Device)]) {
        let request = request(id, 1 + (id as usize * 17) % 40, 1);
        let requests = std::slice::from_ref(&request);
        let whole = generate(&policy, requests, &sampling, 1, sample_on);
        let completion = whole.into_values().next().unwrap();

        let (streamed, heard) = run(&request, sample_on, usize::MAX);
        assert_eq!(streamed.tokens, completion.tokens);
        assert_eq!(streamed.logprobs, completion.logprobs);
        assert_eq!(streamed.finish, Some(completion.finish));
        assert_eq!(heard.iter().map(|heard| heard.0).collect::<Vec<_>>(), completion.tokens);
        ends.insert((completion.finish == FinishReason::Stop, completion.tokens.len() > 64));

        // Whoever listens may end the stream after any token. The device brings several at a time.
        for most in 1..completion.tokens.len().min(4) {
            let (cut, heard) = run(&request, sample_on, most);
            assert_eq!((cut.finish, heard.len()), (None, most));
            assert_eq!(cut.tokens, completion.tokens[..most]);
        }
    }
    assert!(ends.contains(&(true, true)) && ends.contains(&(false, true)), "{ends:?}");
}

#[test]
fn drafts_save_passes_and_change_no_bit() {
    for (name, decoder) in [("dense", policy(1, &Device::flex())), ("sparse", sparse())] {
        let watched = Watched { decoder, watch: Watch::default() };
        // The second half repeats the first. All texts are equally long, so the 16 rows of the plain run end together.
        let requests = [request(0, 1, 4), request(1, 18, 4), request(0, 1, 4), request(1, 18, 4)];
        let sampling = spread(0.05, 150, Vec::new());
        let run = |max_sequences, drafts| {
            let before = watched.watch.decodes.load(Ordering::Relaxed);
            let mut engine =
                LocalEngine::new(&watched, numbers(), max_sequences, 512, SampleOn::Host)
                    .drafts(drafts);
            let groups = all(&mut engine, drawn(&requests, &sampling)).unwrap();
            let bits = |completion: Completion| {
                let logprobs = completion.logprobs.iter().map(|logprob| logprob.to_bits());
                (completion.tokens, logprobs.collect::<Vec<_>>())
            };
            let bits = groups.into_iter().flat_map(|group| group.completions).map(bits);
            let passes = watched.watch.decodes.load(Ordering::Relaxed) - before;
            (bits.collect::<Vec<_>>(), passes)
        };

        let (plain, passes) = run(16, false);
        assert_eq!(passes, 149, "{name}");
        for rows in [1, 2, 3, 5] {
            let (drafted, passes) = run(rows, true);
            let without = 149 * 16usize.div_ceil(rows);
            if kernels() == Kernels::Reference {
                // With plain tensor code a token's bits depend on what else is in the pass, so it has no drafts.
                assert_eq!(passes, run(rows, false).1, "{name}, {rows} rows");
                continue;
            }
            assert_eq!(drafted, plain, "{name}, {rows} rows");
            assert!(passes < without * 4 / 5, "{name}, {rows} rows: {passes} of {without} passes");
        }
    }
}

/// Makes a decoder whose second layer has experts and a window.
fn sparse() -> Decoder {
    let mut config = DecoderConfig::new(Family::Qwen3Moe, sizes(2));
    config.kinds[0].sparse = false;
    config.kinds[1].window = Some(20);
    random(&config, Seed::run(1), &Device::flex()).unwrap()
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
    let old = policy(4, &Device::flex());
    let new = policy(5, &Device::flex().autodiff());
    let mut engine = LocalEngine::new(&old, numbers(), 8, 512, SampleOn::Host);
    let write = |engine: &mut LocalEngine<Decoder>| {
        all(engine, vec![request(1, 5, 1)]).unwrap()[0].completions[0].tokens.clone()
    };
    let before = write(&mut engine);
    engine.publish(&new, 1).unwrap();
    let after = write(&mut engine);
    assert_ne!(before, after);

    let mut fresh = LocalEngine::new(&new, numbers(), 8, 512, SampleOn::Host);
    assert_eq!(after, write(&mut fresh));
}

#[test]
fn rollout_logprobs_are_those_of_the_update() {
    check_rollout_logprobs(&policy(6, &Device::flex().autodiff()));
}

#[test]
fn rollout_logprobs_of_capped_logits_are_those_of_the_update() {
    let mut config = DecoderConfig::new(Family::Qwen2, sizes(2));
    // A new head makes logits of about a tenth.
    config.logit_cap = Some(0.1);
    let policy = random(&config, Seed::run(6), &Device::flex().autodiff()).unwrap();
    check_rollout_logprobs(&policy);

    // A critic has no logits.
    assert_eq!(policy.trunk().logit_cap(), None);
}

fn check_rollout_logprobs(policy: &Decoder) {
    let requests: Vec<GroupRequest> =
        (0..8).map(|id| request(id, 1 + (id as usize * 7) % 30, 3)).collect();

    for sample_on in [SampleOn::Host, SampleOn::Device] {
        // Greedy completions are reported at temperature 1. Top-k and top-p do not count.
        for (sampling, temperature) in [
            (spread(1.0, 90, vec![7]), 1.0),
            (spread(0.05, 90, vec![7, 23]), 0.05),
            (Sampling { top_k: 5, top_p: 0.9, ..spread(0.7, 90, vec![7]) }, 0.7),
            (Sampling::greedy(90, vec![7]), 1.0),
        ] {
            let completions = generate(policy, &requests, &sampling, 7, sample_on);
            let sample = |(&(id, _), completion): (&(u64, usize), &Completion)| {
                Sample::new(&requests[id as usize].prompt.tokens, completion, id)
            };
            let samples: Vec<Sample> = completions.iter().map(sample).collect();

            let mut updater = Updater::new(Objective::new(Box::new(CrossEntropy)));
            updater.temperature = temperature;
            updater.micro_batching.micro_batch_tokens = 4096;

            let rollout: Vec<Vec<f32>> =
                samples.iter().map(|sample| sample.old_logprobs.clone()).collect();
            LOGPROBS.check(
                &format!("log-probs, {sample_on:?}, {sampling:?}"),
                nested_pairs(&rollout, &updater.logprobs(policy, &samples).unwrap()),
            );

            // The update tracks the trunk, and the engine did not. The update reports the difference.
            let report = updater.gradients(policy, &samples).unwrap();
            assert!(report.metrics.get("loss/logprob_change").unwrap() < 1e-4);
        }
    }
}

#[test]
fn completions_end_at_a_stop_token_or_at_their_length() {
    let policy = policy(7, &Device::flex());
    let requests: Vec<GroupRequest> = (0..5).map(|id| request(id, 2 + id as usize, 4)).collect();

    // 64 columns are the cache's first block. The limits are one less, just that, one more, and several blocks.
    for most in [1, 2, 63, 64, 65, 66, 140] {
        let sampling = spread(0.5, most, vec![11, 12]);
        let mut finished = 0;
        let mut engine = LocalEngine::new(&policy, numbers(), 6, 512, SampleOn::Host);

        let asked = drawn(&requests, &sampling);
        let groups =
            firebrick_rollout::generate(&mut engine, asked, &mut |count| finished += count)
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

                // The stop token counts as a token, but is no part of the text.
                let words = if stopped { before } else { tokens };
                assert_eq!(*text, numbers().detokenize(words));
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
        let asked = drawn(&[request(1, 2, 2), request(9, length, 2)], &spread(1.0, 20, Vec::new()));
        firebrick_rollout::generate(&mut engine, asked, &mut |count| heard += count)
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
fn requests_that_come_while_others_decode_change_nothing() {
    let policy = policy(1, &Device::flex());
    // There are two ways of drawing, so that rows of one batch differ in it.
    let samplings = [spread(0.05, 150, vec![7, 23]), spread(0.1, 60, vec![11])];
    let asked: Vec<GroupRequest> = (0..20)
        .map(|id| {
            let request = request(id, 1 + (id as usize * 17) % 40, 1 + id as usize % 4);
            drawn(&[request], &samplings[id as usize % 2]).remove(0)
        })
        .zip(0..)
        .map(|(request, id)| GroupRequest { id, ..request })
        .collect();

    let alone: Vec<Group> = asked
        .iter()
        .map(|request| {
            let mut engine = LocalEngine::new(&policy, numbers(), 64, 512, SampleOn::Host);
            all(&mut engine, vec![request.clone()]).unwrap().remove(0)
        })
        .collect();

    for (wait, sample_on) in [
        (Wait::Never, SampleOn::Host),
        (Wait::ForGroup, SampleOn::Host),
        (Wait::Never, SampleOn::Device),
    ] {
        let label = format!("{wait:?}, {sample_on:?}");
        let mut engine = LocalEngine::new(&policy, numbers(), 7, 512, sample_on);
        let mut left = asked.clone();
        let mut came = BTreeMap::new();
        let mut finished = 0;
        let mut order = Vec::new();
        let mut early = 0;

        while came.len() < asked.len() {
            // Submit three requests at a time, then decode some tokens of the earlier ones.
            engine.submit(left.drain(..left.len().min(3)).collect()).unwrap();
            for _ in 0..25 {
                let groups = engine.poll(wait, &mut |count| finished += count).unwrap();
                early += if left.is_empty() { 0 } else { groups.len() };
                order.extend(groups.iter().map(|(id, _)| *id));
                came.extend(groups);
            }
        }

        assert!(early > 0, "{label}: nothing was finished before all was submitted");
        assert!(!order.is_sorted(), "{label}: {order:?}");
        let completions: usize = asked.iter().map(|request| request.group_size).sum();
        assert_eq!((order.len(), finished), (asked.len(), completions), "{label}");

        for ((request, group), alone) in asked.iter().zip(came.values()).zip(&alone) {
            request.check_answer(group).unwrap();
            let tokens = |group: &Group| -> Vec<Vec<TokenId>> {
                group.completions.iter().map(|completion| completion.tokens.clone()).collect()
            };
            let logprobs = |group: &Group| -> Vec<Vec<f32>> {
                group.completions.iter().map(|completion| completion.logprobs.clone()).collect()
            };

            assert_eq!(tokens(group), tokens(alone), "{label}: {}", request.id);
            LOGPROBS.check(&label, nested_pairs(&logprobs(group), &logprobs(alone)));
        }

        assert!(engine.poll(Wait::ForGroup, &mut |_| {}).unwrap().is_empty(), "{label}");
    }
}

#[test]
fn rows_in_flight_continue_with_the_weights_that_are_published() {
    let old = policy(4, &Device::flex());
    let new = policy(5, &Device::flex());
    // The second request waits until the first is finished.
    let asked = drawn(&[request(1, 5, 2), request(2, 6, 2)], &Sampling::greedy(30, Vec::new()));
    let of = |policy: &Decoder| {
        let mut engine = LocalEngine::new(policy, numbers(), 2, 512, SampleOn::Host);
        all(&mut engine, asked.clone()).unwrap()
    };
    let by_old = of(&old);
    let by_new = of(&new);

    let mut engine = LocalEngine::new(&old, numbers(), 2, 512, SampleOn::Host);
    engine.submit(asked.clone()).unwrap();

    // Each poll brings one token.
    for _ in 0..10 {
        assert!(engine.poll(Wait::Never, &mut |_| {}).unwrap().is_empty());
    }
    engine.publish(&new, 1).unwrap();

    let mut groups = BTreeMap::new();
    while groups.len() < 2 {
        groups.extend(engine.poll(Wait::ForGroup, &mut |_| {}).unwrap());
    }

    // The first request began with the old weights and ended with the new ones.
    for (index, completion) in groups[&0].completions.iter().enumerate() {
        let before = &by_old[0].completions[index];
        assert_eq!(completion.tokens[..10], before.tokens[..10]);
        assert_eq!(completion.logprobs[..10], before.logprobs[..10]);
        assert_ne!(completion.logprobs[10..], before.logprobs[10..]);
        assert_ne!(completion.tokens, by_new[0].completions[index].tokens);
        assert_eq!(completion.policy_version, 0);
    }

    // The second request began after the publication.
    let mut by_new = by_new[1].clone();
    by_new.completions.iter_mut().for_each(|completion| completion.policy_version = 1);
    assert_eq!(groups[&1], by_new);
}

/// In bf16 the engine's copy takes memory of its own.
#[test]
fn old_weights_go_before_the_next_are_made() {
    let policy = Watched::new();
    let mut engine = LocalEngine::new(&policy, numbers(), 4, 512, SampleOn::Host);
    assert_eq!(policy.watch.copies(), 1);
    for version in 1..4 {
        engine.publish(&policy, version).unwrap();
    }
    assert_eq!(policy.watch.copies(), 1);
    assert_eq!(policy.watch.before.load(Ordering::Relaxed), 0, "copies when another was made");

    RolloutEngine::<Watched>::sleep(&mut engine);
    assert_eq!(policy.watch.copies(), 0);
}

/// Prompts of this length are prefilled in two parts, the second of which has a single prompt.
#[test]
fn rows_that_fit_decode_together_whatever_prefills_them() {
    let policy = Watched::new();
    let mut engine = LocalEngine::new(&policy, numbers(), 8, 2048, SampleOn::Device);
    let requests: Vec<GroupRequest> = (0..8).map(|id| request(id, 1100, 1)).collect();
    let groups = all(&mut engine, drawn(&requests, &spread(1.0, 6, Vec::new()))).unwrap();
    assert!(groups.iter().all(|group| group.completions[0].tokens.len() == 6));
    // The last row gets its first token while the others get their second.
    assert_eq!(policy.watch.decodes.load(Ordering::Relaxed), 6);
}

#[test]
fn a_poll_that_panics_leaves_nothing_in_flight() {
    let policy = Watched::new();
    let mut engine = LocalEngine::new(&policy, numbers(), 4, 512, SampleOn::Host);
    let asked = vec![request(1, 5, 2), request(2, 6, 3)];
    let expected = all(&mut engine, asked.clone()).unwrap();
    engine.submit(asked.clone()).unwrap();
    engine.poll(Wait::Never, &mut |_| {}).unwrap();

    policy.watch.fails.store(true, Ordering::Relaxed);
    let panicked =
        catch_unwind(AssertUnwindSafe(|| engine.poll(Wait::ForGroup, &mut |_| {}).map(drop)));
    assert!(panicked.is_err());
    policy.watch.fails.store(false, Ordering::Relaxed);
    assert!(engine.poll(Wait::ForGroup, &mut |_| {}).unwrap().is_empty());
    assert_eq!(all(&mut engine, asked.clone()).unwrap(), expected);

    // An engine that could not take over the new weights has none.
    policy.watch.fails.store(true, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| engine.publish(&policy, 1))).is_err());
    let error = all(&mut engine, asked).unwrap_err();
    assert!(matches!(error, RolloutError::NoWeights), "{error}");
}

#[test]
fn numbers_that_are_not_finite_are_the_policys_fault() {
    let policy = Watched::new();
    for sample_on in [SampleOn::Host, SampleOn::Device] {
        let mut engine = LocalEngine::new(&policy, numbers(), 4, 512, sample_on);
        policy.watch.is_nan.store(true, Ordering::Relaxed);
        let error = all(&mut engine, vec![request(7, 5, 2)]).unwrap_err();
        assert!(matches!(error, RolloutError::NotFinite { id: 7, .. }), "{error}");
        assert!(error.to_string().contains("NaN, expected a finite number"), "{error}");
        assert!(engine.poll(Wait::ForGroup, &mut |_| {}).unwrap().is_empty());
        // The engine works again as soon as the policy does.
        policy.watch.is_nan.store(false, Ordering::Relaxed);
        assert_eq!(all(&mut engine, vec![request(7, 5, 2)]).unwrap().len(), 1);
    }
}

#[test]
fn requests_that_ask_for_nothing_or_have_no_id_of_their_own_are_refused() {
    let policy = policy(8, &Device::flex());
    let mut engine = LocalEngine::new(&policy, numbers(), 4, 50, SampleOn::Host);
    engine.submit(vec![request(1, 5, 2)]).unwrap();

    for (bad, expected) in [
        (request(2, 0, 2), "a prompt without tokens"),
        (request(2, 5, 0), "0 completions"),
        (drawn(&[request(2, 5, 2)], &spread(1.0, 0, Vec::new())).remove(0), "of 0 tokens"),
        (request(1, 5, 2), "the id of another"),
        (request(3, 5, 2), "the id of another"),
    ] {
        let submitted = vec![request(3, 5, 2), bad];
        let error = engine.submit(submitted.clone()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        if !expected.starts_with("the id") || submitted[1].id == 3 {
            let mut silent = ScriptedEngine::new(|_, _| panic!("it was asked"));
            let error = all::<()>(&mut silent, submitted).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    // None of these requests was accepted.
    let groups = engine.poll(Wait::ForGroup, &mut |_| {}).unwrap();
    assert_eq!(groups.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1]);
    assert!(engine.poll(Wait::ForGroup, &mut |_| {}).unwrap().is_empty());
}

#[test]
fn groups_are_given_in_the_order_of_their_requests() {
    let mut polled = Vec::new();
    let mut engine = ScriptedEngine::new(|request: &GroupRequest, index| {
        polled.push(request.id);
        answered(&[request.id as TokenId, index as TokenId])
    });

    let mut finished = Vec::new();
    // The ids fall, so the engine answers in the opposite order.
    let asked: Vec<GroupRequest> = (0..4).map(|id| request(10 - id, 2, 1 + id as usize)).collect();
    let groups =
        firebrick_rollout::generate::<()>(&mut engine, asked, &mut |count| finished.push(count))
            .unwrap();

    let ids: Vec<u64> = groups.iter().map(|group| group.prompt.id).collect();
    assert_eq!(ids, [10, 9, 8, 7]);
    for group in &groups {
        for (index, completion) in group.completions.iter().enumerate() {
            assert_eq!(completion.tokens, [group.prompt.id as TokenId, index as TokenId]);
        }
    }

    assert_eq!(finished, [4, 3, 2, 1]);
    assert_eq!(polled.first(), Some(&7));
}

#[test]
fn what_an_engine_lost_is_asked_for_again() {
    let policy = policy(1, &Device::flex());
    let sampling = spread(0.05, 80, vec![7, 23]);
    let requests: Vec<GroupRequest> = (0..16).map(|id| request(id, 3 + id as usize, 3)).collect();
    let asked = drawn(&requests, &sampling);
    let local = || LocalEngine::new(&policy, numbers(), 6, 512, SampleOn::Host);
    let whole = all(&mut local(), asked.clone()).unwrap();

    let run = |lost: usize, in_submit: bool, retryable: bool| {
        let mut engine = Unsteady {
            engine: local(),
            new: Box::new(local),
            lost,
            in_submit,
            retryable,
            polls: 0,
        };
        let mut finished = 0;
        let groups =
            firebrick_rollout::generate(&mut engine, asked.clone(), &mut |count| finished += count);
        (groups, finished, engine.lost)
    };

    for lost in 0..=RETRIES {
        for in_submit in [false, true] {
            let (groups, finished, left) = run(lost, in_submit, true);
            assert_eq!((finished, left), (48, 0));
            for (group, whole) in groups.unwrap().iter().zip(&whole) {
                let pairs = group.completions.iter().zip(&whole.completions);
                // The completions are decoded in other batches, which round their sums in another way.
                assert!(pairs.clone().all(|(came, whole)| came.tokens == whole.tokens));
                assert_eq!(pairs.count(), 3);
            }
        }
    }

    // The engine may die as often as it likes as long as groups come in between.
    let (groups, finished, left) = run(RETRIES + 5, false, true);
    assert_eq!((groups.unwrap().len(), finished, left), (16, 48, 0));

    let (groups, _, left) = run(RETRIES + 5, true, true);
    let error = groups.unwrap_err();
    assert_eq!(left, 4);
    assert!(
        matches!(error, RolloutError::GivenUp { times, .. } if times == RETRIES + 1),
        "{error}"
    );
    assert!(
        error.to_string().contains("4 times, the last time because: the child died"),
        "{error}"
    );

    let (groups, _, left) = run(2, false, false);
    let error = groups.unwrap_err();
    assert!(matches!(error, RolloutError::Engine { retryable: false, .. }), "{error}");
    assert_eq!(
        (left, error.to_string().as_str()),
        (1, "the rollout engine failed: the child died")
    );
}

#[test]
fn what_an_engine_answers_is_not_trusted() {
    type Change = fn(&mut Vec<(RequestId, Group)>);
    fn first(answers: &mut [(RequestId, Group)]) -> &mut Completion {
        &mut answers[0].1.completions[1]
    }

    let cases: [(Change, &str); 16] = [
        (|answers| answers[0].0 = 77, "request 77 cannot be used: it was not asked for"),
        (|answers| answers.extend_from_within(0..1), "it has been answered already"),
        (|answers| answers.clear(), "nothing is in flight, expected a group"),
        (|answers| answers[0].1.draw += 1, "in draw 1002, expected one of prompt 1 in draw 1001"),
        (
            |answers| answers[0].1.prompt.tokens.clear(),
            "a group of prompt 1 in draw 1001, expected",
        ),
        (|answers| answers[0].1.prompt.id = 2, "a group of prompt 2"),
        (
            |answers| drop(answers[0].1.completions.pop()),
            "its number of completions is 1, expected 2",
        ),
        (|answers| answers[0].1.completions.clear(), "its number of completions is 0, expected 2"),
        (
            |answers| answers[0].1.completions.push(answered(&[1])),
            "its number of completions is 3, expected 2",
        ),
        (|answers| *first(answers) = answered(&[]), "completion 1 has 0 tokens, expected 1 to 16"),
        (|answers| *first(answers) = answered(&[3; 17]), "completion 1 has 17 tokens"),
        (
            |answers| first(answers).logprobs.truncate(2),
            "has 2 log-probabilities, expected one for each of its tokens (3)",
        ),
        (
            |answers| first(answers).logprobs.push(-1.0),
            "has 4 log-probabilities, expected one for each of its tokens (3)",
        ),
        (|answers| first(answers).logprobs[2] = f32::NAN, "a log-probability of NaN"),
        (|answers| first(answers).logprobs[0] = f32::NEG_INFINITY, "a log-probability of -inf"),
        (|answers| first(answers).logprobs[1] = 0.5, "a log-probability of 0.5, expected finite"),
    ];

    for (change, expected) in cases {
        let mut engine = Spoilt { asked: Vec::new(), change };
        let error = all::<()>(&mut engine, vec![request(1, 4, 2)]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}, expected {expected:?}");
    }

    // An engine may report any progress, and rounds a little.
    let mut engine =
        Spoilt { asked: Vec::new(), change: |answers| first(answers).logprobs[0] = 1e-6 };
    let mut finished = 0;
    let asked = vec![request(1, 4, 2), request(2, 4, 2)];
    let groups =
        firebrick_rollout::generate::<()>(&mut engine, asked, &mut |count| finished += count);
    assert_eq!((groups.unwrap().len(), finished), (2, 4));
}

/// Makes a completion of these tokens, as somebody else's engine may answer.
fn answered(tokens: &[TokenId]) -> Completion {
    Completion::written(tokens.to_vec(), vec![-0.5; tokens.len()], FinishReason::Length)
}

/// An engine that dies with everything in flight and starts over, `lost` times: either when it is asked, or in
/// every second poll, when some groups have come.
struct Unsteady<'a> {
    engine: LocalEngine<Decoder>,
    new: Box<dyn Fn() -> LocalEngine<Decoder> + Send + 'a>,
    lost: usize,
    in_submit: bool,
    retryable: bool,
    polls: usize,
}

impl Unsteady<'_> {
    fn dies(&mut self) -> Result<(), RolloutError> {
        if self.lost == 0 {
            return Ok(());
        }
        self.lost -= 1;
        self.engine = (self.new)();
        Err(RolloutError::engine("the child died", self.retryable))
    }
}

impl RolloutEngine<Decoder> for Unsteady<'_> {
    fn publish(&mut self, policy: &Decoder, version: u64) -> Result<(), RolloutError> {
        self.engine.publish(policy, version)
    }

    fn submit(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        self.engine.submit(requests)?;
        if self.in_submit { self.dies() } else { Ok(()) }
    }

    fn poll(
        &mut self,
        wait: Wait,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<(RequestId, Group)>, RolloutError> {
        self.polls += 1;
        if !self.in_submit && self.polls.is_multiple_of(2) {
            self.dies()?;
        }
        self.engine.poll(wait, finished)
    }
}

/// An engine that answers everything at once, and not as it was asked to.
struct Spoilt {
    asked: Vec<GroupRequest>,
    change: fn(&mut Vec<(RequestId, Group)>),
}

impl<M> RolloutEngine<M> for Spoilt {
    fn publish(&mut self, _: &M, _: u64) -> Result<(), RolloutError> {
        Ok(())
    }

    fn submit(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        self.asked = requests;
        Ok(())
    }

    fn poll(
        &mut self,
        _: Wait,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<(RequestId, Group)>, RolloutError> {
        finished(usize::MAX);
        let answer = |request: GroupRequest| {
            let completions = vec![answered(&[1, 2, 3]); request.group_size];
            request.into_group(completions)
        };
        let mut answers = self.asked.drain(..).map(answer).collect();
        (self.change)(&mut answers);
        Ok(answers)
    }
}

/// A decoder that counts its copies for sampling, and fails or computes nonsense on demand.
#[derive(Module, Debug)]
struct Watched {
    decoder: Decoder,
    #[module(skip)]
    watch: Watch,
}

#[derive(Clone, Debug, Default)]
struct Watch {
    /// A handle that the policy and each of its copies hold. It counts them.
    held: Arc<()>,
    /// Most copies that existed when another was made.
    before: Arc<AtomicUsize>,
    decodes: Arc<AtomicUsize>,
    fails: Arc<AtomicBool>,
    is_nan: Arc<AtomicBool>,
}

impl Watch {
    fn copies(&self) -> usize {
        Arc::strong_count(&self.held) - 1
    }

    fn maybe_fail(&self) {
        assert!(!self.fails.load(Ordering::Relaxed), "out of memory");
    }
}

impl Watched {
    fn new() -> Self {
        Watched { decoder: policy(1, &Device::flex()), watch: Watch::default() }
    }
}

impl PolicyModel for Watched {
    type Cache = KvCache;
    type Context = DecoderContext;

    fn device(&self) -> Device {
        self.decoder.device()
    }

    fn context(&self, batch: &TokenBatch) -> DecoderContext {
        self.decoder.context(batch)
    }

    fn embed(&self, batch: &TokenBatch) -> Tensor<3> {
        self.decoder.embed(batch)
    }

    fn layers(&self) -> usize {
        self.decoder.layers()
    }

    fn layer(&self, index: usize, x: Tensor<3>, context: &DecoderContext) -> Tensor<3> {
        self.decoder.layer(index, x, context)
    }

    fn finish(&self, x: Tensor<3>) -> Tensor<3> {
        self.decoder.finish(x)
    }

    fn prefill(&self, batch: &TokenBatch) -> (Tensor<2>, KvCache) {
        self.decoder.prefill(batch)
    }

    fn decode(&self, tokens: Tensor<1, Int>, cache: &mut KvCache) -> Tensor<2> {
        self.watch.maybe_fail();
        self.watch.decodes.fetch_add(1, Ordering::Relaxed);
        let hidden = self.decoder.decode(tokens, cache);
        if self.watch.is_nan.load(Ordering::Relaxed) { hidden.mul_scalar(f32::NAN) } else { hidden }
    }

    fn head(&self) -> &Param<Tensor<2>> {
        self.decoder.head()
    }

    fn logit_cap(&self) -> Option<f64> {
        self.decoder.logit_cap()
    }

    fn sampler(&self) -> Self {
        self.watch.before.fetch_max(self.watch.copies(), Ordering::Relaxed);
        self.watch.maybe_fail();
        Watched { decoder: self.decoder.sampler(), watch: self.watch.clone() }
    }
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

    // Both ends of the interval. Rounding could push the largest f32 below 1 out of it.
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
                    &sampling.token_sampling(),
                );
                let tokens: Vec<i32> = tokens.try_into_vec_as::<i32>().unwrap();
                let logprobs: Vec<f32> = logprobs.try_into_vec_as::<f32>().unwrap();

                let host = |shift: f64| {
                    let shifted: Vec<f64> = uniforms
                        .iter()
                        .map(|&uniform| (f64::from(uniform) + shift).clamp(0.0, 1.0 - EDGE / 10.0))
                        .collect();
                    sample_on_host(&logits, &shifted, &sampling.token_sampling())
                };

                // Where the uniform number lies on the edge of two tokens, either is right.
                let below = host(-EDGE);
                let at = host(0.0);
                let above = host(EDGE);
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
        for (token, _) in sample_on_host(&rows, &uniforms, &sampling.token_sampling()) {
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

/// Completions by prompt and index in the group. Indices continue over further draws of a prompt.
type Completions = BTreeMap<(u64, usize), Completion>;

fn generate(
    policy: &Decoder,
    requests: &[GroupRequest],
    sampling: &Sampling,
    max_sequences: usize,
    sample_on: SampleOn,
) -> Completions {
    // With drafts, which must not change anything.
    let mut engine =
        LocalEngine::new(policy, numbers(), max_sequences, 512, sample_on).drafts(true);
    let groups = all(&mut engine, drawn(requests, sampling)).unwrap();
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

/// Copies the requests, to be drawn by `sampling`, with a new id for each.
fn drawn(requests: &[GroupRequest], sampling: &Sampling) -> Vec<GroupRequest> {
    let sampling = Arc::new(sampling.clone());
    let numbered = (0..).zip(requests).map(|(id, request)| GroupRequest {
        id,
        sampling: sampling.clone(),
        ..request.clone()
    });
    numbered.collect()
}

/// Generates the groups of the requests, in order.
fn all<M>(
    engine: &mut dyn RolloutEngine<M>,
    requests: Vec<GroupRequest>,
) -> Result<Vec<Group>, RolloutError> {
    firebrick_rollout::generate(engine, requests, &mut |_| {})
}

/// Compares completions. `came` may be only a part of `reference`.
fn assert_same(label: &str, came: &Completions, reference: &Completions) {
    for (key, completion) in came {
        assert_eq!(completion.tokens, reference[key].tokens, "{label}: {key:?}");
        assert_eq!(completion.finish, reference[key].finish, "{label}: {key:?}");
    }

    let logprobs = |completions: &Completions| -> Vec<Vec<f32>> {
        came.keys().map(|key| completions[key].logprobs.clone()).collect()
    };
    LOGPROBS.check(label, nested_pairs(&logprobs(came), &logprobs(reference)));
}

/// Computes each token's probability from the definitions of top-k and top-p.
fn probabilities(logits: &[f32], sampling: &Sampling) -> Vec<f64> {
    let exp = |&logit: &f32| (f64::from(logit) / sampling.temperature).exp();
    let weights: Vec<f64> = logits.iter().map(exp).collect();
    let total: f64 = weights.iter().sum();

    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]));

    let mut kept = vec![0.0; weights.len()];
    let mut mass = 0.0;
    // The mass before a token decides, so the token that crosses `top_p` is kept.
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

/// Makes a sampling that draws from every token.
fn spread(temperature: f64, max_completion_tokens: usize, stop: Vec<TokenId>) -> Sampling {
    Sampling { temperature, top_k: 0, top_p: 1.0, max_completion_tokens, stop }
}

fn normals(seed: u64, count: usize, deviation: f64) -> Vec<f32> {
    let mut stream = Seed::run(seed).stream();
    let normal = |position: u64| {
        // Box-Muller, from two uniform numbers.
        let radius = (-2.0 * (1.0 - stream.uniform_at(2 * position)).ln()).sqrt();
        let angle = std::f64::consts::TAU * stream.uniform_at(2 * position + 1);
        (deviation * radius * angle.cos()) as f32
    };
    (0..count as u64).map(normal).collect()
}
