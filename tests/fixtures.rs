//! Checkpoints of the reference implementation, and everything it computes from them: tokens, texts, logits,
//! log-probabilities, greedy text, losses, gradients and optimizer steps.
//!
//! The folder of checkpoints is `FIREBRICK_FIXTURES_DIR`, or the one in this repository.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use burn::tensor::{Device, Tensor, TensorData};
use firebrick_core::{
    Completion, Detokenizer as _, FinishReason, Prompt, Seed, SftExample, TokenId,
};
use firebrick_data::{ChatTemplate, DataError};
use firebrick_models::{
    Decoder, Padding, PolicyModel, SaveOptions, head_logprobs, load, load_config, parameters, save,
};
use firebrick_rollout::{GroupRequest, LocalEngine, SampleOn, Sampling, generate};
use firebrick_tests::{
    close::{Tolerance, nested_pairs, pairs},
    computed::{
        GRADIENTS, LOGITS, LOSS, MICRO_BATCHING, check_norms, logits, named_gradients, read, real,
        sample, updater,
    },
    expected::{
        AdamWFacts, Chat, CrossEntropyFacts, DapoAt, DapoFacts, Greedy, LogProbs, LogProbsAt,
        Logits, LogitsOfBatch, Tokens, by_temperature, unpad,
    },
    fixture::{Fixture, for_each_checkpoint, for_each_tokenizer},
};
use firebrick_train::{
    Sample,
    algorithm::{Aggregation, ClipRange, Dapo, Divisors, LossInput, PolicyLoss},
    learner::{AdamW, CrossEntropy, Layout, MicroBatch, OptimConfig, global_norm, sft_step},
};

const LOGPROBS: Tolerance = Tolerance { absolute: 1e-4, relative: 0.0 };
const SUMS: Tolerance = Tolerance { absolute: 1e-3, relative: 0.0 };
/// Tolerance for ratios and losses per token: that of a log-probability, times the ratio.
const RATIOS: Tolerance = Tolerance { absolute: 1e-4, relative: 1e-4 };
/// Adam divides small gradients by their own size, so their rounding errors grow with each step.
const STEPS: Tolerance = Tolerance { absolute: 0.0, relative: 2e-3 };
const FIRST_STEP: Tolerance = Tolerance { absolute: 0.0, relative: 1e-5 };

#[test]
fn fixtures_tokenizer() {
    for_each_tokenizer("tokenizer", |fixture, expected: Tokens| {
        let tokenizer = fixture.tokenizer();
        let name = &fixture.name;
        assert_eq!(
            (tokenizer.pad(), tokenizer.eos(), tokenizer.bos(), tokenizer.len()),
            (expected.pad_id, expected.eos_id, expected.bos_id, expected.len),
            "{name}: pad, eos, bos, len"
        );

        for text in expected.encode {
            assert_eq!(tokenizer.encode(&text.text, true).unwrap(), text.ids, "{name}: {text:?}");
            let bare = tokenizer.encode(&text.text, false).unwrap();
            assert_eq!(bare, text.ids_no_special, "{name}: {text:?}");
            assert_eq!(tokenizer.decode(&text.ids, true), text.decoded_skip_special, "{name}");
        }
    });
}

#[test]
fn fixtures_chat() {
    for_each_tokenizer("chat", |fixture, expected: Vec<Chat>| {
        let tokenizer = fixture.tokenizer();
        for chat in expected {
            let mut template = ChatTemplate::from_folder(&fixture.folder).unwrap().unwrap();
            if let Some(now) = &chat.now {
                template = template.with_date(now.parse().unwrap());
            }

            let rendered =
                template.render(&chat.messages, chat.add_generation_prompt, &chat.kwargs);
            let label = format!("{}: {} with {:?}", fixture.name, chat.messages, chat.kwargs);

            match (rendered, chat.raises) {
                (Ok(text), None) => {
                    assert_eq!(Some(&text), chat.text.as_ref(), "{label}");
                    assert_eq!(tokenizer.encode(&text, false).ok(), chat.ids, "{label}");
                }
                (Err(DataError::Template { problem, .. }), Some(raises)) => {
                    assert!(problem.contains(&raises), "{label}: {problem}");
                }
                (rendered, raises) => panic!("{label}: {rendered:?}, and not {raises:?}"),
            }
        }
    });
}

#[test]
fn fixtures_logits() {
    for_each_checkpoint("logits", |fixture, expected: Logits| {
        let decoder = fixture.decoder(&Device::flex());
        let vocab = fixture.config().vocab_size;

        let ours = logits(&decoder, &expected.right, Padding::Right);
        let reference: Vec<Vec<f32>> =
            fixture.tensor("logits_right").chunks(vocab).map(<[f32]>::to_vec).collect();
        let mask = &expected.right.attention_mask;
        LOGITS.check(
            &format!("{}: logits, padded right", fixture.name),
            nested_pairs(&real(&ours, mask), &real(&reference, mask)),
        );
        check_samples(fixture, &ours, &expected.right, "right");

        let ours = logits(&decoder, &expected.left, Padding::Left);
        let width = expected.left.input_ids[0].len();
        let last: Vec<f32> = ours.chunks(width).flat_map(|row| row[width - 1].clone()).collect();
        LOGITS.check(
            &format!("{}: last logits, padded left", fixture.name),
            pairs(&last, &fixture.tensor("logits_left_last")),
        );
        check_samples(fixture, &ours, &expected.left, "left");
    });
}

#[test]
fn fixtures_logprobs() {
    for_each_checkpoint("logprobs", |fixture, expected: LogProbs| {
        let policy = fixture.decoder(&Device::flex());
        for (temperature, at) in by_temperature::<LogProbsAt>(&expected.rest) {
            let label = |what| format!("{}: {what} at {temperature}", fixture.name);
            let samples = samples(&expected);
            let logprobs = updater(CrossEntropy, temperature).logprobs(&policy, &samples).unwrap();
            LOGPROBS.check(&label("log-probs"), nested_pairs(&logprobs, &at.logprobs));

            let sums: Vec<f32> = logprobs.iter().map(|row| row.iter().sum()).collect();
            SUMS.check(&label("sums of log-probs"), pairs(&sums, &at.sum));

            let entropy = entropies(&policy, &samples, temperature);
            LOGPROBS.check(&label("entropies"), nested_pairs(&entropy, &at.entropy));
        }
    });
}

#[test]
fn fixtures_greedy() {
    for_each_checkpoint("greedy", |fixture, expected: Greedy| {
        let policy = fixture.decoder(&Device::flex());
        for sample_on in [SampleOn::Host, SampleOn::Device] {
            let sampling = Sampling::greedy(expected.new_ids_no_eos[0].len(), Vec::new());
            let completions = complete(fixture, &policy, &expected.prompts, &sampling, sample_on);
            for (row, completion) in completions.iter().enumerate() {
                let label = format!("{}, prompt {row}, {sample_on:?}", fixture.name);
                assert_eq!(completion.tokens, expected.new_ids_no_eos[row], "{label}");

                // Fixtures' texts leave out every special token, while ours keep those that are words of the answer.
                let tokenizer = fixture.tokenizer();
                let without = tokenizer.decode(&completion.tokens, true);
                assert_eq!(without, expected.texts[row], "{label}");
                assert_eq!(completion.text, tokenizer.detokenize(&completion.tokens), "{label}");
                assert_eq!(completion.finish, FinishReason::Length, "{label}");

                // Alone, a prompt has no padding and no neighbours.
                let prompt = &expected.prompts[row..row + 1];
                let alone = complete(fixture, &policy, prompt, &sampling, sample_on);
                assert_eq!(alone[0].tokens, completion.tokens, "{label}, alone");
            }
        }
    });
}

#[test]
fn fixtures_greedy_with_stop() {
    for_each_checkpoint("greedy", |fixture, Greedy { prompts, with_stop: expected, .. }| {
        let policy = fixture.decoder(&Device::flex());
        let sampling =
            Sampling::greedy(expected.new_ids_padded[0].len(), expected.stop_ids.clone());
        let completions = complete(fixture, &policy, &prompts, &sampling, SampleOn::Host);
        for (row, completion) in completions.iter().enumerate() {
            let ids = &expected.new_ids_padded[row][..expected.lengths[row]];
            assert_eq!(completion.tokens, ids, "{}, prompt {row}", fixture.name);
            let stopped = expected.stop_ids.contains(ids.last().unwrap());
            let finish = if stopped { FinishReason::Stop } else { FinishReason::Length };
            assert_eq!(completion.finish, finish, "{}, prompt {row}", fixture.name);
        }
    });
}

#[test]
fn fixtures_cross_entropy() {
    for_each_checkpoint("ce", |fixture, expected: CrossEntropyFacts| {
        let policy = fixture.decoder(&Device::flex().autodiff());
        let samples: Vec<Sample> = worked(&expected)
            .into_iter()
            .map(|SftExample { prompt, completion, .. }| sample(prompt, completion))
            .collect();
        let report = updater(CrossEntropy, 1.0).gradients(&policy, &samples).unwrap();
        let label = format!("{}: cross-entropy", fixture.name);
        LOSS.check(&label, [(report.loss, expected.loss)]);

        let gradients = named_gradients(&policy, &report.gradients);
        check_norms(&label, &gradients, &expected.grad_norms);
        let total = global_norm(&policy, &report.gradients).unwrap();
        GRADIENTS.check(&format!("{label}, norm"), [(total, expected.total_grad_norm)]);

        let first = expected.grad_first4.iter();
        GRADIENTS.check(
            &format!("{label}, first entries of gradients"),
            first.flat_map(|(name, first)| pairs(&gradients[name][..first.len()], first)),
        );
    });
}

#[test]
fn fixtures_dapo() {
    for_each_checkpoint("dapo", |fixture, expected: DapoFacts| {
        let policy = fixture.decoder(&Device::flex().autodiff());
        let dapo = Dapo {
            clip: ClipRange { low: expected.eps_low, high: expected.eps_high },
            dual_clip: None,
        };
        for (temperature, at) in by_temperature::<DapoAt>(&expected.rest) {
            let label = |what| format!("{}: DAPO {what} at {temperature}", fixture.name);
            let mut samples = samples(&fixture.block("logprobs"));
            for (row, sample) in samples.iter_mut().enumerate() {
                sample.advantages.fill(expected.advantages[row]);
                sample.old_logprobs = at.old_logprobs[row].clone();
            }
            let updater = updater(dapo, temperature);

            let logprobs = updater.logprobs(&policy, &samples).unwrap();
            let ratio = |(new, old): (&Vec<f32>, &Vec<f32>)| {
                new.iter().zip(old).map(|(new, old)| (new - old).exp()).collect()
            };
            let ratios: Vec<Vec<f32>> = logprobs.iter().zip(&at.old_logprobs).map(ratio).collect();
            RATIOS.check(&label("ratios"), nested_pairs(&ratios, &at.ratio));
            let token_loss = token_losses(&dapo, &samples, &logprobs);
            RATIOS.check(&label("token losses"), nested_pairs(&token_loss, &at.per_token_loss));

            let report = updater.gradients(&policy, &samples).unwrap();
            LOSS.check(&label("loss"), [(report.loss, at.loss)]);

            let metric = |name: &str| report.metrics.get(name).unwrap();
            LOSS.check(
                &label("clip fractions"),
                [
                    (metric("loss/clip_fraction_low"), at.clip_frac_low),
                    (metric("loss/clip_fraction_high"), at.clip_frac_high),
                ],
            );

            let gradients = named_gradients(&policy, &report.gradients);
            check_norms(&label("gradients"), &gradients, &at.grad_norms);
            let total = global_norm(&policy, &report.gradients).unwrap();
            GRADIENTS.check(&label("gradient norm"), [(total, at.total_grad_norm)]);
        }
    });
}

#[test]
fn fixtures_adamw() {
    for_each_checkpoint("adamw5", |fixture, expected: AdamWFacts| {
        let mut policy = fixture.decoder(&Device::flex().autodiff());
        let examples = worked(&fixture.block("ce"));
        let mut optimizer = AdamW::new(OptimConfig {
            beta1: expected.betas[0],
            beta2: expected.betas[1],
            epsilon: expected.eps,
            weight_decay: expected.weight_decay,
            decay_vectors: true,
            max_grad_norm: expected.max_grad_norm,
            ..OptimConfig::default()
        });

        let mut losses = Vec::new();
        let mut norms = Vec::new();
        for step in &expected.trajectory {
            // The last step is one too many: only the loss before it is compared.
            let (next, loss, outcome) =
                sft_step(policy, &mut optimizer, &examples, expected.lr, MICRO_BATCHING).unwrap();
            policy = next;
            losses.push((loss, step.loss));
            norms.extend(step.grad_norm_before_clip.map(|norm| (outcome.grad_norm, norm)));
        }

        FIRST_STEP.check(&format!("{}: loss before AdamW", fixture.name), losses[..1].to_vec());
        STEPS.check(&format!("{}: losses of AdamW steps", fixture.name), losses);
        STEPS.check(&format!("{}: gradient norms of AdamW steps", fixture.name), norms);
    });
}

#[test]
fn fixtures_saved_checkpoint_is_the_same() {
    for_each_checkpoint("logits", |fixture, _: Logits| {
        let decoder = fixture.decoder(&Device::flex());
        let (_, config) = load_config(&fixture.folder).unwrap();
        let folder = tempfile::tempdir().unwrap();
        save(&decoder, &config, folder.path(), &SaveOptions::default()).unwrap();
        let again = load(folder.path(), &Device::flex()).unwrap();
        assert_eq!(again.config(), decoder.config());

        for (before, after) in parameters(&decoder).into_iter().zip(parameters(&again)) {
            assert_eq!(before.path, after.path);
            assert_eq!(read(before.values), read(after.values), "{}", before.path);
        }

        let (_, written) = load_config(folder.path()).unwrap();
        for (field, value) in written.as_object().unwrap() {
            if field.ends_with("dtype") {
                assert_eq!(value, "float32");
            } else {
                assert_eq!(value, &config[field], "{}: {field}", fixture.name);
            }
        }
    });
}

/// Compares the positions that `expected.json` spells out.
fn check_samples(fixture: &Fixture, logits: &[Vec<f32>], expected: &LogitsOfBatch, side: &str) {
    let width = expected.input_ids[0].len();
    let mut compared = Vec::new();
    for sample in &expected.samples {
        let ours = &logits[sample.row * width + sample.pos];
        compared.extend(pairs(&ours[..sample.first8.len()], &sample.first8));

        let at_their_top: Vec<f32> = sample.top5_ids.iter().map(|&id| ours[id as usize]).collect();
        compared.extend(pairs(&at_their_top, &sample.top5));

        let mut descending = ours.clone();
        descending.sort_by(|a, b| b.total_cmp(a));
        compared.extend(pairs(&descending[..sample.top5.len()], &sample.top5));

        let sum: f64 = ours.iter().map(|&logit| f64::from(logit).exp()).sum();
        compared.push((sum.ln(), sample.logsumexp));
    }
    LOGITS.check(&format!("{}: samples of logits, padded {side}", fixture.name), compared);
}

/// Makes samples of a batch's completions, for their log-probabilities alone.
fn samples(expected: &LogProbs) -> Vec<Sample> {
    let prompts = unpad(&expected.prompt_ids, &expected.prompt_mask);
    let completions = unpad(&expected.completion_ids, &expected.completion_mask);
    prompts
        .into_iter()
        .zip(completions)
        .map(|(prompt, completion)| sample(prompt, completion))
        .collect()
}

/// Cuts the rows of `ce` where their labels begin.
fn worked(expected: &CrossEntropyFacts) -> Vec<SftExample> {
    let rows = unpad(&expected.input_ids, &expected.attention_mask);
    let labels = unpad(&expected.labels, &expected.attention_mask);
    let cut = |(row, labels): (Vec<TokenId>, Vec<i64>)| {
        // A label is predicted from the token before it, so a first token has none.
        let begin = labels[1..].iter().position(|&label| label >= 0).unwrap() + 1;
        let ends: Vec<i64> = row[begin..].iter().map(|&id| i64::from(id)).collect();
        assert_eq!(labels[begin..], ends, "labels should run to the end of their row");
        SftExample::new(row[..begin].to_vec(), row[begin..].to_vec())
    };
    rows.into_iter().zip(labels).map(cut).collect()
}

/// Computes the entropies at the completion tokens, each sample alone.
fn entropies(policy: &Decoder, samples: &[Sample], temperature: f64) -> Vec<Vec<f32>> {
    let of_sample = |sample: &Sample| {
        let batch = MicroBatch::new(
            &[sample],
            Layout::Packed,
            Aggregation::TokenMean,
            &Divisors::default(),
            &policy.device(),
        );

        let [_, tokens, width] = policy.hidden(&batch.tokens).dims();
        let hidden =
            policy.hidden(&batch.tokens).reshape([tokens, width]).select(0, batch.predictors);
        let head = policy.lm_head();
        read(
            head_logprobs(&hidden, &head, &batch.labels, temperature, MICRO_BATCHING.max_logits)
                .entropy,
        )
    };
    samples.iter().map(of_sample).collect()
}

/// Computes the loss of each token of `samples`, whose log-probabilities are `logprobs`.
fn token_losses(loss: &dyn PolicyLoss, samples: &[Sample], logprobs: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let divisors =
        Divisors::count(samples.iter().map(|sample| (sample.group, sample.loss_tokens())));
    let of_sample = |(sample, logprobs): (&Sample, &Vec<f32>)| {
        let batch = MicroBatch::new(
            &[sample],
            Layout::Packed,
            Aggregation::TokenMean,
            &divisors,
            &Device::flex(),
        );

        let logprobs = Tensor::<2>::from_data(
            TensorData::new(logprobs.clone(), [1, batch.width]),
            &Device::flex(),
        );
        let mut input = LossInput::new(logprobs, batch.old_logprobs, batch.advantages, batch.mask);
        (input.loss_weights, input.metric_weights) = (batch.loss_weights, batch.metric_weights);
        read(loss.loss(&input).token_loss.reshape([batch.width]))
    };
    samples.iter().zip(logprobs).map(of_sample).collect()
}

/// Samples one completion of each prompt.
fn complete(
    fixture: &Fixture,
    policy: &Decoder,
    prompts: &[Vec<TokenId>],
    sampling: &Sampling,
    sample_on: SampleOn,
) -> Vec<Completion> {
    let tokenizer = Arc::new(fixture.tokenizer());
    let context = fixture.config().max_position_embeddings;
    let mut engine = LocalEngine::new(policy, tokenizer, prompts.len(), context, sample_on);
    let prompts = prompts.iter().enumerate().map(|(id, tokens)| {
        (0, Prompt { id: id as u64, tokens: tokens.clone(), ..Prompt::default() })
    });

    let requests = GroupRequest::of_prompts(prompts, 1, sampling, Seed::run(0));
    let groups = generate(&mut engine, requests, &mut |_| {}).unwrap();
    groups.into_iter().flat_map(|group| group.completions).collect()
}
