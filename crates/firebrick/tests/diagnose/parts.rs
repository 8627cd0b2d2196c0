//! Failures that a part of the algorithm is made against, in numbers that were written by hand: each finding at its
//! bounds, with the key of the part in its advice, and its silence where the part is on.

use std::path::Path;

use firebrick::{
    Recipe,
    diagnose::Finding,
    recipe::{Aggregation, Dynamic, Kl, KlEstimator, LossKind, Overlong},
};

use super::{found_in, tiny};

fn names(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|finding| finding.name).collect()
}

fn assert_advice(findings: &[Finding], words: &[&str]) {
    for word in words {
        assert!(findings[0].remedy.contains(word), "{word} in: {}", findings[0].remedy);
    }
}

#[test]
fn an_entropy_that_is_gone_names_what_the_clip_had_to_do_with_it() {
    for (high, clipped, words) in [
        (0.2, 0.002, "loss.clip_ratio_high (0.2) to 0.28"),
        (0.28, 0.002, "loss.clip_ratio_high (0.28) further"),
        // Hardly any token was clipped.
        (0.2, 5e-5, "loss.entropy_coef"),
    ] {
        let mut recipe = tiny().recipe;
        recipe.loss.kind =
            LossKind::Dapo { clip_ratio_low: 0.2, clip_ratio_high: high, dual_clip: None };

        let findings = found_in(&recipe, 40, |done| {
            [
                ("loss/entropy", (0.5 - done).max(0.01)),
                ("loss/clip_fraction_high", clipped * (1.0 - done)),
                ("reward/credit", 0.4),
                ("sampling/completions", 128.0),
            ]
        });
        assert_eq!(names(&findings), ["entropy-gone"], "{high}, {clipped}");
        assert_advice(&findings, &[words]);
    }
}

#[test]
fn cut_off_completions_that_are_noise_are_found() {
    let off = Overlong::default();
    let filter = Overlong { filter: true, ..off.clone() };
    let soft = Overlong { buffer: 20, penalty: 1.0, ..off.clone() };

    // A course returns the share that is cut off, and the mean length of right completions, of 100 tokens.
    type Course = fn(f64) -> [f64; 2];
    let courses: [(Course, Overlong, &[&str]); 8] = [
        (|_| [0.06, 60.0], off.clone(), &["cut-off-noise"]),
        (|_| [0.04, 60.0], off.clone(), &[]),
        // Right completions need half of the room.
        (|_| [0.06, 45.0], off.clone(), &[]),
        // The policy learns to be shorter.
        (|done| [0.6 * (1.0 - done), 60.0], off.clone(), &[]),
        (|_| [0.06, 60.0], filter, &[]),
        (|_| [0.06, 60.0], soft, &[]),
        // A penalty without a buffer is none.
        (|_| [0.06, 60.0], Overlong { penalty: 1.0, ..off.clone() }, &["cut-off-noise"]),
        (|_| [0.35, 60.0], off, &["cut-off"]),
    ];

    for (number, (course, overlong, expected)) in courses.into_iter().enumerate() {
        let mut recipe = tiny().recipe;
        recipe.rollout.max_completion_tokens = 100;
        recipe.reward.overlong = overlong;

        let findings = found_in(&recipe, 40, |done| {
            let [truncated, right] = course(done);
            [
                ("rollout/truncated", truncated),
                ("rollout/length_right", right),
                ("sampling/completions", 128.0),
            ]
        });
        assert_eq!(names(&findings), expected, "course {number}");
        if !expected.is_empty() {
            assert_advice(&findings, &["reward.overlong.filter = true"]);
        }
    }
}

#[test]
fn wrong_completions_that_grow_under_a_mean_per_completion_are_found() {
    use Aggregation::{SequenceMean, TokenMean};

    // A course returns the mean lengths of wrong and of right completions, and the number of 100 that are right.
    type Course = fn(f64) -> [f64; 3];
    let courses: [(Aggregation, Course, &[&str]); 5] = [
        (SequenceMean, |done| [80.0 + 54.0 * done, 80.0, 60.0], &["wrong-grows"]),
        (SequenceMean, |done| [80.0 + 50.0 * done, 80.0, 60.0], &[]),
        (TokenMean, |done| [80.0 + 54.0 * done, 80.0, 60.0], &[]),
        // The task takes longer answers, right ones too.
        (SequenceMean, |done| [80.0 + 54.0 * done, 80.0 + 20.0 * done, 60.0], &[]),
        (SequenceMean, |done| [80.0 + 54.0 * done, 80.0, 97.0], &[]),
    ];

    for (number, (aggregation, course, expected)) in courses.into_iter().enumerate() {
        let mut recipe = tiny().recipe;
        recipe.loss.aggregation = aggregation;

        let findings = found_in(&recipe, 40, |done| {
            let [wrong, right, count] = course(done);
            [
                ("rollout/length_wrong", wrong),
                ("rollout/length_right", right),
                ("reward/right", count),
                // What has grown is cut off.
                ("rollout/truncated", if expected.is_empty() { 0.0 } else { 0.4 * done }),
                ("sampling/completions", 100.0),
            ]
        });
        assert_eq!(names(&findings), expected, "course {number}");
        if !expected.is_empty() {
            assert_advice(&findings, &["loss.aggregation = \"token_mean\""]);
        }
    }
}

#[test]
fn batches_without_spread_are_found_where_nothing_refills_them() {
    // Groups of 20 that are all right and all wrong, right completions of 160, and the credit.
    let half = [5.0, 5.0, 80.0, 0.5];
    let more = [6.0, 5.0, 80.0, 0.5];
    let good = [17.0, 0.0, 144.0, 0.9];
    // Partial credit gives spread to groups that have no right completion.
    let partial = [0.0, 12.0, 32.0, 0.5];

    let cases: [(Dynamic, [f64; 4], &[&str]); 6] = [
        (Dynamic::Off, more, &["no-spread"]),
        (Dynamic::Drop, more, &["no-spread"]),
        (Dynamic::Filter, more, &[]),
        (Dynamic::Off, half, &[]),
        (Dynamic::Off, good, &[]),
        (Dynamic::Off, partial, &[]),
    ];

    for (dynamic, numbers, expected) in cases {
        let mut recipe = tiny().recipe;
        recipe.sampling.dynamic = dynamic;

        let [all_right, all_wrong, right, credit] = numbers;
        let findings = found_in(&recipe, 20, |_| {
            [
                ("sampling/groups_all_right", all_right),
                ("sampling/groups_all_wrong", all_wrong),
                ("sampling/groups_sampled", 20.0),
                ("sampling/completions", 160.0),
                ("reward/right", right),
                ("reward/credit", credit),
            ]
        });
        assert_eq!(names(&findings), expected, "{dynamic:?}, {numbers:?}");
        if !expected.is_empty() {
            assert_advice(&findings, &["sampling.dynamic = \"filter\"", "sampling.curriculum"]);
        }
    }
}

#[test]
fn samples_of_another_policy_name_importance_sampling() {
    // Steps that are sampled ahead, the cap, and the difference of log-probabilities.
    let cases: [(u64, Option<f64>, f64, &[&str]); 6] = [
        (0, None, 0.021, &["mismatch"]),
        (0, None, 0.019, &[]),
        (0, Some(2.0), 0.021, &[]),
        (1, None, 0.021, &["stale"]),
        (1, None, 0.019, &[]),
        (1, Some(2.0), 0.021, &[]),
    ];

    for (ahead, cap, difference, expected) in cases {
        let mut recipe = tiny().recipe;
        recipe.rollout.max_staleness = ahead;
        recipe.loss.tis_cap = cap;

        let findings = found_in(&recipe, 20, |_| {
            [
                ("rollout/logprob_diff_mean", difference),
                ("rollout/staleness_mean", ahead as f64),
                ("rollout/staleness_max", ahead as f64),
                ("sampling/completions", 128.0),
            ]
        });
        assert_eq!(names(&findings), expected, "{ahead}, {cap:?}, {difference}");
        if !expected.is_empty() {
            assert_advice(&findings, &["loss.tis_cap = 2.0", "loss.tis_mask"]);
        }
    }
}

#[test]
fn a_judge_that_is_pleased_while_the_rule_falls_is_found() {
    // A course returns the credits of the rule and of the other part.
    type Course = fn(f64) -> [f64; 2];
    let courses: [(Course, Option<Kl>, &[&str], &str); 6] = [
        (|done| [0.6 - 0.15 * done, 0.5 + 0.4 * done], None, &["over-optimised"], "set loss.kl"),
        (|done| [0.6 - 0.12 * done, 0.5 + 0.4 * done], None, &[], ""),
        // It rises at first, and is best in the middle.
        (
            |done| [0.6 - 0.6 * (done - 0.5).abs(), 0.5 + 0.4 * done],
            Some(Kl { kind: KlEstimator::K3, coef: 0.05 }),
            &["over-optimised"],
            "loss.kl.coef (0.05)",
        ),
        // The other part falls too, so nobody is pleased.
        (|done| [0.6 - 0.15 * done, 0.9 - 0.4 * done], None, &[], ""),
        // It has never risen.
        (|done| [0.6 - 0.15 * done, 0.9 + 0.05 * done], None, &[], ""),
        (|done| [0.3 + 0.4 * done, 0.5 + 0.4 * done], None, &[], ""),
    ];

    let weighted = [
        "reward.kind=weighted".to_owned(),
        "reward.parts=[{ name = \"rule\", weight = 0.1, kind = \"integer\" }, \
         { name = \"judge\", weight = 1.0, kind = \"integer\" }]"
            .to_owned(),
    ];
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/ci/tiny.toml");
    let weighted = Recipe::load(&path, &weighted).unwrap().recipe;

    for (number, (course, kl, expected, advice)) in courses.into_iter().enumerate() {
        let mut recipe = weighted.clone();
        recipe.loss.kl = kl;

        let findings = found_in(&recipe, 40, |done| {
            let [rule, judge] = course(done);
            [
                ("reward/part/rule", rule),
                ("reward/part/judge", judge),
                ("reward/credit", judge),
                // Prompts are not to blame, although fewer held-out ones are right.
                ("eval/heldout_accuracy", if expected.is_empty() { 0.5 } else { rule - 0.3 }),
                ("sampling/completions", 100.0),
            ]
        });
        assert_eq!(names(&findings), expected, "course {number}");
        if !expected.is_empty() {
            assert_advice(&findings, &[advice, "train.patience"]);
        }
    }
}
