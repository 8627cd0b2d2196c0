//! Groups and completions, which are written when they arrive, judged later, and read again by a resumed run.

use std::collections::BTreeMap;

use firebrick_core::{Completion, Group, GroupStatus, Reward, RewardedGroup, Step, Trained};
use rusqlite::{OptionalExtension, Transaction, params};

use super::{Store, cell, signed, unsigned};
use crate::RunError;

/// `source` in the [`Store`] of groups that were sampled for training.
pub const TRAIN: &str = "train";

/// `source` in the [`Store`] of evaluations on the held-out prompts.
pub const HELDOUT: &str = "heldout";

/// Outcome of a step for its groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Status of each group, by its draw.
    pub statuses: BTreeMap<u64, GroupStatus>,
    /// Completions that were trained on, by the draw of the group and the index in it.
    pub trained: BTreeMap<(u64, usize), Trained>,
}

impl Store {
    /// Writes groups that have just arrived and are not judged yet, so that a killed run still has them. Each group
    /// comes with its `request`, a hash of everything that the completions follow from, the weights included.
    ///
    /// # Errors
    /// When they can't be written.
    pub fn keep(
        &mut self,
        source: &str,
        step: Step,
        groups: &[([u8; 32], Group)],
    ) -> Result<(), RunError> {
        self.transaction(|transaction| {
            let key = (source, step);
            groups.iter().try_for_each(|(request, group)| {
                insert_group(transaction, key, group, Some(request)).map(drop)
            })
        })
    }

    /// Returns the last step that has a group with its tokens, or `None` if there is no such group.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn last_sampled(&self) -> Result<Option<Step>, RunError> {
        let sql = "SELECT max(step) FROM groups JOIN sampled USING (group_id)";
        let last = self.connection().query_row(sql, [], |row| row.get::<_, Option<i64>>(0));
        Ok(last.map_err(self.sql_error("read"))?.map(unsigned))
    }

    /// Reads the completions that were written for this draw of a prompt, if they follow from the same
    /// `request` and are still there.
    ///
    /// # Errors
    /// When they can't be read.
    pub fn recall(
        &self,
        source: &str,
        step: Step,
        (draw, prompt): (u64, u64),
        request: &[u8],
    ) -> Result<Option<Vec<Completion>>, RunError> {
        let read = || {
            let sql = "SELECT completions FROM groups JOIN sampled USING (group_id) WHERE source = ?1 \
                       AND step = ?2 AND draw = ?3 AND prompt_id = ?4 AND request = ?5";
            let mut query = self.connection().prepare_cached(sql)?;
            let key = params![source, signed(step), signed(draw), signed(prompt), request];
            query.query_row(key, |row| row.get::<_, String>(0)).optional()
        };

        let sampled = read().map_err(self.sql_error("read"))?;
        // Damaged completions count as none, so they are sampled again.
        Ok(sampled.and_then(|sampled| serde_json::from_str(&sampled).ok()))
    }

    /// Writes a step's groups with their verdicts, and the step's outcome for them. The tokens that
    /// [`Store::keep`] has written stay.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn record(
        &mut self,
        source: &str,
        step: Step,
        groups: &[RewardedGroup],
        outcome: &Outcome,
    ) -> Result<(), RunError> {
        self.transaction(|transaction| {
            let sql = "UPDATE groups SET spread = ?5, policy_step = ?6, status = ?7 \
                       WHERE source = ?1 AND step = ?2 AND draw = ?3 AND prompt_id = ?4 RETURNING group_id";
            let mut find = transaction.prepare_cached(sql)?;
            let mut ids = BTreeMap::new();

            for RewardedGroup { group, rewards } in groups {
                let status = outcome.statuses.get(&group.draw).map(|status| status.name());
                let spread = cell(spread(rewards));
                let policy = signed(group.step);
                let draw = signed(group.draw);
                let prompt = signed(group.prompt.id);

                // The same statement finds the group's row and updates it.
                let mut update = || {
                    let key = params![source, signed(step), draw, prompt, spread, policy, status];
                    find.query_row(key, |row| row.get::<_, i64>(0)).optional()
                };

                let id = match update()? {
                    Some(id) => id,
                    None => {
                        let id = insert_group(transaction, (source, step), group, None)?;
                        update()?;
                        id
                    }
                };

                replace_completions(transaction, id, &group.completions, rewards)?;
                ids.insert(group.draw, id);
            }

            for (&(draw, index), trained) in &outcome.trained {
                // A group that an earlier step sampled and carried over has its row there.
                let id = match ids.get(&draw) {
                    Some(id) => Some(*id),
                    None => earlier_group(transaction, (source, step), draw)?,
                };
                if let Some(id) = id {
                    ids.insert(draw, id);
                    insert_trained(transaction, id, index, trained)?;
                }
            }
            Ok(())
        })
    }

    /// Removes the tokens of all groups that were sampled for `source` up to `step`, except in the steps that `every`
    /// divides, because a checkpoint has the results of these tokens. If `every` is 0, all of them are removed. Steps
    /// of an earlier call are not visited again.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn forget_tokens(&mut self, source: &str, step: Step, every: u64) -> Result<(), RunError> {
        let from = self.forgotten.get(source).map_or(0, |last| last + 1);
        self.transaction(|transaction| {
            let sql = "DELETE FROM sampled WHERE group_id IN (SELECT group_id FROM groups \
                       WHERE source = ?1 AND step BETWEEN ?2 AND ?3 AND (?4 = 0 OR step % ?4 <> 0))";
            transaction
                .execute(sql, params![source, signed(from), signed(step), signed(every)])?;
            Ok(())
        })?;

        self.forgotten.insert(source.to_owned(), step);
        Ok(())
    }

    /// Removes the groups and completions of the oldest steps while the database has more than `bytes` in use.
    /// The newest step always stays. Returns the last step that was removed.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn limit(&mut self, bytes: u64) -> Result<Option<Step>, RunError> {
        let mut removed = None;
        while self.bytes()? > bytes {
            let ask = "SELECT min(step), max(step) FROM groups";
            let (oldest, newest): (Option<i64>, Option<i64>) = self
                .connection
                .query_row(ask, [], |row| Ok((row.get(0)?, row.get(1)?)))
                .map_err(self.sql_error("read"))?;
            let Some(oldest) = oldest.filter(|oldest| Some(*oldest) < newest) else { break };

            // A damaged database may keep rows although it was asked to remove them.
            if self.remove_groups("step = ?1", oldest)? == 0 {
                break;
            }
            removed = Some(unsigned(oldest));
        }
        Ok(removed)
    }

    /// Counts the bytes of the database that hold something.
    fn bytes(&self) -> Result<u64, RunError> {
        let ask = |name: &str| {
            self.connection()
                .pragma_query_value(None, name, |row| row.get::<_, i64>(0))
                .map_err(self.sql_error("read"))
        };
        Ok(unsigned((ask("page_count")? - ask("freelist_count")?) * ask("page_size")?))
    }

    /// Removes the groups up to `step` that nobody has judged, because the resumed run went another way and did not ask
    /// for them again.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn forget_unjudged(&mut self, step: Step) -> Result<(), RunError> {
        let sql = "step <= ?1 AND NOT EXISTS \
                   (SELECT 1 FROM completions WHERE completions.group_id = groups.group_id)";
        self.remove_groups(sql, signed(step)).map(drop)
    }

    /// Removes groups with all that belongs to them, and returns their number.
    fn remove_groups(&mut self, which: &str, step: i64) -> Result<usize, RunError> {
        let mut removed = 0;

        self.transaction(|transaction| {
            let chosen = format!("SELECT group_id FROM groups WHERE {which}");
            for table in ["completions", "sampled", "trained"] {
                let sql = format!("DELETE FROM {table} WHERE group_id IN ({chosen})");
                transaction.execute(&sql, [step])?;
            }
            removed = transaction.execute(&format!("DELETE FROM groups WHERE {which}"), [step])?;
            Ok(())
        })?;
        Ok(removed)
    }
}

/// Writes the group's row, replacing an earlier one, and returns its id.
fn insert_group(
    transaction: &Transaction<'_>,
    (source, step): (&str, Step),
    group: &Group,
    request: Option<&[u8; 32]>,
) -> rusqlite::Result<i64> {
    let sql = "INSERT INTO groups (source, step, draw, policy_step, prompt_id, prompt, reference) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO UPDATE SET prompt = excluded.prompt, \
               reference = excluded.reference, spread = NULL, status = NULL RETURNING group_id";

    let prompt = &group.prompt;
    let id = transaction.prepare_cached(sql)?.query_row(
        params![
            source,
            signed(step),
            signed(group.draw),
            signed(group.step),
            signed(prompt.id),
            prompt.text,
            prompt.reference,
        ],
        |row| row.get::<_, i64>(0),
    )?;

    let sql = "DELETE FROM completions WHERE group_id = ?1";
    transaction.prepare_cached(sql)?.execute([id])?;

    // JSON keeps a log-probability exactly, because the number that is read from its digits has the same bits.
    let completions = serde_json::to_string(&group.completions);
    let completions =
        completions.map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;

    let sql = "INSERT OR REPLACE INTO sampled (group_id, request, completions) VALUES (?1, ?2, ?3)";
    let request = request.map(|request| &request[..]);
    transaction.prepare_cached(sql)?.execute(params![id, request, completions])?;
    Ok(id)
}

/// Writes completions with their verdicts, replacing those that are there.
fn replace_completions(
    transaction: &Transaction<'_>,
    group: i64,
    completions: &[Completion],
    rewards: &[Reward],
) -> rusqlite::Result<()> {
    let sql = "DELETE FROM completions WHERE group_id = ?1";
    transaction.prepare_cached(sql)?.execute([group])?;

    let sql = "INSERT INTO completions (group_id, completion, text, tokens, finish, policy_version, \
               mean_logprob, verdict, credit, extracted, parts, base_reward, reward, in_loss) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
    let mut insert = transaction.prepare_cached(sql)?;

    for (index, (completion, reward)) in (0_i64..).zip(completions.iter().zip(rewards)) {
        // Tokens that the policy did not write have log-probabilities of 0 and are not counted, so the mean is over its
        // own tokens.
        let logprobs = completion.logprobs.iter().map(|&logprob| f64::from(logprob));
        let mean_logprob = logprobs.sum::<f64>() / completion.count() as f64;

        let score = &reward.score;
        let parts = (!score.parts.is_empty()).then(|| {
            let parts = score.parts.iter();
            let parts = parts.map(|(name, credit)| (name.clone(), (*credit).into()));
            serde_json::Value::Object(parts.collect()).to_string()
        });

        insert.execute(params![
            group,
            index,
            completion.text,
            completion.count() as i64,
            completion.finish.name(),
            signed(completion.policy_version),
            cell(mean_logprob),
            score.verdict.name(),
            cell(score.credit.into()),
            score.extracted,
            parts,
            cell(reward.base_reward.into()),
            cell(reward.reward.into()),
            reward.in_loss,
        ])?;
    }
    Ok(())
}

/// Finds the newest group of that draw up to `step`, if the record still has it. No recipe uses groups that are more
/// than `OLDEST` steps old.
fn earlier_group(
    transaction: &Transaction<'_>,
    (source, step): (&str, Step),
    draw: u64,
) -> rusqlite::Result<Option<i64>> {
    const OLDEST: Step = 1000;
    let sql = "SELECT group_id FROM groups WHERE source = ?1 AND step BETWEEN ?2 AND ?3 AND draw = ?4 \
               ORDER BY step DESC LIMIT 1";
    let parameters =
        params![source, signed(step.saturating_sub(OLDEST)), signed(step), signed(draw)];
    transaction.prepare_cached(sql)?.query_row(parameters, |row| row.get(0)).optional()
}

/// Writes the row of a completion that was trained on.
fn insert_trained(
    transaction: &Transaction<'_>,
    group: i64,
    index: usize,
    trained: &Trained,
) -> rusqlite::Result<()> {
    // A number that is not finite becomes `null` in JSON.
    let numbers = |numbers: &[f32]| {
        let json = serde_json::to_string(numbers).unwrap_or_default();
        (!numbers.is_empty()).then_some(json)
    };

    let sql = "INSERT OR REPLACE INTO trained (group_id, completion, advantage, ratios, entropies) \
               VALUES (?1, ?2, ?3, ?4, ?5)";
    transaction.prepare_cached(sql)?.execute(params![
        group,
        index as i64,
        cell(trained.advantage.into()),
        numbers(&trained.ratios),
        numbers(&trained.entropies),
    ])?;
    Ok(())
}

/// Returns the largest minus the smallest base reward of the completions that count, or NaN if no completion
/// counts.
fn spread(rewards: &[Reward]) -> f64 {
    let in_loss = rewards.iter().filter(|reward| reward.in_loss).map(|reward| reward.base_reward);
    let (min, max) = in_loss.fold((f32::INFINITY, f32::NEG_INFINITY), |(min, max), reward| {
        (min.min(reward), max.max(reward))
    });

    if min <= max { f64::from(max - min) } else { f64::NAN }
}
