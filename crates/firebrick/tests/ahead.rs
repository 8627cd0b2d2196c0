//! Runs that sample a step while the one before it is trained on. They end and go on as others do.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use firebrick::{INTERRUPTED, Recipe, Session, recipe::Loaded, source::Sources, wire::wire};
use firebrick_core::{Group, GroupFilter, RewardedGroup};
use firebrick_data::DateTime;
use firebrick_models::Decoder;
use firebrick_rollout::{GroupRequest, RequestId, RolloutEngine, RolloutError, Wait};
use firebrick_train::KeepAll;

fn tiny(set: &[&str]) -> Loaded {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/ci/tiny.toml");
    let always = ["rollout.max_staleness=1", "train.steps=5", "checkpoint.every=1"];
    let set: Vec<String> = always.iter().chain(set).map(|&set| set.to_owned()).collect();
    Recipe::load(&path, &set).unwrap()
}

/// An engine that ends the run while a step is sampled ahead, and after the update beside it.
struct Ending {
    engine: Box<dyn RolloutEngine<Decoder>>,
    flag: Arc<AtomicBool>,
    asked: bool,
}

impl RolloutEngine<Decoder> for Ending {
    fn publish(&mut self, policy: &Decoder, version: u64) -> Result<(), RolloutError> {
        self.engine.publish(policy, version)
    }

    fn submit(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        self.asked |= requests.iter().any(|request| request.step == 4);
        self.engine.submit(requests)
    }

    fn poll(
        &mut self,
        wait: Wait,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<(RequestId, Group)>, RolloutError> {
        if self.asked {
            // The third step's update takes some milliseconds.
            thread::sleep(Duration::from_secs(2));
            self.flag.store(true, Ordering::Relaxed);
            return Ok(Vec::new());
        }
        self.engine.poll(wait, finished)
    }
}

#[test]
fn a_run_that_ends_while_it_samples_ahead_goes_on_to_the_same_bits() {
    let place = tempfile::tempdir().unwrap();
    let session = |name: &str| Session::new(tiny(&[])).runs(place.path()).name(name);
    session("whole").run().unwrap();

    let wired = wire(&tiny(&[]).recipe, None, &Sources::here(), DateTime::default()).unwrap();
    let flag = Arc::new(AtomicBool::new(false));
    let engine = Ending { engine: wired.trainer.engine, flag: flag.clone(), asked: false };
    let ended = session("ended").engine(engine).interrupted_by(move || flag).run().unwrap();
    assert_eq!(ended.stopped_because, INTERRUPTED);
    session("ended").resume(true).run().unwrap();

    let weights = |name: &str| {
        fs::read(place.path().join(name).join("checkpoints/step-000005/model.safetensors")).unwrap()
    };
    assert!(weights("whole") == weights("ended"), "the weights are others");
}

/// A filter that keeps the groups with draws below this number.
struct Before(u64);

impl GroupFilter for Before {
    fn keep(&self, group: &RewardedGroup) -> bool {
        group.group.draw < self.0
    }
}

#[test]
fn a_step_that_ended_the_run_at_the_cap_is_sampled_again() {
    let place = tempfile::tempdir().unwrap();
    let capped = ["sampling.on_cap=stop", "sampling.max_rounds=1", "sampling.prompts_per_step=8"];
    let session = || Session::new(tiny(&capped)).runs(place.path()).name("capped");
    let ended = session().filter(Before(16)).run().unwrap();
    assert_eq!(ended.steps, 2);
    assert!(ended.stopped_because.contains("sampling.max_rounds = 1"), "{}", ended.stopped_because);
    let whole = session().filter(KeepAll).resume(true).run().unwrap();
    assert_eq!((whole.steps, whole.stopped_because.as_str()), (5, "steps"));
}
