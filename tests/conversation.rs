//! Conversations: completions that the policy wrote only in part. Its own tokens are trained on, counted and
//! measured, while observed tokens are only read.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use burn::{
    optim::GradientsParams,
    tensor::{Device, Tensor, TensorData},
};
use firebrick_core::{
    Completion, FinishReason, Group, Prompt, Reward, RewardScale, RewardShaper as _, Score, Seed,
};
use firebrick_models::{
    Decoder, DecoderConfig, Family, Padding, PolicyModel as _, Sizes, TokenBatch, parameters,
    random,
};
use firebrick_reward::Overlong;
use firebrick_train::{
    Sample,
    algorithm::{Aggregation, ClipRange, Dapo, Divisors, Objective},
    learner::{Layout, MicroBatch, Updater},
};

fn policy() -> Decoder {
    let sizes = Sizes {
        vocab_size: 23,
        hidden_size: 16,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 4,
        intermediate_size: 24,
        max_position_embeddings: 64,
        rope_theta: 10_000.0,
        tied: false,
    };
    let config = DecoderConfig::new(Family::Qwen2, sizes);
    random(&config, Seed::run(3), &Device::flex().autodiff()).unwrap()
}

fn updater() -> Updater {
    let clip = ClipRange { low: 0.2, high: 0.28 };

    let mut objective = Objective::new(Box::new(Dapo { clip, dual_clip: None }));
    objective.entropy_coef = 0.1;

    let mut updater = Updater::new(objective);
    updater.micro_batching.max_logits = 30;
    updater
}

/// Makes a conversation: the policy asks, observes three tokens, and answers.
fn turns() -> Completion {
    let mut turns = Completion::written(vec![4, 5], vec![-3.0, -3.1], FinishReason::Stop);
    turns.observe(&[11, 12, 13]);
    turns.write(&[6, 7, 8], &[-2.9, -3.2, -3.3]);
    turns
}

const PROMPT: [u32; 3] = [1, 2, 3];

/// Computes each token's log-probability by a plain forward pass over the whole text.
fn logprobs(policy: &Decoder, completion: &Completion) -> Vec<f32> {
    let text = [PROMPT.as_slice(), &completion.tokens].concat();
    let batch = TokenBatch::new(&[&text], Padding::Right, &Device::flex());
    let logits = policy.clone().sampler().logits(&batch);
    let [_, length, vocab] = logits.dims();
    let log_p = burn::tensor::activation::log_softmax(logits.reshape([length, vocab]), 1);
    let log_p: Vec<f32> = log_p.try_into_vec_as::<f32>().unwrap();

    let of = |(position, &token): (usize, &u32)| {
        log_p[(PROMPT.len() + position - 1) * vocab + token as usize]
    };
    completion.tokens.iter().enumerate().map(of).collect()
}

fn by_path(policy: &Decoder, gradients: &GradientsParams) -> BTreeMap<String, Vec<f32>> {
    let of = |parameter: &firebrick_models::Parameter| -> Option<Vec<f32>> {
        let read = |tensor: Tensor<1>| tensor.try_into_vec_as::<f32>().unwrap();
        let count: usize = parameter.shape.iter().product();
        match parameter.shape.len() {
            1 => gradients.get::<1>(parameter.id).map(|g| read(g.reshape([count]))),
            _ => gradients.get::<2>(parameter.id).map(|g| read(g.reshape([count]))),
        }
    };

    parameters(policy)
        .iter()
        .filter_map(|parameter| Some((parameter.path.clone(), of(parameter)?)))
        .collect()
}

#[test]
fn only_the_policys_own_tokens_are_predicted() {
    let turns = turns();
    let sample = Sample::new(&PROMPT, &turns, 0).with_advantage(1.0);
    assert_eq!(sample.loss_tokens(), 5);

    let divisors = Divisors::count([(0, sample.loss_tokens())]);
    let batch = MicroBatch::new(
        &[&sample],
        Layout::Packed,
        Aggregation::TokenMean,
        &divisors,
        &Device::flex(),
    );

    assert_eq!((batch.rows, batch.width), (1, 5));
    let whole = |tensor: Tensor<1, burn::tensor::Int>| tensor.try_into_vec_as::<i32>().unwrap();
    // A token is predicted at the position before it, even the first one after the observed tokens.
    assert_eq!(whole(batch.predictors), [2, 3, 7, 8, 9]);
    assert_eq!(whole(batch.labels), [4, 5, 6, 7, 8]);

    let old: Vec<f32> = batch.old_logprobs.try_into_vec_as::<f32>().unwrap();
    assert_eq!(old, [-3.0, -3.1, -2.9, -3.2, -3.3]);
}

#[test]
fn a_conversation_trains_with_the_right_tokens() {
    let policy = policy();
    let updater = updater();
    let turns = turns();
    let now = logprobs(&policy, &turns);

    let mut sample = Sample::new(&PROMPT, &turns, 0).with_advantage(1.0);
    let computed = updater.logprobs(&policy, std::slice::from_ref(&sample)).unwrap().remove(0);
    for (position, own) in turns.mask.iter().enumerate() {
        let expected = if *own { now[position] } else { 0.0 };
        assert!((computed[position] - expected).abs() < 1e-5, "{position}: {computed:?}, {now:?}");
    }

    // The loss by hand is the mean of −ρ over the five tokens, with gradients through a plain forward pass.
    let shift = [0.05, -0.1, 0.0, 0.0, 0.0, 0.1, 0.02, -0.03];
    sample.old_logprobs = now.iter().zip(shift).map(|(now, shift)| now - shift).collect();
    let report = updater.gradients(&policy, std::slice::from_ref(&sample)).unwrap();
    assert_eq!(report.tokens, 5);
    let own = || (0..8usize).filter(|&position| turns.mask[position]);
    let expected: f64 = own().map(|position| -f64::from(shift[position]).exp()).sum::<f64>() / 5.0;
    let policy_loss = report.metrics.get("loss/policy").unwrap();
    assert!((policy_loss - expected).abs() < 1e-5, "{policy_loss}, {expected}");

    // Observed tokens are read, so other tokens there give other gradients. They have no loss of their own, so
    // other advantages and log-probabilities there change nothing.
    let gradients = by_path(&policy, &report.gradients);
    let mut noisy = sample.clone();
    for position in 2..5 {
        (noisy.advantages[position], noisy.old_logprobs[position]) = (1e6, f32::NEG_INFINITY);
    }
    let same = updater.gradients(&policy, &[noisy]).unwrap();
    assert_eq!(by_path(&policy, &same.gradients), gradients);

    let mut other = sample;
    other.completion[3] = 20;
    let other = updater.gradients(&policy, &[other]).unwrap();
    assert_ne!(by_path(&policy, &other.gradients), gradients);
}

#[test]
fn shaping_counts_what_the_policy_wrote() {
    let group = Group { prompt: Prompt::default(), completions: vec![turns()], step: 1, draw: 0 };
    let scale = RewardScale { right: 1.0, wrong: -1.0 };
    let shaped = |max_completion_tokens| {
        let overlong = Overlong { max_completion_tokens, buffer: 4, penalty: 1.0, filter: false };
        let mut rewards: Vec<Reward> = vec![scale.reward(Score::right("1"))];
        overlong.shape(&group, &mut rewards);
        rewards[0].reward
    };
    // Five tokens are one beyond 8 − 4, and none beyond 9 − 4. All eight would be four beyond 8 − 4.
    assert_eq!((shaped(8), shaped(9)), (0.75, 1.0));
}

#[test]
fn importance_weighs_the_policy_loss_token_by_token() {
    let policy = policy();
    let updater = updater();
    let turns = turns();
    let now = logprobs(&policy, &turns);
    let mut sample = Sample::new(&PROMPT, &turns, 0).with_advantage(1.0);
    sample.old_logprobs = now.clone();

    // The weights are 2, 1/2 and one beyond the cap of 3. The last two tokens are of the same policy.
    let shift = [2.0_f32.ln(), -(2.0_f32.ln()), 9.0, 9.0, 9.0, 5.0, 0.0, 0.0];
    sample.rollout_logprobs = now.iter().zip(shift).map(|(now, shift)| now - shift).collect();
    sample.set_tis_weights(3.0);

    let expected = [2.0, 0.5, 3.0, 1.0, 1.0];
    for (position, expected) in sample.policy_tokens().zip(expected) {
        assert!((sample.importance[position] - expected).abs() < 1e-5);
    }

    // The ratio to the old policy is 1, so the loss is minus the mean weight.
    let report = updater.gradients(&policy, &[sample]).unwrap();
    let loss = report.metrics.get("loss/policy").unwrap();
    assert!((loss + 7.5 / 5.0).abs() < 1e-5, "{loss}");
}

#[test]
fn completions_that_are_out_of_the_loss_count_in_a_constant_divisor() {
    let policy = policy();
    let mut updater = updater();
    (updater.aggregation, updater.constant_length) = (Aggregation::Constant, 10);
    updater.objective.entropy_coef = 0.0;

    let mut samples =
        [Sample::new(&PROMPT, &turns(), 0), Sample::new(&PROMPT, &turns(), 0)].map(|sample| {
            let mut sample = sample.with_advantage(1.0);
            sample.old_logprobs = logprobs(&policy, &turns());
            sample
        });
    samples[1].in_loss = false;

    // All ratios are 1, so the loss is minus five tokens over 2 completions of 10.
    let report = updater.gradients(&policy, &samples).unwrap();
    assert!((report.loss + 5.0 / 20.0).abs() < 1e-6, "{}", report.loss);
}

#[test]
fn the_gradient_of_k1_is_that_of_the_reference_too() {
    use firebrick_train::algorithm::{Kl, KlEstimator};

    let device = Device::flex().autodiff();
    let tensor = |values: [f32; 2]| {
        Tensor::<2>::from_data(TensorData::new(values.to_vec(), [1, 2]), &device)
    };

    let gradient = |gradient_of_k2| {
        let logprobs = tensor([-1.0, -2.0]).require_grad();
        let kl = Kl { estimator: KlEstimator::K1, gradient_of_k2, coef: 1.0 };
        let value = kl.estimate(logprobs.clone(), tensor([-1.5, -1.0]));
        let values: Vec<f32> = value.clone().inner().try_into_vec_as::<f32>().unwrap();
        assert_eq!(values, [0.5, -1.0]);
        let gradients = value.sum().backward();
        logprobs.grad(&gradients).unwrap().try_into_vec_as::<f32>().unwrap()
    };

    // Autodiff's gradient is 1 wherever the reference lies: it pushes log π down in any case.
    assert_eq!(gradient(false), [1.0, 1.0]);
    assert_eq!(gradient(true), [0.5, -1.0]);
}
