//! Tables of a run's database.

/// Version of the schema, which goes up with every change that an older program could not read.
pub(super) const VERSION: i64 = 5;

/// Application id, "FBRK", which distinguishes a run's database from any other.
pub(super) const APPLICATION: i64 = 0x4642_524B;

/// Returns the SQL that makes the tables of an empty database.
pub(super) fn creation() -> String {
    format!("{NUMBERS} {SAMPLED} {TRAINED}")
}

const NUMBERS: &str = "
    CREATE TABLE info (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE metrics (
        step INTEGER NOT NULL, name TEXT NOT NULL, value REAL,
        PRIMARY KEY (step, name)
    ) WITHOUT ROWID;
";

const SAMPLED: &str = "
    CREATE TABLE events (time REAL NOT NULL, step INTEGER NOT NULL, text TEXT NOT NULL);
    CREATE TABLE groups (
        group_id INTEGER PRIMARY KEY,
        source TEXT NOT NULL, step INTEGER NOT NULL, draw INTEGER NOT NULL,
        policy_step INTEGER NOT NULL, prompt_id INTEGER NOT NULL, prompt TEXT NOT NULL,
        reference TEXT NOT NULL, spread REAL, status TEXT,
        UNIQUE (source, step, draw, prompt_id)
    );
    CREATE TABLE sampled (group_id INTEGER PRIMARY KEY, request BLOB, completions TEXT NOT NULL);
    CREATE TABLE completions (
        group_id INTEGER NOT NULL, completion INTEGER NOT NULL,
        text TEXT NOT NULL, tokens INTEGER NOT NULL, finish TEXT NOT NULL,
        policy_version INTEGER, mean_logprob REAL,
        verdict TEXT, credit REAL, extracted TEXT, parts TEXT,
        base_reward REAL, reward REAL, in_loss INTEGER,
        PRIMARY KEY (group_id, completion)
    );
";

/// Table of the updates' numbers for each completion.
const TRAINED: &str = "
    CREATE TABLE trained (
        group_id INTEGER NOT NULL, completion INTEGER NOT NULL,
        advantage REAL, ratios TEXT, entropies TEXT,
        PRIMARY KEY (group_id, completion)
    ) WITHOUT ROWID;
";

/// View of the prompts that were sampled for training. In a query with one `max`, SQLite takes the other columns of a
/// group from the row that has the maximum.
pub(super) const PROMPTS: &str = "
    CREATE VIEW IF NOT EXISTS prompts AS
    WITH judged AS (
        SELECT prompt_id, prompt, step, draw,
            count(*) AS completions, sum(verdict = 'right') AS \"right\",
            avg(CASE WHEN in_loss THEN base_reward END) AS mean,
            avg(CASE WHEN in_loss THEN base_reward * base_reward END) AS square
        FROM groups JOIN completions USING (group_id)
        WHERE source = 'train' AND verdict IS NOT NULL
        GROUP BY group_id
    )
    SELECT prompt_id, prompt, count(*) AS groups, sum(completions) AS completions,
        sum(\"right\") AS \"right\", max(draw) AS last_draw, step AS last_step, mean AS last_mean,
        max(0.0, square - mean * mean) AS last_variance
    FROM judged GROUP BY prompt_id;
";

/// Removes an index of earlier databases, which had a page for each metric, so that every step wrote all of them.
pub(super) const UNUSED: &str = "DROP INDEX IF EXISTS metrics_by_name;";
