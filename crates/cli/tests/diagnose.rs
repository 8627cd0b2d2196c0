//! Puts faults into runs of the toy task. `firebrick diagnose` names each fault with its remedy, and a run that
//! follows the remedy recovers.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod scratch;

use scratch::{Scratch, repository};
use serde_json::Value;

/// Settings added to `recipes/ci/tiny.toml` for a run that is long enough to learn something.
const LONGER: &[&str] = &[
    "train.steps=30",
    "sft.steps=150",
    "eval.every=10",
    "rollout.group_size=8",
    "sampling.prompts_per_step=8",
    "train.mini_batch=32",
];

/// Name of a fault, the settings that make it, the name of its finding, words of the remedy, and the settings
/// that follow the remedy.
type Case<'a> = (&'a str, &'a [&'a str], &'a str, &'a [&'a str], &'a [&'a str]);

const FAULTS: &[Case<'_>] = &[
    (
        "judge",
        &["reward={kind=\"command\",program=[\"false\"]}"],
        "judge",
        &["reward.program"],
        &["reward={kind=\"integer\"}"],
    ),
    (
        "given-up",
        &["reward={kind=\"command\",program=[\"false\"],restarts=2,max_errors=1.0}"],
        "judge",
        &["reward.program"],
        &["reward={kind=\"integer\"}"],
    ),
    (
        "short",
        &["rollout.max_completion_tokens=1"],
        "cut-off",
        &["rollout.max_completion_tokens"],
        &["rollout.max_completion_tokens=6"],
    ),
    ("still", &["optim.lr=0.0"], "still", &["optim.lr"], &["optim.lr=1e-3"]),
    ("fast", &["optim.lr=0.1"], "too-fast", &["optim.lr"], &["optim.lr=1e-3"]),
    ("diverged", &["optim.lr=1e9"], "skipped", &["optim.lr", "replay"], &["optim.lr=1e-3"]),
    ("solved", &["sft.steps=1000"], "too-easy", &["data.task", "digits"], &["sft.steps=150"]),
];

#[test]
fn every_fault_has_its_name_and_its_remedy() {
    let scratch = Scratch::new();
    for (name, fault, finding, remedy, repaired) in FAULTS {
        let run = format!("{name}-fault");
        let outcome = scratch.train_tiny(&run, &[LONGER, fault].concat());
        let found = findings(&scratch, &run);
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();

        // A policy that comes apart shows a second sign on some processors, whose products differ in the last bits.
        assert_eq!(names.first(), Some(finding), "{name}: {}", outcome.stderr);
        for word in *remedy {
            assert!(found[0].1.contains(word), "{name}: {}", found[0].1);
        }

        let run = format!("{name}-repaired");
        scratch.train_tiny(&run, &[LONGER, repaired].concat()).success();
        assert_eq!(findings(&scratch, &run), [], "{name}, repaired");
    }
}

/// Clipping is evidence where a clip cuts gradients. With GSPO's loss, a step that is too large has other evidence.
#[test]
fn clipping_is_reported_for_a_loss_that_clips() {
    let scratch = Scratch::new();
    for (name, kind, clips) in [("dapo", "loss.kind=dapo", true), ("gspo", "loss.kind=gspo", false)]
    {
        scratch.train_tiny(name, &[LONGER, &["optim.lr=0.1", kind]].concat());
        let text = scratch.succeed(&["diagnose", &format!("runs/{name}")]).stdout;
        assert!(text.contains("[too-fast]"), "{name}: {text}");
        assert_eq!(text.contains("tokens were clipped"), clips, "{name}: {text}");
    }
}

/// Asks a checkpoint with data and prompts unlike those that it was taught with.
#[test]
fn a_model_that_is_asked_wrongly_is_found_out() {
    let scratch = Scratch::new();
    scratch.train_tiny("taught", LONGER).success();
    let rows = |shift: u32| -> String {
        let pairs = (0..100_u32).map(|pair| (pair / 10, pair % 10));
        let row =
            |(a, b)| format!("{{\"prompt\":\"{a}+{b}=\",\"answer\":\"{}\"}}\n", a + b + shift);
        pairs.map(row).collect()
    };

    scratch.write("right.jsonl", rows(0));
    scratch.write("wrong.jsonl", rows(500));

    let taught: &[&str] = &[
        "model.new=",
        "model.path=runs/taught/checkpoints/step-000030",
        "sft.steps=0",
        "data.task=",
        "data.train_size=",
        "data.heldout_size=10",
        "reward.kind=integer",
        "train.steps=12",
    ];

    for (name, fault, finding) in [
        ("hard", &["data.train=wrong.jsonl"][..], Some("too-hard")),
        // The policy finds an answer behind each question, and ends at once.
        ("ends", &["data.train=right.jsonl", "data.prompt={prompt}12"], Some("unparsable")),
        ("asked-right", &["data.train=right.jsonl"], None),
    ] {
        scratch.train_tiny(name, &[LONGER, taught, fault].concat()).success();
        let found = findings(&scratch, name);
        assert_eq!(found.first().map(|(name, _)| name.as_str()), finding, "{name}: {found:?}");
        if finding.is_some() {
            assert!(found[0].1.contains("data.prompt"), "{}", found[0].1);
        }
    }
}

#[test]
fn what_is_found_is_reported_once_while_the_run_goes_and_in_full_afterwards() {
    let scratch = Scratch::new();
    let settings = [LONGER, &["rollout.max_completion_tokens=1"]].concat();
    let warnings = |stderr: &str| stderr.matches("are cut off at 1 token.").count();
    let stopped = [&settings[..], &["train.steps=20"]].concat();
    assert_eq!(warnings(&scratch.train_tiny("a", &stopped).success().stderr), 1);

    // With other settings the finding is warnings once more.
    let resumed = scratch.train_tiny("a", &[&settings[..], &["--resume"]].concat()).success();
    assert_eq!(warnings(&resumed.stderr), 1);

    let text = scratch.succeed(&["diagnose", "runs/a"]).stdout;
    assert!(text.contains("runs/a: finished after 30 steps: all its steps are done"), "{text}");
    assert!(
        text.contains("1. 100 % of the completions are cut off at 1 token. [cut-off]"),
        "{text}"
    );
    assert!(text.contains("step 30:"), "{text}");

    // The book has a section for each finding's name.
    let page = std::fs::read_to_string(repository("book/src/flat.md")).unwrap();
    for (_, _, finding, _, _) in FAULTS {
        assert!(page.contains(&format!("(`{finding}`)")), "{finding}");
    }

    let outcome = scratch.run(&["diagnose", "runs"]);
    assert!(outcome.stderr.contains("run"), "{}", outcome.stderr);
    assert_eq!(outcome.code, Some(2));
}

/// Returns the names and remedies of the findings.
fn findings(scratch: &Scratch, run: &str) -> Vec<(String, String)> {
    let text = scratch.succeed(&["diagnose", &format!("runs/{run}"), "--json"]).stdout;
    let object: Value = serde_json::from_str(&text).unwrap();
    let found = object["findings"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    found.map(|finding| (text(&finding["name"]), text(&finding["remedy"]))).collect()
}
