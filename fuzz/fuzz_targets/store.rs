//! A damaged database of a run is read or refused, and so are its contents. The input is either a whole file,
//! or a list of bytes to overwrite in a good one.
#![no_main]

use std::{fs, io, path::Path, sync::LazyLock};

use firebrick_core::{
    Completion, FinishReason, Group, Metrics, Prompt, RewardScale, RewardedGroup, Score,
    Tracker as _, Verdict,
};
use firebrick_fuzz::with_file;
use firebrick_runs::{Outcome, Store, TRAIN, Which};
use libfuzzer_sys::fuzz_target;

static GOOD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    with_file("good.db", b"", |path| {
        let mut store = Store::open(path).expect("a new database");
        let group = |draw| {
            let tokens = vec![draw as u32; 9];
            let written = Completion::written(tokens, vec![-0.5; 9], FinishReason::Stop);
            let prompt = Prompt { id: draw, text: "3+4=".into(), ..Prompt::default() };
            Group { prompt, completions: vec![written.with_text("7"); 2], step: 0, draw }
        };
        for step in 1..=3 {
            store.log(step, &Metrics([("reward/mean".to_owned(), 0.5)].into())).expect("metrics");
            store.keep(TRAIN, step, &[([0; 32], group(step))]).expect("a group");
            store.event(step, "a line").expect("an event");
            let reward = RewardScale { right: 1.0, wrong: -1.0 }.reward(Score::right("7"));
            let judged = RewardedGroup { group: group(step).into(), rewards: vec![reward; 2] };
            store.record(TRAIN, step, &[judged], &Outcome::default()).expect("verdicts");
        }
        drop(store);
        fs::read(path).expect("the database")
    })
});

fuzz_target!(|bytes: &[u8]| {
    let mut file = GOOD.clone();
    for patch in bytes.as_chunks::<4>().0 {
        let [value, place @ ..] = *patch;
        let place = place.iter().fold(0, |place, &byte| place << 8 | usize::from(byte));
        let length = file.len();
        file[place % length] = value;
    }
    let whole = bytes.starts_with(b"SQLite format 3");
    with_file("run.db", if whole { bytes } else { &file }, read);
});

fn read(path: &Path) {
    for store in [Store::open_read_only(path), Store::open(path)] {
        let mut store = match store {
            Ok(store) => store,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                continue;
            }
        };
        for name in store.metric_names().unwrap_or_default() {
            let _ = store.metrics(&name);
        }
        let _ = store.export_jsonl(&mut io::sink());
        let _ = store.info("seed");
        for step in 1..=3 {
            if let Ok(Some(completions)) = store.recall(TRAIN, step, (step, step), &[0; 32]) {
                assert!(completions.iter().all(|it| it.tokens.len() == it.logprobs.len()));
            }
        }
        let steps = 1..=3;
        let _ = (store.last_step(), store.last_sampled(), store.series(&["reward/mean"], &steps));
        for which in
            [Which::Verdict(Verdict::Right), Which::CutOff, Which::WithoutSpread, Which::Any]
        {
            let _ = store.judged(&steps, which, 3);
        }
        let _ = (store.errors(&steps), store.most_given(&steps), store.was_told("a line"));
        let _ = store.truncate_after(2);
        let _ = store.forget_unjudged(2);
        let _ = store.forget_tokens(TRAIN, 1, 0);
        let _ = store.limit(1 << 12);
    }
    for ending in ["db-wal", "db-shm"] {
        let _ = fs::remove_file(path.with_extension(ending));
    }
}
