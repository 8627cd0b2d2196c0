//! Queries for somebody who browses the record: all numbers, all lines, and one completion after the other.

use std::{collections::BTreeMap, ops::RangeInclusive};

use firebrick_core::{Completion, Step};
use rusqlite::{OptionalExtension, Row, params};

use super::{
    Store,
    asked::by_name,
    opened::{LINE, lossy, short},
    signed, unsigned,
};
use crate::{PromptFrame, RunError};

/// Line that was shown to a person.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Seconds since 1970 began, in UTC.
    pub time: f64,
    /// Step that was under way.
    pub step: Step,
    /// Text of the line.
    pub text: String,
}

/// A group in the list, without its completions.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedGroup {
    /// Number of the group in the database.
    pub id: i64,
    /// Purpose of the group: `train`, or an evaluation's name.
    pub source: String,
    /// Step that sampled the group, or after which it was evaluated.
    pub step: Step,
    /// Draw of its prompt.
    pub draw: u64,
    /// Number of its prompt.
    pub prompt_id: u64,
    /// Text of the prompt, as the model read it.
    pub prompt: String,
    /// Right answer.
    pub reference: String,
    /// Largest minus smallest base reward of the completions that count; `None` if no completion counts.
    pub spread: Option<f64>,
    /// Status of the group in the step, such as `kept`; `None` for evaluations.
    pub status: Option<String>,
}

/// A completion in the list, without its text.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// Index of the completion in the group, from 0.
    pub completion: u64,
    /// Number of tokens that the policy wrote.
    pub tokens: u64,
    /// Why the completion ended, such as `stop`.
    pub finish: String,
    /// Verdict, such as `wrong`.
    pub verdict: String,
    /// Reward after shaping.
    pub reward: Option<f64>,
    /// Mean advantage; `None` if the completion was not trained on.
    pub advantage: Option<f64>,
    /// Length of the completion's text, in characters.
    pub letters: u64,
}

/// Texts of a completion.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// Text of the completion.
    pub text: String,
    /// Answer that was read out of the text.
    pub extracted: String,
    /// Parts of the completion's reward as a JSON object, if there are any.
    pub parts: Option<String>,
}

/// Numbers of a completion's tokens. A number that is not finite is `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct Looked {
    /// Factor by which each token had become likelier since it was sampled.
    pub ratios: Vec<Option<f32>>,
    /// Entropy at each token, in nats.
    pub entropies: Vec<Option<f32>>,
}

impl Store {
    /// Reads every number of these steps, by metric and in order of steps. A value that is not a number counts as NaN.
    /// Steps of 2⁵³ and above belong to no run, and are left out.
    ///
    /// # Errors
    /// When they can't be read.
    pub fn all_series(
        &self,
        steps: &RangeInclusive<Step>,
    ) -> Result<BTreeMap<String, Vec<(Step, f64)>>, RunError> {
        let read = || {
            let sql = "SELECT name, step, CASE WHEN typeof(value) IN ('real', 'integer') THEN value END FROM metrics \
                       WHERE step BETWEEN ?1 AND ?2 AND step < 1 << 53 ORDER BY step";
            let mut query = self.connection().prepare_cached(sql)?;
            by_name(query.query([signed(*steps.start()), signed(*steps.end())])?)
        };
        read().map_err(self.sql_error("read"))
    }

    /// Lists the first steps, starting at `from`, that have numbers: `limit` of them, or all if there are fewer.
    ///
    /// # Errors
    /// When they can't be read.
    pub fn steps(&self, from: Step, limit: usize) -> Result<Vec<Step>, RunError> {
        let read = || {
            let sql = "SELECT DISTINCT step FROM metrics WHERE step >= ?1 AND step < 1 << 53 ORDER BY step LIMIT ?2";
            let mut query = self.connection().prepare_cached(sql)?;
            let steps =
                query.query_map([signed(from), limit as i64], |row| row.get(0).map(unsigned))?;
            steps.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(self.sql_error("read"))
    }

    /// Reads the lines that were shown to a person, in order, without the first `known` ones.
    ///
    /// # Errors
    /// When they can't be read.
    pub fn told(&self, known: usize) -> Result<Vec<Told>, RunError> {
        let read = || {
            let sql = "SELECT time, step, text FROM events ORDER BY rowid LIMIT -1 OFFSET ?1";
            let mut query = self.connection().prepare_cached(sql)?;
            let line = |row: &Row<'_>| {
                Ok(Told {
                    time: row.get(0)?,
                    step: unsigned(row.get(1)?),
                    text: short(row, 2, LINE)?,
                })
            };
            query.query_map([known as i64], line)?.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(self.sql_error("read"))
    }

    /// Counts the numbers and the lines. Both grow while the run is in progress; only a resumed run may have fewer.
    ///
    /// # Errors
    /// When they can't be counted.
    pub fn extent(&self) -> Result<(u64, u64), RunError> {
        let sql = "SELECT (SELECT count(*) FROM metrics), (SELECT count(*) FROM events)";
        let both = |row: &Row<'_>| Ok((unsigned(row.get(0)?), unsigned(row.get(1)?)));
        self.connection().query_row(sql, [], both).map_err(self.sql_error("read"))
    }

    /// Counts the groups that were sampled in `step` so far, for training or for the evaluation of that name.
    ///
    /// # Errors
    /// When they can't be counted.
    pub fn sampled(&self, source: &str, step: Step) -> Result<u64, RunError> {
        let sql = "SELECT count(*) FROM groups WHERE source = ?1 AND step = ?2";
        let count =
            self.connection().query_row(sql, params![source, signed(step)], |row| row.get(0));
        count.map(unsigned).map_err(self.sql_error("read"))
    }

    /// Finds what the prompts have in common, from those of the first 200 groups.
    ///
    /// # Errors
    /// When they can't be read.
    pub fn prompt_frame(&self) -> Result<PromptFrame, RunError> {
        let read = || {
            let sql = "SELECT prompt FROM groups ORDER BY group_id LIMIT 200";
            let mut query = self.connection().prepare_cached(sql)?;
            query.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()
        };
        read().map(|prompts| PromptFrame::of(&prompts)).map_err(self.sql_error("read"))
    }

    /// Counts the judged completions.
    ///
    /// # Errors
    /// When they can't be counted.
    pub fn completions(&self) -> Result<u64, RunError> {
        let count =
            self.connection().query_row("SELECT count(*) FROM completions", [], |row| row.get(0));
        count.map(unsigned).map_err(self.sql_error("read"))
    }

    /// Passes every judged group with its completions to `show`: by step, with training before the evaluations, and
    /// then by draw.
    ///
    /// # Errors
    /// When they can't be read.
    pub fn list(&self, show: &mut dyn FnMut(ListedGroup, Vec<Listed>)) -> Result<(), RunError> {
        let groups = "SELECT group_id, source, step, draw, prompt_id, prompt, reference, spread, status FROM groups \
                      WHERE EXISTS (SELECT 1 FROM completions WHERE completions.group_id = groups.group_id) \
                      ORDER BY step, source <> 'train', source, draw, group_id";

        let completions = if self.has_trained()? {
            "SELECT completion, tokens, finish, coalesce(verdict, ''), reward, advantage, length(text) \
                 FROM completions LEFT JOIN trained USING (group_id, completion) WHERE group_id = ?1 ORDER BY completion"
        } else {
            "SELECT completion, tokens, finish, coalesce(verdict, ''), reward, NULL, length(text) \
                 FROM completions WHERE group_id = ?1 ORDER BY completion"
        };

        let group = |row: &Row<'_>| {
            Ok(ListedGroup {
                id: row.get(0)?,
                source: row.get(1)?,
                step: unsigned(row.get(2)?),
                draw: unsigned(row.get(3)?),
                prompt_id: unsigned(row.get(4)?),
                prompt: lossy(row, 5)?,
                reference: lossy(row, 6)?,
                spread: row.get(7)?,
                status: row.get(8)?,
            })
        };
        let listed = |row: &Row<'_>| {
            Ok(Listed {
                completion: unsigned(row.get(0)?),
                tokens: unsigned(row.get(1)?),
                finish: row.get(2)?,
                verdict: row.get(3)?,
                reward: row.get(4)?,
                advantage: row.get(5)?,
                letters: unsigned(row.get(6)?),
            })
        };

        let mut read = || {
            let mut groups = self.connection().prepare(groups)?;
            let mut completions = self.connection().prepare(completions)?;
            for group in groups.query_map([], group)? {
                let group = group?;
                let of_group = completions.query_map([group.id], listed)?;
                let of_group = of_group.collect::<rusqlite::Result<Vec<_>>>()?;
                show(group, of_group);
            }
            Ok(())
        };
        read().map_err(self.sql_error("read"))
    }

    /// Reads the texts of a group's completion. The answer is `None` if the record has dropped the completion
    /// meanwhile.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn written(&self, group: i64, completion: u64) -> Result<Option<Written>, RunError> {
        let sql = "SELECT text, coalesce(extracted, ''), parts FROM completions WHERE group_id = ?1 AND completion = ?2";
        let texts = |row: &Row<'_>| {
            Ok(Written { text: lossy(row, 0)?, extracted: lossy(row, 1)?, parts: row.get(2)? })
        };
        let read = || {
            let mut query = self.connection().prepare_cached(sql)?;
            query.query_row(params![group, signed(completion)], texts).optional()
        };
        read().map_err(self.sql_error("read"))
    }

    /// Reads the completions of a group with their tokens, in order. The answer is `None` if they were not
    /// kept, or can't be understood.
    ///
    /// # Errors
    /// When they can't be read.
    pub fn tokens(&self, group: i64) -> Result<Option<Vec<Completion>>, RunError> {
        let sql = "SELECT completions FROM sampled WHERE group_id = ?1";
        let read = || {
            let mut query = self.connection().prepare_cached(sql)?;
            query.query_row([group], |row| row.get::<_, String>(0)).optional()
        };
        let tokens = read().map_err(self.sql_error("read"))?;
        Ok(tokens.and_then(|tokens| serde_json::from_str(&tokens).ok()))
    }

    /// Reads the numbers of a completion's tokens at the beginning of its update: ratios to the policy that
    /// sampled it, and entropies. The answer is `None` if the step kept no such numbers.
    ///
    /// # Errors
    /// When they can't be read.
    pub fn looked_at(&self, group: i64, completion: u64) -> Result<Option<Looked>, RunError> {
        if !self.has_trained()? {
            return Ok(None);
        }

        let sql = "SELECT ratios, entropies FROM trained WHERE group_id = ?1 AND completion = ?2";
        let read = || {
            let mut query = self.connection().prepare_cached(sql)?;
            let lists = |row: &Row<'_>| {
                Ok((row.get::<_, Option<String>>(0)?, row.get::<_, Option<String>>(1)?))
            };
            query.query_row(params![group, signed(completion)], lists).optional()
        };

        let lists = read().map_err(self.sql_error("read"))?;
        let numbers = |list: Option<String>| serde_json::from_str::<Vec<Option<f32>>>(&list?).ok();
        Ok(lists.and_then(|(ratios, entropies)| {
            Some(Looked { ratios: numbers(ratios)?, entropies: numbers(entropies)? })
        }))
    }

    /// Tells whether the database has the table `trained`, which versions before 4 lack.
    fn has_trained(&self) -> Result<bool, RunError> {
        Ok(self.version()?.is_some_and(|version| version >= 4))
    }

    /// Returns the share of right completions of each prompt, by step, in the evaluations of that name.
    /// Completions that could not be judged do not count, and a prompt that has no others is left out.
    ///
    /// # Errors
    /// When they can't be read.
    pub fn evaluated(&self, source: &str) -> Result<BTreeMap<Step, Vec<f64>>, RunError> {
        let sql = "SELECT step, avg(verdict = 'right') FROM groups JOIN completions USING (group_id) \
                   WHERE source = ?1 AND verdict <> 'error' GROUP BY group_id ORDER BY step, draw";

        let read = || {
            let mut query = self.connection().prepare_cached(sql)?;
            let mut rows = query.query([source])?;
            let mut shares: BTreeMap<Step, Vec<f64>> = BTreeMap::new();
            while let Some(row) = rows.next()? {
                shares.entry(unsigned(row.get(0)?)).or_default().push(row.get(1)?);
            }
            Ok(shares)
        };
        read().map_err(self.sql_error("read"))
    }
}
