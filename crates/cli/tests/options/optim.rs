//! The table of the optimizer.

use crate::{
    bench::{Bench, Case, LETTERS, case},
    made::{Run, assert_near},
};

#[test]
fn an_optimizer_does_what_its_options_say() {
    Bench::new().try_all(CASES);
}

/// One update, of a gradient that is not clipped.
const ONE: &[&str] = &["train.steps=1", "optim.max_grad_norm=1000.0"];

/// One update in which the gradient has no weight.
const STILL: &[&str] = &["train.steps=1", "optim.epsilon=1e9", "optim.lr=0.1"];

pub(crate) const CASES: &[Case] = &[
    case(&["optim.lr=0.5"], LETTERS, &[], |run| {
        assert_eq!(run.values("update/lr"), [0.5, 0.5]);
        assert!(run.values("loss/entropy")[1] != run.without().values("loss/entropy")[1]);
    }),
    case(&["optim.warmup_steps=4"], LETTERS, &["optim.lr=0.5", "train.steps=3"], |run| {
        assert_eq!(run.values("update/lr"), [0.125, 0.25, 0.375]);
    }),
    // No step samples for nothing, not even the first.
    case(&["optim.warmup_steps=4"], LETTERS, &["optim.lr=0.5", "train.steps=1"], |run| {
        assert_eq!(run.values("update/lr"), [0.125]);
        assert!(largest_change(run, 1.0, 1.0) > 1e-3);
    }),
    // After one update the moments are what is left of one gradient and of its square.
    case(&["optim.beta1=0.75"], LETTERS, ONE, |run| {
        assert_near(moment(run, "moment_1", 2).sqrt(), 0.25 * run.first("update/grad_norm"));
    }),
    case(&["optim.beta2=0.75"], LETTERS, ONE, |run| {
        let square = run.first("update/grad_norm").powi(2);
        assert_near(moment(run, "moment_2", 1), 0.25 * square);
    }),
    case(&["optim.max_grad_norm=0.01"], LETTERS, &["train.steps=1"], |run| {
        assert!(run.first("update/grad_norm") > 0.01);
        assert_near(moment(run, "moment_1", 2).sqrt(), 0.1 * 0.01);
    }),
    case(&["optim.epsilon=1e9"], LETTERS, &["train.steps=1", "optim.weight_decay=0.0"], |run| {
        assert!(largest_change(run, 1.0, 1.0) < 1e-6);
        assert!(largest_change(&run.without(), 1.0, 1.0) > 1e-3);
    }),
    // Matrices lose that share of themselves times the learning rate, and vectors nothing.
    case(&["optim.weight_decay=0.5"], LETTERS, STILL, |run| {
        assert!(largest_change(run, 0.95, 1.0) < 1e-6);
        assert!(largest_change(run, 1.0, 1.0) > 1e-3);
    }),
];

/// The sum of a power of all entries of a moment.
fn moment(run: &Run, name: &str, power: i32) -> f64 {
    let state = run.tensors("trainer/optimizer.safetensors");
    let all = state.iter().filter(|(key, _)| key.ends_with(name)).flat_map(|(_, t)| &t.values);
    all.map(|&value| f64::from(value).powi(power)).sum()
}

/// How far the weights are after the first step from what these factors make of those before it.
fn largest_change(run: &Run, of_matrices: f32, of_vectors: f32) -> f32 {
    let [before, after] = [0, 1].map(|step| run.tensors_at(step, "model.safetensors"));
    let change = |(name, tensor): (&String, &crate::made::Weights)| {
        let factor = if tensor.shape.len() > 1 { of_matrices } else { of_vectors };
        let pairs = tensor.values.iter().zip(&after[name].values);
        pairs.map(|(before, after)| (before * factor - after).abs()).fold(0.0, f32::max)
    };
    before.iter().map(change).fold(0.0, f32::max)
}
