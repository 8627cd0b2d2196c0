//! Whole runs from a program of one's own.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use burn::tensor::Device;
use firebrick::{
    Completion, Error, INTERRUPTED, Metrics, Prompt, PromptSource, Recipe, Score, Seed, Session,
    Step, TrackError, Tracker, Verifier,
    data::{DateTime, Prompts, Tokenizer},
    models::{Decoder, DecoderConfig, Family, Sizes, random},
    source::Sources,
    train::{GroupNorm, TrainError},
    wire::wire,
};

fn tiny(set: &[&str]) -> firebrick::recipe::Loaded {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/ci/tiny.toml");
    let set: Vec<String> = set.iter().map(|&set| set.to_owned()).collect();
    Recipe::load(&path, &set).unwrap()
}

const LETTERS: &str = "0123456789+=;";

/// Right is what has an even number of characters.
struct Even;

impl Verifier for Even {
    fn score(&self, _: &Prompt, completion: &Completion) -> Score {
        let length = completion.text.chars().count();
        if length.is_multiple_of(2) { Score::right("") } else { Score::wrong("") }
    }
}

fn prompts(tokenizer: &Tokenizer, count: u64) -> Vec<Prompt> {
    let prompt = |id: u64| {
        let text = format!("{}+{}=", id % 7, id % 5);
        let tokens = tokenizer.encode(&text, false).unwrap();
        Prompt { id, tokens, text, ..Prompt::default() }
    };
    (0..count).map(prompt).collect()
}

fn policy(tokenizer: &Tokenizer, device: &Device) -> Decoder {
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
    random(&DecoderConfig::new(Family::Qwen2, sizes), Seed::run(5), device).unwrap()
}

/// A session with nothing from a file.
fn own(runs: &Path, name: &str, steps: u64) -> Session<Decoder> {
    let tokenizer = Tokenizer::characters(LETTERS).unwrap();
    let policy = policy(&tokenizer, &Device::flex().autodiff());
    let all = prompts(&tokenizer, 40);
    let (heldout, train) = all.split_at(8);
    let source = Prompts::new(train.to_vec(), Seed::run(17)).unwrap();
    Session::builder(policy, tokenizer, source, Even)
        .context(64)
        .heldout(heldout.to_vec())
        .runs(runs)
        .name(name)
        .settings(|recipe| {
            recipe.rollout.group_size = 4;
            recipe.rollout.max_completion_tokens = 6;
            recipe.sampling.prompts_per_step = 4;
            (recipe.optim.lr, recipe.optim.warmup_steps) = (1e-3, 0);
            (recipe.train.steps, recipe.train.mini_batch) = (steps, 8);
            (recipe.checkpoint.every, recipe.eval.every) = (2, 2);
        })
}

#[test]
fn what_is_replaced_is_never_built() {
    let place = tempfile::tempdir().unwrap();
    // Neither judge nor data are there, and nobody asks for them.
    let loaded = tiny(&[
        "reward.kind=command",
        "reward.program=['no-such-judge']",
        "warmup={}",
        "train.steps=1",
    ]);
    let refused = Session::new(loaded.clone()).runs(place.path()).run().unwrap_err();
    assert!(matches!(refused, Error::Reward(_)), "{refused}");
    let tokenizer = Tokenizer::characters(LETTERS).unwrap();
    let source = Prompts::new(prompts(&tokenizer, 20), Seed::run(1)).unwrap();
    let fingerprint = source.fingerprint();
    let summary = Session::new(loaded)
        .runs(place.path())
        .verifier(Even)
        .source(source)
        .heldout(prompts(&tokenizer, 3))
        .run()
        .unwrap();
    assert_eq!((summary.steps, summary.stopped_because.as_str()), (1, "steps"));
    assert!(summary.heldout.r#final.is_some());

    // The state knows the prompts that were trained on, and the card what the recipe does not say.
    let checkpoint = summary.checkpoint.unwrap();
    let state = std::fs::read_to_string(checkpoint.join("trainer/state.json")).unwrap();
    assert!(state.contains(&format!("\"prompts\":{fingerprint}")), "{state}");
    let card = std::fs::read_to_string(checkpoint.join("README.md")).unwrap();
    assert!(card.contains("the verifier, the training prompts, the held-out prompts"), "{card}");
}

#[test]
fn a_policy_of_a_programs_own_goes_on_to_the_bit() {
    let place = tempfile::tempdir().unwrap();
    let weights = |summary: &firebrick::Summary| {
        std::fs::read(summary.checkpoint.as_ref().unwrap().join("policy.safetensors")).unwrap()
    };
    let whole = own(place.path(), "whole", 6).run().unwrap();
    own(place.path(), "parts", 4).run().unwrap();
    let parts = own(place.path(), "parts", 6).resume(true).run().unwrap();
    assert_eq!((parts.steps, parts.heldout.r#final), (6, whole.heldout.r#final));
    assert!(weights(&parts) == weights(&whole), "a resumed run ended elsewhere");
    assert!(weights(&whole) != weights(&own(place.path(), "short", 2).run().unwrap()));

    let card = std::fs::read_to_string(whole.checkpoint.unwrap().join("README.md")).unwrap();
    assert!(!card.contains("transformers"), "{card}");

    // The name is taken, and nothing is written over.
    let taken = own(place.path(), "whole", 6).run().unwrap_err();
    assert_eq!(taken.exit_code(), 2, "{taken}");
}

#[test]
fn a_flag_ends_a_run_after_its_step() {
    /// Sets the flag in the second step.
    struct Ends(Arc<AtomicBool>);

    impl Tracker for Ends {
        fn log(&mut self, step: Step, _: &Metrics) -> Result<(), TrackError> {
            self.0.store(step == 2, Ordering::Relaxed);
            Ok(())
        }
    }

    let place = tempfile::tempdir().unwrap();
    let flag = Arc::new(AtomicBool::new(false));
    let (tracker, seen) = (Ends(flag.clone()), flag.clone());
    let ended = own(place.path(), "run", 6).tracker(tracker).interrupted_by(|| seen).run().unwrap();
    assert_eq!((ended.steps, ended.stopped_because.as_str()), (2, INTERRUPTED));
    let ended = own(place.path(), "run", 3).resume(true).run().unwrap();
    assert_eq!((ended.steps, ended.stopped_because.as_str()), (3, "steps"));
}

#[test]
fn a_tracker_that_fails_ends_no_run() {
    struct Full(Arc<Mutex<Vec<Step>>>);

    impl Tracker for Full {
        fn log(&mut self, step: Step, _: &Metrics) -> Result<(), TrackError> {
            self.0.lock().unwrap().push(step);
            Err(TrackError("the disk is full".into()))
        }
    }

    #[derive(Clone, Default)]
    struct Notes(Arc<Mutex<Vec<String>>>);

    impl firebrick::Watcher for Notes {
        fn note(&mut self, text: &str) {
            self.0.lock().unwrap().push(text.to_owned());
        }
    }

    let place = tempfile::tempdir().unwrap();
    let (steps, notes) = (Arc::default(), Notes::default());
    let tracker = Full(Arc::clone(&steps));
    let session = own(place.path(), "run", 1).tracker(tracker).watcher(notes.clone());
    assert_eq!(session.run().unwrap().steps, 1);
    // The step, and its evaluation.
    assert_eq!(*steps.lock().unwrap(), [1, 1]);
    let lost = "a tracker has lost step 1: the disk is full";
    assert!(notes.0.lock().unwrap().iter().any(|note| note == lost));
}

/// With `gae` and no critic a trainer once took plain rewards for advantages, in silence.
#[test]
fn a_trainer_takes_advantages_from_one_place() {
    let loaded = tiny(&["warmup.steps=0", "advantage.kind=gae"]);
    let wired = wire(&loaded.recipe, None, &Sources::here(), DateTime::default()).unwrap();
    let mut trainer = wired.trainer;
    let error = trainer.step(&mut ()).unwrap_err();
    assert!(matches!(error, TrainError::NoAdvantage), "{error}");
    trainer.critic = wired.critic.map(|plan| plan.beside(&trainer.policy));
    trainer.task.advantage = Some(Box::new(GroupNorm::default()));
    let error = trainer.step(&mut ()).unwrap_err();
    assert!(matches!(error, TrainError::TwoAdvantages), "{error}");
    trainer.task.advantage = None;
    trainer.step(&mut ()).unwrap();
}

#[test]
fn settings_of_a_program_are_checked_as_those_of_a_file() {
    let place = tempfile::tempdir().unwrap();
    let session = own(place.path(), "run", 1).settings(|recipe| recipe.train.mini_batch = 1000);
    let error = session.run().unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("train.mini_batch is 1000"), "{error}");

    let tokenizer = Tokenizer::characters(LETTERS).unwrap();
    let policy = policy(&tokenizer, &Device::flex());
    let source = Prompts::new(prompts(&tokenizer, 4), Seed::run(17)).unwrap();
    let session = Session::builder(policy, tokenizer, source, Even).runs(place.path());
    assert!(matches!(session.run().unwrap_err(), Error::NoAutodiff));
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "a run was begun");
}

#[test]
fn other_prompts_are_refused_to_a_resumed_session() {
    let place = tempfile::tempdir().unwrap();
    own(place.path(), "run", 2).run().unwrap();
    let tokenizer = Tokenizer::characters(LETTERS).unwrap();
    let others = Prompts::new(prompts(&tokenizer, 9), Seed::run(17)).unwrap();
    let session = own(place.path(), "run", 4).source(others).resume(true);
    let error = session.run().unwrap_err();
    assert!(matches!(error, Error::OtherPrompts { .. }), "{error}");
}
