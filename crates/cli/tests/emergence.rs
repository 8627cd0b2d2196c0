//! Phrases and lengths of completions as a run observes them, and the deductions from the reward for lengths.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod scratch;

use scratch::{Scratch, repository};
use serde_json::{Map, Value};

/// Trains the tiny recipe under the name `run`, and returns its metrics by step.
fn train(scratch: &Scratch, run: &str, more: &[&str]) -> Vec<Map<String, Value>> {
    let recipe = repository("recipes/ci/tiny.toml");
    let name = format!("name={run}");
    let mut arguments = vec!["train", &recipe, "--set", &name];

    for setting in more {
        arguments.extend(["--set", setting]);
    }

    scratch.succeed(&arguments);
    scratch.metrics(run)
}

fn of(step: &Map<String, Value>, name: &str) -> f64 {
    step[name].as_f64().unwrap_or_else(|| panic!("{name} is not in {step:?}"))
}

#[test]
fn phrases_are_counted_and_change_nothing() {
    let scratch = Scratch::new();
    let short = ["sft.steps=40", "train.steps=3"];
    train(&scratch, "plain", &short);

    // The tiny policy writes digits.
    let phrases = ["observe.phrases=[\"1\", \"11\", \"Wait\"]"];
    let steps = train(&scratch, "observed", &[&short[..], &phrases].concat());

    let weights = |run| scratch.result(run)[1].clone();
    assert!(weights("plain") == weights("observed"));

    for step in &steps {
        let of = |name: &str| of(step, name);
        assert_eq!((of("observe/phrase/Wait"), of("observe/count/Wait")), (0.0, 0.0));
        let (share, any) = (of("observe/phrase/1"), of("observe/any"));
        assert!(0.0 < share && share < 1.0, "{share}");
        assert_eq!(share, any);
        assert!(of("observe/phrase/11") < share && of("observe/count/1") > share);
        // The credits with and without a phrase add up to the mean credit.
        let credit = any * of("observe/credit_with") + (1.0 - any) * of("observe/credit_without");
        assert!((credit - of("reward/credit")).abs() < 1e-9, "{step:?}");
    }

    assert!(
        scratch.metrics("plain").iter().flatten().all(|(name, _)| !name.starts_with("observe/"))
    );
}

#[test]
fn lengths_are_known_by_verdict_and_by_end() {
    let scratch = Scratch::new();
    for step in train(&scratch, "a", &["train.steps=3", "rollout.max_completion_tokens=2"]) {
        let of = |name: &str| of(&step, name);
        let (count, right) = (of("sampling/completions"), of("reward/right"));
        assert!(0.0 < right && right < count, "{step:?}");

        let tokens = of("rollout/tokens");
        // Right and wrong completions together have all tokens.
        let by_verdict =
            right * of("rollout/length_right") + (count - right) * of("rollout/length_wrong");
        assert!((by_verdict - tokens).abs() < 1e-6, "{step:?}");

        let truncated = of("rollout/truncated");
        assert!(0.0 < truncated && truncated < 1.0, "{step:?}");
        // A completion that was cut off has as many tokens as the limit: 2.
        let by_end = truncated * 2.0 + (1.0 - truncated) * of("rollout/length_stopped");
        assert!((by_end - of("rollout/length_mean")).abs() < 1e-9, "{step:?}");
    }
}

/// If all completions are right, or all are wrong, their mean reward shows what lengths cost.
#[test]
fn length_and_truncation_cost_what_the_recipe_says() {
    let scratch = Scratch::new();
    let judged = |run: &str, pattern: &str, length: &str| {
        let pattern = format!("reward.pattern={pattern}");
        let length = format!("reward.length={{{length}}}");

        let settings = [
            "sft.steps=40",
            "train.steps=1",
            "rollout.max_completion_tokens=2",
            "sampling.dynamic=false",
            "reward.kind=regex",
            "reward.matches=true",
            &pattern,
            &length,
        ];

        let step = train(&scratch, run, &settings).remove(0);
        ["reward/mean", "rollout/truncated", "rollout/length_mean"].map(|name| of(&step, name))
    };

    let right = "'^'";
    let wrong = "never";
    let close = |got: f64, want: f64, label: &str| {
        assert!((got - want).abs() < 1e-6, "{label}: {got}, expected {want}");
    };
    let cut = "target=3,max_cut=0.0";
    let all = "target=1,free_factor=0.0,ramp_factor=0.0";

    for (run, pattern, length, form, reward) in [
        ("a", right, cut, "sign_safe", (1.0, -0.2)),
        ("b", wrong, cut, "sign_safe", (-1.0, -0.2)),
        ("c", wrong, cut, "as_written", (-1.0, 0.2)),
        // Every completion is long enough to lose half. A completion that is cut off also loses a fifth of the
        // other half.
        ("d", right, all, "sign_safe", (0.5, -0.1)),
        ("e", wrong, all, "sign_safe", (-1.5, -0.1)),
        ("f", wrong, all, "as_written", (-0.5, 0.1)),
    ] {
        let [mean, truncated, _] = judged(run, pattern, &format!("{length},form=\"{form}\""));
        assert!(0.0 < truncated && truncated < 1.0, "{truncated}");
        close(mean, reward.0 + reward.1 * truncated, &format!("{pattern} {length} {form}"));
    }

    // A completion of one token loses nothing. A completion of two tokens is halfway up the line.
    let line = "target=2,free_factor=0.5,ramp_factor=1.0,max_cut=0.4,truncation_cut=0.0";
    let [mean, _, length] = judged("g", right, line);
    assert!(1.0 < length && length < 2.0, "{length}");
    close(mean, 1.0 - 0.2 * (length - 1.0), line);
}
