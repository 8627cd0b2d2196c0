//! Cases for the critic, and for the advantages that are made with it.

use crate::{
    bench::{Bench, Case, LETTERS, case, default},
    made::{Completion, Run, assert_near},
};

#[test]
fn a_critic_does_what_its_options_say() {
    Bench::new().try_all(CASES);
}

/// One update of every group in the first step, in which a critic's values are still 0.
const GAE: &[&str] = &["advantage.kind=gae", "sampling.dynamic=false"];

/// Several updates, so that values move within a step.
const MANY: &[&str] = &["advantage.kind=gae", "sampling.dynamic=false", "train.mini_batch=4"];

pub(crate) const CASES: &[Case] = &[
    case(&["advantage.kind=gae"], LETTERS, &["sampling.dynamic=false"], |run| {
        returns(run, 0.95);
        assert!(run.without().values("critic/loss").is_empty());
    }),
    case(&["advantage.kind=gae", "advantage.gamma=0.5"], LETTERS, GAE, |run| {
        returns(run, 0.5 * 0.95)
    }),
    case(&["advantage.kind=gae", "advantage.lambda=0.5"], LETTERS, GAE, |run| returns(run, 0.5)),
    // The loss of a first update is minus the mean advantage.
    case(&["advantage.kind=gae", "advantage.normalise=false"], LETTERS, GAE, |run| {
        assert_near(run.first("loss/total"), -run.first("critic/return_mean"));
        assert!(run.without().first("loss/total").abs() < 1e-5);
    }),
    default(&["critic.kind=head"], LETTERS, GAE, |run| {
        run.assert_is(&run.without());
        assert!(!has_model(run));
    }),
    case(&["critic.kind=separate"], LETTERS, GAE, |run| {
        assert!(has_model(run));
        assert_ne!(run.values("critic/loss")[1], run.without().values("critic/loss")[1]);
    }),
    case(&["critic.coef=2.0"], LETTERS, GAE, |run| {
        let norm = |run: &Run| run.first("critic/grad_norm");
        assert_near(norm(run), 4.0 * norm(&run.without()));
    }),
    case(&["critic.clip=0.001"], LETTERS, MANY, |run| {
        assert!(run.first("critic/clip_fraction") > 0.0);
        assert!(run.without().values("critic/clip_fraction").is_empty());
    }),
    case(&["critic.lr=0.5"], LETTERS, GAE, |run| {
        assert_eq!(run.values("critic/lr"), [0.5, 0.5]);
        assert_eq!(run.without().values("critic/lr"), [0.01, 0.01]);
    }),
    case(&["critic.warmup_steps=1"], LETTERS, GAE, |run| {
        assert_eq!(run.values("update/lr"), [0.0, 0.01]);
    }),
    // From the second update on the head has something to say to the policy.
    case(&["critic.detach=true"], LETTERS, MANY, |run| {
        assert!(run.values("update/grad_norm")[1] != run.without().values("update/grad_norm")[1]);
    }),
];

/// Checks the mean return. While values are 0, a reward is worth less by `factor` for every token in between.
#[track_caller]
fn returns(run: &Run, factor: f64) {
    let done = run.first_completions();
    let tokens: usize = done.iter().map(|done| done.tokens).sum();
    let of = |done: &Completion| -> f64 {
        (0..done.tokens).map(|between| done.reward * factor.powi(between as i32)).sum()
    };
    assert_near(run.first("critic/return_mean"), done.iter().map(of).sum::<f64>() / tokens as f64);
}

/// Returns whether the critic is more than a head.
fn has_model(run: &Run) -> bool {
    run.tensors("trainer/critic.safetensors").keys().any(|name| name.contains("layers"))
}
