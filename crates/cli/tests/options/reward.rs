//! Cases for the reward: its ends, and the deductions from it.

use crate::{
    bench::{Bench, Case, LETTERS, case, default},
    made::{Completion, Run, assert_near},
};

#[test]
fn rewards_are_shaped_as_their_options_say() {
    Bench::new().try_all(CASES);
}

/// A judge that can judge nothing.
const FAILING: &[&str] = &[
    "reward.kind=command",
    "reward.program=['sh','-c','while read -r l; do i=${l#*:}; echo \"{\\\"id\\\":${i%%,*},\\\"verdict\\\":\\\"error\\\"}\"; done']",
    "reward.pattern=",
    "reward.matches=",
];

/// Every group is kept. Completions have 1 to 6 tokens.
const ALL: &[&str] = &["sampling.dynamic=false", "rollout.max_completion_tokens=6"];

pub(crate) const CASES: &[Case] = &[
    case(&["reward.right=3.0"], LETTERS, ALL, |run| {
        shaped(run, |done| if done.credit == 1.0 { 3.0 } else { -1.0 });
    }),
    case(&["reward.wrong=-0.25"], LETTERS, ALL, |run| {
        shaped(run, |done| if done.credit == 1.0 { 1.0 } else { -0.25 });
    }),
    case(&["reward.overlong={buffer=4,penalty=0.8}"], LETTERS, ALL, |run| {
        shaped(run, |done| done.base_reward - 0.8 * ((done.tokens as f64 - 2.0) / 4.0).max(0.0));
        let other = run.instead(&["reward.overlong={buffer=2,penalty=3.0}"]);
        shaped(&other, |done| done.base_reward - 3.0 * ((done.tokens as f64 - 4.0) / 2.0).max(0.0));
    }),
    case(&["reward.overlong.filter=true"], LETTERS, ALL, |run| {
        let done = run.completions();
        assert!(done.iter().all(|done| done.in_loss != done.cut));
        let cut = run.first_completions().iter().filter(|done| done.cut).count();
        assert_eq!(run.first("reward/overlong_filtered"), cut as f64);
        assert!(cut > 0 && run.without().completions().iter().all(|done| done.in_loss));
        // The tokens of a completion that is left out of the loss do not count there.
        let in_loss: usize =
            run.first_completions().iter().filter(|d| d.in_loss).map(|d| d.tokens).sum();
        assert_eq!(run.first("update/tokens"), in_loss as f64);
    }),
    case(&["reward.stop.scale=0.5"], LETTERS, ALL, |run| {
        shaped(run, |done| if done.cut { kept(done.base_reward, 0.5) } else { done.base_reward });
    }),
    case(&["reward.stop.replace=-0.5"], LETTERS, ALL, |run| {
        shaped(run, |done| if done.cut { done.base_reward.min(-0.5) } else { done.base_reward });
    }),
    default(&["reward.stop.form=sign_safe"], LETTERS, &["reward.stop.scale=0.5"], |run| {
        shaped(run, |done| if done.cut { kept(done.base_reward, 0.5) } else { done.base_reward });
    }),
    case(&["reward.stop={scale=0.5,form='as_written'}"], LETTERS, ALL, |run| {
        shaped(run, |done| if done.cut { done.base_reward * 0.5 } else { done.base_reward });
        let replaced = run.instead(&["reward.stop={replace=-0.5,form='as_written'}"]);
        shaped(&replaced, |done| if done.cut { -0.5 } else { done.base_reward });
    }),
    case(&["reward.max_errors=1.0"], LETTERS, FAILING, |run| {
        assert_eq!(run.first("reward/error"), run.first("sampling/completions"));
        assert!(run.completions().iter().all(|done| !done.in_loss));
        assert!(run.summary()["heldout"]["final"].is_null());
        run.without().fails(1, "could not be judged, but reward.max_errors allows a share of 0.1");
    }),
    case(&["reward.length.target=2"], LETTERS, ALL, |run| {
        shaped(run, |done| kept(done.base_reward, factor(done, 3.0, 1.0, 0.5, 0.2)));
    }),
    case(&["reward.length.free_factor=1.0"], LETTERS, LENGTH, |run| {
        shaped(run, |done| kept(done.base_reward, factor(done, 2.0, 1.0, 0.5, 0.2)));
    }),
    case(&["reward.length.ramp_factor=2.0"], LETTERS, LENGTH, |run| {
        shaped(run, |done| kept(done.base_reward, factor(done, 3.0, 4.0, 0.5, 0.2)));
    }),
    case(&["reward.length.max_cut=0.9"], LETTERS, LENGTH, |run| {
        shaped(run, |done| kept(done.base_reward, factor(done, 3.0, 1.0, 0.9, 0.2)));
    }),
    case(&["reward.length.truncation_cut=0.7"], LETTERS, LENGTH, |run| {
        shaped(run, |done| kept(done.base_reward, factor(done, 3.0, 1.0, 0.5, 0.7)));
    }),
    default(&["reward.length.form=sign_safe"], LETTERS, LENGTH, |run| {
        shaped(run, |done| kept(done.base_reward, factor(done, 3.0, 1.0, 0.5, 0.2)));
    }),
    case(&["reward.length.form=as_written"], LETTERS, LENGTH, |run| {
        shaped(run, |done| done.base_reward * factor(done, 3.0, 1.0, 0.5, 0.2));
    }),
];

const LENGTH: &[&str] =
    &["sampling.dynamic=false", "rollout.max_completion_tokens=6", "reward.length.target=2"];

/// Returns what a factor leaves of a reward. The reward never rises.
fn kept(reward: f64, factor: f64) -> f64 {
    reward - reward.abs() * (1.0 - factor)
}

/// Returns the factor that a completion's length leaves. Nothing is lost up to `free` tokens, and `cut` is lost
/// from `ramp` tokens further on. A completion that was cut off also loses `truncation`.
fn factor(done: &Completion, free: f64, ramp: f64, cut: f64, truncation: f64) -> f64 {
    let share = ((done.tokens as f64 - free) / ramp).clamp(0.0, 1.0);
    (1.0 - cut * share) * if done.cut { 1.0 - truncation } else { 1.0 }
}

/// Checks that every reward follows the formula, and so does the mean reward. The formula must not be that of the
/// run without the options.
#[track_caller]
fn shaped(run: &Run, formula: fn(&Completion) -> f64) {
    let done = run.first_completions();
    for done in &done {
        let formula = formula(done);
        assert!((done.reward - formula).abs() < 1e-5, "{} is not {formula}", done.reward);
    }

    let mean = done.iter().map(formula).sum::<f64>() / done.len() as f64;
    assert_near(run.first("reward/mean"), mean);

    // By default a reward is 1 or −1.
    let is_default = |done: &Completion| done.reward == if done.credit == 1.0 { 1.0 } else { -1.0 };
    assert!(!done.iter().all(is_default), "nothing was taken off");
}
