use std::collections::BTreeMap;

use firebrick_core::{Completion, FinishReason};
use firebrick_tests::golden::{Case, Tolerance};
use firebrick_train::{
    Sample,
    algorithm::{Aggregation, Divisors, GroupNorm, LeaveOneOut, MeanOnly},
    learner::{Layout, MicroBatch},
};

use super::{tensor, values};

pub(crate) fn of_rewards(case: &Case) {
    // Each group's mean and deviation are only there for a person who looks into a failure.
    case.expected.value("groups");
    let tolerance = if case.kind == "tiny spread" {
        // The file states this tolerance: the spread is 128 of f32's steps.
        Tolerance { rtol: 5e-2, ..case.f32 }
    } else {
        case.f32
    };

    let got: Vec<f64> = advantages(case).into_iter().map(f64::from).collect();
    case.compare("advantages", &got, &case.expected.array("advantages").values, tolerance);
}

/// Training copies a completion's advantage to its tokens when it makes a micro-batch.
pub(crate) fn of_tokens(case: &Case) {
    let mask = case.inputs.array("mask");
    let width = mask.shape[1];
    let samples: Vec<Sample> = advantages(case)
        .into_iter()
        .map(|advantage| {
            let tokens = vec![0; width];
            let logprobs = vec![0.0; width];
            let completion = Completion::written(tokens, logprobs, FinishReason::Stop);
            Sample::new(&[0], &completion, 0).with_advantage(advantage)
        })
        .collect();

    let samples: Vec<&Sample> = samples.iter().collect();
    let device = burn::tensor::Device::flex();
    let batch = MicroBatch::new(
        &samples,
        Layout::Packed,
        Aggregation::TokenMean,
        &Divisors::default(),
        &device,
    );
    case.check("token_advantages", &values(batch.advantages * tensor(&mask, &device)));
}

/// A function from the rewards of one group to its advantages.
type OfGroup = dyn Fn(&[f32]) -> Vec<f32>;

fn advantages(case: &Case) -> Vec<f32> {
    let estimator: Box<OfGroup> = match case.config.text("estimator").as_str() {
        "group_norm" => {
            let epsilon = case.config.number("epsilon");
            let unbiased = match case.config.text("std").as_str() {
                "unbiased" => true,
                "biased" => false,
                other => panic!("no deviation is called \"{other}\""),
            };
            Box::new(move |rewards| GroupNorm { epsilon, unbiased }.of_group(rewards))
        }
        "mean_only" => Box::new(|rewards| MeanOnly.of_group(rewards)),
        "leave_one_out" => Box::new(|rewards| LeaveOneOut.of_group(rewards)),
        other => panic!("no estimator is called \"{other}\""),
    };

    let rewards = case.inputs.array("rewards").f32();
    // The ids may be any whole numbers, also negative ones: only equality matters.
    let groups: Vec<u64> =
        case.inputs.array("group_ids").values.iter().map(|&group| group as i64 as u64).collect();

    let mut members: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (index, &group) in groups.iter().enumerate() {
        members.entry(group).or_default().push(index);
    }

    let mut advantages = vec![0.0; rewards.len()];
    for indices in members.values() {
        let own: Vec<f32> = indices.iter().map(|&index| rewards[index]).collect();
        for (&index, advantage) in indices.iter().zip(estimator(&own)) {
            advantages[index] = advantage;
        }
    }
    advantages
}
