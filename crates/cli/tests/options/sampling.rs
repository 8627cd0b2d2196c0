//! Cases for the rollout and for dynamic sampling.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    bench::{Bench, Case, LETTERS, case, default},
    made::Run,
};

#[test]
fn completions_and_groups_are_what_their_options_say() {
    Bench::new().try_all(CASES);
}

/// Every group is kept.
const ALL: &[&str] = &["sampling.dynamic=false"];

/// No completion is right, so that no group has a spread.
const HOPELESS: &[&str] = &["reward.pattern=z", "sampling.max_rounds=1"];

/// Settings with groups to spare.
const SURPLUS: &[&str] = &["sampling.prompts_per_step=3", "train.mini_batch=12", "train.steps=8"];

pub(crate) const CASES: &[Case] = &[
    case(&["rollout.group_size=7"], LETTERS, ALL, |run| {
        assert_eq!(run.values("sampling/completions"), [28.0, 28.0]);
        assert!(groups(run).values().all(|texts| texts.len() == 7));
    }),
    case(&["rollout.max_completion_tokens=2"], LETTERS, ALL, |run| {
        assert_eq!(run.values("rollout/length_max"), [2.0, 2.0]);
        assert!(run.first("rollout/truncated") > run.without().first("rollout/truncated"));
    }),
    // Near 0 only the most likely token is left. The update knows the temperature: it computes the probabilities
    // that the tokens were sampled with.
    case(&["rollout.temperature=0.0001"], LETTERS, ALL, |run| {
        alike(run);
        assert!(run.first("rollout/logprob_diff_max") < 1e-2);
    }),
    case(&["rollout.top_k=1"], LETTERS, ALL, alike),
    case(&["rollout.top_p=0.01"], LETTERS, ALL, alike),
    // A group that is sampled in several pieces is the same group.
    default(&["rollout.max_sequences=3"], LETTERS, &[], |run| run.assert_is(&run.without())),
    case(&["rollout.graphs=true"], LETTERS, &[], |run| {
        run.fails(2, "device.kind other than \"cpu\"");
    }),
    case(&["sampling.prompts_per_step=2"], LETTERS, &["train.mini_batch=8"], |run| {
        assert_eq!(run.values("sampling/groups_kept"), [2.0, 2.0]);
    }),
    case(&["sampling.dynamic=false"], LETTERS, &["reward.pattern=z"], |run| {
        assert_eq!(run.values("sampling/groups_kept"), [4.0, 4.0]);
        assert_eq!(run.without().values("sampling/groups_kept"), [0.0, 0.0]);
    }),
    case(&["sampling.max_rounds=3"], LETTERS, HOPELESS, |run| {
        assert_eq!(run.values("sampling/rounds"), [3.0, 3.0]);
        assert_eq!(run.without().values("sampling/rounds"), [1.0, 1.0]);
    }),
    default(&["sampling.on_cap=train_smaller"], LETTERS, HOPELESS, |run| {
        assert_eq!(run.summary()["steps"], 2);
    }),
    case(&["sampling.on_cap=stop"], LETTERS, HOPELESS, |run| {
        assert_eq!(run.summary()["steps"], 0);
        run.says("sampling.max_rounds = 1 was reached with 0 of 4 groups");
    }),
    case(&["sampling.on_cap=error"], LETTERS, HOPELESS, |run| {
        run.fails(1, "sampling yielded 0 of");
    }),
    default(&["sampling.carry_over=true"], LETTERS, SURPLUS, |run| {
        assert!(sum(run, "sampling/groups_surplus") > 0.0);
        assert!(sum(run, "sampling/groups_carried_over") > 0.0);
    }),
    case(&["sampling.carry_over=false"], LETTERS, SURPLUS, |run| {
        assert!(sum(run, "sampling/groups_surplus") > 0.0);
        assert_eq!(sum(run, "sampling/groups_carried_over"), 0.0);
    }),
    case(&["sampling.max_carry_over_age=0"], LETTERS, SURPLUS, |run| {
        assert!(sum(run, "sampling/groups_stale") > 0.0);
        assert_eq!(sum(run, "sampling/groups_carried_over"), 0.0);
        assert_eq!(sum(&run.without(), "sampling/groups_stale"), 0.0);
    }),
    // The rewards of right and wrong are 2 apart.
    case(&["sampling.tolerance=2.0"], LETTERS, &["sampling.max_rounds=1"], |run| {
        assert_eq!(run.values("sampling/groups_kept"), [0.0, 0.0]);
        assert!(sum(&run.instead(&["sampling.tolerance=1.9"]), "sampling/groups_kept") > 0.0);
    }),
];

fn sum(run: &Run, metric: &str) -> f64 {
    run.values(metric).iter().sum()
}

/// Returns the texts of every group.
fn groups(run: &Run) -> BTreeMap<(u64, u64), Vec<String>> {
    let mut groups = BTreeMap::<_, Vec<String>>::new();
    for completion in run.completions() {
        groups.entry((completion.step, completion.draw)).or_default().push(completion.text);
    }
    groups
}

/// Checks that the completions of a prompt are all the same.
fn alike(run: &Run) {
    let most = |run: &Run| {
        let different = |texts: Vec<String>| texts.into_iter().collect::<BTreeSet<_>>().len();
        groups(run).into_values().map(different).max().unwrap()
    };
    assert_eq!(most(run), 1);
    assert!(most(&run.without()) > 1);
}
