//! Devices as a user of the program meets them: listed, absent, and trained on.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod scratch;

use std::io::{BufRead as _, BufReader};

use scratch::{Scratch, assert_same, repository};
use serde_json::Value;

#[test]
fn device_doctor_lists_what_is_there_and_what_is_missing() {
    let scratch = Scratch::new();
    let outcome = scratch.succeed(&["doctor", "--json", "--device", "cpu"]);
    let findings: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(findings["devices"][0]["device"], "cpu");
    assert!(findings["features"].as_array().unwrap().contains(&"cpu".into()));

    // No machine has both ROCm and Metal, so at least one of the six kinds is not compiled in.
    let all = scratch.succeed(&["doctor"]);
    assert!(all.stdout.contains("not in this build; "), "{}", all.stdout);
}

/// A process that is killed has printed all that it found.
#[test]
fn device_findings_are_lines_that_stand_alone() {
    let scratch = Scratch::new();
    let smoke = lines(&scratch, &["doctor", "--json", "--smoke", "--device", "cpu"]);
    assert_eq!(events(&smoke), "program device case case case suite summary");
    let [program, device, case, .., suite, summary] = smoke.as_slice() else { panic!("{smoke:?}") };
    assert!(program["features"].as_array().unwrap().contains(&"cpu".into()));
    assert_eq!(device["cases"][0], "tensors/matmul f32");

    let named =
        format!("{} {}", case["name"].as_str().unwrap(), case["precision"].as_str().unwrap());
    assert_eq!((named.as_str(), &case["outcome"]), ("tensors/matmul f32", &"passed".into()));
    assert!(smoke[1..6].iter().all(|line| line["device"] == "cpu"));
    assert_eq!((&suite["passed"], &suite["verdicts"]["passed"]), (&true.into(), &3.into()));
    assert_eq!(summary["passed"], true);

    let launched = "doctor --json --suite --launch-only --cases products/few --device cpu";
    let launched = lines(&scratch, &launched.split(' ').collect::<Vec<_>>());
    let case = launched.iter().find(|line| line["precision"] == "f32").unwrap();
    assert_eq!(case["outcome"], "skipped");
    assert!(case["reason"].as_str().unwrap().contains("nothing was compared"), "{case}");

    let phases = "rollout@2x3+4,update@1x8+8,step";
    let bench = ["bench", "1m", "--json", "--runs", "1", "--phases", phases];
    let bench = lines(&scratch, &bench);
    assert_eq!(events(&bench), "program device limits phase phase phase detail summary");
    let [.., rollout, update, step, detail, summary] = bench.as_slice() else {
        panic!("{bench:?}")
    };
    assert_eq!((&rollout["phase"], &rollout["units"]), (&"rollout".into(), &8.into()));
    assert_eq!((&update["phase"], &update["units"]), (&"update".into(), &16.into()));
    assert_eq!(update["sizes"]["prompt"], 8);
    assert!(step["per_second"].as_f64().unwrap() > 0.0);
    assert!(detail["parts"]["time/update"].is_number(), "{detail}");
    assert_eq!((&summary["phases"], &summary["failed"]), (&3.into(), &0.into()));

    let few = "bench 1m --json --runs 1 --phases rollout --rows 1,2 --prompt 3 --completion 4 --base int4";
    let few = lines(&scratch, &few.split(' ').collect::<Vec<_>>());
    assert_eq!(events(&few), "program device limits phase phase summary");
    assert_eq!([&few[3]["sizes"]["rows"], &few[4]["sizes"]["rows"]], [1, 2]);

    // Nobody reads what follows the first line, so nothing is measured for it.
    let mut left = scratch.command(&["bench", "1m", "--json", "--runs", "1000"]).spawn().unwrap();
    let mut read = BufReader::new(left.stdout.take().unwrap());
    read.read_line(&mut String::new()).unwrap();
    drop(read);
    assert_eq!(left.wait().unwrap().code(), Some(141));

    let wrong = scratch.run(&["bench", "1m", "--phases", "rollout@2x3"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("such as 16x512+512"), "{}", wrong.stderr);
    let frozen = scratch.run(&["bench", "1m", "--base", "int4", "--phases", "update"]);
    assert_eq!(frozen.code, Some(2));
    assert!(frozen.stderr.contains("--lora 16"), "{}", frozen.stderr);
}

/// Reads the lines that a command prints, each of which says what it is.
fn lines(scratch: &Scratch, arguments: &[&str]) -> Vec<Value> {
    let said = scratch.succeed(arguments).stdout;
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn events(lines: &[Value]) -> String {
    lines.iter().map(|line| line["event"].as_str().unwrap()).collect::<Vec<_>>().join(" ")
}

#[test]
fn device_that_is_not_there_is_refused_with_a_way_out() {
    let scratch = Scratch::new();
    let absent = scratch.run(&["doctor", "--device", "vulkan:99"]);
    assert_eq!(absent.code, Some(2), "{}", absent.stderr);
    assert!(absent.stderr.contains("vulkan:99"), "{}", absent.stderr);
    assert!(absent.stderr.contains("help"), "{}", absent.stderr);

    let nonsense = scratch.run(&["doctor", "--device", "gpu"]);
    assert_eq!(nonsense.code, Some(2), "{}", nonsense.stderr);
    assert!(nonsense.stderr.contains("such as vulkan:0"), "{}", nonsense.stderr);
}

/// Trains the tiny recipe on the device under test, and resumes it. A second run without a stop ends with the same
/// bits. The suite checks that the numbers are right.
#[test]
fn device_runs_are_equal() {
    let Ok(device) = std::env::var("FIREBRICK_TEST_DEVICE") else {
        eprintln!("SKIPPED: FIREBRICK_TEST_DEVICE names no device");
        return;
    };

    let (scratch, whole) = (Scratch::new(), Scratch::new());
    let recipe = repository("recipes/ci/tiny.toml");

    let train = |scratch: &Scratch, steps: &str, more: &[&str]| {
        // A group that waited for its step was sampled by an older policy, which is no mismatch. The last step of a
        // run evaluates, so all steps do.
        let fixed = ["sft.steps=20", "sampling.carry_over=false", "eval.every=1", steps];
        let fixed = fixed.iter().flat_map(|set| ["--set", set]);
        let asked = ["train", &recipe, "--device", &device].into_iter().chain(fixed);
        let outcome = scratch.run(&asked.chain(more.iter().copied()).collect::<Vec<_>>());
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert!(device == "cpu" || outcome.stderr.contains(&format!("on {device}, ")));
    };

    train(&scratch, "train.steps=2", &[]);
    train(&scratch, "train.steps=3", &["--resume"]);
    train(&whole, "train.steps=3", &[]);
    assert_same(&scratch.result("tiny"), &whole.result("tiny"));

    let steps = scratch.metrics("tiny");
    assert_eq!(steps.len(), 3);

    // A step without a group to train on compares nothing.
    let compared: Vec<_> =
        steps.iter().filter(|step| step.contains_key("rollout/logprob_diff_max")).collect();
    assert!(!compared.is_empty(), "no step made an update");
    for step in compared {
        for (metric, bound) in
            [("rollout/logprob_diff_max", 1e-4), ("rollout/logprob_diff_mean", 1e-5)]
        {
            let difference = step[metric].as_f64().unwrap();
            assert!(difference < bound, "{metric} is {difference}");
        }
    }
}
