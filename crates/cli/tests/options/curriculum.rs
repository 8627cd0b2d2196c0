//! Cases for groups without spread, and for the curriculum that passes over their prompts.

use crate::{
    bench::{Bench, Case, LETTERS, case, default},
    made::Run,
};

#[test]
fn a_memory_does_what_its_options_say() {
    Bench::new().try_all(CASES);
}

/// No completion is right, so that no group has a spread. Six prompts come again and again.
const HOPELESS: &[&str] = &["reward.pattern=z", "sampling.max_rounds=1", "train.steps=12"];

/// Every step is one round of sampling, in which few groups fail.
const SIX: &[&str] = &["sampling.max_rounds=1", "train.steps=12"];

pub(crate) const CASES: &[Case] = &[
    default(&["sampling.dynamic=true"], LETTERS, &[], |run| {
        run.assert_is(&run.instead(&["sampling.dynamic=filter"]));
    }),
    default(&["sampling.dynamic=filter"], LETTERS, SIX, |run| {
        // Filtered groups are replaced, but only by the next round.
        let rounds = run.instead(&["sampling.dynamic=filter", "sampling.max_rounds=0"]);
        assert!(sum(&rounds, "sampling/groups_filtered") > 0.0);
        assert!(rounds.values("sampling/groups_kept").iter().all(|&kept| kept == 4.0));
    }),
    case(&["sampling.dynamic=off"], LETTERS, &["train.steps=12"], |run| {
        run.assert_is(&run.instead(&["sampling.dynamic=false"]));
        assert_eq!(sum(run, "sampling/groups_filtered"), 0.0);
    }),
    case(&["sampling.dynamic=drop"], LETTERS, &["train.steps=12"], |run| {
        assert!(run.values("sampling/rounds").iter().all(|&rounds| rounds == 1.0));
        let [kept, out] = ["kept", "filtered"].map(|m| run.values(&format!("sampling/groups_{m}")));
        assert!(kept.iter().zip(&out).all(|(kept, out)| kept + out == 4.0));
        assert!(out.iter().any(|&out| out > 0.0));
    }),
    case(&["sampling.dynamic=replace"], LETTERS, &["train.steps=12"], |run| {
        let [kept, copied] =
            ["kept", "copied"].map(|m| run.values(&format!("sampling/groups_{m}")));
        assert!(kept.iter().zip(&copied).all(|(kept, copied)| kept + copied == 4.0));
        assert!(copied.iter().any(|&copied| copied > 0.0));
    }),
    // More than three quarters of four groups are all four.
    case(
        &["sampling.dynamic={kind='replace',min_ratio=0.75}"],
        LETTERS,
        &["sampling.dynamic=replace", "train.steps=12"],
        |run| {
            assert_eq!(sum(run, "sampling/groups_copied"), 0.0);
            assert!(sum(&run.without(), "sampling/groups_copied") > 0.0);
        },
    ),
    case(&["sampling.curriculum.kind=variance"], LETTERS, HOPELESS, |run| {
        assert!(sum(run, "sampling/skipped") > 0.0);
        assert!(run.values("sampling/spread_brier").is_empty());
        assert!(run.without().values("sampling/skipped").is_empty());
    }),
    // Rewards of ±1 have a variance of at most 1.
    case(&["sampling.curriculum={kind='variance',min_variance=0.99}"], LETTERS, SIX, |run| {
        let usual = run.instead(&["sampling.curriculum.kind=variance"]);
        assert!(sum(run, "sampling/skipped") > sum(&usual, "sampling/skipped"));
    }),
    case(
        &["sampling.curriculum={kind='variance',skip_fraction_trigger=1.0}"],
        LETTERS,
        HOPELESS,
        |run| {
            let [at_once, all] = ["0.0", "1.0"].map(|trigger| {
                let curriculum = format!(
                    "sampling.curriculum={{kind='variance',skip_fraction_trigger={trigger},\
                 refill_fraction=1.0}}"
                );
                put_back(&run.instead(&[&curriculum]))
            });
            // At 0 every skipped prompt is put back. At 1 none is, except one prompt if a round would be empty.
            assert!(at_once == 1.0 && all < 1.0, "{at_once} {all}");
            assert!(put_back(run) < 1.0);
        },
    ),
    case(
        &["sampling.curriculum={kind='variance',refill_fraction=1.0}"],
        LETTERS,
        HOPELESS,
        |run| {
            let none = run.instead(&["sampling.curriculum={kind='variance',refill_fraction=0.0}"]);
            assert!(put_back(run) > put_back(&none));
        },
    ),
    case(&["sampling.curriculum={kind='variance',expire=1}"], LETTERS, HOPELESS, |run| {
        let never = run.instead(&["sampling.curriculum={kind='variance',expire=0}"]);
        assert!(sum(run, "sampling/expired") > 0.0);
        assert_eq!(sum(&never, "sampling/expired"), 0.0);
    }),
    case(&["sampling.curriculum.kind=posterior"], LETTERS, HOPELESS, |run| {
        assert!(sum(run, "sampling/skipped") > 0.0);
        assert!(run.values("sampling/spread_brier").len() > 1);
    }),
    case(
        &["sampling.curriculum={kind='posterior',min_spread_probability=0.0}"],
        LETTERS,
        HOPELESS,
        |run| {
            assert_eq!(run.values("sampling/skipped"), [0.0; 12]);
        },
    ),
    // With a short half-life old samples soon count for nothing, while with a long one they keep their weight.
    case(&["sampling.curriculum={kind='posterior',half_life=0.01}"], LETTERS, HOPELESS, |run| {
        let slow = run.instead(&["sampling.curriculum={kind='posterior',half_life=1000.0}"]);
        let first = |run: &Run| run.values("sampling/spread_predicted")[2];
        assert!(first(run) > first(&slow), "{} {}", first(run), first(&slow));
    }),
    case(&["sampling.curriculum={kind='posterior',explore=1.0}"], LETTERS, HOPELESS, |run| {
        assert!(put_back(run) == 1.0);
        assert!(
            put_back(&run.instead(&["sampling.curriculum={kind='posterior',explore=0.0}"])) < 1.0
        );
    }),
];

fn sum(run: &Run, metric: &str) -> f64 {
    run.values(metric).iter().sum()
}

/// Returns the share of the skipped prompts that were sampled nevertheless.
fn put_back(run: &Run) -> f64 {
    assert!(sum(run, "sampling/skipped") > 0.0);
    sum(run, "sampling/skipped_put_back") / sum(run, "sampling/skipped")
}
