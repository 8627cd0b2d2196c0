//! Opens databases: checks what they hold, bounds the work of queries, and reads where nobody may write.
//!
//! The queries are constant, but the database may be untrusted. A view instead of a table, a generated column or a
//! damaged tree would make an endless answer out of a few bytes.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rusqlite::{
    Connection, ErrorCode, OpenFlags, Row, config::DbConfig, limits::Limit, types::Type,
};

use super::{
    Store,
    schema::{APPLICATION, VERSION},
};
use crate::{RunError, own::check_ordinary};

/// Tables that are read or written. SQLite takes their names in any case.
const TABLES: [&str; 7] =
    ["info", "metrics", "events", "groups", "completions", "sampled", "trained"];

/// Limit on one value, in bytes. The tokens of a group with 64 completions of 16,384 tokens take 40 MB.
const VALUE: i32 = 256 << 20;

/// Limit on a query, and on the text that makes a table, in bytes.
const SQL: i32 = 1 << 20;

/// Limit on a line for a person, and on a fact, in bytes.
pub(super) const LINE: usize = 1 << 20;

/// Limit on the name of a metric, in bytes.
pub(super) const NAME: usize = 4096;

/// Instructions that any query may take, which are about a second of work.
const WORK: u64 = 20_000_000;

/// Further instructions for each byte of the database. A row of 30 bytes takes some 40 instructions to be read,
/// joined and sorted.
const WORK_PER_BYTE: u64 = 8;

/// Instructions between two checks of the work.
const BETWEEN: i32 = 100_000;

impl Store {
    /// Opens an existing database to read, also while a run writes it, and also if nothing may be written there.
    ///
    /// # Errors
    /// As for [`Store::open`], and when there is no database. A database of an earlier version is read as it
    /// is.
    pub fn open_read_only(path: &Path) -> Result<Self, RunError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let store = Store::connect(path, flags)?;

        let (store, version) = match store.version() {
            Err(RunError::Database { error, .. }) if needs_to_write(&error) => {
                drop(store);
                let store = Store::connect_where_nobody_writes(path, flags, error)?;
                let version = store.version()?;
                (store, version)
            }
            version => (store, version?),
        };

        store.check_schema()?;
        // No query reads a view, and nothing is written that could fire a trigger.
        let off = [DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER];
        for what in off {
            store.connection.set_db_config(what, false).map_err(store.sql_error("open"))?;
        }

        match version {
            // All of these versions have the tables of the metrics.
            Some(1..=VERSION) => Ok(store),
            None => Err(RunError::Foreign { path: path.to_owned() }),
            Some(found) => Err(store.unknown(found)),
        }
    }

    /// Opens a database as [`Store::open_read_only`] does, for queries about completions.
    ///
    /// # Errors
    /// As there, and when the database is of an earlier version.
    pub fn open_to_ask(path: &Path) -> Result<Self, RunError> {
        let store = Store::open_read_only(path)?;
        match store.version()? {
            Some(VERSION) | None => Ok(store),
            Some(found) => Err(store.unknown(found)),
        }
    }

    pub(super) fn connect(path: &Path, flags: OpenFlags) -> Result<Self, RunError> {
        Store::connect_as(path, path, flags)
    }

    /// Opens the file at `path` under the name `address`, which is the path or an address with options.
    fn connect_as(path: &Path, address: &Path, flags: OpenFlags) -> Result<Self, RunError> {
        for file in files(path) {
            check_ordinary(&file)?;
        }

        let sql_error = |error| sql_error("open", path, error);
        let mut connection = Connection::open_with_flags(address, flags).map_err(sql_error)?;
        // A reader that holds the database for a moment must not cost the run a step's record.
        connection.busy_timeout(Duration::from_secs(10)).map_err(sql_error)?;

        // The schema's own text gets no rights, and pages that can't be intact are errors.
        let set = |what, on| connection.set_db_config(what, on).map_err(sql_error);
        set(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        set(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.pragma_update(None, "cell_size_check", true).map_err(sql_error)?;

        // Only a reader's queries are bounded. A run may take its time for the record that it writes itself.
        let work = Arc::new(AtomicU64::new(0));
        if flags.contains(OpenFlags::SQLITE_OPEN_READ_ONLY) {
            connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE).map_err(sql_error)?;
            connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, SQL).map_err(sql_error)?;
            let work = Arc::clone(&work);
            let path = path.to_owned();
            let is_too_much = move || {
                let done = work.fetch_add(BETWEEN as u64, Ordering::Relaxed);
                done > WORK && done > work_for(&path)
            };
            connection.progress_handler(BETWEEN, Some(is_too_much)).map_err(sql_error)?;
        }

        Ok(Store { connection, path: path.to_owned(), work, forgotten: [].into() })
    }

    /// Opens a database in a folder that may only be read, without the files that SQLite would make next to the
    /// database. As long as nobody writes, none of them is needed.
    fn connect_where_nobody_writes(
        path: &Path,
        flags: OpenFlags,
        error: rusqlite::Error,
    ) -> Result<Self, RunError> {
        let flags = flags | OpenFlags::SQLITE_OPEN_URI;
        let connect = |option: &str| {
            let address = format!("file:{}?{option}", encoded(path));
            Store::connect_as(path, Path::new(&address), flags)
        };

        let [_, log, ..] = files(path);
        if !fs::metadata(log).is_ok_and(|log| log.len() > 0) {
            return connect("immutable=1");
        }

        // A run that was killed has its last changes in the log. Without locks, the index of the log is kept in
        // memory. A writer would keep that index in a file, so there is no writer.
        let unfinished = |error| RunError::Unfinished { path: path.to_owned(), error };
        if !cfg!(unix) {
            return Err(unfinished(error));
        }

        let store = connect("vfs=unix-none")?;
        let exclusive = store.connection.pragma_update(None, "locking_mode", "exclusive");
        let read = exclusive.and_then(|()| {
            let sql = "SELECT count(*) FROM sqlite_schema";
            store.connection.query_row(sql, [], |row| row.get::<_, i64>(0))
        });

        read.map_err(unfinished)?;
        Ok(store)
    }

    /// Returns the connection for a new query, whose work counts from 0.
    pub(super) fn connection(&self) -> &Connection {
        self.work.store(0, Ordering::Relaxed);
        &self.connection
    }

    /// Returns the schema's version, or `None` for an empty database.
    pub(super) fn version(&self) -> Result<Option<i64>, RunError> {
        let ask = |sql: &str| {
            self.connection()
                .query_row(sql, [], |row| row.get::<_, i64>(0))
                .map_err(self.sql_error("open"))
        };
        let tables = ask("SELECT count(*) FROM sqlite_schema")?;
        match (tables, ask("PRAGMA application_id")?) {
            (0, _) => Ok(None),
            (_, APPLICATION) => Ok(Some(ask("PRAGMA user_version")?)),
            _ => Err(RunError::Foreign { path: self.path.clone() }),
        }
    }

    /// Checks that the tables of a run are tables, without views, triggers or computed columns. Further tables, views
    /// and indices are the user's own.
    pub(super) fn check_schema(&self) -> Result<(), RunError> {
        let read = || -> rusqlite::Result<Option<String>> {
            let sql =
                "SELECT type, name, tbl_name, coalesce(substr(sql, 1, 100), '') FROM sqlite_schema";
            let mut query = self.connection().prepare(sql)?;
            let mut rows = query.query([])?;
            while let Some(row) = rows.next()? {
                let text = |column| Ok::<_, rusqlite::Error>(lossy(row, column)?.to_lowercase());
                let kind = text(0)?;
                let name = text(1)?;
                let table = text(2)?;
                let sql = text(3)?;
                if kind == "trigger" && TABLES.contains(&&*table) {
                    return Ok(Some(format!("the table {table} has a trigger")));
                }
                let is_virtual = sql.split_whitespace().nth(1) == Some("virtual");
                if TABLES.contains(&&*name) && kind != "index" && (kind != "table" || is_virtual) {
                    let kind = if is_virtual { "virtual table" } else { &kind };
                    return Ok(Some(format!("{name} is a {kind}, expected a table")));
                }
            }

            let sql = "SELECT name FROM pragma_table_xinfo(?1) WHERE hidden > 1";
            let mut query = self.connection().prepare(sql)?;
            for table in TABLES {
                if let Some(row) = query.query([table])?.next()? {
                    let column = lossy(row, 0)?;
                    return Ok(Some(format!("the column {column} of {table} is computed")));
                }
            }
            Ok(None)
        };

        match read().map_err(self.sql_error("open"))? {
            Some(problem) => Err(RunError::Schema { path: self.path.clone(), problem }),
            None => Ok(()),
        }
    }

    pub(super) fn unknown(&self, found: i64) -> RunError {
        let path = self.path.clone();
        if found > VERSION {
            RunError::Newer { path, found, known: VERSION }
        } else if found > 0 {
            RunError::Older { path, found, known: VERSION }
        } else {
            RunError::Foreign { path }
        }
    }

    pub(super) fn sql_error(&self, action: &'static str) -> impl Fn(rusqlite::Error) -> RunError {
        let path = self.path.clone();
        move |error| sql_error(action, &path, error)
    }
}

pub(super) fn sql_error(action: &'static str, path: &Path, error: rusqlite::Error) -> RunError {
    let path = path.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            RunError::Corrupt { path, error }
        }
        // Only the bound on work interrupts a query.
        Some(ErrorCode::OperationInterrupted) => RunError::Endless { path },
        _ => RunError::Database { action, path, error },
    }
}

/// Reads a text, and replaces bytes that are not UTF-8.
pub(super) fn lossy(row: &Row<'_>, column: usize) -> rusqlite::Result<String> {
    let bytes = row.get_ref(column)?.as_bytes()?;
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

/// Reads a text of at most `max_bytes` bytes.
pub(super) fn short(row: &Row<'_>, column: usize, max_bytes: usize) -> rusqlite::Result<String> {
    let length = row.get_ref(column)?.as_bytes().map_or(0, <[u8]>::len);
    if length > max_bytes {
        let problem =
            io::Error::other(format!("a text of {length} bytes, expected at most {max_bytes}"));
        return Err(rusqlite::Error::FromSqlConversionFailure(column, Type::Text, problem.into()));
    }
    row.get(column)
}

/// Returns the database and the files that SQLite may have next to it: the log, the log's index and the journal.
pub(crate) fn files(database: &Path) -> [PathBuf; 4] {
    let neighbour = |ending: &str| {
        let mut path = database.as_os_str().to_owned();
        path.push(ending);
        PathBuf::from(path)
    };
    [database.to_owned(), neighbour("-wal"), neighbour("-shm"), neighbour("-journal")]
}

/// Tells whether SQLite failed because it may not make or change files.
fn needs_to_write(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen))
}

/// Returns the instructions that a query of a database of this size may take.
fn work_for(database: &Path) -> u64 {
    let [database, log, ..] = files(database);
    let bytes: u64 = [database, log].iter().map(|file| fs::metadata(file).map_or(0, of_file)).sum();
    WORK.saturating_add(bytes.saturating_mul(WORK_PER_BYTE))
}

/// Returns the length of a file, or less if most of it is a hole. A file system that compresses also has fewer blocks
/// than bytes.
#[cfg(unix)]
fn of_file(metadata: fs::Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    metadata.len().min(metadata.blocks().saturating_mul(8 * 512))
}

#[cfg(not(unix))]
fn of_file(metadata: fs::Metadata) -> u64 {
    metadata.len()
}

/// Writes a path as a part of an address for SQLite, in which `%`, `?` and `#` have a meaning.
fn encoded(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    let letter = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
            char::from(*byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    bytes.iter().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use firebrick_core::{Metrics, Tracker as _};

    use super::*;

    /// Makes the record of a short run.
    fn record(folder: &Path) -> PathBuf {
        let path = folder.join("run.db");
        let mut store = Store::open(&path).unwrap();
        let metrics = Metrics([("reward/mean".to_owned(), 0.5)].into());
        store.log(1, &metrics).unwrap();
        store.event(1, "a note").unwrap();
        store.set_info("ended", "steps").unwrap();

        path
    }

    fn change(path: &Path, sql: &str) {
        let connection = Connection::open(path).unwrap();
        connection.execute_batch(sql).unwrap();
        connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    }

    const ENDLESS: &str =
        "WITH RECURSIVE all_of(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM all_of) SELECT";

    #[test]
    fn only_a_table_is_read_as_a_table() {
        let metrics = "ALTER TABLE metrics RENAME TO old;";
        for (sql, problem) in [
            (
                format!("{metrics} CREATE VIEW metrics AS {ENDLESS} n AS step, 'a' AS name, 1.0 AS value FROM all_of"),
                "metrics is a view",
            ),
            // SQLite finds the table under this name too.
            (
                format!("{metrics} CREATE VIEW METRICS AS {ENDLESS} n AS step, 'a' AS name, 1.0 AS value FROM all_of"),
                "metrics is a view",
            ),
            (
                format!("{metrics} CREATE VIRTUAL TABLE metrics USING fts5(step, name, value)"),
                "metrics is a virtual table",
            ),
            (
                "DROP TABLE info; CREATE TABLE info (key TEXT, value TEXT AS (printf('%.*c', 100000000, 'x')))".into(),
                "the column value of info is computed",
            ),
            (
                "ALTER TABLE events ADD COLUMN more TEXT AS (zeroblob(1000000000)) VIRTUAL".into(),
                "the column more of events is computed",
            ),
            (
                "CREATE TRIGGER t AFTER INSERT ON Info BEGIN DELETE FROM metrics; END".into(),
                "the table info has a trigger",
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = record(folder.path());
            change(&path, &sql);

            let begun = Instant::now();
            for opened in [Store::open_read_only(&path), Store::open_to_ask(&path), Store::open(&path)] {
                let error = opened.unwrap_err().to_string();
                assert!(error.contains(problem), "{error}");
            }
            assert!(begun.elapsed() < Duration::from_secs(10));
        }

        // Tables that users add for themselves don't matter.
        let folder = tempfile::tempdir().unwrap();
        let path = record(folder.path());
        change(
            &path,
            "CREATE TABLE mine (x); CREATE VIEW best AS SELECT max(value) FROM metrics; \
             CREATE INDEX by_name ON metrics (name)",
        );
        assert_eq!(Store::open_read_only(&path).unwrap().metrics("reward/mean").unwrap().len(), 1);
    }

    /// Stands for a tree whose pages all point to one page below them, which has more rows than anybody can count.
    #[test]
    fn a_damaged_tree_does_not_hold_its_readers_for_ever() {
        let folder = tempfile::tempdir().unwrap();

        let path = record(folder.path());
        let store = Store::open_read_only(&path).unwrap();
        let begun = Instant::now();

        let sql = format!("{ENDLESS} count(*) FROM all_of");
        let counted = store.connection().query_row(&sql, [], |row| row.get::<_, i64>(0));
        let error = store.sql_error("read")(counted.unwrap_err());
        assert!(matches!(error, RunError::Endless { .. }), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());

        // The work of the next query counts from 0 again.
        assert_eq!(store.metrics("reward/mean").unwrap(), [(1, 0.5)]);
    }

    #[test]
    fn a_text_has_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = record(folder.path());
        let long = |bytes: usize| format!("CAST(zeroblob({bytes}) AS TEXT)");

        for (sql, bytes) in [
            (format!("UPDATE info SET value = {}", long(LINE + 1)), LINE),
            (format!("UPDATE events SET text = {}", long(LINE + 1)), LINE),
            (format!("UPDATE metrics SET name = {}", long(NAME + 1)), NAME),
        ] {
            change(&path, &sql);
            let store = Store::open_read_only(&path).unwrap();

            let read = match bytes {
                NAME => store.metric_names().map(drop).and(store.all_series(&(0..=9)).map(drop)),
                _ => store.info("ended").map(drop).and(store.told(0).map(drop)),
            };

            let error = read.unwrap_err().to_string();
            assert!(error.contains(&format!("expected at most {bytes}")), "{error}");
            change(&path, "UPDATE info SET value = ''; UPDATE events SET text = ''");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_record_is_a_file_and_so_are_the_files_beside_it() {
        use std::{os::unix::fs::symlink, process::Command};

        let other = tempfile::tempdir().unwrap();
        let other = record(other.path());
        for name in ["run.db", "run.db-wal", "run.db-shm", "run.db-journal"] {
            for pipe in [false, true] {
                let folder = tempfile::tempdir().unwrap();
                let path = record(folder.path());
                let file = folder.path().join(name);
                let _ = fs::remove_file(&file);

                if pipe {
                    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
                } else {
                    symlink(&other, &file).unwrap();
                }

                for opened in [Store::open_read_only(&path), Store::open(&path)] {
                    let error = opened.unwrap_err().to_string();
                    assert!(error.contains("expected an ordinary file"), "{name}: {error}");
                }
            }
        }
    }

    /// Runs itself again as another user, because root may write everywhere.
    #[cfg(unix)]
    #[test]
    fn a_finished_run_is_read_where_nobody_may_write() {
        use std::{
            os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
            process::Command,
        };

        const FOLDER: &str = "FIREBRICK_TEST_READ_ONLY";
        const NAMES: [&str; 3] = ["50 % of #a?b=é", "killed", "killed, with the index"];
        const NAME: &str = "store::opened::tests::a_finished_run_is_read_where_nobody_may_write";
        let read = |folder: &Path| {
            Store::open_to_ask(&folder.join("run.db"))
                .and_then(|store| store.metrics("reward/mean"))
        };
        if let Some(folder) = std::env::var_os(FOLDER) {
            let folder = Path::new(&folder);
            // The last numbers of a killed run are in the log alone.
            for name in NAMES {
                assert_eq!(read(&folder.join(name)).unwrap(), [(1, 0.5)], "{name}");
            }
            return;
        }

        let root = tempfile::Builder::new().prefix("run").tempdir().unwrap();
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(root.path(), 0o755);
        let program = root.path().join("test");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        mode(&program, 0o755);
        for name in NAMES {
            let folder = root.path().join(name);
            fs::create_dir(&folder).unwrap();
            let elsewhere = tempfile::tempdir().unwrap();
            let path = elsewhere.path().join("run.db");
            let mut store = Store::open(&path).unwrap();
            store.log(1, &Metrics([("reward/mean".to_owned(), 0.5)].into())).unwrap();
            let files = files(&path);
            let taken = match name {
                "killed" => &files[..2],
                "killed, with the index" => &files[..3],
                _ => {
                    drop(store);
                    &files[..1]
                }
            };
            for file in taken {
                fs::copy(file, folder.join(file.file_name().unwrap())).unwrap();
            }
            mode(&folder, 0o555);
        }

        let mut again = Command::new(&program);
        again.args(["--exact", NAME]).env(FOLDER, root.path());
        if root.path().metadata().is_ok_and(|of| std::os::unix::fs::MetadataExt::uid(&of) == 0) {
            again.uid(65534).gid(65534);
        }

        let output = again.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        NAMES.iter().for_each(|name| mode(&root.path().join(name), 0o755));
    }
}
