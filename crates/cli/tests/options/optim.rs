//! Cases for the optimizer.

use crate::{
    bench::{Bench, Case, LETTERS, case, default},
    made::{Run, assert_near, near},
};

#[test]
fn an_optimizer_does_what_its_options_say() {
    Bench::new().try_all(CASES);
}

/// One update with a gradient that is not clipped.
const ONE: &[&str] = &["train.steps=1", "optim.max_grad_norm=1000.0"];

/// One update in which the gradient has no weight.
const STILL: &[&str] = &["train.steps=1", "optim.epsilon=1e9", "optim.lr=0.1"];

/// Four steps, each with its learning rate.
const FOUR: &[&str] = &["optim.lr=0.5", "train.steps=4"];

/// Two updates with gradients that are not clipped.
const MUON: &[&str] = &["optim.kind=muon", "optim.max_grad_norm=1000.0"];

/// One update without decay.
const MUON_ONCE: &[&str] =
    &["optim.kind=muon", "optim.max_grad_norm=1000.0", "optim.weight_decay=0.0", "train.steps=1"];

pub(crate) const CASES: &[Case] = &[
    case(&["optim.lr=0.5"], LETTERS, &[], |run| {
        assert_eq!(run.values("update/lr"), [0.5, 0.5]);
        assert!(run.values("loss/entropy")[1] != run.without().values("loss/entropy")[1]);
    }),
    case(&["optim.warmup_steps=4"], LETTERS, &["optim.lr=0.5", "train.steps=3"], |run| {
        assert_eq!(run.values("update/lr"), [0.125, 0.25, 0.375]);
    }),
    case(
        &["optim.warmup_from_zero=true"],
        LETTERS,
        &["optim.lr=0.5", "optim.warmup_steps=4", "train.steps=3"],
        |run| assert_eq!(run.values("update/lr"), [0.0, 0.125, 0.25]),
    ),
    default(&["optim.schedule=constant"], LETTERS, FOUR, |run| {
        rates(run, [1.0; 4]);
        run.assert_is(&run.without());
    }),
    case(&["optim.schedule=linear"], LETTERS, FOUR, |run| rates(run, [1.0, 0.75, 0.5, 0.25])),
    case(&["optim.schedule={kind='linear',end_ratio=0.5}"], LETTERS, FOUR, |run| {
        rates(run, [1.0, 0.875, 0.75, 0.625]);
    }),
    // The second rate is half of 1 + cos(π/4), and the cosine is half of √2.
    case(&["optim.schedule=cosine"], LETTERS, FOUR, |run| {
        rates(run, [1.0, 0.5 + 0.125_f64.sqrt(), 0.5, 0.5 - 0.125_f64.sqrt()]);
    }),
    case(&["optim.schedule={kind='cosine',end_ratio=0.5}"], LETTERS, FOUR, |run| {
        rates(run, [1.0, 0.75 + 0.5 * 0.125_f64.sqrt(), 0.75, 0.75 - 0.5 * 0.125_f64.sqrt()]);
    }),
    // The rate decays over the steps that come after the warm-up.
    case(
        &["optim.schedule=linear"],
        LETTERS,
        &["optim.lr=0.5", "optim.warmup_steps=2", "train.steps=4"],
        |run| rates(run, [0.5, 1.0, 1.0, 0.5]),
    ),
    default(&["optim.kind=adamw"], LETTERS, &[], |run| run.assert_is(&run.without())),
    default(&["optim.moments=float32"], LETTERS, &[], |run| run.assert_is(&run.without())),
    // The moments are codes instead of numbers. From the second step on the weights differ, but by rounding alone.
    case(&["optim.moments=int8"], LETTERS, &["train.steps=3"], |run| {
        let state = run.tensors("trainer/optimizer.safetensors");
        assert!(state.keys().any(|name| name.ends_with("moment_2_scales")));
        let (came, whole) = (run.values("loss/entropy"), run.without().values("loss/entropy"));
        assert_eq!(came[..2], whole[..2]);
        assert!(came[2] != whole[2] && (came[2] - whole[2]).abs() < 1e-2);
    }),
    // Hidden matrices have one moment, and everything else has AdamW's two.
    case(&["optim.kind=muon"], LETTERS, &["train.steps=1"], |run| {
        let state = run.tensors("trainer/optimizer.safetensors");
        let has = |module: &str, part: &str| {
            state.keys().any(|name| name.contains(module) && name.ends_with(part))
        };
        assert!(has("layers", "velocity") && !has("embed", "velocity"));
        assert!(has("embed", "moment_1") && has("embed", "moment_2"));
        assert!(largest_change(run, 1.0, 1.0) > 1e-3);
    }),
    // Without momentum nothing is left of the first gradient.
    case(&["optim.kind=muon", "optim.momentum=0.0"], LETTERS, MUON, |run| {
        let left = |run: &Run| moment(run, "velocity", 2).sqrt();
        assert!(left(run) <= run.values("update/grad_norm")[1]);
        assert!(!near(left(run), left(&run.without())));
    }),
    case(&["optim.kind=muon", "optim.beta1=0.75"], LETTERS, MUON_ONCE, |run| {
        let first = |run: &Run| moment(run, "moment_1", 2).sqrt();
        assert_near(first(run), 0.25 / 0.1 * first(&run.without()));
    }),
    case(&["optim.kind=muon", "optim.beta2=0.75"], LETTERS, MUON_ONCE, |run| {
        let second = |run: &Run| moment(run, "moment_2", 1);
        assert_near(second(run), 0.25 / 0.001 * second(&run.without()));
    }),
    case(&["optim.kind=muon", "optim.epsilon=1e9"], LETTERS, MUON_ONCE, |run| {
        let moves = |run: &Run, module: &str| {
            let [before, after] = [0, 1].map(|step| run.tensors_at(step, "model.safetensors"));
            let of = |name: &&String| name.contains(module);
            before.keys().filter(of).any(|name| {
                let pairs = before[name].values.iter().zip(&after[name].values);
                pairs.into_iter().any(|(before, after)| (before - after).abs() > 1e-5)
            })
        };
        assert!(moves(run, "q_proj.weight") && !moves(run, "embed"));
        assert!(moves(&run.without(), "embed"));
    }),
    // No step has a learning rate of 0, not even the first, so no step samples for nothing.
    case(&["optim.warmup_steps=4"], LETTERS, &["optim.lr=0.5", "train.steps=1"], |run| {
        assert_eq!(run.values("update/lr"), [0.125]);
        assert!(largest_change(run, 1.0, 1.0) > 1e-3);
    }),
    // After one update the moments hold what is left of one gradient and of its square.
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
    // Matrices lose this share of themselves times the learning rate, and vectors lose nothing.
    case(&["optim.weight_decay=0.5"], LETTERS, STILL, |run| {
        assert!(largest_change(run, 0.95, 1.0) < 1e-6);
        assert!(largest_change(run, 1.0, 1.0) > 1e-3);
    }),
];

/// Checks the learning rates of all steps, as shares of 0.5.
#[track_caller]
fn rates(run: &Run, shares: [f64; 4]) {
    let rates = run.values("update/lr");
    assert_eq!(rates.len(), 4);
    rates.iter().zip(shares).for_each(|(rate, share)| assert_near(*rate, 0.5 * share));
}

/// Returns the sum of a power of all entries of a moment.
fn moment(run: &Run, name: &str, power: i32) -> f64 {
    let state = run.tensors("trainer/optimizer.safetensors");
    let all = state.iter().filter(|(key, _)| key.ends_with(name)).flat_map(|(_, t)| &t.values);
    all.map(|&value| f64::from(value).powi(power)).sum()
}

/// Returns the largest distance between the weights after the first step and the weights before it times these
/// factors.
fn largest_change(run: &Run, of_matrices: f32, of_vectors: f32) -> f32 {
    let [before, after] = [0, 1].map(|step| run.tensors_at(step, "model.safetensors"));
    let change = |(name, tensor): (&String, &crate::made::Weights)| {
        let factor = if tensor.shape.len() > 1 { of_matrices } else { of_vectors };
        let pairs = tensor.values.iter().zip(&after[name].values);
        pairs.map(|(before, after)| (before * factor - after).abs()).fold(0.0, f32::max)
    };

    before.iter().map(change).fold(0.0, f32::max)
}
