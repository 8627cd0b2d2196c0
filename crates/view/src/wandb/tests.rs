//! Tests of W&B files against their format, byte by byte.

use std::{fs, time::UNIX_EPOCH};

use serde_json::json;

use super::*;

fn identity() -> Identity {
    let Value::Object(config) = json!({ "lr": 1e-6, "model": { "layers": [1, 2] } }) else {
        panic!("an object");
    };
    Identity {
        project: "addition".to_owned(),
        id: "first-try".to_owned(),
        name: "first try".to_owned(),
        started: UNIX_EPOCH + Duration::from_millis(1_700_000_000_500),
        config,
    }
}

/// Reads the records of a file that ends in its first block.
fn records(file: &[u8]) -> Vec<Record> {
    assert_eq!(file[..7], chunks::HEADER);
    let mut at = 7;
    let mut records = Vec::new();
    while at < file.len() {
        let length = usize::from(u16::from_le_bytes([file[at + 4], file[at + 5]]));
        records.push(Record::decode(&file[at + 7..at + 7 + length]).unwrap());
        at += 7 + length;
    }
    records
}

#[test]
fn a_run_is_written_once_however_often_it_is_exported() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("wandb/offline-run-20231114_221320-first-try");
    for _ in 0..2 {
        let mut log = Wandb::create(folder.path(), &identity()).unwrap();
        assert!(!run.join("run-first-try.wandb.synced").exists());
        log.log(0, 1_700_000_002.0, &[("loss".to_owned(), f64::NAN)]).unwrap();
        log.log(7, 1_700_000_004.0, &[("reward/credit".to_owned(), 0.1)]).unwrap();
        log.finish(3).unwrap();
        fs::write(run.join("run-first-try.wandb.synced"), "").unwrap();
    }
    assert!(run.join("files").is_dir());

    let records = records(&fs::read(run.join("run-first-try.wandb")).unwrap());
    assert_eq!(records.iter().map(|record| record.num).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
    let config = records[1].run.as_ref().unwrap().config.as_ref().unwrap();
    assert_eq!(
        config.update,
        [
            Item::plain("lr", "1e-6".to_owned()),
            Item::plain("model", r#"{"layers":[1,2]}"#.to_owned())
        ]
    );

    let steps: Vec<_> = records.iter().filter_map(|record| record.history.as_ref()).collect();
    assert_eq!(steps[0].item[0], Item::nested(["loss"], "NaN".to_owned()));
    assert_eq!(
        *steps[1],
        History {
            item: vec![
                Item::nested(["reward/credit"], "0.1".to_owned()),
                Item::nested(["_timestamp"], "1700000004.0".to_owned()),
                Item::nested(["_runtime"], "3.5".to_owned()),
                Item::nested(["_step"], "7".to_owned()),
            ],
            step: Some(Step { num: 7 }),
        }
    );
    assert_eq!(records[6].exit, Some(Exit { exit_code: 3, runtime: 3 }));
}

#[test]
fn an_id_stays_in_its_folder_and_is_one_that_the_sdk_takes() {
    let folder = tempfile::tempdir().unwrap();
    for id in ["", "..", "a/b", "a#b", " a", "50%"] {
        let bad = Identity { id: id.to_owned(), ..identity() };
        let error = Wandb::create(folder.path(), &bad).unwrap_err();
        assert!(matches!(error, ViewError::WandbId { .. }), "{error}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Dates are those that `date -u` prints for the seconds of Unix time.
#[test]
fn dates_are_those_of_the_calendar() {
    for (seconds, text) in [
        (0, "19700101_000000"),
        (951_782_399, "20000228_235959"),
        (951_782_400, "20000229_000000"),
        (951_868_800, "20000301_000000"),
        (1_767_225_599, "20251231_235959"),
        (4_107_542_400, "21000301_000000"),
    ] {
        assert_eq!(stamp(Duration::from_secs(seconds)), text);
    }
}

#[test]
fn numbers_are_read_as_what_they_were() {
    for value in [0.1 + 0.2, 1e300, -0.0, 5e-324, 16_777_217.0] {
        let read: f64 = serde_json::from_str(&number(value)).unwrap();
        assert_eq!(read.to_bits(), value.to_bits());
    }
    assert_eq!(number(f64::INFINITY), "Infinity");
    assert_eq!(number(f64::NEG_INFINITY), "-Infinity");
}
