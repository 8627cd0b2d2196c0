//! Groups and completions: written when they arrive, judged later, and given back to a run that goes on.

use firebrick_core::{Completion, Fate, FinishReason, Group, Reward, RewardedGroup, Step};
use rusqlite::{OptionalExtension, Row, Transaction, params, types::Type};

use super::{Store, cell, signed, unsigned};
use crate::RunError;

/// The [`Store`]'s `source` of what was sampled for training.
pub const TRAIN: &str = "train";

impl Store {
    /// Writes a group that has just arrived and nobody has judged, so that a run that is killed has it. `request` is a
    /// number made from everything that the completions follow from, the weights included.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn keep(
        &mut self,
        source: &str,
        step: Step,
        request: &[u8],
        group: &Group,
    ) -> Result<(), RunError> {
        self.transaction(|transaction| {
            let id = insert_group(transaction, (source, step), group)?;
            let sql =
                "UPDATE groups SET request = ?2, spread = NULL, fate = NULL WHERE group_id = ?1";
            transaction.prepare_cached(sql)?.execute(params![id, request])?;
            // What was sampled in its place before.
            let sql = "DELETE FROM completions WHERE group_id = ?1";
            transaction.prepare_cached(sql)?.execute([id])?;
            (0..).zip(&group.completions).try_for_each(|(index, completion)| {
                insert_completion(transaction, (id, index), completion)
            })
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

    /// Writes what became of a step's groups; of those that [`Store::keep`] has written the tokens stay.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn record(
        &mut self,
        source: &str,
        step: Step,
        groups: &[RewardedGroup],
    ) -> Result<(), RunError> {
        self.transaction(|transaction| {
            for RewardedGroup { group, rewards } in groups {
                let id = insert_group(transaction, (source, step), group)?;
                let sql = "UPDATE groups SET spread = ?2, policy_step = ?3 WHERE group_id = ?1";
                let spread = cell(spread(rewards));
                transaction.prepare_cached(sql)?.execute(params![
                    id,
                    spread,
                    signed(group.step)
                ])?;
                let sql = "DELETE FROM completions WHERE group_id = ?1 AND completion >= ?2";
                transaction.prepare_cached(sql)?.execute([id, rewards.len() as i64])?;
                for (index, (completion, reward)) in
                    (0..).zip(group.completions.iter().zip(rewards))
                {
                    insert_completion(transaction, (id, index), completion)?;
                    judge(transaction, (id, index), reward)?;
                }
            }
            Ok(())
        })
    }

    /// Writes what a step made of its groups, by their draws.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn record_fates(
        &mut self,
        step: Step,
        fates: impl IntoIterator<Item = (u64, Fate)>,
    ) -> Result<(), RunError> {
        self.transaction(|transaction| {
            let sql = "UPDATE groups SET fate = ?3 WHERE source = ?4 AND step = ?1 AND draw = ?2";
            let mut update = transaction.prepare_cached(sql)?;
            for (draw, fate) in fates {
                update.execute(params![signed(step), signed(draw), fate.name(), TRAIN])?;
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

/// The group's row, which may be there; gives its id.
fn insert_group(
    transaction: &Transaction<'_>,
    (source, step): (&str, Step),
    group: &Group,
) -> rusqlite::Result<i64> {
    let sql = "INSERT INTO groups (source, step, draw, policy_step, prompt_id, prompt, reference) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO UPDATE \
               SET prompt = excluded.prompt, reference = excluded.reference RETURNING group_id";
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
        ],
        |row| row.get(0),
    )
}

/// A completion without a verdict; one that is there is replaced where it is another one.
fn insert_completion(
    transaction: &Transaction<'_>,
    (group, index): (i64, i64),
    completion: &Completion,
) -> rusqlite::Result<()> {
    let logprobs = completion.logprobs.iter().map(|&logprob| f64::from(logprob));
    let mean_logprob = logprobs.sum::<f64>() / completion.logprobs.len() as f64;
    let mask: Option<Vec<u8>> = completion
        .mask
        .contains(&false)
        .then(|| completion.mask.iter().map(|&own| u8::from(own)).collect());
    let sql = "INSERT INTO completions (group_id, completion, text, tokens, finish, policy_version, \
               mean_logprob, token_ids, logprobs, mask) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO UPDATE \
               SET text = excluded.text, tokens = excluded.tokens, finish = excluded.finish, \
               policy_version = excluded.policy_version, mean_logprob = excluded.mean_logprob, \
               token_ids = excluded.token_ids, logprobs = excluded.logprobs, mask = excluded.mask \
               WHERE token_ids IS NOT excluded.token_ids OR text <> excluded.text \
               OR logprobs IS NOT excluded.logprobs";
    transaction.prepare_cached(sql)?.execute(params![
        group,
        index,
        completion.text,
        completion.count() as i64,
        completion.finish.name(),
        signed(completion.policy_version),
        cell(mean_logprob),
        bytes(&completion.tokens, |token| token.to_le_bytes()),
        bytes(&completion.logprobs, |logprob| logprob.to_le_bytes()),
        mask,
    ])?;
    Ok(())
}

fn judge(
    transaction: &Transaction<'_>,
    (group, index): (i64, i64),
    reward: &Reward,
) -> rusqlite::Result<()> {
    let score = &reward.score;
    let parts = (!score.parts.is_empty())
        .then(|| {
            score.parts.iter().map(|(name, credit)| (name.clone(), (*credit).into())).collect()
        })
        .map(|parts: serde_json::Map<String, serde_json::Value>| serde_json::Value::Object(parts));
    let sql = "UPDATE completions SET verdict = ?3, credit = ?4, extracted = ?5, parts = ?6, \
               accuracy = ?7, shaped = ?8, live = ?9 WHERE group_id = ?1 AND completion = ?2";
    transaction.prepare_cached(sql)?.execute(params![
        group,
        index,
        score.verdict.name(),
        cell(score.credit.into()),
        score.extracted,
        parts.map(|parts| parts.to_string()),
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

fn bytes<T: Copy>(values: &[T], word: impl Fn(T) -> [u8; 4]) -> Vec<u8> {
    values.iter().flat_map(|&value| word(value)).collect()
}

/// The largest minus the smallest accuracy of the completions that count; NaN where none does.
fn spread(rewards: &[Reward]) -> f64 {
    let live = rewards.iter().filter(|reward| reward.live).map(|reward| reward.accuracy);
    let (least, most) = live.fold((f32::INFINITY, f32::NEG_INFINITY), |(least, most), accuracy| {
        (least.min(accuracy), most.max(accuracy))
    });
    if least <= most { f64::from(most - least) } else { f64::NAN }
}
