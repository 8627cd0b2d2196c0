//! SQLite database of a run: its metrics, events and facts.

mod asked;
mod browsed;
mod opened;
mod sampled;
mod schema;

use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
    time::SystemTime,
};

use firebrick_core::{Metrics, RewardedGroup, Step, TrackError, Tracker, printable};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, params};
use serde_json::{Map, Value};

pub(crate) use self::opened::files;
pub use self::{
    asked::{Given, Judged, Which},
    browsed::{Listed, ListedGroup, Looked, Told, Written},
    sampled::{HELDOUT, Outcome, TRAIN},
};
use self::{
    opened::{LINE, NAME, short, sql_error},
    schema::{APPLICATION, PROMPTS, UNUSED, VERSION, creation},
};
use crate::RunError;

/// Record of a run: one SQLite file, which any SQLite client can read while the run writes.
///
/// | table | one row per | columns |
/// |---|---|---|
/// | `info` | fact about the run | `key`, `value` |
/// | `metrics` | number | `step`, `name`, `value` |
/// | `events` | line that was shown to a person | `time`, `step`, `text` |
/// | `groups` | sampled group | `group_id`, `source`, `step`, `draw`, `policy_step`, `prompt_id`, `prompt`, `reference`, `spread`, `status` |
/// | `completions` | completion | `group_id`, `completion`, `text`, `tokens`, `finish`, `policy_version`, `mean_logprob`, `verdict`, `credit`, `extracted`, `parts`, `base_reward`, `reward`, `in_loss` |
/// | `sampled` | group with its tokens | `group_id`, `request`, `completions` |
/// | `trained` | completion that was trained on | `group_id`, `completion`, `advantage`, `ratios`, `entropies` |
/// | `prompts` | prompt that was sampled for training | `prompt_id`, `prompt`, `groups`, `completions`, `right`, `last_draw`, `last_step`, `last_mean`, `last_variance` |
///
/// `source` is `train`, or the name of an evaluation, such as `heldout`, or `initial` before SFT. A group
/// is written when the engine has finished it ([`Store::keep`]). Its completions get their rows when it is
/// judged at the end of its step ([`Store::record`]). `parts` is a JSON object.
///
/// `sampled` has groups as the engine returned them. Its `completions` is a JSON array with the `tokens`,
/// `logprobs`, `text`, `finish` and `policy_version` of each completion, and with a `mask` if the policy did
/// not write all of its tokens. `request` is a hash of everything that the completions follow from: it tells a
/// resumed run which groups it need not sample again. The table has the steps since the last checkpoint, and
/// the steps that the recipe keeps (`record.tokens_every`).
///
/// `trained` has the mean advantage of each such completion. In the steps that keep their tokens it also has
/// two JSON arrays with a number for each token: its ratio to the policy that sampled it, and the entropy
/// there. Both are from the beginning of the completion's update.
///
/// `prompts` is a view, made from `groups` and `completions` when it is queried. It is the history of each prompt. The
/// columns starting at `last_draw` describe the prompt's last group; mean and variance (divided by the number) are over
/// the base rewards of its completions that count.
///
/// `spread` is the largest minus the smallest base reward of the completions that count. Dynamic sampling keeps a group
/// if it is above the tolerance. A NaN is stored as `NULL`, because SQLite can't store it otherwise, while infinities
/// are stored as they are. Unsigned numbers of 2⁶³ and above, such as hashed prompt ids, wrap to negative ones.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
    /// Work of the current query, in instructions of SQLite.
    work: Arc<AtomicU64>,
    /// Last step whose tokens were forgotten, by source.
    forgotten: BTreeMap<String, Step>,
}

impl Store {
    /// Opens the database at `path` to write, and makes it if there is none.
    ///
    /// # Errors
    /// When the file is damaged, another program's, from another version of Firebrick, not an ordinary file, or can't
    /// be opened, and when one of its tables is something else.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        let store = Store::connect(path, OpenFlags::default())?;
        store.check_schema()?;

        // WAL lets readers in while the run writes. With WAL, NORMAL loses at most the last transactions in a
        // power cut, which are groups of the current step.
        store
            .connection
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 4000; PRAGMA cache_size = -16000;",
            )
            .map_err(store.sql_error("open"))?;

        match store.version()? {
            Some(VERSION) => {}
            None => store.change("make", &creation())?,
            Some(found) => return Err(store.unknown(found)),
        }

        // The view and the index don't change the version, because an older program ignores both.
        store
            .connection
            .execute_batch(&format!("{PROMPTS} {UNUSED}"))
            .map_err(store.sql_error("open"))?;
        Ok(store)
    }

    /// Notes a fact about the run, such as its device, replacing an earlier value.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn set_info(&self, key: &str, value: &str) -> Result<(), RunError> {
        let sql = "INSERT OR REPLACE INTO info (key, value) VALUES (?1, ?2)";
        self.connection().execute(sql, [key, value]).map_err(self.sql_error("write to"))?;
        Ok(())
    }

    /// Returns the fact of that name, if it was noted.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn info(&self, key: &str) -> Result<Option<String>, RunError> {
        let sql = "SELECT value FROM info WHERE key = ?1";
        let value = self.connection().query_row(sql, [key], |row| short(row, 0, LINE)).optional();
        value.map_err(self.sql_error("read"))
    }

    /// Reads the values of one metric by step, in order. A value that was stored as NaN is NaN.
    ///
    /// # Errors
    /// When they can't be read.
    pub fn metrics(&self, name: &str) -> Result<Vec<(Step, f64)>, RunError> {
        let read = || -> rusqlite::Result<_> {
            let sql = "SELECT step, value FROM metrics WHERE name = ?1 ORDER BY step";
            let mut rows = self.connection().prepare_cached(sql)?;
            rows.query_map([name], |row| Ok((unsigned(row.get(0)?), number(row.get(1)?))))?
                .collect()
        };
        read().map_err(self.sql_error("read"))
    }

    /// Lists the names of all metrics, sorted.
    ///
    /// # Errors
    /// When they can't be read.
    pub fn metric_names(&self) -> Result<Vec<String>, RunError> {
        let read = || -> rusqlite::Result<_> {
            let sql = "SELECT DISTINCT name FROM metrics ORDER BY name";
            self.connection()
                .prepare_cached(sql)?
                .query_map([], |row| short(row, 0, NAME))?
                .collect()
        };
        read().map_err(self.sql_error("read"))
    }

    /// Writes the metrics as JSON Lines: one object a step, with `step` first and then the names sorted. A
    /// number that is not finite becomes one of the strings `"NaN"`, `"Infinity"`, `"-Infinity"`, because JSON
    /// has no numbers for them.
    ///
    /// # Errors
    /// When the database can't be read, or `writer` can't be written to.
    pub fn export_jsonl(&self, writer: &mut dyn Write) -> Result<(), RunError> {
        let sql = "SELECT step, name, value FROM metrics ORDER BY step, name";
        let mut query = self.connection().prepare(sql).map_err(self.sql_error("read"))?;
        let mut rows = query.query([]).map_err(self.sql_error("read"))?;

        let mut line: Option<(Step, Vec<(String, f64)>)> = None;
        while let Some(row) = rows.next().map_err(self.sql_error("read"))? {
            let cells = || Ok((row.get(0)?, short(row, 1, NAME)?, row.get(2)?));
            let (step, name, value): (i64, String, _) = cells().map_err(self.sql_error("read"))?;
            let step = unsigned(step);
            let number = (name, number(value));
            match &mut line {
                Some((current, numbers)) if *current == step => numbers.push(number),
                _ => {
                    if let Some((step, numbers)) = line.replace((step, vec![number])) {
                        writeln!(writer, "{}", json_line(step, numbers))
                            .map_err(RunError::Export)?;
                    }
                }
            }
        }

        if let Some((step, numbers)) = line {
            writeln!(writer, "{}", json_line(step, numbers)).map_err(RunError::Export)?;
        }
        writer.flush().map_err(RunError::Export)
    }

    /// Notes a line that was shown to a person during `step`.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn event(&self, step: Step, text: &str) -> Result<(), RunError> {
        let time = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64();
        let sql = "INSERT INTO events (time, step, text) VALUES (?1, ?2, ?3)";
        self.connection()
            .execute(sql, params![time, signed(step), text])
            .map_err(self.sql_error("write to"))?;
        Ok(())
    }

    /// Forgets the numbers that were logged after `step`, because a run resumed from the checkpoint of that step is
    /// about to make them again. The sampled groups stay, without their verdicts and what follows from these.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn truncate_after(&mut self, step: Step) -> Result<(), RunError> {
        self.truncate(step, signed(step))
    }

    /// Forgets the numbers and completions of all steps and evaluations, for a run that takes the place of another.
    ///
    /// # Errors
    /// As for [`Store::truncate_after`].
    pub fn clear(&mut self) -> Result<(), RunError> {
        self.truncate(0, -1)
    }

    /// Forgets what is after the step `last`, and says that the run continues from `step`.
    fn truncate(&mut self, step: Step, last: i64) -> Result<(), RunError> {
        self.transaction(|transaction| {
            // The last step that was done is noted before its numbers are removed.
            let sql = "INSERT INTO info (key, value) SELECT ?1, coalesce(max(step), 0) FROM metrics \
                       WHERE step BETWEEN 0 AND 1 << 53 ON CONFLICT DO UPDATE SET value = \
                       max(CAST(value AS INTEGER), CAST(excluded.value AS INTEGER))";
            transaction.execute(sql, [DONE])?;

            for sql in [
                "DELETE FROM metrics WHERE step > ?1",
                "UPDATE groups SET spread = NULL, status = NULL WHERE step > ?1",
                "DELETE FROM completions WHERE group_id IN (SELECT group_id FROM groups WHERE step > ?1)",
                "DELETE FROM trained WHERE group_id IN (SELECT group_id FROM groups WHERE step > ?1)",
            ] {
                transaction.execute(sql, [last])?;
            }

            let sql = "INSERT INTO info (key, value) VALUES (?1, '1 ' || ?2) ON CONFLICT DO UPDATE SET \
                       value = (CAST(value AS INTEGER) + 1) || ' ' || ?2";
            transaction.execute(sql, params![CUT, signed(step)])?;
            Ok(())
        })
    }

    /// Returns the last step that was done before numbers were forgotten; 0 if none was.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn done(&self) -> Result<Step, RunError> {
        Ok(self.info(DONE)?.and_then(|step| step.parse().ok()).unwrap_or(0))
    }

    /// Returns how often numbers were forgotten, and after which step the last time. A program that follows the run
    /// has then shown steps that come again. The answer is (0, 0) if it never happened.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn cuts(&self) -> Result<(u64, Step), RunError> {
        let cuts = self.info(CUT)?.unwrap_or_default();
        let (count, step) = cuts.split_once(' ').unwrap_or_default();
        Ok((count.parse().unwrap_or(0), step.parse().unwrap_or(0)))
    }
}

/// Key of the fact that says which step was done before numbers were forgotten.
const DONE: &str = "done";

/// Key of the fact that says how often numbers were forgotten, and after which step.
const CUT: &str = "cut";

/// Each call is one transaction, so a step's record is complete or absent. Logging a step again replaces the earlier
/// numbers.
impl Tracker for Store {
    fn log(&mut self, step: Step, metrics: &Metrics) -> Result<(), TrackError> {
        // Numbers end a step. They bring everything before them to the disk, so that no power cut takes it.
        let synchronous = |store: &Store, how: &str| {
            let set = store.connection.pragma_update(None, "synchronous", how);
            set.map_err(store.sql_error("write to"))
        };

        let full = synchronous(self, "FULL");
        let logged = self.transaction(|transaction| {
            let sql = "INSERT OR REPLACE INTO metrics (step, name, value) VALUES (?1, ?2, ?3)";
            let mut insert = transaction.prepare_cached(sql)?;
            for (name, value) in &metrics.0 {
                insert.execute(params![signed(step), name, cell(*value)])?;
            }
            Ok(())
        });

        let normal = synchronous(self, "NORMAL");
        full.and(logged).and(normal).map_err(|error| TrackError(Box::new(error)))
    }

    fn log_groups(&mut self, step: Step, groups: &[RewardedGroup]) -> Result<(), TrackError> {
        self.record(TRAIN, step, groups, &Outcome::default())
            .map_err(|error| TrackError(Box::new(error)))
    }
}

impl Store {
    /// Makes or changes tables: all of them or none.
    fn change(&self, action: &'static str, tables: &str) -> Result<(), RunError> {
        let sql = format!(
            "BEGIN IMMEDIATE; {tables} PRAGMA application_id = {APPLICATION}; \
             PRAGMA user_version = {VERSION}; COMMIT;"
        );
        self.connection().execute_batch(&sql).map_err(self.sql_error(action))
    }

    fn transaction(
        &mut self,
        write: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), RunError> {
        let path = self.path.clone();
        let run = |connection: &mut Connection| {
            let transaction = connection.transaction()?;
            write(&transaction)?;
            transaction.commit()
        };

        run(&mut self.connection).map_err(|error| sql_error("write to", &path, error))
    }
}

/// Stores a NaN as `NULL`. SQLite would do so by itself, but readers rely on it.
fn cell(value: f64) -> Option<f64> {
    (!value.is_nan()).then_some(value)
}

fn number(cell: Option<f64>) -> f64 {
    cell.unwrap_or(f64::NAN)
}

/// Turns a number into SQLite's signed integer. [`unsigned`] restores its bits.
fn signed(value: u64) -> i64 {
    value.cast_signed()
}

fn unsigned(value: i64) -> u64 {
    value.cast_unsigned()
}

/// Writes the numbers of a step as one line of JSON, without the end of the line. See [`json_object`]. Invisible
/// characters of names are spelt out.
pub fn json_line(step: Step, values: impl IntoIterator<Item = (String, f64)>) -> String {
    printable(&Value::Object(json_object(step, values)).to_string())
}

/// Makes one JSON object of the numbers of a step, with `step` first. A number that is not finite becomes one
/// of the strings `"NaN"`, `"Infinity"`, `"-Infinity"`, because JSON has no numbers for them.
pub fn json_object(
    step: Step,
    values: impl IntoIterator<Item = (String, f64)>,
) -> Map<String, Value> {
    let json = |value: f64| match serde_json::Number::from_f64(value) {
        Some(number) => Value::Number(number),
        None if value.is_nan() => "NaN".into(),
        None if value > 0.0 => "Infinity".into(),
        None => "-Infinity".into(),
    };

    let values = values.into_iter().map(|(name, value)| (name, json(value)));
    let step = ("step".to_owned(), step.into());
    [step].into_iter().chain(values).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use firebrick_core::{Completion, Group, Prompt, RewardScale, Score};

    use super::*;

    fn metrics(pairs: &[(&str, f64)]) -> Metrics {
        Metrics(pairs.iter().map(|&(name, value)| (name.to_owned(), value)).collect())
    }

    fn group(draw: u64, right: &[bool]) -> RewardedGroup {
        let scale = RewardScale { right: 1.0, wrong: -1.0 };
        let score = |&right: &bool| if right { Score::right("7") } else { Score::wrong("8") };
        let completion =
            Completion::written(vec![1, 2], vec![-0.5, -1.5], firebrick_core::FinishReason::Stop)
                .with_text("3+4=7");

        let prompt = Prompt { id: u64::MAX, text: "3+4=".into(), ..Prompt::default() };
        let completions = vec![completion; right.len()];

        RewardedGroup {
            group: Group { prompt, completions, step: 0, draw }.into(),
            rewards: right.iter().map(score).map(|score| scale.reward(score)).collect(),
        }
    }

    fn count(store: &Store, table: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {table}");
        store.connection.query_row(&sql, [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_run_resumed_at_a_checkpoint_forgets_what_came_after() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.db");
        let mut store = Store::open(&path).unwrap();
        for step in 1..=3 {
            store.log(step, &metrics(&[("reward/mean", step as f64)])).unwrap();
            store.log_groups(step, &[group(step, &[true, false, false])]).unwrap();
        }
        store.set_info("device", "cpu").unwrap();
        drop(store);

        let mut store = Store::open(&path).unwrap();
        assert_eq!(store.done().unwrap(), 0);
        store.truncate_after(2).unwrap();
        assert_eq!(store.done().unwrap(), 3);
        assert_eq!(store.metrics("reward/mean").unwrap(), [(1, 1.0), (2, 2.0)]);
        assert_eq!((count(&store, "groups"), count(&store, "completions")), (3, 6));

        store.forget_unjudged(3).unwrap();
        assert_eq!((count(&store, "groups"), count(&store, "completions")), (2, 6));

        assert_eq!(store.info("device").unwrap().as_deref(), Some("cpu"));
        assert_eq!(store.info("nothing").unwrap(), None);
    }

    #[test]
    fn a_prompt_has_its_history() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.db");
        let mut store = Store::open(&path).unwrap();
        let mut other = group(2, &[true, true]);
        Arc::make_mut(&mut other.group).prompt.id = 3;
        let mut masked = group(9, &[true, false, false]);
        masked.rewards[2].in_loss = false;

        store.log_groups(1, &[group(1, &[false; 4]), other]).unwrap();
        store.log_groups(4, &[masked]).unwrap();

        let history = || {
            let sql = "SELECT prompt_id, groups, completions, \"right\", last_draw, last_step, \
                       last_mean, last_variance FROM prompts ORDER BY prompt_id DESC";
            let mut query = store.connection.prepare(sql).unwrap();
            let row = |row: &rusqlite::Row<'_>| {
                let counts = [row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?];
                Ok((unsigned(row.get(0)?), counts, row.get(6)?, row.get(7)?))
            };
            query.query_map([], row).unwrap().collect::<rusqlite::Result<Vec<_>>>().unwrap()
        };

        let expected: [(u64, [i64; 5], f64, f64); 2] =
            [(3, [1, 2, 2, 2, 1], 1.0, 0.0), (u64::MAX, [2, 7, 1, 9, 4], 0.0, 1.0)];
        assert_eq!(history(), expected);
    }

    #[test]
    fn what_was_sampled_before_a_kill_is_there_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.db");
        let mut observed = Group::clone(&group(7, &[true, false]).group);
        observed.completions[1].observe(&[9]);

        let mut store = Store::open(&path).unwrap();
        let request = |first: u8| [first; 32];
        store.keep(TRAIN, 3, &[(request(7), observed.clone())]).unwrap();

        // The run is killed here, and continues.
        let mut store = Store::open(&path).unwrap();
        assert_eq!(
            store.recall(TRAIN, 3, (7, u64::MAX), &request(7)).unwrap(),
            Some(observed.completions.clone())
        );
        for (source, step, draw, request) in [
            ("heldout", 3, 7, &b"abc"[..]),
            (TRAIN, 2, 7, &request(7)),
            (TRAIN, 3, 8, &request(7)),
            (TRAIN, 3, 7, b"ab"),
        ] {
            assert_eq!(store.recall(source, step, (draw, u64::MAX), request).unwrap(), None);
        }

        // The judged group stays until its step is saved, and longer if the step keeps its tokens.
        let mut judged = group(7, &[true, false]);
        judged.group = observed.clone().into();
        store.record(TRAIN, 3, &[judged], &Outcome::default()).unwrap();
        assert_eq!(count(&store, "completions"), 2);

        store.truncate_after(2).unwrap();
        assert_eq!(count(&store, "completions"), 0);
        store.forget_tokens(TRAIN, 3, 3).unwrap();
        assert!(store.recall(TRAIN, 3, (7, u64::MAX), &request(7)).unwrap().is_some());

        let mut store = Store::open(&path).unwrap();
        store.forget_tokens(TRAIN, 3, 2).unwrap();
        assert_eq!(store.recall(TRAIN, 3, (7, u64::MAX), &request(7)).unwrap(), None);
        assert_eq!(count(&store, "groups"), 1);

        store.keep(TRAIN, 3, &[(request(7), observed)]).unwrap();
        store
            .connection
            .execute_batch("UPDATE sampled SET completions = '[{\"tokens\": [1]}]'")
            .unwrap();
        assert_eq!(store.recall(TRAIN, 3, (7, u64::MAX), &request(7)).unwrap(), None);
    }

    #[test]
    fn a_database_stays_as_large_as_it_may_be() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(&folder.path().join("run.db")).unwrap();
        for step in 1..=40 {
            store.log(step, &metrics(&[("reward/mean", 1.0)])).unwrap();
            store.log_groups(step, &[group(step, &[true; 200])]).unwrap();
        }

        assert_eq!(store.limit(1 << 30).unwrap(), None);
        let removed = store.limit(200_000).unwrap().unwrap();
        assert!((2..39).contains(&removed), "{removed}");
        let left = (40 - removed) as i64;
        assert_eq!((count(&store, "groups"), count(&store, "completions")), (left, 200 * left));
        assert_eq!((store.limit(0).unwrap(), count(&store, "groups")), (Some(39), 1));
        assert_eq!(count(&store, "metrics"), 40);

        // A damaged database may keep rows that were removed, which must not stop a run for ever.
        store.log_groups(41, &[group(41, &[true])]).unwrap();
        let keep = "CREATE TRIGGER keep BEFORE DELETE ON groups BEGIN SELECT RAISE(IGNORE); END";
        store.connection.execute_batch(keep).unwrap();
        assert_eq!(store.limit(0).unwrap(), None);
    }

    #[test]
    fn a_database_of_an_earlier_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.db");
        let mut store = Store::open(&path).unwrap();
        store.log(2, &metrics(&[("reward/mean", 0.5)])).unwrap();
        store.connection.execute_batch("PRAGMA user_version = 4").unwrap();
        drop(store);

        // Its numbers can be read, although its completions can't.
        let read = Store::open_read_only(&path).unwrap();
        assert_eq!(read.metrics("reward/mean").unwrap(), [(2, 0.5)]);
        drop(read);

        for opened in [Store::open_to_ask(&path), Store::open(&path)] {
            let error = opened.unwrap_err().to_string();
            assert!(error.contains("schema version 4,"), "{error}");
        }
    }

    #[test]
    fn a_step_logged_twice_counts_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(&folder.path().join("run.db")).unwrap();
        for right in [&[true, false, true][..], &[true, true]] {
            store.log(1, &metrics(&[("reward/mean", right.len() as f64)])).unwrap();
            store.log_groups(1, &[group(5, right)]).unwrap();
        }

        assert_eq!(store.metrics("reward/mean").unwrap(), [(1, 2.0)]);
        assert_eq!((count(&store, "groups"), count(&store, "completions")), (1, 2));

        let row = store.connection.query_row(
            "SELECT spread, prompt_id, mean_logprob FROM groups JOIN completions USING (group_id)",
            [],
            |row| Ok((row.get(0)?, unsigned(row.get(1)?), row.get(2)?)),
        );
        assert_eq!(row.unwrap(), (0.0, u64::MAX, -1.0));
    }

    #[test]
    fn numbers_that_are_not_finite_survive() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.db");
        let mut store = Store::open(&path).unwrap();
        store.log(2, &metrics(&[("b", f64::NAN), ("a", f64::INFINITY), ("c", 0.1)])).unwrap();
        store.log(1, &metrics(&[("b", -2.0), ("a", f64::NEG_INFINITY)])).unwrap();

        let reader = Store::open_read_only(&path).unwrap();
        assert_eq!(reader.metric_names().unwrap(), ["a", "b", "c"]);
        assert_eq!(reader.metrics("a").unwrap(), [(1, f64::NEG_INFINITY), (2, f64::INFINITY)]);
        assert!(reader.metrics("b").unwrap()[1].1.is_nan());

        let mut text = Vec::new();
        reader.export_jsonl(&mut text).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "{\"step\":1,\"a\":\"-Infinity\",\"b\":-2.0}\n\
             {\"step\":2,\"a\":\"Infinity\",\"b\":\"NaN\",\"c\":0.1}\n"
        );
    }

    #[test]
    fn a_file_that_is_no_run_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| Store::open(&folder.path().join(name)).unwrap_err();

        std::fs::write(folder.path().join("text"), "no database at all, but long enough").unwrap();
        assert!(matches!(open("text"), RunError::Corrupt { .. }));

        let other = Connection::open(folder.path().join("other")).unwrap();
        other.execute_batch("CREATE TABLE mine (x)").unwrap();
        assert!(matches!(open("other"), RunError::Foreign { .. }));

        let store = Store::open(&folder.path().join("newer")).unwrap();
        store.connection.execute_batch("PRAGMA user_version = 9").unwrap();
        assert!(
            open("newer").to_string().contains("version 9, this firebrick knows versions up to 5")
        );

        // Every page but the first is turned to noise: opening succeeds, and reading must not panic.
        let path = folder.path().join("damaged");
        let mut store = Store::open(&path).unwrap();
        for step in 0..500 {
            store.log(step, &metrics(&[("reward/mean", 1.0)])).unwrap();
        }
        store.connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();

        drop(store);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.iter_mut().skip(4096).for_each(|byte| *byte ^= 0xa5);
        std::fs::write(&path, bytes).unwrap();

        let read = Store::open(&path).and_then(|store| store.metrics("reward/mean"));
        assert!(matches!(read, Err(RunError::Corrupt { .. })), "{read:?}");
    }
}
