//! Adaptive updates through the program: `[train.adaptive]`.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod scratch;

use scratch::{Scratch, assert_same};

/// Trains the tiny recipe under the name `run`, from a policy that gets some sums right, with one
/// mini-batch a step and a learning rate from the first step on.
fn train(scratch: &Scratch, run: &str, more: &[&str]) {
    let common = ["sft.steps=40", "optim.warmup_steps=0", "train.mini_batch=16"];
    scratch.train_tiny(run, &[&common[..], more].concat()).success();
}

#[test]
fn one_update_a_mini_batch_is_the_run_without_the_table() {
    let scratch = Scratch::new();

    // A step has two mini-batches, so that another one follows after one is stopped.
    let short = ["train.steps=3", "train.mini_batch=8"];
    train(&scratch, "plain", &short);

    let weights = |run| scratch.result(run)[1].clone();
    for (run, adaptive) in [
        ("one", "train.adaptive={n_min=1,n_max=1}"),
        // Any change is too much for this bound, but the update that made the change stays.
        ("stopped", "train.adaptive={kl_stop=1e-12}"),
    ] {
        train(&scratch, run, &[&short[..], &[adaptive]].concat());
        assert!(weights(run) == weights("plain"), "{run} has other weights");
        for metric in ["update/count", "loss/total", "loss/clip_fraction_low", "update/tokens"] {
            assert_eq!(scratch.values(run, metric), scratch.values("plain", metric), "{metric}");
        }
        for metric in ["updates_done", "updates_done_min", "updates_done_max"] {
            assert_eq!(scratch.values(run, &format!("adaptive/{metric}")), [1.0; 3]);
        }
        assert_eq!(scratch.values(run, "adaptive/stopped_by_gradient"), [0.0; 3]);
    }

    assert_eq!(scratch.values("one", "adaptive/updates_planned"), [1.0; 3]);
    assert_eq!(scratch.values("stopped", "adaptive/stopped_by_kl"), [1.0; 3]);
    assert!(scratch.values("stopped", "adaptive/updates_planned").iter().all(|&n| n >= 5.0));
    assert!(scratch.metrics("plain").iter().all(|step| !step.contains_key("adaptive/score")));
}

#[test]
fn the_score_says_how_many_updates() {
    let scratch = Scratch::new();
    let with = |run: &str, more: &str| {
        let adaptive =
            format!("train.adaptive={{n_base=20,n_min=1,n_max=100,kl_stop=100.0,{more}}}");
        train(&scratch, run, &["train.steps=2", &adaptive]);

        for step in scratch.metrics(run) {
            let of = |name: &str| step[&format!("adaptive/{name}")].as_f64().unwrap();
            // The score is the sum of its parts, and the number of updates follows from it.
            let parts = of("score_advantage") + of("score_change") + of("score_entropy");
            assert!((of("score") - parts).abs() < 1e-12, "{step:?}");
            assert_eq!(of("updates_planned"), (20.0 * of("score")).floor().clamp(1.0, 100.0));
            assert_eq!(of("updates_done"), of("updates_planned"));
            assert_eq!(step["update/count"], of("updates_done"));
        }
        // A completion that is trained on several times still counts once.
        assert_eq!(scratch.json(&format!("runs/{run}/summary.json"))["completions"]["trained"], 32);
    };

    with("written", "max_entropy_term=0.0");
    with("guarded", "max_entropy_term=0.1");
    with("advantage", "weight_change=0.0,weight_entropy=0.0");
    with("weighed", "weight_advantage=1.0,weight_change=0.6,max_entropy_term=0.0");
    let first = |run: &str, metric: &str| scratch.values(run, &format!("adaptive/{metric}"))[0];

    // The first mini-batch is the same in all runs.
    assert!((first("guarded", "score_entropy") - 0.2 * 0.1).abs() < 1e-12);
    assert_eq!(first("guarded", "capped"), 1.0);
    assert!(first("written", "score_entropy") > 0.2 * 0.1);
    assert_eq!(first("written", "capped"), 0.0);
    assert!(first("written", "score_advantage") > 0.0);
    assert_eq!(first("advantage", "score"), first("written", "score_advantage"));
    assert_eq!(first("weighed", "score_advantage"), 2.0 * first("written", "score_advantage"));
    assert_eq!(first("weighed", "score_change"), 2.0 * first("written", "score_change"));
}

/// `kl_stop` ends the updates of a mini-batch, not those of the whole step.
#[test]
fn every_mini_batch_gets_its_first_update() {
    let scratch = Scratch::new();
    train(&scratch, "many", &["train.steps=2", "train.mini_batch=4", "train.adaptive={}"]);

    for step in scratch.metrics("many") {
        let of = |name: &str| step[&format!("adaptive/{name}")].as_f64().unwrap();
        assert!(of("updates_done_min") == 1.0, "{step:?}");
        assert!(of("updates_done_min") <= of("updates_done"), "{step:?}");
        assert!(of("updates_done_max") >= of("updates_done"), "{step:?}");
        assert_eq!(step["update/count"], 4.0 * of("updates_done"));
        assert!(of("change") > 0.02, "{step:?}");
    }
}

#[test]
fn a_resumed_run_makes_the_same_updates() {
    let scratch = Scratch::new();
    let adaptive = ["train.adaptive={}", "optim.lr=3e-4", "loss.aggregation=prompt_mean"];
    train(&scratch, "whole", &adaptive);

    let (mut stopped, mut finished) = (0, 0);
    for step in scratch.metrics("whole") {
        let of = |name: &str| step[&format!("adaptive/{name}")].as_f64().unwrap();
        let by_kl = of("stopped_by_kl") == 1.0;
        assert_eq!(by_kl, of("change") > 0.02, "{step:?}");
        assert!(by_kl || of("updates_done") == of("updates_planned"), "{step:?}");
        stopped += usize::from(by_kl);
        finished += usize::from(!by_kl);
    }

    assert!(stopped > 0, "no mini-batch was stopped, {finished} were not");
    train(&scratch, "resumed", &[&adaptive[..], &["train.steps=3"]].concat());
    train(&scratch, "resumed", &[&adaptive[..], &["--resume"]].concat());
    assert_same(&scratch.result("whole"), &scratch.result("resumed"));
}
