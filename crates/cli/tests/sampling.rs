//! Sampling in whole runs: the forms of dynamic sampling, and the curriculum.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod scratch;

use scratch::{Outcome, Scratch, assert_same};

/// Settings with few prompts, so that each comes again and again.
const FEW: [&str; 3] = ["data.train_size=20", "eval.every=2", "checkpoint.every=100"];

fn run(scratch: &Scratch, name: &str, more: &[&str]) -> Outcome {
    scratch.train_tiny(name, &[&FEW[..], more].concat())
}

#[track_caller]
fn succeed(scratch: &Scratch, name: &str, more: &[&str]) {
    run(scratch, name, more).success();
}

fn sum(scratch: &Scratch, run: &str, metric: &str) -> f64 {
    scratch.values(run, metric).iter().sum()
}

const VARIANCE: &str = "sampling.curriculum.kind=variance";
const POSTERIOR: &str = "sampling.curriculum.kind=posterior";

#[test]
fn a_memory_passes_over_prompts_before_they_are_paid_for() {
    let scratch = Scratch::new();
    for (name, rule) in [("variance", VARIANCE), ("posterior", POSTERIOR)] {
        succeed(&scratch, name, &["train.steps=12", rule]);
        let steps = scratch.metrics(name);
        let total = |metric| sum(&scratch, name, metric);
        let (skipped, put_back) = (total("sampling/skipped"), total("sampling/skipped_put_back"));
        assert!(skipped > put_back, "{name}: {skipped} skipped, {put_back} put back");
        assert_eq!(total("sampling/completions_skipped"), (skipped - put_back) * 4.0);

        // The first step knows nothing. In the end every prompt was sampled.
        assert_eq!(scratch.values(name, "sampling/skipped")[0], 0.0);
        assert_eq!(*scratch.values(name, "sampling/curriculum_prompts").last().unwrap(), 20.0);

        for step in &steps {
            let of_posterior = step.contains_key("sampling/spread_brier");
            assert_eq!(of_posterior, name == "posterior", "{step:?}");
        }
    }

    let brier = scratch.values("posterior", "sampling/spread_brier");
    assert!(brier.iter().all(|error| (0.0..=1.0).contains(error)), "{brier:?}");
}

#[test]
fn a_skipped_prompt_is_tried_again() {
    let scratch = Scratch::new();

    // No completion has a letter, so every group is all wrong. Every prompt that was sampled is skipped, and soon
    // there are no others.
    let hopeless = [
        "reward={kind=\"regex\",pattern=\"z\",matches=true}",
        "sampling.max_rounds=2",
        "train.steps=12",
    ];
    let with = |more: &[&'static str]| [&hopeless[..], more].concat();

    succeed(&scratch, "expire", &with(&[VARIANCE, "sampling.curriculum.expire=3"]));
    assert!(sum(&scratch, "expire", "sampling/expired") > 0.0);
    succeed(&scratch, "never", &with(&[VARIANCE, "sampling.curriculum.expire=0"]));
    assert_eq!(sum(&scratch, "never", "sampling/expired"), 0.0);

    for (name, more) in [
        ("never", &[][..]),
        ("lost", &with(&[POSTERIOR, "sampling.curriculum.explore=0.0"])),
        ("explore", &with(&[POSTERIOR, "sampling.curriculum.explore=1.0"])),
    ] {
        if !more.is_empty() {
            succeed(&scratch, name, more);
        }

        // No round is empty, and no round searches without end.
        let groups = scratch.values(name, "sampling/groups_sampled");
        let rounds = scratch.values(name, "sampling/rounds");
        assert_eq!(rounds, [2.0; 12]);
        assert!(groups.iter().all(|&groups| groups >= 2.0), "{name}: {groups:?}");
    }

    // Every skipped prompt is explored, as if there were no memory.
    assert_eq!(sum(&scratch, "explore", "sampling/completions_skipped"), 0.0);
    assert!(sum(&scratch, "explore", "sampling/skipped") > 0.0);
    assert!(sum(&scratch, "lost", "sampling/completions_skipped") > 0.0);
}

#[test]
fn options_of_the_memory_change_what_is_passed_over() {
    let scratch = Scratch::new();
    let saved = |name: &str, more: &[&str]| {
        succeed(&scratch, name, &[&["train.steps=8"], more].concat());
        sum(&scratch, name, "sampling/completions_skipped")
    };
    let variance = saved("variance", &[VARIANCE]);

    // This skips every prompt that has a record, unless half of its completions were right.
    assert!(saved("most", &[VARIANCE, "sampling.curriculum.min_variance=0.99"]) > variance);
    let none = saved(
        "none",
        &[
            VARIANCE,
            "sampling.curriculum.skip_fraction_trigger=0",
            "sampling.curriculum.refill_fraction=1",
        ],
    );
    assert_eq!(none, 0.0);

    let posterior = saved("posterior", &[POSTERIOR]);
    assert!(
        saved("strict", &[POSTERIOR, "sampling.curriculum.min_spread_probability=0.8"]) > posterior
    );
    assert_eq!(saved("lax", &[POSTERIOR, "sampling.curriculum.min_spread_probability=0"]), 0.0);

    let forgetful = saved("forgetful", &[POSTERIOR, "sampling.curriculum.half_life=0.1"]);
    assert_ne!(forgetful, posterior);
}

/// If its groups are not refilled, a step lacks the prompts that the curriculum left out.
#[test]
fn a_step_is_smaller_by_what_was_skipped() {
    let scratch = Scratch::new();
    let off = ["train.steps=8", "sampling.dynamic=off", VARIANCE];
    succeed(&scratch, "off", &off);
    assert_eq!(scratch.values("off", "sampling/rounds"), [1.0; 8]);

    let kept = scratch.values("off", "sampling/groups_kept");
    assert!(kept[0] == 4.0 && kept.iter().any(|&kept| kept < 4.0), "{kept:?}");
    assert!(kept.iter().all(|&kept| kept > 0.0), "{kept:?}");
}

#[test]
fn a_resumed_run_remembers() {
    let scratch = Scratch::new();
    for (name, rule) in [("variance", VARIANCE), ("posterior", POSTERIOR)] {
        let (whole, stopped) = (format!("{name}-whole"), format!("{name}-stopped"));
        succeed(&scratch, &whole, &["train.steps=10", rule]);
        succeed(&scratch, &stopped, &["train.steps=4", rule]);
        succeed(&scratch, &stopped, &["train.steps=10", rule, "--resume"]);
        assert_same(&scratch.result(&whole), &scratch.result(&stopped));
        assert!(sum(&scratch, &whole, "sampling/skipped") > 0.0);
    }

    let memory = "runs/variance-stopped/checkpoints/step-000010/trainer/prompts.safetensors";
    // With sums the program would pass over a damaged checkpoint.
    let sums = "runs/variance-stopped/checkpoints/step-000010/trainer/SHA256SUMS";
    std::fs::remove_file(scratch.path(sums)).unwrap();
    let mut bytes = std::fs::read(scratch.path(memory)).unwrap();
    bytes.truncate(bytes.len() - 7);
    scratch.write(memory, bytes);

    let outcome = run(&scratch, "variance-stopped", &["train.steps=11", VARIANCE, "--resume"]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("prompts.safetensors"), "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);

    // A memory that was lost, or that belongs to another checkpoint, does not count as an empty memory.
    let resume = ["train.steps=11", VARIANCE, "--resume"];
    std::fs::remove_file(scratch.path(memory)).unwrap();
    let outcome = run(&scratch, "variance-stopped", &resume);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.said().contains("is missing: state.json next to it expects a history of 20"));

    succeed(&scratch, "short", &["train.steps=1", VARIANCE]);
    let short = "runs/short/checkpoints/step-000001/trainer/prompts.safetensors";
    std::fs::copy(scratch.path(short), scratch.path(memory)).unwrap();
    let outcome = run(&scratch, "variance-stopped", &resume);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.said().contains("but state.json next to it expects 20"));
}

#[test]
fn a_step_ended_by_the_cap_leaves_no_history() {
    let scratch = Scratch::new();
    let short = ["train.steps=4", "sampling.prompts_per_step=16", POSTERIOR];
    let with = |more: &[&'static str]| [&short[..], more].concat();
    succeed(&scratch, "higher", &with(&["sampling.max_rounds=0"]));
    succeed(&scratch, "stop", &with(&["sampling.max_rounds=1", "sampling.on_cap=stop"]));
    succeed(&scratch, "stop", &with(&["sampling.max_rounds=0", "--resume"]));

    let weights = |run| scratch.result(run)[1].clone();
    assert!(weights("stop") == weights("higher"));
}

#[test]
fn groups_without_spread_are_refilled_replaced_dropped_or_trained_on() {
    let scratch = Scratch::new();
    let of = |name: &str, more: &[&str]| {
        succeed(
            &scratch,
            name,
            &[&["train.steps=4", "sampling.prompts_per_step=8"], more].concat(),
        );
        let all = |metric: &str| scratch.values(name, metric);
        let [kept, copied] = ["kept", "copied"].map(|what| all(&format!("sampling/groups_{what}")));
        (kept, copied, all("sampling/groups_filtered"), all("sampling/rounds"))
    };

    let filter = of("filter", &["sampling.dynamic=filter"]);
    assert_eq!(filter, of("flag-true", &["sampling.dynamic=true"]));
    assert_eq!(filter.0, [8.0; 4]);
    assert!(filter.3.iter().any(|&rounds| rounds > 1.0), "{filter:?}");

    let replace = ["sampling.dynamic={kind=\"replace\",min_ratio=0}"];
    let (kept, copied, filtered, rounds) = of("replace", &replace);
    assert!(kept.iter().zip(&copied).all(|(kept, copied)| kept + copied == 8.0));
    assert!(filtered.iter().zip(&copied).all(|(filtered, copied)| filtered == copied));
    assert!(copied.iter().sum::<f64>() > 0.0);
    assert_eq!(rounds, [1.0; 4]);

    // If a round does not reach the ratio, another round is sampled. A cap of one round still holds.
    let much = ["sampling.dynamic={kind=\"replace\",min_ratio=0.9}"];
    let (kept, _, _, rounds) = of("much", &much);
    assert!(rounds.iter().any(|&rounds| rounds > 1.0), "{rounds:?}");
    assert_eq!(kept, [8.0; 4]);

    let capped = [&much[..], &["sampling.prompts_per_step=8", "sampling.max_rounds=1"]].concat();
    let failed = run(&scratch, "capped", &[&capped[..], &["sampling.on_cap=error"]].concat());
    assert_eq!(failed.code, Some(1));
    assert!(failed.stderr.contains("of 8 groups to train on"), "{}", failed.stderr);

    let (kept, copied, filtered, rounds) = of("drop", &["sampling.dynamic=drop"]);
    assert!(kept.iter().zip(&filtered).all(|(kept, filtered)| kept + filtered == 8.0));
    assert!(filtered.iter().sum::<f64>() > 0.0);
    assert_eq!((copied, rounds), (vec![0.0; 4], vec![1.0; 4]));

    let off = of("off", &["sampling.dynamic=off"]);
    assert_eq!(off, of("flag-false", &["sampling.dynamic=false"]));
    assert_eq!((off.0, off.2), (vec![8.0; 4], vec![0.0; 4]));

    // The copies are groups of their own, also for a mean over groups.
    let mean = [&replace[..], &["loss.aggregation=prompt_mean"]].concat();
    let (kept, copied, ..) = of("mean", &mean);
    assert!(kept.iter().zip(&copied).all(|(kept, copied)| kept + copied == 8.0));
    let tokens = |run| scratch.values(run, "update/tokens");
    assert_eq!(tokens("mean")[0], tokens("replace")[0]);
}

/// If no completion ends within the limit, nothing of a group is left.
#[test]
fn a_group_of_which_nothing_counts_is_never_trained_on() {
    let scratch = Scratch::new();
    // The likeliest first token is a digit, and never the end.
    let none =
        ["reward.overlong={filter=true}", "rollout.max_completion_tokens=1", "rollout.top_k=1"];

    let of = |name: &str, dynamic: &str, more: &[&str]| {
        let settings = ["train.steps=1", dynamic];
        succeed(&scratch, name, &[&none[..], &settings, more].concat());
        assert_eq!(scratch.values(name, "sampling/groups_kept"), [0.0], "{name}");
        let filtered = scratch.values(name, "sampling/groups_filtered");
        assert_eq!(filtered, scratch.values(name, "sampling/groups_sampled"), "{name}");
        scratch.values(name, "sampling/rounds")[0]
    };

    // A step that needs groups samples more rounds, up to the cap.
    let capped = &["sampling.max_rounds=3"];
    assert_eq!(of("filter", "sampling.dynamic=filter", capped), 3.0);
    assert_eq!(of("replace", "sampling.dynamic=replace", capped), 3.0);
    assert_eq!(of("drop", "sampling.dynamic=drop", &[]), 1.0);
    assert_eq!(of("off", "sampling.dynamic=off", capped), 3.0);
    assert_eq!(of("off-with-memory", "sampling.dynamic=off", &[POSTERIOR]), 1.0);
}
