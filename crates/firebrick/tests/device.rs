//! A device that fails: the steps that are saved, and the message.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

use std::path::{Path, PathBuf};

use burn::{optim::GradientsParams, tensor::Device};
use firebrick::{Error, Recipe, Session, build::build_run, source::Sources};
use firebrick_core::{AdvantageEstimator, Advantages, Group, RewardedGroup};
use firebrick_data::DateTime;
use firebrick_device::guard;
use firebrick_models::Decoder;
use firebrick_rollout::{GroupRequest, RequestId, RolloutEngine, RolloutError, Wait};
use firebrick_train::{
    Learner, TrainError, TrainerState,
    learner::{Optimizer, StepOutcome},
    sampler::KeepAll,
};

fn tiny() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/ci/tiny.toml")
}

/// An engine that is out of memory in the third step, in the words of burn's GPU runtimes.
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
    let folder = tempfile::tempdir().unwrap();
    // There is no SFT and nothing to evaluate: every call is a step's one round, and the third fails.
    let settings = ["sft={}", "sampling.max_rounds=1", "checkpoint.every=100"];
    let settings = settings.map(str::to_owned);

    let recipe = Recipe::load(&tiny(), &settings).unwrap();
    let built = build_run(&recipe.recipe, None, &Sources::here(), DateTime::default()).unwrap();
    let engine = Failing { engine: Some(built.trainer.sampler.engine), calls_left: 2 };
    let run =
        Session::new(recipe).runs(folder.path()).name("failing").heldout(Vec::new()).engine(engine);

    let Err(error) = run.run() else { panic!("it continued without memory") };
    let Error::DeviceFailed { phase, problem, remedy, saved, .. } = &error else {
        panic!("{error}");
    };

    assert_eq!(phase, "step 3");
    assert!(problem.starts_with("it has no memory for 3.0 GiB; "), "{problem}");
    assert!(problem.ends_with(" GiB in all"), "{problem}");
    assert!(remedy.contains("rollout.max_sequences (now"), "{remedy}");
    assert!(saved.starts_with("step 2 is saved in"), "{saved}");
    assert!(folder.path().join("failing/checkpoints/step-000002/config.json").is_file());
    assert_eq!(error.exit_code(), 1);
}

/// An estimator that fails where a device most likely runs out of memory: after sampling, before a weight has
/// moved.
struct Panicking;

impl AdvantageEstimator for Panicking {
    fn advantages(&self, _: &[RewardedGroup]) -> Vec<Advantages> {
        panic!("out of device memory allocating 1 bytes")
    }
}

#[test]
fn device_failure_before_the_update_leaves_the_position_in_the_data() {
    let settings = ["sft={}", "sampling.carry_over=true"].map(str::to_owned);
    let recipe = Recipe::load(&tiny(), &settings).unwrap();
    let mut trainer =
        build_run(&recipe.recipe, None, &Sources::here(), DateTime::default()).unwrap().trainer;
    trainer.sampler.task.filter = Box::new(KeepAll);
    trainer.step(&mut ()).unwrap();

    let before = trainer.state.clone();
    let group_norm = trainer.sampler.task.advantage.replace(Box::new(Panicking));

    assert!(guard(|| trainer.step(&mut ()).map(drop)).is_err(), "it trained without advantages");
    assert!(!trainer.learner.is_mid_step());
    let generated = trainer.state.generated;
    assert_eq!(trainer.state, TrainerState { generated, ..before.clone() });

    // So a resumed run repeats the very step that failed.
    trainer.sampler.task.advantage = group_norm;
    trainer.step(&mut ()).unwrap();
    assert!(trainer.state.cursor > before.cursor);
}

/// An optimizer that skips its first gradient, and fails at the next.
#[derive(Default)]
struct Faulty {
    calls: usize,
}

impl Optimizer<Decoder> for Faulty {
    fn step(
        &mut self,
        module: Decoder,
        _: GradientsParams,
        _: f64,
    ) -> Result<(Decoder, StepOutcome), TrainError> {
        self.calls += 1;
        match self.calls {
            1 => Ok((module, StepOutcome { grad_norm: f64::NAN, grad_scale: 0.0, skipped: true })),
            _ => Err(TrainError::Other("it is gone".into())),
        }
    }

    fn save(&self, _: &Path) -> Result<(), TrainError> {
        Ok(())
    }

    fn load(&mut self, _: &Decoder, _: &Path, _: &Device) -> Result<(), TrainError> {
        Ok(())
    }

    fn reset(&mut self) {}
}

#[test]
fn a_step_that_fails_before_weights_move_leaves_no_count_of_skips() {
    let recipe = Recipe::load(&tiny(), &["sft={}".to_owned()]).unwrap();
    let mut trainer =
        build_run(&recipe.recipe, None, &Sources::here(), DateTime::default()).unwrap().trainer;
    trainer.sampler.task.filter = Box::new(KeepAll);
    trainer.learner.optimizer = Box::new(Faulty::default());
    let before = trainer.state.clone();

    let error = trainer.step(&mut ()).unwrap_err();
    assert_eq!(error.to_string(), "it is gone");
    assert!(!trainer.learner.is_mid_step());
    let generated = trainer.state.generated;
    assert_eq!(trainer.state, TrainerState { generated, ..before });
}
