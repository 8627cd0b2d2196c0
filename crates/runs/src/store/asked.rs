//! Queries of a run that take more than one number: series of metrics, and completions by what became of them.

use std::{collections::BTreeMap, ops::RangeInclusive};

use firebrick_core::{Step, Verdict};
use rusqlite::{OptionalExtension, Row, Rows, params, types::ToSql};

use super::{
    Store, number,
    opened::{NAME, short},
    signed, unsigned,
};
use crate::RunError;

/// Completions that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Completions with this verdict.
    Verdict(Verdict),
    /// Completions that ran into the limit on their length.
    CutOff,
    /// Completions of groups in which all base rewards are equal, as when all answers are right, or none.
    WithoutSpread,
    /// All completions.
    Any,
}

/// A completion of the record, with its verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Purpose of the completion, as in the database: `train`, or an evaluation's name.
    pub source: String,
    /// Step that sampled the completion, or after which it was evaluated.
    pub step: Step,
    /// Text of the prompt, as the model read it.
    pub prompt: String,
    /// Right answer.
    pub reference: String,
    /// Text of the completion.
    pub text: String,
    /// Verdict by its name in recipes and records, such as `wrong`.
    pub verdict: String,
    /// Answer that was read out of the text.
    pub extracted: String,
}

/// An answer, right or not, and how often it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// Answer that was read out of the texts.
    pub answer: String,
    /// Number of completions that gave it.
    pub completions: u64,
    /// Number of different right answers among the prompts that got this answer.
    pub references: u64,
}

impl Store {
    /// Returns the last step that has numbers, or 0 if no step has any.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn last_step(&self) -> Result<Step, RunError> {
        let sql = "SELECT coalesce(max(step), 0) FROM metrics WHERE step BETWEEN 0 AND 1 << 53";
        let last = self.connection().query_row(sql, [], |row| row.get(0));
        last.map(unsigned).map_err(self.sql_error("read"))
    }

    /// Reads the values of these metrics in these steps, in order. A name that was never logged is left out.
    ///
    /// # Errors
    /// When they can't be read.
    pub fn series(
        &self,
        names: &[&str],
        steps: &RangeInclusive<Step>,
    ) -> Result<BTreeMap<String, Vec<(Step, f64)>>, RunError> {
        let marks = vec!["?"; names.len()].join(", ");
        let sql = format!(
            "SELECT name, step, value FROM metrics WHERE step BETWEEN ? AND ? AND name IN ({marks}) ORDER BY step"
        );

        let first_step = signed(*steps.start());
        let last_step = signed(*steps.end());

        let read = || {
            let mut query = self.connection().prepare(&sql)?;
            let mut parameters: Vec<&dyn ToSql> = vec![&first_step, &last_step];
            parameters.extend(names.iter().map(|name| name as &dyn ToSql));
            by_name(query.query(&parameters[..])?)
        };
        read().map_err(self.sql_error("read"))
    }

    /// Reads up to `limit` judged completions of these steps, from training and evaluations: one of each group,
    /// the newest first.
    ///
    /// # Errors
    /// When they can't be read.
    pub fn judged(
        &self,
        steps: &RangeInclusive<Step>,
        which: Which,
        limit: usize,
    ) -> Result<Vec<Judged>, RunError> {
        let chosen = match which {
            Which::Verdict(verdict) => format!("verdict = '{}'", verdict.name()),
            Which::CutOff => "finish = 'length'".to_owned(),
            Which::WithoutSpread => "spread = 0".to_owned(),
            Which::Any => "TRUE".to_owned(),
        };

        let sql = format!(
            "SELECT source, step, prompt, reference, text, coalesce(verdict, ''), coalesce(extracted, ''), min(completion) \
             FROM groups JOIN completions USING (group_id) WHERE step BETWEEN ?1 AND ?2 AND {chosen} \
             GROUP BY group_id ORDER BY step DESC, source DESC, draw LIMIT ?3"
        );

        let read = || {
            let mut query = self.connection().prepare(&sql)?;
            let parameters = params![signed(*steps.start()), signed(*steps.end()), limit as i64];
            query.query_map(parameters, judged)?.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(self.sql_error("read"))
    }

    /// Reads the first right completion of `step` and the first that is not right, if there are any, from training or
    /// from the evaluation that `source` names.
    ///
    /// # Errors
    /// When they can't be read.
    pub fn examples(&self, source: &str, step: Step) -> Result<Vec<Judged>, RunError> {
        let read = |right: bool| {
            let sql = "SELECT source, step, prompt, reference, text, coalesce(verdict, ''), coalesce(extracted, '') \
                       FROM groups JOIN completions USING (group_id) \
                       WHERE source = ?1 AND step = ?2 AND (verdict = 'right') = ?3 LIMIT 1";
            let mut query = self.connection().prepare_cached(sql)?;
            query.query_row(params![source, signed(step), right], judged).optional()
        };
        let both = [true, false].into_iter().filter_map(|right| read(right).transpose());
        both.collect::<rusqlite::Result<Vec<_>>>().map_err(self.sql_error("read"))
    }

    /// Counts the completions that were sampled for training in these steps, and those among them that have no
    /// verdict because the judge failed.
    ///
    /// # Errors
    /// When they can't be read.
    pub fn errors(&self, steps: &RangeInclusive<Step>) -> Result<(u64, u64), RunError> {
        let sql = "SELECT count(*), coalesce(sum(verdict = 'error'), 0) FROM groups JOIN completions USING (group_id) \
                   WHERE source = 'train' AND step BETWEEN ?1 AND ?2";
        let parameters = [signed(*steps.start()), signed(*steps.end())];
        let row = |row: &Row<'_>| Ok((unsigned(row.get(0)?), unsigned(row.get(1)?)));
        self.connection().query_row(sql, parameters, row).map_err(self.sql_error("read"))
    }

    /// Tells whether a line with this text was shown to a person since the run's settings were last changed.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn was_told(&self, words: &str) -> Result<bool, RunError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM events WHERE instr(text, ?1) > 0 AND rowid > \
                   (SELECT coalesce(max(rowid), 0) FROM events WHERE text LIKE 'now with %'))";
        self.connection().query_row(sql, [words], |row| row.get(0)).map_err(self.sql_error("read"))
    }

    /// Returns the answer that was given most often in training during these steps.
    ///
    /// # Errors
    /// When the completions can't be read.
    pub fn most_given(&self, steps: &RangeInclusive<Step>) -> Result<Option<Given>, RunError> {
        let sql = "SELECT extracted, count(*), count(DISTINCT reference) \
                   FROM groups JOIN completions USING (group_id) \
                   WHERE source = 'train' AND step BETWEEN ?1 AND ?2 AND extracted <> '' \
                   GROUP BY extracted ORDER BY count(*) DESC, extracted LIMIT 1";

        let parameters = [signed(*steps.start()), signed(*steps.end())];
        let row = |row: &Row<'_>| {
            let completions = unsigned(row.get(1)?);
            let references = unsigned(row.get(2)?);
            Ok(Given { answer: row.get(0)?, completions, references })
        };

        let read =
            || self.connection().prepare(sql)?.query_map(parameters, row)?.next().transpose();
        read().map_err(self.sql_error("read"))
    }
}

/// Collects points by the names of their metrics, from rows of name, step and value.
pub(super) fn by_name(mut rows: Rows<'_>) -> rusqlite::Result<BTreeMap<String, Vec<(Step, f64)>>> {
    let mut series: BTreeMap<String, Vec<(Step, f64)>> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let point = (unsigned(row.get(1)?), number(row.get(2)?));
        series.entry(short(row, 0, NAME)?).or_default().push(point);
    }
    Ok(series)
}

fn judged(row: &Row<'_>) -> rusqlite::Result<Judged> {
    Ok(Judged {
        source: row.get(0)?,
        step: unsigned(row.get(1)?),
        prompt: row.get(2)?,
        reference: row.get(3)?,
        text: row.get(4)?,
        verdict: row.get(5)?,
        extracted: row.get(6)?,
    })
}
