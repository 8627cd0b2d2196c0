//! `firebrick compare` from end to end, on runs of a second.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod scratch;

use std::{fs, thread, time::Duration};

use scratch::{Outcome, Scratch, assert_same, repository};
use serde_json::Value;

/// Makes a folder with two recipes that differ in one setting.
fn two_recipes() -> Scratch {
    let scratch = Scratch::new();
    let tiny = fs::read_to_string(repository("recipes/ci/tiny.toml")).unwrap();
    scratch.write("low.toml", &tiny);
    scratch.write("high.toml", format!("{tiny}\n[loss]\nclip_ratio_high = 0.4\n"));

    scratch
}

const BOTH: [&str; 5] = ["compare", "low.toml", "high.toml", "--seeds", "2"];

fn compare(scratch: &Scratch, more: &[&str]) -> Outcome {
    scratch.run(&[&BOTH[..], more].concat())
}

/// Returns everything in `compare.json` that comes neither from a clock nor from the command line.
fn numbers(scratch: &Scratch, out: &str) -> Value {
    fn without_clocks(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|key, _| {
                    !key.contains("seconds") && !["command", "folder"].contains(&key.as_str())
                });
                fields.values_mut().for_each(without_clocks);
            }
            Value::Array(items) => items.iter_mut().for_each(without_clocks),
            _ => {}
        }
    }

    let mut value = scratch.json(&format!("{out}/compare.json"));
    without_clocks(&mut value);
    value
}

#[test]
fn recipes_are_run_over_seeds_and_put_next_to_each_other() {
    let scratch = two_recipes();
    let dry = compare(&scratch, &["--dry-run"]);
    assert!(dry.stdout.contains("| `loss.clip_ratio_high` | 0.28 |  0.4 |"), "{}", dry.stdout);
    assert!(dry.stdout.contains("low: seeds 17, 18"), "{}", dry.stdout);
    assert!(!scratch.path("runs").exists());

    let outcome = compare(&scratch, &["--target", "0.1"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let page = fs::read_to_string(scratch.path("runs/compare-low-high/compare.md")).unwrap();
    assert!(page.contains(outcome.stdout.trim()), "the table of {page} is not {}", outcome.stdout);
    assert!(page.contains("$ firebrick compare low.toml high.toml --seeds 2 --target 0.1\n"));
    assert!(page.contains(" on cpu ("), "{page}");

    let json = scratch.json("runs/compare-low-high/compare.json");
    assert_eq!(json["differences"].as_array().unwrap().len(), 1);
    for (index, name) in ["low", "high"].into_iter().enumerate() {
        let recipe = &json["recipes"][index];
        assert_eq!(recipe["name"], name);
        let mut accuracy = 0.0;
        for (run, seed) in recipe["runs"].as_array().unwrap().iter().zip([17, 18]) {
            // The numbers are those of the run itself.
            let folder = format!("runs/compare-low-high/{name}-seed{seed}");
            let summary = scratch.json(&format!("{folder}/summary.json"));
            assert_eq!((&run["state"], &run["seed"]), (&"finished".into(), &seed.into()));
            assert_eq!(run["accuracy"], summary["heldout"]["final"]);
            assert_eq!(run["heldout_prompts"], 10);
            assert_eq!(run["completions"], summary["completions"]["generated"]);

            let evaluations = run["evaluations"].as_array().unwrap();
            let steps: Vec<_> = evaluations.iter().map(|at| at["step"].as_u64().unwrap()).collect();
            assert_eq!(steps, [0, 3, 6]);
            assert_eq!(evaluations[0]["accuracy"], summary["heldout"]["after_sft"]);
            assert_eq!(evaluations[2]["completions"].as_f64(), run["completions"].as_f64());
            let first = evaluations.iter().find(|at| at["accuracy"].as_f64().unwrap() >= 0.1);
            assert_eq!(run["reached"], first.cloned().unwrap_or_default());

            // The last quarter of six steps is two steps.
            let metrics = scratch.metrics(&format!("compare-low-high/{name}-seed{seed}"));
            for (key, metric) in [
                ("entropy", "loss/entropy"),
                ("length", "rollout/length_mean"),
                ("truncated", "rollout/truncated"),
            ] {
                let last = &metrics[metrics.len() - 2..];
                let values: Vec<f64> =
                    last.iter().filter_map(|step| step.get(metric)?.as_f64()).collect();
                let mean = values.iter().sum::<f64>() / values.len() as f64;
                assert!((run[key].as_f64().unwrap() - mean).abs() < 1e-12, "{key} of {run}");
            }

            accuracy += run["accuracy"].as_f64().unwrap() / 2.0;
        }
        assert!((recipe["means"]["accuracy"].as_f64().unwrap() - accuracy).abs() < 1e-12);
        assert_eq!(recipe["curve"].as_array().unwrap().len(), 3);
    }
    let figure = fs::read_to_string(scratch.path("runs/compare-low-high/compare.svg")).unwrap();
    assert!(figure.starts_with("<svg ") && figure.trim_end().ends_with("</svg>"), "{figure}");
    assert_eq!(figure.matches("<polygon ").count(), 4, "a band for each recipe in each panel");
    // An empty line would end the HTML of a page that includes it.
    assert!(!figure.contains("\n\n"));

    let page = fs::read_to_string(scratch.path("runs/compare-low-high/compare.html")).unwrap();
    for run in ["low-seed17", "low-seed18", "high-seed17", "high-seed18"] {
        assert!(page.contains(run), "{run}");
    }

    // The second recipe's run began after the SFT of the first recipe's, and has the result that it has alone.
    assert!(outcome.stderr.contains("resumed from runs/compare-low-high/sft/seed17-"));
    scratch.succeed(&["train", "high.toml", "--set", "name=alone"]);
    assert_same(&scratch.result("compare-low-high/high-seed17"), &scratch.result("alone"));

    // Finished runs are not run again, and one more seed is one more run for each recipe.
    let more = scratch.run(&["compare", "low.toml", "high.toml", "--seeds", "3"]);
    assert_eq!(more.code, Some(0), "{}", more.stderr);
    assert!(more.stderr.contains("run 2 of 2: high-seed19"), "{}", more.stderr);
    assert!(more.stderr.contains("low: seeds 17 finished, 18 finished, 19\n"), "{}", more.stderr);
}

#[test]
#[cfg(unix)]
fn a_comparison_that_was_stopped_continues() {
    let scratch = two_recipes();
    let long = ["--set", "train.steps=12", "--set", "checkpoint.keep=0"];
    let whole = compare(&scratch, &[&long[..], &["--out", "whole"]].concat());
    assert_eq!(whole.code, Some(0), "{}", whole.stderr);

    let arguments = [&BOTH[..], &long, &["--out", "stopped"]].concat();
    let at = |run: &str, step: u64| {
        let path = scratch.path(&format!("stopped/{run}/checkpoints/step-{step:06}"));
        move || path.exists()
    };

    // The comparison is interrupted in the second run, as a person would do it, and then killed in the third.
    let child = scratch.start_until(&arguments, at("high-seed17", 2)).unwrap();
    let id = child.id().to_string();
    std::process::Command::new("kill").args(["-INT", &id]).status().unwrap();
    let outcome = Outcome::of(child.wait_with_output().unwrap());
    assert_eq!(outcome.code, Some(130), "{}", outcome.stderr);
    assert_eq!(outcome.stdout, "");

    let page = fs::read_to_string(scratch.path("stopped/compare.md")).unwrap();
    assert!(page.contains("- **not finished**: high, seed 17\n"), "{page}");
    let summary = fs::metadata(scratch.path("stopped/low-seed17/summary.json")).unwrap();

    // This time nothing can be saved.
    let mut child = scratch.start_until(&arguments, at("low-seed18", 4)).unwrap();
    thread::sleep(Duration::from_millis(20));
    child.kill().unwrap();
    child.wait().unwrap();

    let outcome = scratch.run(&arguments);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stderr.contains(": seeds 17 finished, 18 to resume\n"), "{}", outcome.stderr);
    let again = fs::metadata(scratch.path("stopped/low-seed17/summary.json")).unwrap();
    assert_eq!(summary.modified().unwrap(), again.modified().unwrap());
    assert_eq!(numbers(&scratch, "whole"), numbers(&scratch, "stopped"));
}

#[test]
fn runs_of_other_settings_are_not_mixed_in() {
    let scratch = two_recipes();
    let out = ["--out", "here", "--set", "train.steps=1"];
    assert_eq!(compare(&scratch, &out).code, Some(0));

    let outcome = compare(&scratch, &["--out", "here", "--set", "train.steps=2"]);
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("here/low-seed17 was run with other settings"));
    assert!(outcome.stderr.contains("train.steps = 2 (was 1)"), "{}", outcome.stderr);

    let twice = scratch.run(&["compare", "low.toml", "low.toml"]);
    assert_eq!(twice.code, Some(2), "{}", twice.stderr);
    assert!(twice.stderr.contains("two of the recipes are called low"), "{}", twice.stderr);

    let target = scratch.run(&["compare", "low.toml", "--target", "90"]);
    assert_eq!(target.code, Some(2), "{}", target.stderr);
}

#[test]
fn metrics_are_compared_seed_by_seed_also_of_runs_that_are_there() {
    let scratch = Scratch::new();
    let tiny = fs::read_to_string(repository("recipes/ci/tiny.toml")).unwrap();
    scratch.write("pair/with.toml", format!("{tiny}\n[loss]\nclip_ratio_high = 0.4\n"));
    scratch.write("pair/without.toml", &tiny);

    let metrics = ["--metric", "loss/entropy", "--metric", "loss/kl"];
    let made = scratch.succeed(&[&["compare", "pair", "--seeds", "2"][..], &metrics].concat());
    assert!(made.stdout.contains("| loss/entropy |"), "{}", made.stdout);
    assert!(made.stdout.contains("| 2 pairs |"), "{}", made.stdout);
    assert!(made.stdout.contains("- 4 runs have no finite loss/kl in"), "{}", made.stdout);
    let said = made.said();
    assert!(said.contains("the finished run has no loss/kl in its last quarter"), "{said}");

    // `without` is the baseline, although `with` is the first file.
    let json = scratch.json("runs/compare-pair/compare.json");
    let [entropy, kl] = json["metrics"].as_array().unwrap().as_slice() else { panic!("{json}") };
    let names = ["without", "with"];
    let recipe = |index: usize| &json["recipes"][index];
    assert_eq!([0, 1].map(|index| recipe(index)["name"].as_str().unwrap()), names);
    assert_eq!(entropy["recipes"][0]["effect"], Value::Null);
    // No recipe has a penalty, so no run has its metric.
    assert_eq!((&kl["name"], &kl["recipes"][1]["seeds"]), (&"loss/kl".into(), &0.into()));

    let end = |index: usize, run: usize| {
        let metric = &recipe(index)["runs"][run]["metrics"][0];
        assert_eq!(metric["name"], "loss/entropy");
        metric["end"].as_f64().unwrap()
    };
    assert_eq!(Some(end(1, 1)), recipe(1)["runs"][1]["entropy"].as_f64());
    let differences = [0, 1].map(|run| end(1, run) - end(0, run));
    let mean = (differences[0] + differences[1]) / 2.0;
    let effect = &entropy["recipes"][1]["effect"];
    assert_eq!(effect["pairs"], 2);
    assert!((effect["difference"].as_f64().unwrap() - mean).abs() < 1e-12, "{effect}");
    // Half the distance of two values is the standard error of their mean.
    let error = (differences[0] - differences[1]).abs() / 2.0;
    assert!((effect["standard_error"].as_f64().unwrap() - error).abs() < 1e-12, "{effect}");

    let figure = fs::read_to_string(scratch.path("runs/compare-pair/metrics.svg")).unwrap();
    // The panel of a metric that nobody has is empty.
    assert_eq!(figure.matches("<polygon ").count(), 2, "{figure}");

    // The same runs are read with another baseline, and none is made.
    let read = ["compare", "runs/compare-pair", "--baseline", "with", "--out", "read"];
    let outcome = scratch.succeed(&[&read[..], &metrics[..2]].concat());
    assert!(!outcome.stderr.contains("run 1 of"), "{}", outcome.stderr);
    let json = scratch.json("read/compare.json");
    let negated = json["metrics"][0]["recipes"][1]["effect"]["difference"].as_f64().unwrap();
    assert!((negated + mean).abs() < 1e-12, "{json}");
    assert_eq!(json["differences"].as_array().unwrap().len(), 1);

    // A figure of metrics that are not asked for any more would be taken for one of this comparison.
    assert!(scratch.path("read/metrics.svg").exists());
    scratch.succeed(&read);
    assert!(!scratch.path("read/metrics.svg").exists());

    // A folder may also hold a folder for each variant, with any names inside.
    for name in names {
        for (seed, run) in [(17, "first"), (18, "second")] {
            fs::create_dir_all(scratch.path(&format!("nested/{name}"))).unwrap();
            let from = scratch.path(&format!("runs/compare-pair/{name}-seed{seed}"));
            fs::rename(from, scratch.path(&format!("nested/{name}/{run}"))).unwrap();
        }
    }
    let printed = scratch.succeed(&[&["compare", "nested"][..], &metrics[..2]].concat());
    assert!(printed.stdout.contains("| 2 pairs |"), "{}", printed.stdout);
    assert!(!scratch.path("nested/compare.json").exists());
    scratch.succeed(&[&["compare", "nested", "--out", "again"][..], &metrics[..2]].concat());
    let json = scratch.json("again/compare.json");
    assert_eq!(&json["metrics"][0]["recipes"][1]["effect"], effect);

    for (wrong, message) in [
        (["--metric", "loss/kl"], "none of the 4 finished runs has loss/kl in its last quarter"),
        (["--baseline", "none"], "there is no none to compare with, only with, without"),
        (["--seeds", "2"], "--seeds is for runs to be made"),
        (["--set", "train.steps=2"], "--set is for runs to be made"),
        (["--device", "cpu"], "--device is for runs to be made"),
    ] {
        let outcome = scratch.run(&[&["compare", "nested"][..], &wrong].concat());
        assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
        assert!(outcome.said().contains(message), "{}", outcome.stderr);
    }
}

#[test]
fn a_folder_of_recipes_and_runs_stands_for_neither() {
    let scratch = Scratch::new();
    let tiny = fs::read_to_string(repository("recipes/ci/tiny.toml")).unwrap();
    scratch.write("pair/with.toml", format!("{tiny}\n[loss]\nclip_ratio_high = 0.4\n"));
    scratch.write("pair/without.toml", &tiny);
    let more = ["--seeds", "1", "--set", "train.steps=1", "--out", "pair"];

    let folder = [&["compare", "pair"][..], &more].concat();
    scratch.succeed(&folder);
    let again = scratch.run(&folder);
    assert_eq!(again.code, Some(2), "{}", again.stderr);
    let said = again.said();
    assert!(said.contains("pair has recipes and runs"), "{said}");
    assert!(said.contains("to make runs, name the recipes"), "{said}");

    // As the message says.
    let recipes = ["compare", "pair/with.toml", "pair/without.toml"];
    let resumed = scratch.succeed(&[&recipes[..], &more].concat());
    assert!(resumed.stderr.contains("without: seeds 17 finished\n"), "{}", resumed.stderr);
}

#[test]
fn runs_that_are_there_are_averaged_only_if_their_settings_are_the_same() {
    let scratch = Scratch::new();
    scratch.train_tiny("one", &["train.steps=1"]).success();
    // The device is no setting of a variant.
    let other = ["train.steps=1", "seed=18", "device.kernels=reference"];
    scratch.train_tiny("other", &other).success();
    fs::create_dir(scratch.path("variants")).unwrap();
    fs::rename(scratch.path("runs"), scratch.path("variants/a")).unwrap();

    let same = scratch.succeed(&["compare", "variants"]);
    assert!(same.stderr.contains("a: seeds 17 finished, 18 finished\n"), "{}", same.stderr);

    scratch.train_tiny("longer", &["train.steps=2", "seed=19"]).success();
    fs::rename(scratch.path("runs/longer"), scratch.path("variants/a/longer")).unwrap();
    let mixed = scratch.run(&["compare", "variants"]);
    assert_eq!(mixed.code, Some(2), "{}", mixed.stderr);
    let said = mixed.said();
    assert!(said.contains("the runs of a have different settings"), "{said}");
    assert!(said.contains("differ in train.steps"), "{said}");
}

#[test]
fn a_run_that_cannot_be_read_costs_no_other_run() {
    let scratch = Scratch::new();
    let path = |name: &str| scratch.path(&format!("runs/{name}"));
    for (name, seed) in [("a-seed17", "seed=17"), ("a-seed18", "seed=18"), ("b", "seed=17")] {
        scratch.train_tiny(name, &["train.steps=1", seed]).success();
    }

    fs::remove_file(path("a-seed18/summary.json")).unwrap();
    scratch.write("runs/b/summary.json", "{}");
    // One has no recipe, and that of the other is none.
    for name in ["c", "d"] {
        fs::create_dir(path(name)).unwrap();
        fs::copy(path("b/run.db"), path(&format!("{name}/run.db"))).unwrap();
    }
    scratch.write("runs/d/recipe.toml", "seed = ");

    let outcome = scratch.run(&["compare", "runs"]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("- **not finished**: a, seed 18\n"), "{}", outcome.stdout);
    let failed = "- **failed**: b, seed 17: runs/b/summary.json is not a valid run summary";
    assert!(outcome.stdout.contains(failed), "{}", outcome.stdout);

    let said = outcome.said();
    for words in
        ["a: seeds 17 finished, 18 not finished", "left out: runs/c: ", "left out: runs/d: "]
    {
        assert!(said.contains(words), "{words} in {said}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn names_that_only_look_alike_are_of_two_variants() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

    let scratch = Scratch::new();
    for (run, name) in [("one", b"a\xff"), ("other", b"a\xfe")] {
        scratch.train_tiny(run, &["train.steps=1"]).success();
        let variant = scratch.path("variants").join(OsStr::from_bytes(name));
        fs::create_dir_all(&variant).unwrap();
        fs::rename(scratch.path("runs").join(run), variant.join("run")).unwrap();
    }

    scratch.succeed(&["compare", "variants", "--out", "read"]);
    let json = scratch.json("read/compare.json");
    assert_eq!(json["recipes"].as_array().unwrap().len(), 2, "{json}");
}

#[test]
fn a_run_that_fails_is_named_and_the_others_continue() {
    let scratch = two_recipes();
    let tiny = fs::read_to_string(scratch.path("low.toml")).unwrap();
    let steps = tiny.replace("prompts_per_step = 4", "prompts_per_step = 16");
    let cap = steps.replace("[optim]", "max_rounds = 1\non_cap = \"error\"\n\n[optim]");
    scratch.write("cap.toml", cap);

    let outcome =
        scratch.run(&["compare", "cap.toml", "low.toml", "--seeds", "1", "--out", "here"]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("- **failed**: cap, seed 17: "), "{}", outcome.stdout);

    let json = scratch.json("here/compare.json");
    assert_eq!(json["recipes"][0]["runs"][0]["state"], "failed");
    assert_eq!(json["recipes"][1]["runs"][0]["state"], "finished");
}

#[test]
fn the_help_says_what_it_does() {
    let help = Scratch::new().succeed(&["compare", "--help"]).stdout;
    insta::assert_snapshot!(help);
}
