//! Cases for adaptive updates.

use crate::{
    bench::{Bench, Case, LETTERS, case},
    made::{Run, assert_near},
};

#[test]
fn mini_batches_get_as_many_updates_as_the_options_say() {
    Bench::new().try_all(CASES);
}

/// One mini-batch per step, which nothing ends early.
const ONE: &[&str] = &["train.adaptive={kl_stop=100.0}", "train.steps=1"];

/// Lets the number of updates follow the importance alone.
const FREE: &[&str] = &["train.adaptive={n_min=1,n_max=1000,kl_stop=100.0}", "train.steps=1"];

pub(crate) const CASES: &[Case] = &[
    case(&["train.adaptive.weight_advantage=2.0"], LETTERS, ONE, |run| {
        times(run, "adaptive/score_advantage", 2.0 / 0.5);
    }),
    // The policy has not moved yet when the first mini-batch comes. When the second comes, it has.
    case(
        &["train.adaptive.weight_change=1.2"],
        LETTERS,
        &["train.adaptive={n_base=1,kl_stop=100.0}", "train.steps=1", "train.mini_batch=8"],
        |run| times(run, "adaptive/score_change", 1.2 / 0.3),
    ),
    case(&["train.adaptive.weight_entropy=0.1"], LETTERS, ONE, |run| {
        times(run, "adaptive/score_entropy", 0.1 / 0.2);
    }),
    case(&["train.adaptive.max_entropy_term=0.25"], LETTERS, ONE, |run| {
        assert_near(run.first("adaptive/score_entropy"), 0.2 * 0.25);
        assert_eq!(
            (run.first("adaptive/capped"), run.without().first("adaptive/capped")),
            (1.0, 0.0)
        );
    }),
    case(&["train.adaptive.n_base=40"], LETTERS, FREE, |run| {
        for (run, base) in [(run, 40.0), (&run.without(), 10.0)] {
            let planned = (base * run.first("adaptive/score")).floor();
            assert_eq!(run.first("adaptive/updates_planned"), planned);
            assert_eq!(run.first("update/count"), planned);
        }
    }),
    case(&["train.adaptive.n_min=9"], LETTERS, &["train.adaptive={n_base=1}"], |run| {
        assert_eq!(run.first("adaptive/updates_planned"), 9.0);
        assert_eq!(run.without().first("adaptive/updates_planned"), 5.0);
    }),
    case(&["train.adaptive.n_max=6"], LETTERS, &["train.adaptive={n_base=1000}"], |run| {
        assert_eq!(run.first("adaptive/updates_planned"), 6.0);
        assert_eq!(run.without().first("adaptive/updates_planned"), 20.0);
    }),
    case(&["train.adaptive.kl_stop=1e-9"], LETTERS, ONE, |run| {
        assert_eq!((run.first("update/count"), run.first("adaptive/stopped_by_kl")), (1.0, 1.0));
        let without = run.without();
        assert_eq!(without.first("update/count"), without.first("adaptive/updates_planned"));
    }),
];

/// Checks that the metric is `factor` times its value without the options.
#[track_caller]
fn times(run: &Run, metric: &str, factor: f64) {
    assert!(run.first(metric) > 0.01);
    assert_near(run.first(metric), factor * run.without().first(metric));
}
