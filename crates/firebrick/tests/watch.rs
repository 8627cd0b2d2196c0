//! What a run tells its watcher.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use firebrick::{Recipe, Session, Stage, Watcher};
use firebrick_core::{Metrics, Step};
use firebrick_runs::Summary;

/// Everything that was heard, in its order.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<Told>>>);

#[derive(Clone, Debug, PartialEq)]
enum Told {
    Begin(Stage, u64),
    Extend(u64),
    Advance(u64),
    End,
    Note(String),
    Metrics(Step, Vec<String>),
    Finished(u64, bool),
}

impl Heard {
    fn add(&self, told: Told) {
        self.0.lock().unwrap().push(told);
    }
}

impl Watcher for Heard {
    fn begin(&mut self, stage: Stage, total: u64) {
        self.add(Told::Begin(stage, total));
    }

    fn extend(&mut self, units: u64) {
        self.add(Told::Extend(units));
    }

    fn advance(&mut self, units: u64) {
        self.add(Told::Advance(units));
    }

    fn end(&mut self) {
        self.add(Told::End);
    }

    fn note(&mut self, text: &str) {
        self.add(Told::Note(text.to_owned()));
    }

    fn metrics(&mut self, step: Step, metrics: &Metrics) {
        self.add(Told::Metrics(step, metrics.0.keys().cloned().collect()));
    }

    fn finished(&mut self, summary: &Summary) {
        self.add(Told::Finished(
            summary.steps,
            summary.checkpoint.as_ref().is_some_and(|it| it.is_dir()),
        ));
    }
}

#[test]
fn a_watcher_hears_every_stage_and_changes_nothing() {
    let runs = tempfile::tempdir().unwrap();
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/ci/tiny.toml");
    let heard = Heard::default();
    let mut summaries = Vec::new();
    for name in ["watched", "alone"] {
        let set = ["warmup.steps=4", "warmup.every=2", "train.steps=2", &format!("name={name}")]
            .map(str::to_owned);
        let loaded = Recipe::load(&tiny, &set).unwrap();
        let session = Session::new(loaded).runs(runs.path());
        let session = match name {
            "watched" => session.watcher(heard.clone()),
            _ => session,
        };
        let summary = session.run().unwrap();
        assert_eq!(summary.stopped_because, "steps");
        summaries.push((summary.heldout, summary.completions));
    }
    assert_eq!(summaries[0], summaries[1]);

    let told = heard.0.lock().unwrap().clone();
    let (last, before) = told.split_last().unwrap();
    assert_eq!(*last, Told::Finished(2, true));
    assert!(matches!(&before[2], Told::Note(note) if note.starts_with("watched: ")), "{told:?}");
    let mut open: Vec<(Stage, u64, u64)> = Vec::new();
    let mut done: Vec<Stage> = Vec::new();
    for one in before {
        match one {
            Told::Begin(stage, total) => {
                // Only a warm-up has another stage in it.
                assert!(open.iter().all(|(outer, ..)| *outer == Stage::Warmup), "{told:?}");
                open.push((*stage, *total, 0));
            }
            Told::Extend(units) => open.last_mut().unwrap().1 += units,
            Told::Advance(units) => open.last_mut().unwrap().2 += units,
            Told::End => {
                let (stage, total, units) = open.pop().unwrap();
                // A warm-up may end before its last step, and an evaluation is of completions that end.
                assert!(units == total || stage == Stage::Warmup, "{stage:?}: {units} of {total}");
                done.push(stage);
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "{open:?}");
    for (stage, times) in [
        (Stage::Load, 1),
        (Stage::Warmup, 1),
        (Stage::Rollout, 2),
        (Stage::Update, 2),
        (Stage::Eval, 2),
        (Stage::Save, 1),
    ] {
        assert!(done.iter().filter(|&&of| of == stage).count() >= times, "{stage:?}: {done:?}");
    }
    let steps: Vec<Step> = before
        .iter()
        .filter_map(|one| match one {
            Told::Metrics(step, names) if names.contains(&"reward/mean".into()) => Some(*step),
            _ => None,
        })
        .collect();
    assert_eq!(steps, [1, 2]);
}
