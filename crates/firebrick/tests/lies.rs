//! An engine elsewhere that reports false log-probabilities: nothing is learnt from them.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod even;

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use burn::tensor::Device;
use firebrick::{
    Group, Metrics, OwnPolicy, RolloutEngine, Seed, Session, Step, Watcher,
    data::{Prompts, Tokenizer},
    models::Decoder,
    rollout::{GroupRequest, LocalEngine, RequestId, RolloutError, SampleOn, Wait},
};

use even::{Even, LETTERS, policy, prompts};

/// An engine that changes the log-probabilities of some groups.
struct Liar {
    engine: LocalEngine<Decoder>,
    /// Returns what is reported instead of a true number, for groups of these numbers.
    lie: fn(f32) -> f32,
    lies: fn(RequestId) -> bool,
    tolerance: Option<f64>,
}

impl RolloutEngine<Decoder> for Liar {
    fn publish(&mut self, policy: &Decoder, version: u64) -> Result<(), RolloutError> {
        self.engine.publish(policy, version)
    }

    fn submit(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        RolloutEngine::<Decoder>::submit(&mut self.engine, requests)
    }

    fn poll(
        &mut self,
        wait: Wait,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<(RequestId, Group)>, RolloutError> {
        let mut groups = RolloutEngine::<Decoder>::poll(&mut self.engine, wait, finished)?;
        for (_, group) in groups.iter_mut().filter(|(id, _)| (self.lies)(*id)) {
            for logprob in group.completions.iter_mut().flat_map(|it| &mut it.logprobs) {
                *logprob = (self.lie)(*logprob);
            }
        }
        Ok(groups)
    }

    fn tolerance(&self) -> Option<f64> {
        self.tolerance
    }
}

/// Keeps what a run reports.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<(Vec<String>, Vec<Metrics>)>>);

impl Watcher for Recorder {
    fn note(&mut self, text: &str) {
        self.0.lock().unwrap().0.push(text.to_owned());
    }

    fn metrics(&mut self, _: Step, metrics: &Metrics) {
        self.0.lock().unwrap().1.push(metrics.clone());
    }
}

impl Recorder {
    fn sum(&self, name: &str) -> f64 {
        self.0.lock().unwrap().1.iter().filter_map(|metrics| metrics.get(name)).sum()
    }

    fn note(&self) -> Option<String> {
        self.0.lock().unwrap().0.iter().find(|it| it.contains("were not trained on")).cloned()
    }
}

/// Runs two steps, and returns what the run reported and the weights that it ended with.
fn run(
    runs: &Path,
    name: &str,
    tolerance: Option<f64>,
    lie: fn(f32) -> f32,
    lies: fn(RequestId) -> bool,
) -> (Recorder, Vec<u8>) {
    let tokenizer = Tokenizer::characters(LETTERS).unwrap();
    let source = Prompts::new(prompts(&tokenizer, 32), Seed::run(17)).unwrap();
    let first = policy(&tokenizer, &Device::flex());
    let trained = policy(&tokenizer, &Device::flex().autodiff());
    let own = Arc::new(Tokenizer::characters(LETTERS).unwrap());
    let engine = LocalEngine::new(&first, own, 64, 64, SampleOn::Host);

    let recorder = Recorder::default();
    let own = OwnPolicy::new(trained, tokenizer).context(64);
    let session = Session::with_policy(own, source, Even)
        .runs(runs)
        .name(name)
        .engine(Liar { engine, lie, lies, tolerance })
        .watcher(recorder.clone())
        .settings(|recipe| {
            recipe.rollout.group_size = 4;
            recipe.rollout.max_completion_tokens = 6;
            recipe.sampling.prompts_per_step = 4;
            recipe.optim.lr = Some(1e-3);
            recipe.optim.warmup_steps = 0;
            recipe.train.steps = 2;
            recipe.train.mini_batch = 8;
            recipe.checkpoint.every = 2;
        });

    let summary = session.run().unwrap().summary;
    let weights = summary.checkpoint.unwrap().join("policy.safetensors");
    (recorder, std::fs::read(weights).unwrap())
}

const TOLERANCE: Option<f64> = Some(0.02);

#[test]
fn true_numbers_are_all_trained_on() {
    let folder = tempfile::tempdir().unwrap();
    let (trusted, weights) = run(folder.path(), "trusted", None, |it| it, |_| false);
    let (checked, same) = run(folder.path(), "checked", TOLERANCE, |it| it, |_| false);

    assert!(weights == same);
    assert!(trusted.sum("update/count") >= 4.0);
    assert_eq!((checked.sum("rollout/refused"), checked.note()), (0.0, None));
}

/// What a server reports instead of its own log-probability.
type Lie = fn(f32) -> f32;

#[test]
fn nothing_is_learnt_from_a_server_that_lies_about_everything() {
    let folder = tempfile::tempdir().unwrap();
    let lies: [(&str, Lie); 4] = [
        ("impossible", |_| -9998.0),
        ("certain", |_| 0.0),
        ("flattered", |it| it / 2.0),
        ("shifted", |it| it - 0.1),
    ];
    for (name, lie) in lies {
        let (recorder, _) = run(folder.path(), name, TOLERANCE, lie, |_| true);
        assert_eq!(recorder.sum("update/count"), 0.0, "{name}");
        assert_eq!(recorder.sum("update/tokens"), 0.0, "{name}");
        assert!(recorder.sum("rollout/refused") >= 16.0, "{name}");
        assert!(recorder.note().unwrap().contains("rollout.engine.tolerance"), "{name}");
    }
}

#[test]
fn a_lie_about_some_groups_costs_these_alone() {
    let folder = tempfile::tempdir().unwrap();
    let lies: [(&str, Lie); 2] = [("impossible", |_| -9998.0), ("certain", |_| 0.0)];
    for (name, lie) in lies {
        let (recorder, _) = run(folder.path(), name, TOLERANCE, lie, |id| id % 2 == 0);
        let refused = recorder.sum("rollout/refused");
        let updates = recorder.sum("update/count");
        assert!(refused > 0.0 && updates > 0.0, "{name}: {refused} refused, {updates} updates");
        // All that was trained on is near the trainer's numbers, or as near as the step's own updates leave it.
        assert!(recorder.sum("loss/logprob_change") < 1.0, "{name}");
    }
}
