//! What a run reports to its watcher.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use firebrick::{Recipe, Session, Stage, Watcher, diagnose::ENDED, follow::Follow};
use firebrick_core::{Metrics, Step, Tracker as _};
use firebrick_runs::{Store, Summary};

/// Everything that was heard, in order.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<Event>>>);

#[derive(Clone, Debug, PartialEq)]
enum Event {
    Begin(Stage, u64),
    Extend(u64),
    Advance(u64),
    End,
    Note(String),
    Metrics(Step, Vec<String>),
    Finished(u64, bool),
}

impl Recorder {
    fn add(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }
}

impl Watcher for Recorder {
    fn begin(&mut self, stage: Stage, total: u64) {
        self.add(Event::Begin(stage, total));
    }

    fn extend(&mut self, units: u64) {
        self.add(Event::Extend(units));
    }

    fn advance(&mut self, units: u64) {
        self.add(Event::Advance(units));
    }

    fn end(&mut self) {
        self.add(Event::End);
    }

    fn note(&mut self, text: &str) {
        self.add(Event::Note(text.to_owned()));
    }

    fn metrics(&mut self, step: Step, metrics: &Metrics) {
        self.add(Event::Metrics(step, metrics.0.keys().cloned().collect()));
    }

    fn finished(&mut self, summary: &Summary) {
        self.add(Event::Finished(
            summary.steps,
            summary.checkpoint.as_ref().is_some_and(|it| it.is_dir()),
        ));
    }
}

#[test]
fn a_watcher_hears_every_stage_and_changes_nothing() {
    let runs = tempfile::tempdir().unwrap();
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/ci/tiny.toml");
    let recorder = Recorder::default();
    let mut summaries = Vec::new();
    for name in ["watched", "alone"] {
        let set = ["sft.steps=4", "sft.every=2", "train.steps=2", &format!("name={name}")]
            .map(str::to_owned);
        let loaded = Recipe::load(&tiny, &set).unwrap();
        let session = Session::new(loaded).runs(runs.path());
        let session = match name {
            "watched" => session.watcher(recorder.clone()),
            _ => session,
        };
        let summary = session.run().unwrap().summary;
        assert_eq!(summary.stopped_because, "steps");
        summaries.push((summary.heldout, summary.completions));
    }
    assert_eq!(summaries[0], summaries[1]);

    let told = recorder.0.lock().unwrap().clone();
    let (last, before) = told.split_last().unwrap();
    assert_eq!(*last, Event::Finished(2, true));
    assert!(matches!(&before[2], Event::Note(note) if note.starts_with("watched: ")), "{told:?}");

    let mut open: Vec<(Stage, u64, u64)> = Vec::new();
    let mut done: Vec<Stage> = Vec::new();
    for one in before {
        match one {
            Event::Begin(stage, total) => {
                // Only SFT has another stage in it.
                assert!(open.iter().all(|(outer, ..)| *outer == Stage::Sft), "{told:?}");
                open.push((*stage, *total, 0));
            }
            Event::Extend(units) => open.last_mut().unwrap().1 += units,
            Event::Advance(units) => open.last_mut().unwrap().2 += units,
            Event::End => {
                let (stage, total, units) = open.pop().unwrap();
                // SFT may end before its last step, and an evaluation counts completions that end.
                assert!(units == total || stage == Stage::Sft, "{stage:?}: {units} of {total}");
                done.push(stage);
            }
            _ => {}
        }
    }

    assert!(open.is_empty(), "{open:?}");
    for (stage, times) in [
        (Stage::Load, 1),
        (Stage::Sft, 1),
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
            Event::Metrics(step, names) if names.contains(&"reward/mean".into()) => Some(*step),
            _ => None,
        })
        .collect();
    assert_eq!(steps, [1, 2]);
}

#[test]
fn who_follows_a_record_hears_each_number_once_and_again_what_comes_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("run.db")).unwrap();
    let log = |store: &mut Store, step: Step, name: &str| {
        store.log(step, &Metrics([(name.to_owned(), 0.5)].into())).unwrap();
    };

    let mut follow = Follow::new();
    let mut hear = |store: &Store| {
        let recorder = Recorder::default();
        let ended = follow.catch_up(store, &mut recorder.clone()).unwrap();
        let told = std::mem::take(&mut *recorder.0.lock().unwrap());
        let numbers = told.into_iter().filter_map(|event| match event {
            Event::Metrics(step, names) => Some((step, names.join(" "))),
            _ => None,
        });
        (numbers.collect::<Vec<_>>(), ended)
    };
    let told = |pairs: &[(Step, &str)]| {
        pairs.iter().map(|(step, name)| (*step, (*name).to_owned())).collect::<Vec<_>>()
    };

    assert_eq!(hear(&store), (vec![], None));
    for step in 1..=3 {
        log(&mut store, step, "reward/mean");
    }
    let all = [(1, "reward/mean"), (2, "reward/mean"), (3, "reward/mean")];
    assert_eq!(hear(&store).0, told(&all));
    assert_eq!(hear(&store).0, vec![]);
    log(&mut store, 3, "eval/heldout_accuracy");
    assert_eq!(hear(&store).0, told(&[(3, "eval/heldout_accuracy")]));

    // The run continues from an earlier checkpoint, and comes as far as it was before anybody looks.
    store.truncate_after(1).unwrap();
    for step in 2..=3 {
        log(&mut store, step, "reward/mean");
    }
    assert_eq!(hear(&store).0, told(&all[1..]));

    // Two of these steps belong to no run, and one is far beyond the steps that are there.
    for step in [1 << 40, u64::MAX, 1 << 62] {
        log(&mut store, step, "reward/mean");
    }
    assert_eq!(hear(&store).0, told(&[(1 << 40, "reward/mean")]));

    store.set_info(ENDED, "steps").unwrap();
    assert_eq!(hear(&store).1.as_deref(), Some("steps"));
}
