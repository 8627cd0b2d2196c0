//! Groups and completions: written when they arrive, judged later, and given back to a run that goes on.

use std::collections::BTreeMap;

use firebrick_core::{Completion, Fate, FinishReason, Group, Reward, RewardedGroup, Step};
use rusqlite::{OptionalExtension, Row, Statement, Transaction, params, types::Type};

use super::{Store, cell, signed, unsigned};
use crate::RunError;

/// The [`Store`]'s `source` of what was sampled for training.
pub const TRAIN: &str = "train";

impl Store {
    /// Writes groups that have just arrived and nobody has judged, so that a run that is killed has them. Each comes with its
    /// `request`, a number made from everything that the completions follow from, the weights included.
    ///
    /// # Errors
    /// When they can't be written.
    pub fn keep(
        &mut self,
        source: &str,
        step: Step,
        groups: &[([u8; 32], &Group)],
    ) -> Result<(), RunError> {
        self.transaction(|transaction| {
            for (request, group) in groups {
                let id = insert_group(transaction, (source, step), group, Some(request))?;
                insert_completions(transaction, id, &group.completions)?;
            }
            Ok(())
        })
    }

    /// The completions that were written for this draw of a prompt, if they follow from the same `request` and all of them are
    /// there with their tokens.
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
            let sql = "SELECT group_id FROM groups WHERE source = ?1 AND step = ?2 AND draw = ?3 \
                       AND prompt_id = ?4 AND request = ?5";
            let mut query = self.connection.prepare_cached(sql)?;
            let key = params![source, signed(step), signed(draw), signed(prompt), request];
            let found = query.query_row(key, |row| row.get::<_, i64>(0)).optional()?;
            let Some(id) = found else { return Ok(None) };
            let sql = "SELECT text, finish, policy_version, token_ids, logprobs, mask FROM completions \
                       WHERE group_id = ?1 ORDER BY completion";
            let mut query = self.connection.prepare_cached(sql)?;
            let completions = query.query_map([id], completion)?;
            completions.collect::<rusqlite::Result<Option<Vec<_>>>>()
        };
        read().map_err(self.fault("read"))
    }

    /// Writes what became of a step's groups, and by their draws what the step made of them; of those that [`Store::keep`] has
    /// written the tokens stay.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn record(
        &mut self,
        source: &str,
        step: Step,
        groups: &[RewardedGroup],
        fates: &BTreeMap<u64, Fate>,
    ) -> Result<(), RunError> {
        self.transaction(|transaction| {
            let sql = "UPDATE groups SET spread = ?5, policy_step = ?6, fate = ?7 \
                       WHERE source = ?1 AND step = ?2 AND draw = ?3 AND prompt_id = ?4 RETURNING group_id";
            let mut find = transaction.prepare_cached(sql)?;
            let mut judge = transaction.prepare_cached(JUDGE)?;
            for RewardedGroup { group, rewards } in groups {
                let fate = fates.get(&group.draw).map(|fate| fate.name());
                let (spread, policy) = (cell(spread(rewards)), signed(group.step));
                let (step, draw, prompt) =
                    (signed(step), signed(group.draw), signed(group.prompt.id));
                let mut found = || {
                    let key = params![source, step, draw, prompt, spread, policy, fate];
                    find.query_row(key, |row| row.get::<_, i64>(0)).optional()
                };
                let id = match found()? {
                    Some(id) if is_there(transaction, id, &group.completions)? => id,
                    _ => {
                        let id = insert_group(transaction, (source, unsigned(step)), group, None)?;
                        insert_completions(transaction, id, &group.completions)?;
                        found()?;
                        id
                    }
                };
                for (index, reward) in (0..).zip(rewards) {
                    write_verdict(&mut judge, (id, index), reward)?;
                }
            }
            Ok(())
        })
    }

    /// Takes the tokens of everything up to `step` out that was sampled for `source`, but for the steps that `every`
    /// divides: a checkpoint has what followed from them. With `every` 0 none stays.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn forget_tokens(&mut self, source: &str, step: Step, every: u64) -> Result<(), RunError> {
        self.transaction(|transaction| {
            let sql = "UPDATE completions SET token_ids = NULL, logprobs = NULL, mask = NULL \
                       WHERE token_ids IS NOT NULL AND group_id IN (SELECT group_id FROM groups \
                       WHERE source = ?1 AND step <= ?2 AND (?3 = 0 OR step % ?3 <> 0))";
            transaction.execute(sql, params![source, signed(step), signed(every)])?;
            Ok(())
        })
    }

    /// Removes the oldest steps' groups and completions while the database has more than `bytes` in use, but for the
    /// newest step's. Gives the last step that was removed.
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
                .map_err(self.fault("read"))?;
            let Some(oldest) = oldest.filter(|oldest| Some(*oldest) < newest) else { break };
            self.remove_steps("step = ?1", oldest)?;
            removed = Some(unsigned(oldest));
        }
        Ok(removed)
    }

    /// Bytes of the database that hold something.
    fn bytes(&self) -> Result<u64, RunError> {
        let ask = |name: &str| {
            self.connection
                .pragma_query_value(None, name, |row| row.get::<_, i64>(0))
                .map_err(self.fault("read"))
        };
        Ok(unsigned((ask("page_count")? - ask("freelist_count")?) * ask("page_size")?))
    }

    /// Removes the groups up to `step` that nobody has judged, and their completions: a run that went on otherwise has not
    /// asked for them again.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn forget_unjudged(&mut self, step: Step) -> Result<(), RunError> {
        let unjudged = "step <= ?1 AND group_id NOT IN \
                        (SELECT group_id FROM completions WHERE verdict IS NOT NULL)";
        self.remove_steps(unjudged, signed(step))
    }

    /// Removes groups and their completions.
    pub(super) fn remove_steps(&mut self, which: &str, step: i64) -> Result<(), RunError> {
        self.transaction(|transaction| {
            let chosen = format!("SELECT group_id FROM groups WHERE {which}");
            let sql = format!("DELETE FROM completions WHERE group_id IN ({chosen})");
            transaction.execute(&sql, [step])?;
            transaction.execute(&format!("DELETE FROM groups WHERE {which}"), [step])?;
            Ok(())
        })
    }
}

/// The group's row, which may be there of an earlier time; gives its id.
fn insert_group(
    transaction: &Transaction<'_>,
    (source, step): (&str, Step),
    group: &Group,
    request: Option<&[u8; 32]>,
) -> rusqlite::Result<i64> {
    let sql = "INSERT INTO groups \
               (source, step, draw, policy_step, prompt_id, prompt, reference, request) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO UPDATE \
               SET prompt = excluded.prompt, reference = excluded.reference, \
               request = excluded.request, spread = NULL, fate = NULL RETURNING group_id";
    let prompt = &group.prompt;
    transaction.prepare_cached(sql)?.query_row(
        params![
            source,
            signed(step),
            signed(group.draw),
            signed(group.step),
            signed(prompt.id),
            prompt.text,
            prompt.reference,
            request.map(|request| &request[..]),
        ],
        |row| row.get(0),
    )
}

/// Tells if these completions have been written for the group: as many, with the same tokens.
fn is_there(
    transaction: &Transaction<'_>,
    group: i64,
    completions: &[Completion],
) -> rusqlite::Result<bool> {
    let sql = "SELECT token_ids FROM completions WHERE group_id = ?1 ORDER BY completion";
    let mut query = transaction.prepare_cached(sql)?;
    let mut rows = query.query([group])?;
    for completion in completions {
        let Some(row) = rows.next()? else { return Ok(false) };
        if row.get::<_, Option<Vec<u8>>>(0)? != Some(token_bytes(&completion.tokens)) {
            return Ok(false);
        }
    }
    Ok(rows.next()?.is_none())
}

/// Completions without verdicts, in the place of those that are there.
fn insert_completions(
    transaction: &Transaction<'_>,
    group: i64,
    completions: &[Completion],
) -> rusqlite::Result<()> {
    let sql = "DELETE FROM completions WHERE group_id = ?1";
    transaction.prepare_cached(sql)?.execute([group])?;
    let sql = "INSERT INTO completions (group_id, completion, text, tokens, finish, policy_version, \
               mean_logprob, token_ids, logprobs, mask) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    let mut insert = transaction.prepare_cached(sql)?;
    for (index, completion) in (0_i64..).zip(completions) {
        let logprobs = completion.logprobs.iter().map(|&logprob| f64::from(logprob));
        let mean_logprob = logprobs.sum::<f64>() / completion.logprobs.len() as f64;
        let mask: Option<Vec<u8>> = completion
            .mask
            .contains(&false)
            .then(|| completion.mask.iter().map(|&own| u8::from(own)).collect());
        insert.execute(params![
            group,
            index,
            completion.text,
            completion.count() as i64,
            completion.finish.name(),
            signed(completion.policy_version),
            cell(mean_logprob),
            token_bytes(&completion.tokens),
            completion.logprobs.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>(),
            mask,
        ])?;
    }
    Ok(())
}

fn token_bytes(tokens: &[u32]) -> Vec<u8> {
    tokens.iter().flat_map(|token| token.to_le_bytes()).collect()
}

const JUDGE: &str = "UPDATE completions SET verdict = ?3, credit = ?4, extracted = ?5, parts = ?6, \
    accuracy = ?7, shaped = ?8, live = ?9 WHERE group_id = ?1 AND completion = ?2";

fn write_verdict(
    judge: &mut Statement<'_>,
    (group, index): (i64, i64),
    reward: &Reward,
) -> rusqlite::Result<()> {
    let score = &reward.score;
    let parts = (!score.parts.is_empty()).then(|| {
        let parts = score.parts.iter();
        let parts = parts.map(|(name, credit)| (name.clone(), (*credit).into()));
        serde_json::Value::Object(parts.collect()).to_string()
    });
    judge.execute(params![
        group,
        index,
        score.verdict.name(),
        cell(score.credit.into()),
        score.extracted,
        parts,
        cell(reward.accuracy.into()),
        cell(reward.shaped.into()),
        reward.live,
    ])?;
    Ok(())
}

/// None where the tokens are gone.
fn completion(row: &Row<'_>) -> rusqlite::Result<Option<Completion>> {
    let blob = |index| row.get::<_, Option<Vec<u8>>>(index);
    let (Some(tokens), Some(logprobs)) = (blob(3)?, blob(4)?) else { return Ok(None) };
    let wrong = |index, kind, problem: &str| {
        rusqlite::Error::FromSqlConversionFailure(index, kind, problem.into())
    };
    let finish = match row.get::<_, String>(1)?.as_str() {
        "stop" => FinishReason::Stop,
        "length" => FinishReason::Length,
        _ => return Err(wrong(1, Type::Text, "expected stop or length")),
    };
    let words = |bytes: &[u8], index| match bytes.as_chunks::<4>() {
        (words, []) => Ok(words.to_vec()),
        _ => Err(wrong(index, Type::Blob, "expected four bytes for each token")),
    };
    let tokens: Vec<u32> = words(&tokens, 3)?.into_iter().map(u32::from_le_bytes).collect();
    let logprobs: Vec<f32> = words(&logprobs, 4)?.into_iter().map(f32::from_le_bytes).collect();
    let mask = match blob(5)? {
        Some(mask) => mask.into_iter().map(|own| own != 0).collect(),
        None => vec![true; tokens.len()],
    };
    if logprobs.len() != tokens.len() || mask.len() != tokens.len() {
        return Err(wrong(4, Type::Blob, "expected a log-probability and a mask for each token"));
    }
    let mut completion = Completion::written(tokens, logprobs, finish)
        .with_text(row.get::<_, String>(0)?)
        .with_version(unsigned(row.get::<_, Option<i64>>(2)?.unwrap_or(0)));
    completion.mask = mask;
    Ok(Some(completion))
}

/// The largest minus the smallest accuracy of the completions that count; NaN where none does.
fn spread(rewards: &[Reward]) -> f64 {
    let live = rewards.iter().filter(|reward| reward.live).map(|reward| reward.accuracy);
    let (least, most) = live.fold((f32::INFINITY, f32::NEG_INFINITY), |(least, most), accuracy| {
        (least.min(accuracy), most.max(accuracy))
    });
    if least <= most { f64::from(most - least) } else { f64::NAN }
}
