use firebrick_core::AdvantageEstimator;
use firebrick_tests::golden::{Case, Tolerance};
use firebrick_train::{
    Aggregation, Divisors, GroupNorm, LeaveOneOut, MeanOnly, MicroBatch, Sample, grouped,
};

use super::{tensor, values};

pub(crate) fn of_rewards(case: &Case) {
    // Mean and deviation of each group are there for a human who looks into a failure.
    case.expected.value("groups");
    let tolerance = if case.kind == "tiny spread" {
        // As the file states: the spread is 128 of f32's steps.
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
        .map(|advantage| Sample {
            prompt: vec![0],
            completion: vec![0; width],
            old_logprobs: vec![0.0; width],
            ref_logprobs: Vec::new(),
            advantage,
            token_values: None,
            live: true,
            group: 0,
        })
        .collect();
    let samples: Vec<&Sample> = samples.iter().collect();
    let device = burn::tensor::Device::flex();
    let batch = MicroBatch::new(&samples, Aggregation::TokenMean, &Divisors::default(), &device);
    case.check("token_advantages", &values(batch.advantages * tensor(&mask, &device)));
}

fn advantages(case: &Case) -> Vec<f32> {
    let estimator: Box<dyn AdvantageEstimator> = match case.config.text("estimator").as_str() {
        "group_norm" => Box::new(GroupNorm {
            epsilon: case.config.number("epsilon"),
            unbiased: match case.config.text("std").as_str() {
                "unbiased" => true,
                "biased" => false,
                other => panic!("no deviation is called \"{other}\""),
            },
        }),
        "mean_only" => Box::new(MeanOnly),
        "leave_one_out" => Box::new(LeaveOneOut),
        other => panic!("no estimator is called \"{other}\""),
    };
    let rewards = case.inputs.array("rewards").f32();
    // Any whole numbers, negative ones too: only equality matters.
    let groups: Vec<u64> =
        case.inputs.array("group_ids").values.iter().map(|&group| group as i64 as u64).collect();
    grouped(estimator.as_ref(), &rewards, &groups)
}
