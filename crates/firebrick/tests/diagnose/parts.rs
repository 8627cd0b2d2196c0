//! Failures that a part of the algorithm is made against, in numbers that were written by hand: each finding at its
//! bounds, with the key of the part in its advice, and its silence where the part is on.

use std::path::Path;

use firebrick::{
    Recipe,
    diagnose::Finding,
    recipe::{Advantage, Aggregation, Dynamic, Kl, KlEstimator, LossKind, Overlong, Teacher},
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
        (0.2, 0.005, "loss.clip_ratio_high (0.2) to 0.28"),
        (0.28, 0.005, "loss.clip_ratio_high (0.28) further"),
        // The clip had nothing to do in SmolLM2 and in the ladder.
        (0.2, 0.00025, "loss.entropy_coef"),
        (0.2, 0.002, "loss.entropy_coef"),
    ] {
        let mut recipe = tiny().recipe;
        recipe.sampling.dynamic = Dynamic::Off;
        recipe.loss.kind =
            LossKind::Dapo { clip_ratio_low: 0.2, clip_ratio_high: high, dual_clip: None };

        let findings = found_in(&recipe, 40, |done| {
            [
                ("loss/entropy", (0.5 - done).max(0.01)),
                // What is clipped once the entropy is gone did not take it away.
                ("loss/clip_fraction_high", if done < 0.475 { clipped } else { 0.05 }),
                ("reward/credit", 0.4),
                // A policy that tries nothing else has groups without spread.
                ("reward/right", 51.2),
                ("sampling/groups_all_right", 8.0),
                ("sampling/groups_all_wrong", 8.0),
                ("sampling/groups_sampled", 20.0),
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
        (|_| [0.06, 80.0], off.clone(), &["cut-off-noise"]),
        (|_| [0.04, 80.0], off.clone(), &[]),
        // Right completions leave more than a quarter of the room.
        (|_| [0.06, 70.0], off.clone(), &[]),
        // The policy learns to be shorter.
        (|done| [0.6 * (1.0 - done), 80.0], off.clone(), &[]),
        (|_| [0.06, 80.0], filter, &[]),
        (|_| [0.06, 80.0], soft, &[]),
        // A penalty without a buffer is none.
        (|_| [0.06, 80.0], Overlong { penalty: 1.0, ..off.clone() }, &["cut-off-noise"]),
        (|_| [0.35, 80.0], off, &["cut-off"]),
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
fn small_faults_do_not_hide_that_nothing_is_learnt() {
    let mut recipe = tiny().recipe;
    recipe.rollout.max_completion_tokens = 100;
    recipe.rollout.max_staleness = 1;

    let findings = found_in(&recipe, 120, |_| {
        [
            ("rollout/logprob_diff_mean", 0.31),
            ("rollout/staleness_mean", 1.0),
            ("rollout/staleness_max", 1.0),
            ("rollout/truncated", 0.06),
            ("rollout/length_right", 80.0),
            ("reward/credit", 0.3),
            ("sampling/completions", 128.0),
        ]
    });
    assert_eq!(names(&findings), ["stale", "cut-off-noise", "flat"]);
    assert!(findings[1].what.contains("right ones take 80 % of the limit"), "{:?}", findings[1]);
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
        recipe.model.path = Some("a-model".into());

        let findings = found_in(&recipe, 40, |done| {
            let [wrong, right, count] = course(done);
            [
                ("rollout/length_wrong", wrong),
                ("rollout/length_right", right),
                ("reward/right", count),
                // What has grown is cut off, and has no answer.
                ("rollout/truncated", if expected.is_empty() { 0.0 } else { 0.4 * done }),
                ("reward/unparsable", if expected.is_empty() { 0.0 } else { 80.0 }),
                ("reward/credit", 0.4),
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

    let found = |recipe: &Recipe, steps, [all_right, all_wrong, right, credit]: [f64; 4]| {
        found_in(recipe, steps, |_| {
            [
                ("sampling/groups_all_right", all_right),
                ("sampling/groups_all_wrong", all_wrong),
                ("sampling/groups_sampled", 20.0),
                ("sampling/completions", 160.0),
                ("reward/right", right),
                ("reward/credit", credit),
            ]
        })
    };
    for (dynamic, numbers, expected) in cases {
        let mut recipe = tiny().recipe;
        recipe.sampling.dynamic = dynamic;

        let findings = found(&recipe, 20, numbers);
        assert_eq!(names(&findings), expected, "{dynamic:?}, {numbers:?}");
        if !expected.is_empty() {
            assert_advice(&findings, &["sampling.dynamic = \"filter\"", "sampling.curriculum"]);
        }
    }

    let mut off = tiny().recipe;
    off.sampling.dynamic = Dynamic::Off;
    let mut taught = off.clone();
    taught.teacher = Some(Teacher::default());
    let mut shifted = off.clone();
    shifted.advantage = Advantage::ReinforceBaseline;
    for (recipe, steps) in [(taught, 20), (shifted, 20), (off, 19)] {
        assert_eq!(names(&found(&recipe, steps, more)), [""; 0]);
    }
}

#[test]
fn samples_of_another_policy_name_importance_sampling() {
    // Steps that are sampled ahead, the cap, the difference of log-probabilities, and the gain in credit.
    type Case = (u64, Option<f64>, f64, f64, &'static [&'static str]);
    let cases: [Case; 7] = [
        (0, None, 0.021, 0.0, &["mismatch"]),
        (0, None, 0.019, 0.0, &[]),
        (0, Some(2.0), 0.021, 0.0, &[]),
        (1, None, 0.31, 0.0, &["stale"]),
        // One update moves a healthy policy as far.
        (1, None, 0.27, 0.0, &[]),
        (1, Some(2.0), 0.31, 0.0, &[]),
        (1, None, 0.31, 0.1, &[]),
    ];

    for (ahead, cap, difference, gain, expected) in cases {
        let mut recipe = tiny().recipe;
        recipe.rollout.max_staleness = ahead;
        recipe.loss.tis_cap = cap;

        let findings = found_in(&recipe, 20, |done| {
            [
                ("rollout/logprob_diff_mean", difference),
                ("rollout/staleness_mean", ahead as f64),
                ("rollout/staleness_max", ahead as f64),
                ("reward/credit", 0.3 + gain * done),
                ("sampling/completions", 128.0),
            ]
        });
        assert_eq!(names(&findings), expected, "{ahead}, {cap:?}, {difference}, {gain}");
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
    let load =
        |more: &[String]| Recipe::load(&path, &[&weighted[..], more].concat()).unwrap().recipe;
    let found = |recipe: &Recipe, course: Course, groups: f64, heldout_falls: bool| {
        found_in(recipe, 40, |done| {
            let [rule, judge] = course(done);
            [
                ("reward/part/rule", rule),
                ("reward/part/judge", judge),
                ("reward/credit", judge),
                // Prompts are not to blame, although fewer held-out ones are right.
                ("eval/heldout_accuracy", if heldout_falls { rule - 0.3 } else { 0.5 }),
                ("sampling/completions", 8.0 * groups),
                ("sampling/groups_sampled", groups),
            ]
        })
    };

    for (number, (course, kl, expected, advice)) in courses.into_iter().enumerate() {
        let mut recipe = load(&[]);
        recipe.loss.kl = kl;

        let findings = found(&recipe, course, 100.0, !expected.is_empty());
        assert_eq!(names(&findings), expected, "course {number}");
        if !expected.is_empty() {
            assert_advice(&findings, &[advice, "train.patience"]);
        }
    }

    let falls: Course = |done| [0.6 - 0.15 * done, 0.5 + 0.4 * done];
    // Of 500 groups, a fall of 0.11 is less than four standard errors.
    assert_eq!(names(&found(&load(&[]), falls, 50.0, false)), [""; 0]);
    // A curriculum goes on to harder prompts.
    let harder = load(&["sampling.curriculum.kind=posterior".to_owned()]);
    assert_eq!(names(&found(&harder, falls, 100.0, false)), [""; 0]);
}
