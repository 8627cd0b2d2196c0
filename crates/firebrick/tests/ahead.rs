//! Runs that sample a step while the one before it is trained on. They end and continue as others do.

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

use firebrick::{INTERRUPTED, Recipe, Session, build::build_run, recipe::Loaded, source::Sources};
use firebrick_core::{
    Completion, Group, GroupFilter, Prompt, RewardedGroup, Score, Verifier, VerifierFailed,
};
use firebrick_data::DateTime;
use firebrick_models::Decoder;
use firebrick_rollout::{GroupRequest, RequestId, RolloutEngine, RolloutError, Wait};
use firebrick_train::sampler::KeepAll;

const AHEAD: &str = "rollout.max_staleness=1";

fn tiny(set: &[&str]) -> Loaded {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/ci/tiny.toml");
    let always = ["train.steps=5", "checkpoint.every=1"];
    let set: Vec<String> = always.iter().chain(set).map(|&set| set.to_owned()).collect();
    Recipe::load(&path, &set).unwrap()
}

/// Ends a run while its fourth step is sampled ahead, and after the update that runs next to it.
#[derive(Clone, Default)]
struct End {
    flag: Arc<AtomicBool>,
    asked: Arc<AtomicBool>,
}

impl End {
    /// Ends the run if the fourth step was asked for.
    fn come(&self) -> bool {
        let asked = self.asked.load(Ordering::Relaxed);
        if asked {
            // The third step's update takes some milliseconds.
            thread::sleep(Duration::from_secs(2));
            self.flag.store(true, Ordering::Relaxed);
        }
        asked
    }
}

/// An engine during whose work the run ends, or that leaves the end to the judge.
struct Ending {
    engine: Box<dyn RolloutEngine<Decoder>>,
    end: End,
    left_to_judge: bool,
}

impl RolloutEngine<Decoder> for Ending {
    fn publish(&mut self, policy: &Decoder, version: u64) -> Result<(), RolloutError> {
        self.engine.publish(policy, version)
    }

    fn submit(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        if requests.iter().any(|request| request.step == 4) {
            self.end.asked.store(true, Ordering::Relaxed);
        }
        self.engine.submit(requests)
    }

    fn poll(
        &mut self,
        wait: Wait,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<(RequestId, Group)>, RolloutError> {
        if !self.left_to_judge && self.end.come() {
            return Ok(Vec::new());
        }
        self.engine.poll(wait, finished)
    }
}

/// A judge during whose work the run ends.
struct Judge {
    verifier: Box<dyn Verifier>,
    end: End,
}

impl Verifier for Judge {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        self.verifier.score(prompt, completion)
    }

    fn score_all(&self, asked: &[(&Prompt, &Completion)]) -> Result<Vec<Score>, VerifierFailed> {
        self.end.come();
        self.verifier.score_all(asked)
    }
}

#[test]
fn a_run_that_ends_while_it_samples_ahead_continues_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let weights = |name: &str| {
        fs::read(folder.path().join(name).join("checkpoints/step-000005/model.safetensors"))
            .unwrap()
    };

    for (name, set, left_to_judge) in [
        ("sampling", &[AHEAD][..], false),
        ("judging", &[AHEAD], true),
        ("judging-in-turn", &[], true),
    ] {
        let session = |name: &str| Session::new(tiny(set)).runs(folder.path()).name(name);
        let whole = session(&format!("whole-{name}")).run().unwrap().summary;
        let built =
            build_run(&tiny(set).recipe, None, &Sources::here(), DateTime::default()).unwrap();

        let end = End::default();
        let engine =
            Ending { engine: built.trainer.sampler.engine, end: end.clone(), left_to_judge };
        let judge = Judge { verifier: built.trainer.sampler.task.verifier, end: end.clone() };
        let run = session(name).engine(engine).verifier(judge);
        let ended = run.interrupted_by(move || end.flag).run().unwrap().summary;

        assert_eq!(ended.stopped_because, INTERRUPTED, "{name}");
        let resumed = session(name).resume(true).run().unwrap().summary;
        assert!(weights(&format!("whole-{name}")) == weights(name), "{name}: other weights");
        assert_eq!(resumed.completions.generated, whole.completions.generated, "{name}");
    }
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
    let folder = tempfile::tempdir().unwrap();
    let capped =
        [AHEAD, "sampling.on_cap=stop", "sampling.max_rounds=1", "sampling.prompts_per_step=8"];
    let session = || Session::new(tiny(&capped)).runs(folder.path()).name("capped");

    let ended = session().filter(Before(16)).run().unwrap().summary;
    assert_eq!(ended.steps, 2);
    assert!(ended.stopped_because.contains("sampling.max_rounds = 1"), "{}", ended.stopped_because);

    let whole = session().filter(KeepAll).resume(true).run().unwrap().summary;
    assert_eq!((whole.steps, whole.stopped_because.as_str()), (5, "steps"));
}
