//! Faults that only a program of your own can put into a run, and histories that take too long to make.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod parts;

use std::{path::Path, sync::atomic::AtomicUsize, sync::atomic::Ordering};

use firebrick::{
    Completion, Group, Metrics, PolicyLoss, Prompt, Recipe, RewardScale, RewardedGroup,
    RolloutEngine, Score, Session, Tracker as _,
    build::{build_run, now},
    diagnose::{Finding, diagnose},
    models::Decoder,
    recipe::Loaded,
    rollout::{GroupRequest, LocalEngine, RequestId, RolloutError, SampleOn, Wait},
    runs::Store,
    source::Sources,
    train::algorithm::{LossInput, LossOutput},
};

fn tiny() -> Loaded {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/ci/tiny.toml");
    Recipe::load(&path, &["train.steps=12".to_owned()]).unwrap()
}

/// Returns the names of the findings in the run.
fn found(runs: &Path) -> Vec<&'static str> {
    let store = Store::open_read_only(&runs.join("tiny/run.db")).unwrap();
    let findings = diagnose(&store, &tiny().recipe).unwrap().findings;
    findings.into_iter().map(|finding| finding.name).collect()
}

/// Returns the findings in a history of so many steps, whose numbers follow from the share of the steps that is done.
fn found_in<const N: usize>(
    recipe: &Recipe,
    steps: u32,
    numbers: impl Fn(f64) -> [(&'static str, f64); N],
) -> Vec<Finding> {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("run.db")).unwrap();
    for step in 1..=steps {
        let numbers = numbers(f64::from(step) / f64::from(steps));
        let metrics = Metrics(numbers.map(|(name, value)| (name.to_owned(), value)).into());
        store.log(step.into(), &metrics).unwrap();
    }
    diagnose(&store, recipe).unwrap().findings
}

/// A loss of the policy gradient that is not a number at its sixth call.
struct Broken(AtomicUsize);

impl PolicyLoss for Broken {
    fn loss(&self, input: &LossInput) -> LossOutput {
        let broken = self.0.fetch_add(1, Ordering::Relaxed) == 5;
        let token_loss =
            (input.logprobs.clone() * input.advantages.clone()).neg() * input.mask.clone();
        let token_loss = token_loss * if broken { f32::NAN } else { 1.0 };
        LossOutput { token_loss, metrics: Vec::new() }
    }
}

#[test]
fn a_loss_that_is_no_number_is_found() {
    let folder = tempfile::tempdir().unwrap();
    Session::new(tiny()).runs(folder.path()).loss(Broken(AtomicUsize::new(0))).run().unwrap();
    assert_eq!(found(folder.path()), ["skipped"]);
}

/// An engine that samples at another temperature than it is asked for.
struct Hot {
    engine: LocalEngine<Decoder>,
    factor: f64,
}

impl RolloutEngine<Decoder> for Hot {
    fn publish(&mut self, policy: &Decoder, version: u64) -> Result<(), RolloutError> {
        self.engine.publish(policy, version)
    }

    fn submit(&mut self, mut requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        for request in &mut requests {
            let mut sampling = (*request.sampling).clone();
            sampling.temperature *= self.factor;
            request.sampling = sampling.into();
        }
        self.engine.submit(requests)
    }

    fn poll(
        &mut self,
        wait: Wait,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<(RequestId, Group)>, RolloutError> {
        self.engine.poll(wait, finished)
    }
}

#[test]
fn a_sampler_at_another_temperature_is_found() {
    for (factor, expected) in [(1.0, None), (1.5, Some("mismatch"))] {
        let folder = tempfile::tempdir().unwrap();
        let built = build_run(&tiny().recipe, None, &Sources::here(), now()).unwrap();
        let engine = LocalEngine::new(
            &built.trainer.learner.policy,
            built.tokenizer.clone(),
            64,
            64,
            SampleOn::Host,
        );
        Session::new(tiny()).runs(folder.path()).engine(Hot { engine, factor }).run().unwrap();
        assert_eq!(found(folder.path()).first().copied(), expected, "{factor}");
    }
}

#[test]
fn what_goes_wrong_slowly_is_found_in_the_numbers() {
    // A course returns the entropy, credit and length of each step. Next to it stand the findings after 40 steps.
    type Course = fn(f64) -> (f64, f64, f64);
    let courses: [(Course, &[&str]); 6] = [
        (|done| (0.5 - 0.45 * done, 0.3 + 0.6 * done, 80.0 + 60.0 * done), &[]),
        (|done| (0.5, 0.3 + 0.01 * (done * 97.0).sin(), 80.0), &[]),
        (|done| ((0.5 - done).max(0.01), 0.4, 80.0), &["entropy-gone"]),
        (|done| ((0.5 - done).max(0.01), 0.95, 80.0), &[]),
        (|done| (0.5 + 2.0 * done, 0.6 - 0.5 * done, 80.0), &["entropy-grows"]),
        (|done| (0.5, 0.3, 80.0 + 200.0 * done), &["length-grows"]),
    ];

    for (number, (course, expected)) in courses.into_iter().enumerate() {
        let numbers = |done: f64| {
            let (entropy, credit, length) = course(done);
            [
                ("loss/entropy", entropy),
                ("reward/credit", credit),
                ("rollout/length_mean", length),
                ("sampling/completions", 128.0),
                ("update/count", 1.0),
                ("update/lr", 1e-6),
            ]
        };

        let mut recipe = tiny().recipe;
        recipe.loss.kind = firebrick::recipe::LossKind::Dapo {
            clip_ratio_low: 0.2,
            clip_ratio_high: 0.2,
            dual_clip: None,
        };

        let findings = found_in(&recipe, 40, numbers);
        let names: Vec<&str> = findings.iter().map(|finding| finding.name).collect();
        assert_eq!(names, expected, "course {number}");
        if names == ["entropy-gone"] {
            assert!(findings[0].remedy.contains("loss.clip_ratio_high (0.2) to 0.28"));
        }
    }
}

#[test]
fn one_answer_to_everything_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("run.db")).unwrap();
    let scale = RewardScale { right: 1.0, wrong: -1.0 };
    let group = |draw: u64| {
        let reference = (draw % 9).to_string();
        let prompt = Prompt { id: draw, reference, ..Prompt::default() };
        let group = Group { prompt, completions: vec![Completion::of_text("7"); 4], step: 0, draw };
        RewardedGroup { group: group.into(), rewards: vec![scale.reward(Score::wrong("7")); 4] }
    };

    for step in 1..=10 {
        let metrics = Metrics([("sampling/completions".to_owned(), 40.0)].into());
        store.log(step, &metrics).unwrap();
        store
            .log_groups(step, &(0..10).map(|draw| group(10 * step + draw)).collect::<Vec<_>>())
            .unwrap();
    }

    let findings = diagnose(&store, &tiny().recipe).unwrap().findings;
    assert_eq!((findings[0].name, findings.len()), ("one-answer", 1));
    assert!(findings[0].evidence[0].contains("\"7\" was given 400 times"), "{:?}", findings[0]);
    assert_eq!((findings[0].shown.len(), findings[0].shown[0].step), (3, 10));
}

#[test]
fn a_rate_that_is_far_too_low_is_found() {
    // The quickstart at 3e-8, a ten-thousandth of its rate, and at its own rate.
    for (rate, mean, most, expected) in
        [(3e-8, 3.4e-6, 9e-4, &["still"] as &[&str]), (3e-4, 7e-3, 3.0, &[])]
    {
        let numbers = |_| {
            [
                ("sampling/completions", 128.0),
                ("update/count", 4.0),
                ("update/lr", rate),
                ("loss/logprob_change", mean),
                ("loss/logprob_change_max", most),
            ]
        };

        let findings = found_in(&tiny().recipe, 20, numbers);
        let names: Vec<&str> = findings.iter().map(|finding| finding.name).collect();
        assert_eq!(names, expected, "at a rate of {rate}");
    }

    // SmolLM2-135M with one update a step: adapters at three rates, and all weights at the first of them.
    // The last two have nothing to learn from.
    for (rate, moved, credit, expected) in [
        (1e-6, 0.002, 0.1, &["still"] as &[&str]),
        (1e-5, 0.02, 0.1, &[]),
        (3e-4, 0.2, 0.1, &[]),
        (1e-6, 0.046, 0.1, &[]),
        (3e-4, 0.002, 0.95, &[]),
        (3e-4, 0.002, 0.0, &[]),
    ] {
        let numbers = |_| {
            [
                ("sampling/completions", 160.0),
                ("update/count", 1.0),
                ("update/lr", rate),
                ("update/logprob_moved", moved),
                ("reward/credit", credit),
                ("loss/logprob_change_max", 0.0),
            ]
        };
        let findings = found_in(&tiny().recipe, 20, numbers);
        let names: Vec<&str> = findings.iter().map(|finding| finding.name).collect();
        assert_eq!(names, expected, "{moved} at a rate of {rate}");
    }
}

#[test]
fn a_form_that_the_policy_has_to_learn_first_is_found() {
    // A course returns the completions of 100 that can't be read, and the credit.
    type Course = fn(f64) -> [f64; 2];
    let courses: [(Course, Option<&str>, &[&str]); 4] = [
        (|done| [90.0 * (1.0 - done), 0.4 * done], Some("a-model"), &["form"]),
        (|done| [60.0 * (1.0 - done), 0.4 * done], Some("a-model"), &[]),
        (|done| [90.0 * (1.0 - done), 0.6 + 0.3 * done], Some("a-model"), &[]),
        // A new model has to learn everything.
        (|done| [90.0 * (1.0 - done), 0.4 * done], None, &[]),
    ];

    for (number, (course, model, expected)) in courses.into_iter().enumerate() {
        let numbers = |done: f64| {
            let [unparsable, credit] = course(done);
            [
                ("reward/unparsable", unparsable),
                ("reward/credit", credit),
                ("sampling/completions", 100.0),
                ("update/count", 1.0),
                ("update/lr", 1e-6),
            ]
        };

        let mut recipe = tiny().recipe;
        recipe.model.path = model.map(Into::into);
        let findings = found_in(&recipe, 20, numbers);
        let names: Vec<&str> = findings.iter().map(|finding| finding.name).collect();
        assert_eq!(names, expected, "course {number}");
    }
}

#[test]
fn rewards_without_worth_and_lost_speed_are_found() {
    // A course returns for each step the right completions of 100, the credit of the form, the held-out accuracy,
    // the seconds of judging and the tokens per second.
    type Course = fn(f64) -> [f64; 5];
    let courses: [(Course, &[&str]); 6] = [
        (|done| [60.0 * done, 0.2 + 0.8 * done, 0.6 * done, 0.1, 900.0], &[]),
        (|done| [5.0, 0.2 + 0.8 * done, 0.05, 0.1, 900.0], &["by-form"]),
        (|done| [30.0 + 40.0 * done, 0.9, 0.6 - 0.4 * done, 0.1, 900.0], &["by-heart"]),
        (|done| [30.0 + 40.0 * done, 0.9, 0.5 + 0.02 * done, 5.0, 900.0], &["slow"]),
        (|done| [30.0 + 40.0 * done, 0.9, 0.5, 0.1, 900.0 - 700.0 * done], &["slow"]),
        (|done| [30.0 + 40.0 * done, 0.9, 0.5, 0.1, 900.0 - 300.0 * done], &[]),
    ];

    let weighted = [
        "reward.kind=weighted".to_owned(),
        "reward.parts=[{ name = \"answer\", weight = 1.0, kind = \"integer\" }, \
         { name = \"form\", weight = 1.0, kind = \"integer\" }]"
            .to_owned(),
    ];
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/ci/tiny.toml");
    let recipe = Recipe::load(&path, &weighted).unwrap().recipe;

    for (number, (course, expected)) in courses.into_iter().enumerate() {
        let numbers = |done: f64| {
            let [right, form, heldout, judging, speed] = course(done);
            [
                ("loss/entropy", 0.5),
                ("reward/credit", right / 100.0),
                ("reward/right", right),
                ("reward/part/form", form),
                ("eval/heldout_accuracy", heldout),
                ("rollout/length_mean", 80.0),
                ("rollout/tokens_per_second", speed),
                ("sampling/completions", 100.0),
                ("time/step", 2.0 + judging),
                ("time/rollout", 1.0),
                ("time/update", 1.0),
                ("time/reward_wait", judging),
                ("update/count", 1.0),
                ("update/lr", 1e-6),
            ]
        };

        let findings = found_in(&recipe, 40, numbers);
        let names: Vec<&str> = findings.iter().map(|finding| finding.name).collect();
        assert_eq!(names, expected, "course {number}");
    }
}

#[test]
fn a_reward_that_never_rises_is_found() {
    // A course returns for each of 120 steps the credit in training and held out, and the filtered groups of 20.
    type Course = fn(f64) -> [f64; 3];
    let courses: [(Course, &[&str], &str); 6] = [
        (|done| [if done < 0.5 { 2.0 * done } else { 0.1 }, 0.5, 4.0], &["fell"], "optim.lr"),
        (|_| [0.3, 0.3, 4.0], &["flat"], "optim.lr"),
        (|_| [0.3, 0.3, 15.0], &["flat"], "rollout.group_size"),
        (|done| [0.3 + 0.3 * done, 0.3, 4.0], &[], ""),
        (|done| [0.3, 0.3 + 0.1 * done, 4.0], &[], ""),
        (|_| [0.95, 0.95, 4.0], &[], ""),
    ];

    for (number, (course, expected, remedy)) in courses.into_iter().enumerate() {
        let numbers = |done: f64| {
            let [credit, heldout, filtered] = course(done);
            [
                ("reward/credit", credit),
                ("eval/heldout_accuracy", heldout),
                ("sampling/groups_filtered", filtered),
                ("sampling/groups_sampled", 20.0),
                ("sampling/completions", 160.0),
                ("update/count", 1.0),
                ("update/lr", 1e-6),
            ]
        };

        let findings = found_in(&tiny().recipe, 120, numbers);
        let names: Vec<&str> = findings.iter().map(|finding| finding.name).collect();
        assert_eq!(names, expected, "course {number}");
        assert!(findings.iter().all(|finding| finding.remedy.contains(remedy)), "course {number}");
    }
}
