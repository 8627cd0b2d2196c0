//! What a run records of the completions that were trained on.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod scratch;

use rusqlite::Connection;
use scratch::Scratch;

/// A later step trains on a group that was carried over, and on the group's completions.
#[test]
fn groups_of_an_earlier_step_are_trained_on_too() {
    let scratch = Scratch::new();
    scratch.train_tiny("a", &["sampling.prompts_per_step=2", "train.steps=12"]).success();
    let carried: f64 = scratch.values("a", "sampling/groups_carried_over").iter().sum();
    assert!(carried > 0.0, "no group was carried over and used: the test shows nothing");

    let database = Connection::open(scratch.path("runs/a/run.db")).unwrap();
    let count = |status: &str| -> f64 {
        let sql = "SELECT count(DISTINCT group_id) FROM groups JOIN trained USING (group_id) WHERE status = ?1";
        database.query_row(sql, [status], |row| row.get(0)).unwrap()
    };

    assert_eq!(count("surplus"), carried);
    assert_eq!(count("kept") + carried, 2.0 * 12.0);
    assert_eq!(count("filtered"), 0.0);
}

#[test]
fn tokens_are_recorded_with_what_their_update_began_with() {
    let scratch = Scratch::new();
    let settings = ["record.tokens_every=2", "sampling.dynamic=false", "train.mini_batch=8"];
    scratch.train_tiny("a", &settings).success();
    let database = Connection::open(scratch.path("runs/a/run.db")).unwrap();
    let entropy = scratch.values("a", "loss/entropy");
    let change = scratch.values("a", "loss/logprob_change");

    // The query returns steps, completions with an advantage, and completions with lists.
    let sql = "SELECT step, count(*), count(ratios), total(advantage) FROM groups JOIN trained USING (group_id) GROUP BY step";
    let mut query = database.prepare(sql).unwrap();
    let steps: Vec<(i64, i64, i64, f64)> = query
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();

    assert_eq!(steps.len(), 6);
    for (step, completions, looked, advantages) in steps {
        assert!(completions > 0, "step {step}");
        assert_eq!(looked, if step % 2 == 0 { completions } else { 0 }, "step {step}");

        // The advantages of a group are centred.
        assert!(advantages.abs() < 1e-3 * completions as f64, "step {step}: {advantages}");
        if looked == 0 {
            continue;
        }

        let lists = format!(
            "SELECT avg(entropy.value), avg(abs(ratio.value - 1)), count(*), max(tokens) FROM groups \
             JOIN trained USING (group_id) JOIN completions USING (group_id, completion), \
             json_each(ratios) AS ratio, json_each(entropies) AS entropy \
             WHERE step = {step} AND ratio.key = entropy.key"
        );

        let (mean, moved, tokens): (f64, f64, i64) = database
            .query_row(&lists, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .unwrap();
        assert!(tokens >= completions);

        // The step's own means are over the same tokens. Near 1, a ratio is 1 plus the change of its logarithm.
        let at = step as usize - 1;
        assert!(
            (mean - entropy[at]).abs() < 1e-4 * entropy[at].max(1e-2),
            "step {step}: {mean} {}",
            entropy[at]
        );
        assert!(
            (moved - change[at]).abs() < 0.1 * change[at] + 1e-6,
            "step {step}: {moved} {}",
            change[at]
        );
    }
}
