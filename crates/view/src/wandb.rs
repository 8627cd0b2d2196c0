//! A run in the format that Weights & Biases' program uploads.

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use prost::Message;
use serde_json::Value;

use self::messages::{
    Config, Exit, Header, History, Item, Record, Run, Step, Summary, Timestamp, VersionInfo,
};
use crate::{
    EventLog, ViewError,
    records::{Records, create_folder, remove, since_1970},
};

mod chunks;
mod messages;

/// Identity of a run in a folder of W&B.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Project on W&B that the run is uploaded to.
    pub project: String,
    /// Permanent id of the run in the project. W&B does not accept another run under an id that was deleted.
    pub id: String,
    /// Name that is shown.
    pub name: String,
    /// When the run began.
    pub started: SystemTime,
    /// Settings, whose first level makes the columns of W&B's tables.
    pub config: serde_json::Map<String, Value>,
}

/// A run of Weights & Biases as its SDK writes it with `WANDB_MODE=offline`, for `wandb sync` to upload.
///
/// Values are exact. NaN and infinities are kept.
///
/// The file consists of chunks in the format of LevelDB's log, with `Record` messages of `wandb_internal.proto`.
/// The SDK 0.31 writes this format, and the SDKs 0.31 and 0.22 read it. From these messages `wandb sync` makes
/// everything else that it uploads, such as `config.yaml`.
#[derive(Debug)]
pub struct Wandb {
    records: Records,
    /// Number of the next record, starting at 1.
    next: i64,
    started: Duration,
    /// Time that the run has taken up to its latest step, in seconds.
    runtime: f64,
}

impl Wandb {
    /// Makes `wandb/offline-run-YYYYMMDD_HHMMSS-ID/run-ID.wandb` in `folder`, with the time in UTC. A file of the
    /// same run is replaced. If that file was uploaded, the new one counts as not uploaded yet.
    ///
    /// # Errors
    /// Fails if W&B would not take the id, or if the file system refuses.
    pub fn create(folder: &Path, identity: &Identity) -> Result<Self, ViewError> {
        let id = &identity.id;

        // The id may have no separators, no `..`, and nothing that the SDK's settings refuse. A `%` would get into
        // an address.
        if firebrick_core::check_run_name(id).is_err()
            || id.trim() != id
            || id.contains([':', ';', ',', '#', '?', '/', '\'', '%'])
        {
            return Err(ViewError::WandbId { id: id.clone() });
        }

        let started = since_1970(identity.started);
        let run = folder.join("wandb").join(format!("offline-run-{}-{id}", stamp(started)));
        // `wandb sync` writes into this folder, but does not make it.
        create_folder(&run.join("files"))?;
        remove(&run.join(format!("run-{id}.wandb.synced")))?;

        let mut records = Records::create(run.join(format!("run-{id}.wandb")))?;
        records.append(&chunks::HEADER)?;
        let mut log = Self { records, next: 1, started, runtime: 0.0 };
        log.append([
            Record {
                header: Some(Header {
                    version_info: Some(VersionInfo {
                        producer: concat!("firebrick-", env!("CARGO_PKG_VERSION")).to_owned(),
                    }),
                }),
                ..Record::default()
            },
            Record { run: Some(run_message(identity, started)), ..Record::default() },
        ])?;
        Ok(log)
    }

    /// Appends `messages`, and numbers them.
    fn append<const N: usize>(&mut self, messages: [Record; N]) -> Result<(), ViewError> {
        let mut bytes = Vec::new();
        let mut number = self.next;
        for message in messages {
            let data = Record { num: number, ..message }.encode_to_vec();
            chunks::append(&mut bytes, self.records.length(), &data);
            number += 1;
        }

        self.records.append(&bytes)?;
        self.next = number;
        Ok(())
    }
}

impl EventLog for Wandb {
    fn log(&mut self, step: u64, time: f64, values: &[(String, f64)]) -> Result<(), ViewError> {
        self.runtime = (time - self.started.as_secs_f64()).max(0.0);
        let mut items: Vec<Item> =
            values.iter().map(|(name, value)| Item::nested([name], number(*value))).collect();
        items.push(Item::nested(["_timestamp"], number(time)));
        items.push(Item::nested(["_runtime"], number(self.runtime)));
        items.push(Item::nested(["_step"], step.to_string()));

        // W&B's tables show the summary of a run, and W&B does not derive it from the steps.
        let mut update = items.clone();
        update.push(Item::nested(["_wandb", "runtime"], (self.runtime as i64).to_string()));

        let history = History { item: items, step: Some(Step { num: step.cast_signed() }) };
        self.append([
            Record { summary: Some(Summary { update }), ..Record::default() },
            Record { history: Some(history), ..Record::default() },
        ])
    }

    fn finish(&mut self, exit_code: i32) -> Result<(), ViewError> {
        let exit = Exit { exit_code, runtime: self.runtime as i32 };
        self.append([Record { exit: Some(exit), ..Record::default() }])
    }
}

fn run_message(identity: &Identity, started: Duration) -> Run {
    let config =
        identity.config.iter().map(|(key, value)| Item::plain(key, value.to_string())).collect();
    Run {
        run_id: identity.id.clone(),
        project: identity.project.clone(),
        config: Some(Config { update: config }),
        display_name: identity.name.clone(),
        start_time: Some(Timestamp {
            seconds: started.as_secs().cast_signed(),
            nanos: started.subsec_nanos().cast_signed(),
        }),
    }
}

/// Writes a number as the SDK does: as JSON, with three additional words for NaN and infinities. The text is the
/// shortest one that is read as the same number.
fn number(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
    } else {
        format!("{value:?}")
    }
}

/// Writes the date and the time of day in UTC, as `YYYYMMDD_HHMMSS`.
///
/// The date is counted in years that begin in March, so that the leap day is the last day of its year (Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms").
fn stamp(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs();
    // Day 0 is 1 March of year 0, and 400 years have 146097 days.
    let day = seconds / 86_400 + 719_468;
    let era = day / 146_097;
    let day = day % 146_097;
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);

    // Months from March have 31, 30, 31, 30, 31 days, repeatedly: five in 153 days.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (turn, month) = if month < 10 { (0, month + 3) } else { (1, month - 9) };
    let year = 400 * era + year + turn;

    let hour = seconds / 3_600 % 24;
    let minute = seconds / 60 % 60;
    let second = seconds % 60;
    format!("{year:04}{month:02}{day:02}_{hour:02}{minute:02}{second:02}")
}

#[cfg(test)]
mod tests;
