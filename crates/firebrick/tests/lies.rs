//! An engine elsewhere that says false log-probabilities: nothing is learnt from them.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use burn::tensor::Device;
use firebrick::{
    Completion, Group, Metrics, Prompt, RolloutEngine, Score, Seed, Session, Step, Verifier,
    Watcher,
    data::{Prompts, Tokenizer},
    models::{Decoder, DecoderConfig, Family, Sizes, random},
    rollout::{GroupRequest, LocalEngine, RequestId, RolloutError, SampleOn, Wait},
};

/// A verifier for which an even number of characters is right.
struct Even;

impl Verifier for Even {
    fn score(&self, _: &Prompt, completion: &Completion) -> Score {
        let length = completion.text.chars().count();
        if length.is_multiple_of(2) { Score::right("") } else { Score::wrong("") }
    }
}

/// An engine that changes the log-probabilities of some groups.
struct Liar {
    engine: LocalEngine<Decoder>,
    /// Tells what is said instead of a true number, for groups of these numbers.
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

/// Keeps what a run tells.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<(Vec<String>, Vec<Metrics>)>>);

impl Watcher for Heard {
    fn note(&mut self, text: &str) {
        self.0.lock().unwrap().0.push(text.to_owned());
    }

    fn metrics(&mut self, _: Step, metrics: &Metrics) {
        self.0.lock().unwrap().1.push(metrics.clone());
    }
}

impl Heard {
    fn sum(&self, name: &str) -> f64 {
        self.0.lock().unwrap().1.iter().filter_map(|metrics| metrics.get(name)).sum()
    }

    fn note(&self) -> Option<String> {
        self.0.lock().unwrap().0.iter().find(|it| it.contains("were not trained on")).cloned()
    }
}

/// Runs two steps, and returns what the run told and the weights that it ended with.
fn run(
    runs: &Path,
    name: &str,
    tolerance: Option<f64>,
    lie: fn(f32) -> f32,
    lies: fn(RequestId) -> bool,
) -> (Heard, Vec<u8>) {
    let tokenizer = Arc::new(Tokenizer::characters("0123456789+=;").unwrap());
    let sizes = Sizes {
        vocab_size: tokenizer.rows(),
        hidden_size: 16,
        layers: 2,
        heads: 2,
        kv_heads: 2,
        head_dim: 8,
        intermediate_size: 32,
        max_position_embeddings: 64,
        rope_theta: 10_000.0,
        tied: true,
    };
    let policy = |device: &Device| {
        random(&DecoderConfig::new(Family::Qwen2, sizes.clone()), Seed::run(5), device).unwrap()
    };
    let prompt = |id: u64| {
        let text = format!("{}+{}=", id % 7, id % 5);
        let tokens = tokenizer.encode(&text, false).unwrap();
        Prompt { id, tokens, text, ..Prompt::default() }
    };
    let source = Prompts::new((0..32).map(prompt).collect(), Seed::run(17)).unwrap();
    let first = policy(&Device::flex());
    let engine = LocalEngine::new(&first, tokenizer.clone(), 64, 64, SampleOn::Host);
    let heard = Heard::default();
    let own = Tokenizer::characters("0123456789+=;").unwrap();
    let session = Session::builder(policy(&Device::flex().autodiff()), own, source, Even)
        .context(64)
        .runs(runs)
        .name(name)
        .engine(Liar { engine, lie, lies, tolerance })
        .watcher(heard.clone())
        .settings(|recipe| {
            recipe.rollout.group_size = 4;
            recipe.rollout.max_completion_tokens = 6;
            recipe.sampling.prompts_per_step = 4;
            (recipe.optim.lr, recipe.optim.warmup_steps) = (1e-3, 0);
            (recipe.train.steps, recipe.train.mini_batch) = (2, 8);
            recipe.checkpoint.every = 2;
        });
    let summary = session.run().unwrap();
    let weights = summary.checkpoint.unwrap().join("policy.safetensors");
    (heard, std::fs::read(weights).unwrap())
}

const TOLERANCE: Option<f64> = Some(0.02);

#[test]
fn true_numbers_are_all_trained_on() {
    let place = tempfile::tempdir().unwrap();
    let (trusted, weights) = run(place.path(), "trusted", None, |it| it, |_| false);
    let (checked, same) = run(place.path(), "checked", TOLERANCE, |it| it, |_| false);
    assert!(weights == same);
    assert!(trusted.sum("update/count") >= 4.0);
    assert_eq!((checked.sum("rollout/refused"), checked.note()), (0.0, None));
}

/// The log-probability that a server says in place of its own.
type Lie = fn(f32) -> f32;

#[test]
fn nothing_is_learnt_from_a_server_that_lies_about_everything() {
    let place = tempfile::tempdir().unwrap();
    let lies: [(&str, Lie); 4] = [
        ("impossible", |_| -9998.0),
        ("certain", |_| 0.0),
        ("flattered", |it| it / 2.0),
        ("shifted", |it| it - 0.1),
    ];
    for (name, lie) in lies {
        let (heard, _) = run(place.path(), name, TOLERANCE, lie, |_| true);
        assert_eq!(heard.sum("update/count"), 0.0, "{name}");
        assert_eq!(heard.sum("update/tokens"), 0.0, "{name}");
        assert!(heard.sum("rollout/refused") >= 16.0, "{name}");
        assert!(heard.note().unwrap().contains("rollout.engine.tolerance"), "{name}");
    }
}

#[test]
fn a_lie_about_some_groups_costs_these_alone() {
    let place = tempfile::tempdir().unwrap();
    let lies: [(&str, Lie); 2] = [("impossible", |_| -9998.0), ("certain", |_| 0.0)];
    for (name, lie) in lies {
        let (heard, _) = run(place.path(), name, TOLERANCE, lie, |id| id % 2 == 0);
        let (refused, updates) = (heard.sum("rollout/refused"), heard.sum("update/count"));
        assert!(refused > 0.0 && updates > 0.0, "{name}: {refused} refused, {updates} updates");
        // All that was trained on is near the trainer's numbers, or as near as the step's own updates leave it.
        assert!(heard.sum("loss/logprob_change") < 1.0, "{name}");
    }
}
