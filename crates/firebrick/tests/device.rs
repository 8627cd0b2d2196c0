//! Devices as a user of the program meets them: listed, absent, failing, and trained on.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod place;

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use firebrick::{
    ProgramError,
    recipe::Recipe,
    run::{Progress, Run},
    wire::wire,
};
use firebrick_core::{AdvantageEstimator, Group};
use firebrick_data::DateTime;
use firebrick_device::guard;
use firebrick_models::Decoder;
use firebrick_rollout::{GroupRequest, RequestId, RolloutEngine, RolloutError, Wait};
use firebrick_runs::{Bars, ProgressDrawTarget, RunFolder, Store, Terminal};
use firebrick_train::{KeepAll, TrainerState};
use place::{Place, repository};
use serde_json::Value;

#[test]
fn device_doctor_lists_what_is_there_and_what_is_missing() {
    let place = Place::new();
    let outcome = place.succeed(&["doctor", "--json", "--smoke", "--device", "cpu"]);
    let findings: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(findings["devices"][0]["device"], "cpu");
    assert_eq!(findings["reports"][0]["passed"], true);
    assert!(findings["features"].as_array().unwrap().contains(&"cpu".into()));
    // ROCm and Metal go with no common machine, so that of six kinds one is not compiled in.
    let all = place.succeed(&["doctor"]);
    assert!(all.stdout.contains("not in this build; "), "{}", all.stdout);
}

#[test]
fn device_that_is_not_there_is_refused_with_a_way_out() {
    let place = Place::new();
    let absent = place.run(&["doctor", "--device", "vulkan:99"]);
    assert_eq!(absent.code, Some(2), "{}", absent.stderr);
    assert!(absent.stderr.contains("vulkan:99"), "{}", absent.stderr);
    assert!(absent.stderr.contains("help"), "{}", absent.stderr);
    let nonsense = place.run(&["doctor", "--device", "gpu"]);
    assert_eq!(nonsense.code, Some(2), "{}", nonsense.stderr);
    assert!(nonsense.stderr.contains("such as vulkan:0"), "{}", nonsense.stderr);
}

/// The device under test trains the tiny recipe, and resumes it; that the numbers are right is the
/// suite's business.
#[test]
fn device_trains_the_tiny_recipe() {
    let Ok(device) = std::env::var("FIREBRICK_TEST_DEVICE") else {
        eprintln!("SKIPPED: FIREBRICK_TEST_DEVICE names no device");
        return;
    };
    let place = Place::new();
    let recipe = repository("recipes/ci/tiny.toml");
    let train = |steps: &str, more: &[&str]| {
        // A group that waited for its step was sampled by an older policy, which is no mismatch.
        let fixed = ["warmup.steps=20", "sampling.surplus=drop", steps];
        let fixed = fixed.iter().flat_map(|set| ["--set", set]);
        let asked = ["train", &recipe, "--device", &device].into_iter().chain(fixed);
        let outcome = place.run(&asked.chain(more.iter().copied()).collect::<Vec<_>>());
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert!(device == "cpu" || outcome.stderr.contains(&format!("on {device}, ")));
    };
    train("train.steps=2", &[]);
    train("train.steps=3", &["--resume"]);
    let about = place.succeed(&["doctor", "--json", "--device", &device]).stdout;
    let about: Value = serde_json::from_str(&about).unwrap();
    // TF32 rounds a thousandfold coarser, and may do so in only one of the two ways.
    let coarser = if about["devices"][0]["tf32"] == true { 1e3 } else { 1.0 };
    let steps = place.metrics("tiny");
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
            assert!(difference < bound * coarser, "{metric} is {difference}");
        }
    }
}

/// Out of memory in the third step, in the words of burn's GPU runtimes.
#[derive(Default)]
struct Failing {
    engine: Option<Box<dyn RolloutEngine<Decoder>>>,
    calls_left: usize,
}

impl RolloutEngine<Decoder> for Failing {
    fn publish(&mut self, policy: &Decoder, version: u64) -> Result<(), RolloutError> {
        self.engine.as_mut().map_or(Ok(()), |engine| engine.publish(policy, version))
    }

    fn submit(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        match &mut self.engine {
            Some(engine) if self.calls_left > 0 => {
                self.calls_left -= 1;
                engine.submit(requests)
            }
            _ => Err(RolloutError::Device(
                "Caused by: out of device memory allocating 3221225472 bytes\nBacktrace: …".into(),
            )),
        }
    }

    fn poll(
        &mut self,
        wait: Wait,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<(RequestId, Group)>, RolloutError> {
        self.engine.as_mut().map_or(Ok(Vec::new()), |engine| engine.poll(wait, finished))
    }
}

#[test]
fn device_out_of_memory_is_told_after_what_was_learnt_is_saved() {
    let place = Place::new();
    // No warm-up and nothing to evaluate: every call is a step's one round, and the third fails.
    let settings = ["warmup.steps=0", "sampling.max_rounds=1", "checkpoint.every=100"];
    let settings = settings.map(str::to_owned);
    let recipe = Recipe::load(repository("recipes/ci/tiny.toml").as_ref(), &settings).unwrap();
    let mut wired =
        wire(&recipe.recipe, None, &firebrick::source::Sources::here(), DateTime::default())
            .unwrap();
    wired.heldout.clear();
    let engine = std::mem::replace(&mut wired.trainer.engine, Box::new(Failing::default()));
    wired.trainer.engine = Box::new(Failing { engine: Some(engine), calls_left: 2 });
    let folder = RunFolder::create(&place.path("runs"), "failing").unwrap();
    let bars = Bars::new(ProgressDrawTarget::hidden());
    let run = Run {
        recipe: recipe.recipe,
        wired,
        store: Store::open(&folder.database()).unwrap(),
        folder,
        terminal: Terminal::new(Box::new(std::io::sink()), bars.clone(), false, 6),
        bars,
        interrupted: Arc::new(AtomicBool::new(false)),
        progress: Progress::default(),
        clock: Instant::now(),
        warmup: None,
        phase: String::new(),
    };
    let Err(error) = run.run() else { panic!("it went on without memory") };
    let ProgramError::DeviceFailed { phase, problem, remedy, saved, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(phase, "step 3");
    assert!(problem.starts_with("it has no memory for 3.0 GiB; "), "{problem}");
    assert!(problem.ends_with(" GiB are there"), "{problem}");
    assert!(remedy.contains("train.micro_batch_tokens (now"), "{remedy}");
    assert!(saved.starts_with("step 2 is saved in"), "{saved}");
    assert!(place.path("runs/failing/checkpoints/step-000002/config.json").is_file());
    assert_eq!(error.exit_code(), 1);
}

/// Fails where a device most likely runs out of memory: after sampling, before a weight has moved.
struct Panicking;

impl AdvantageEstimator for Panicking {
    fn advantages(&self, _: &[f32]) -> Vec<f32> {
        panic!("out of device memory allocating 1 bytes")
    }
}

#[test]
fn device_failure_before_the_update_leaves_the_place_in_the_data() {
    let settings = ["warmup.steps=0", "sampling.surplus=keep"].map(str::to_owned);
    let recipe = Recipe::load(repository("recipes/ci/tiny.toml").as_ref(), &settings).unwrap();
    let mut trainer =
        wire(&recipe.recipe, None, &firebrick::source::Sources::here(), DateTime::default())
            .unwrap()
            .trainer;
    trainer.task.filter = Box::new(KeepAll);
    trainer.step(&mut ()).unwrap();
    let before = trainer.state.clone();
    let group_norm = std::mem::replace(&mut trainer.task.advantage, Box::new(Panicking));
    assert!(guard(|| trainer.step(&mut ()).map(drop)).is_err(), "it trained without advantages");
    assert!(!trainer.midway);
    let generated = trainer.state.generated;
    assert_eq!(trainer.state, TrainerState { generated, ..before.clone() });
    // So a resumed run takes the very step that failed.
    trainer.task.advantage = group_norm;
    trainer.step(&mut ()).unwrap();
    assert!(trainer.state.cursor > before.cursor);
}
