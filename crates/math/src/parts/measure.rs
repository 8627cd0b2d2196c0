//! Judges every row with all parts on and then with each part off, and prints what each part decides alone.
//!
//! | variable | value |
//! |---|---|
//! | `FIREBRICK_PARTS_ROWS` | files and folders of rows in JSON Lines, with the system's separator between them |
//! | `FIREBRICK_PARTS_OFF` | sets of parts that are off together, instead of each part alone: `Balls,Probes;Residues` |
//! | `FIREBRICK_PARTS_EXAMPLES` | the file for three examples of each part; by default one in the system's folder for such files |
//!
//! A row is one that `firebrick score` reads, one that the tests recorded (`FIREBRICK_PARTS_RECORD`), or a row with an
//! `answer`, such as GSM8K's. Rules that compare texts have no part in this, and their rows are left out. Every
//! reference is also judged in a box against itself, and GSM8K's solutions with other answers in them.

#![expect(clippy::print_stdout, reason = "a measurement prints its table")]

#[path = "../../../../tests/splice/mod.rs"]
mod splice;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    env,
    fmt::Write as _,
    fs,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rayon::prelude::*;
use serde_json::Value;

use super::{LONGEST, PARTS, Part, switch_off};
use crate::{
    Extraction, Gold, Verdict, Verifier,
    algebra::{self, Decision},
    extract,
};

/// A part, what it is for, and its sources.
type Entry = (Part, &'static str, &'static [&'static str]);

/// Rows that are taken from one test. A property test judges thousands.
const FROM_A_TEST: usize = 400;

/// Responses that are spliced from GSM8K's solutions.
const SPLICED: usize = 2000;

#[test]
#[ignore = "measures for minutes, on rows that FIREBRICK_PARTS_ROWS names"]
fn what_each_part_earns() {
    let rows = rows();
    let asked = env::var("FIREBRICK_PARTS_OFF").ok();
    let sets = sets(asked.as_deref());
    describe(&rows);

    let pool = rayon::ThreadPoolBuilder::new().stack_size(64 << 20).build();
    let pool = pool.expect("this machine can start threads");
    // A panic with a part off is counted, and its message would hide the table.
    panic::set_hook(Box::new(|_| {}));
    let judge = |parts: &[Part]| -> Vec<Outcome> {
        switch_off(parts);
        let outcomes = pool.install(|| rows.par_iter().map(outcome).collect());
        switch_off(&[]);
        outcomes
    };

    let before = judge(&[]);
    let mut columns = vec![before.clone()];
    let mut table: Vec<Earned> = sets
        .iter()
        .map(|set| {
            let parts: Vec<Part> = set.iter().map(|(part, ..)| *part).collect();
            let after = judge(&parts);
            let mut earned = Earned::of(set, &rows, &before, &after);
            columns.push(after);
            if asked.is_some() {
                switch_off(&parts);
                earned.time = Some(mean_time(&rows));
                switch_off(&[]);
            }
            earned
        })
        .collect();
    let _ = panic::take_hook();

    if let Some(path) = env::var_os("FIREBRICK_PARTS_VERDICTS") {
        fs::write(&path, verdicts(&rows, &columns)).expect("the file of verdicts can be written");
    }

    // The first rows of the table are the first candidates for cutting.
    if asked.is_none() {
        table.sort_by_key(|earned| (earned.changed(), usize::MAX - earned.lines));
    }

    println!(
        "| part | for | sources | lines | right → wrong | right → unread | → right | other | better | where |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let mut examples = String::new();
    for earned in &table {
        println!("{}", earned.row());
        let _ = writeln!(examples, "## {}\n\n{}", earned.name, earned.examples.join("\n"));
    }

    let path = env::var_os("FIREBRICK_PARTS_EXAMPLES")
        .map_or_else(|| env::temp_dir().join("parts-examples.md"), PathBuf::from);
    fs::write(&path, examples).expect("the file of examples can be written");
    println!("\nexamples: {}", path.display());
}

/// Something to judge, and the verdict that is known to be the right one.
struct Row {
    corpus: String,
    id: String,
    task: Task,
    expected: Option<bool>,
}

enum Task {
    Judge { verifier: Verifier, gold: String, response: String },
    Extract { extraction: Extraction, text: String },
    Equal { left: String, right: String },
}

#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Right,
    Wrong,
    /// Not read, over the budget, or undecided where that is told apart.
    Unread,
    /// The answer that was found in a text.
    Extracted(String),
    Panic,
}

impl Task {
    fn run(&self) -> Outcome {
        match self {
            Task::Judge { verifier, gold, response } => {
                match verifier.judge(gold, response).verdict {
                    Verdict::Right => Outcome::Right,
                    Verdict::Wrong => Outcome::Wrong,
                    _ => Outcome::Unread,
                }
            }
            Task::Extract { extraction, text } => extract::extract(text, *extraction)
                .map_or(Outcome::Unread, |answer| Outcome::Extracted(answer.span.text)),
            Task::Equal { left, right } => match algebra::tests::decision(left, right) {
                Decision::Equal(_) => Outcome::Right,
                Decision::Different(_) | Decision::Undefined => Outcome::Wrong,
                Decision::Undecided(_) => Outcome::Unread,
            },
        }
    }

    /// Returns a text that only equal tasks share.
    fn key(&self) -> String {
        match self {
            Task::Judge { verifier, gold, response } => {
                format!("{verifier:?}\0{gold}\0{response}")
            }
            Task::Extract { extraction, text } => format!("{extraction:?}\0{text}"),
            Task::Equal { left, right } => format!("{left}\0{right}"),
        }
    }

    /// Writes the task in a line, without most of a long text.
    fn line(&self) -> String {
        let (left, right) = match self {
            Task::Judge { gold, response, .. } => (gold.as_str(), response.as_str()),
            Task::Extract { text, .. } => ("", text.as_str()),
            Task::Equal { left, right } => (left.as_str(), right.as_str()),
        };
        let end = |text: &str| {
            let start = text.ceil_char_boundary(text.len().saturating_sub(100));
            text[start..].to_owned()
        };
        format!("{:?} against {:?}", end(left), end(right))
    }
}

/// Writes a line for each row, with its verdict in every column: with all parts, and without each set. Lines of two
/// versions of the verifier can be compared.
fn verdicts(rows: &[Row], columns: &[Vec<Outcome>]) -> String {
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let outcomes: Vec<String> =
            columns.iter().map(|column| format!("{:?}", column[index])).collect();
        let expected = row.expected.map_or("", |right| if right { "right" } else { "wrong" });
        let line = row.task.line();
        let outcomes = outcomes.join("\t");
        let _ = writeln!(text, "{}\t{}\t{line}\t{expected}\t{outcomes}", row.corpus, row.id);
    }
    text
}

fn outcome(row: &Row) -> Outcome {
    panic::catch_unwind(AssertUnwindSafe(|| row.task.run())).unwrap_or(Outcome::Panic)
}

/// What a set of parts earns: the rows whose verdict changes without it.
struct Earned {
    name: String,
    what: String,
    sources: String,
    lines: usize,
    /// Rows from right to wrong, from right to unread, to right, and others.
    changes: [usize; 4],
    /// Rows that are judged as expected only without the parts.
    better: usize,
    panics: usize,
    corpora: BTreeMap<String, usize>,
    examples: Vec<String>,
    /// Mean time of a verdict without the parts.
    time: Option<Duration>,
}

impl Earned {
    fn of(set: &[&Entry], rows: &[Row], before: &[Outcome], after: &[Outcome]) -> Earned {
        let names: Vec<String> = set.iter().map(|(part, ..)| format!("{part:?}")).collect();
        let what: Vec<&str> = set.iter().map(|(_, what, _)| *what).collect();
        let sources: BTreeSet<&str> =
            set.iter().flat_map(|(.., sources)| sources.iter().copied()).collect();
        let lines: HashSet<(PathBuf, usize)> =
            sources.iter().flat_map(|source| lines(source)).collect();
        let files: BTreeSet<&str> =
            sources.iter().map(|source| source.split('#').next().unwrap_or(source)).collect();

        let mut earned = Earned {
            name: names.join(" "),
            what: what.join("; "),
            sources: files.into_iter().collect::<Vec<_>>().join(" "),
            lines: lines.len(),
            changes: [0; 4],
            better: 0,
            panics: 0,
            corpora: BTreeMap::new(),
            examples: vec![],
            time: None,
        };
        for ((row, before), after) in rows.iter().zip(before).zip(after) {
            earned.count(row, before, after);
        }
        earned
    }

    fn count(&mut self, row: &Row, before: &Outcome, after: &Outcome) {
        let kind = match (before, after) {
            (before, after) if before == after => return,
            (Outcome::Right, Outcome::Wrong) | (Outcome::Extracted(_), Outcome::Extracted(_)) => 0,
            (Outcome::Right | Outcome::Extracted(_), Outcome::Unread | Outcome::Panic) => 1,
            (_, Outcome::Right) => 2,
            _ => 3,
        };

        self.changes[kind] += 1;
        self.panics += usize::from(*after == Outcome::Panic);
        *self.corpora.entry(row.corpus.clone()).or_default() += 1;

        let agrees = |outcome: &Outcome| Some(*outcome == Outcome::Right) == row.expected;
        let judged = matches!(row.task, Task::Judge { .. });
        self.better += usize::from(judged && !agrees(before) && agrees(after));

        // Three examples are of three corpora, as far as there are so many.
        let first = self.corpora.get(&row.corpus) == Some(&1);
        if first && self.examples.len() < 3 {
            let line = row.task.line();
            let example = format!("- {} {}: {line}: {before:?} → {after:?}", row.corpus, row.id);
            self.examples.push(example);
        }
    }

    fn changed(&self) -> usize {
        self.changes.iter().sum()
    }

    fn row(&self) -> String {
        let corpora: Vec<String> =
            self.corpora.iter().map(|(corpus, count)| format!("{corpus} {count}")).collect();
        let mut end = corpora.join(", ");
        if self.panics > 0 {
            let _ = write!(end, "; {} panics", self.panics);
        }
        if let Some(time) = self.time {
            let _ = write!(end, "; {:.2} µs a verdict", time.as_secs_f64() * 1e6);
        }

        let [wrong, unread, right, other] = self.changes;
        format!(
            "| `{}` | {} | {} | {} | {wrong} | {unread} | {right} | {other} | {} | {end} |",
            self.name, self.what, self.sources, self.lines, self.better
        )
    }
}

/// Returns the sets of parts that are switched off: those that are asked for, or else each part alone.
fn sets(asked: Option<&str>) -> Vec<Vec<&'static Entry>> {
    let named = |name: &str| {
        let found = PARTS.iter().find(|(part, ..)| format!("{part:?}") == name.trim());
        found.unwrap_or_else(|| panic!("FIREBRICK_PARTS_OFF: there is no part {name:?}"))
    };

    match asked {
        Some("") => vec![],
        Some(asked) => asked.split(';').map(|set| set.split(',').map(named).collect()).collect(),
        None => PARTS.iter().map(|entry| vec![entry]).collect(),
    }
}

/// Prints how many rows there are, how many of them are judged as expected, and the time per verdict.
fn describe(rows: &[Row]) {
    let mut corpora: BTreeMap<&str, (usize, usize, usize)> = BTreeMap::new();
    for row in rows {
        let (all, expected, agree) = corpora.entry(&row.corpus).or_default();
        *all += 1;
        if let Some(right) = row.expected {
            *expected += 1;
            *agree += usize::from((outcome(row) == Outcome::Right) == right);
        }
    }

    println!("| corpus | rows | with an expected verdict | of these as expected |");
    println!("|---|---|---|---|");
    for (corpus, (all, expected, agree)) in corpora {
        println!("| {corpus} | {all} | {expected} | {agree} |");
    }

    let time = mean_time(rows);
    println!(
        "\n{} rows, {:.2} µs a verdict without the hostile rows\n",
        rows.len(),
        time.as_secs_f64() * 1e6
    );
}

/// Returns the mean time of a verdict on one thread, in the fastest of three passes, without hostile rows.
fn mean_time(rows: &[Row]) -> Duration {
    let judged = |row: &&Row| {
        matches!(row.task, Task::Judge { .. })
            && !row.corpus.contains("adversarial")
            && !row.corpus.contains("tests:")
    };
    let rows: Vec<&Row> = rows.iter().filter(judged).collect();

    let pass = |_| {
        let began = Instant::now();
        for row in &rows {
            std::hint::black_box(outcome(row));
        }
        began.elapsed()
    };
    let fastest = (0..3).map(pass).min().unwrap_or_default();
    fastest.div_f64(rows.len().max(1) as f64)
}

/// Reads all rows, each once.
fn rows() -> Vec<Row> {
    let paths = env::var_os("FIREBRICK_PARTS_ROWS");
    let paths = paths.expect("FIREBRICK_PARTS_ROWS names files or folders of rows");
    let mut files = vec![];
    for path in env::split_paths(&paths) {
        assert!(path.exists(), "FIREBRICK_PARTS_ROWS: there is no {}", path.display());
        collect_files(&path, &mut files);
    }

    let mut rows = vec![];
    let mut references = BTreeSet::new();
    let mut solutions = vec![];
    for file in &files {
        let bytes = fs::read(file).expect("a file of rows can be read");
        let folder = file.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();

        for line in String::from_utf8_lossy(&bytes).lines() {
            let Ok(value) = serde_json::from_str::<Value>(line) else { continue };
            let text = |key: &str| match value.get(key) {
                Some(Value::String(text)) => Some(text.clone()),
                Some(Value::Number(number)) => Some(number.to_string()),
                _ => None,
            };

            if let Some(row) = recorded(&value, &text) {
                rows.push(row);
            } else if let (Some(gold), Some(response)) = (text("gold"), text("response")) {
                references.insert(gold.clone());
                rows.extend(scored(&value, &text, &folder, gold, response));
            } else if let Some(answer) = text("answer") {
                let solution = answer.rsplit_once("#### ");
                references
                    .insert(solution.map_or(answer.as_str(), |(_, gold)| gold).trim().to_owned());
                if let Some((_, gold)) = solution {
                    let gold = gold.trim().to_owned();
                    rows.push(Row::plain(&folder, gold, answer.clone(), Some(true)));
                    solutions.extend(splice::Solution::parse(line));
                }
            }
        }
    }

    for gold in references.into_iter().filter(|gold| gold.len() <= LONGEST) {
        let response = format!("\\boxed{{{gold}}}");
        rows.push(Row::plain("references", gold, response, None));
    }
    for response in splice::responses(&solutions, SPLICED) {
        let row = Row::plain("spliced", response.gold, response.text, Some(response.right));
        rows.push(Row { id: response.dress, ..row });
    }

    // Equal rows count once, and so do at most so many of a test.
    let mut seen = HashSet::new();
    let mut of_test: HashMap<String, usize> = HashMap::new();
    rows.retain(|row| {
        if !seen.insert(row.task.key()) {
            return false;
        }
        let count = of_test.entry(row.id.clone()).or_default();
        *count += 1;
        !row.corpus.starts_with("tests:") || *count <= FROM_A_TEST
    });
    rows
}

fn collect_files(path: &Path, files: &mut Vec<PathBuf>) {
    if !path.is_dir() {
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            files.push(path.to_owned());
        }
        return;
    }

    let entries = fs::read_dir(path).expect("a folder of rows can be listed");
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths.iter().for_each(|path| collect_files(path, files));
}

impl Row {
    fn plain(corpus: &str, gold: String, response: String, expected: Option<bool>) -> Row {
        let task = Task::Judge { verifier: Verifier::default(), gold, response };
        Row { corpus: corpus.to_owned(), id: String::new(), task, expected }
    }
}

/// Reads a row that a test recorded.
fn recorded(value: &Value, text: &dyn Fn(&str) -> Option<String>) -> Option<Row> {
    let (corpus, task) = if let Some(verifier) = value.get("verifier") {
        let verifier = serde_json::from_value(verifier.clone()).ok()?;
        let task = Task::Judge { verifier, gold: text("gold")?, response: text("response")? };
        ("tests: verdicts", task)
    } else if let Some(extraction) = value.get("extraction") {
        let extraction = serde_json::from_value(extraction.clone()).ok()?;
        ("tests: extraction", Task::Extract { extraction, text: text("text")? })
    } else {
        ("tests: algebra", Task::Equal { left: text("left")?, right: text("right")? })
    };

    Some(Row { corpus: corpus.to_owned(), id: text("id")?, task, expected: None })
}

/// Reads a row of `firebrick score`. Returns `None` if its rule compares texts.
fn scored(
    value: &Value,
    text: &dyn Fn(&str) -> Option<String>,
    folder: &str,
    gold: String,
    response: String,
) -> Option<Row> {
    let config = value.get("config").unwrap_or(&Value::Null);
    let is = |value: &Value, key: &str| value.get(key).and_then(Value::as_bool) == Some(true);
    let counts = !is(value, "disputed") && !is(config, "any_verdict");
    let expected = value.get("expected").and_then(Value::as_bool).filter(|_| counts);

    let verifier = verifier(config)?;
    Some(Row {
        corpus: text("suite").unwrap_or_else(|| folder.to_owned()),
        id: text("id").unwrap_or_default(),
        task: Task::Judge { verifier, gold, response },
        expected,
    })
}

/// Makes the verifier of a row's `config`, as `firebrick score` does.
fn verifier(config: &Value) -> Option<Verifier> {
    if config.get("choices").is_some() {
        return None;
    }

    let targets = config.get("targets").and_then(Value::as_array).into_iter().flatten();
    let targets: Vec<&str> = targets.filter_map(Value::as_str).collect();
    let searched = match targets.as_slice() {
        ["latex"] => Extraction::Latex,
        ["expr"] => Extraction::Plain,
        _ => Extraction::Auto,
    };

    let mode = config.get("mode").and_then(Value::as_str).unwrap_or("math");
    let (extraction, gold) = match mode {
        "math" | "auto" => (Extraction::Auto, Gold::Bare),
        "boxed" => (Extraction::Boxed, Gold::Bare),
        "bare" => (Extraction::Bare, Gold::Bare),
        "after_think_boxed" => (Extraction::AfterThinking, Gold::Bare),
        "math_verify" => (searched, Gold::Solution),
        "math_verify_gold_boxed" => (searched, Gold::Bare),
        _ => return None,
    };

    let flag =
        |key: &str, default: bool| config.get(key).and_then(Value::as_bool).unwrap_or(default);
    let default = Verifier::default();
    let precision = config.get("precision").and_then(Value::as_u64);
    Some(Verifier {
        extraction,
        gold,
        precision: precision.and_then(|places| places.try_into().ok()).unwrap_or(default.precision),
        strict_names: flag("strict", default.strict_names),
        relation_for_set: flag("allow_set_relation_comp", default.relation_for_set),
        reduced_fractions: flag("require_reduced_fractions", default.reduced_fractions),
        evaluated: flag("evaluated", default.evaluated),
        budget: default.budget,
    })
}

/// Returns the lines of a source, as files and indices: of a folder, of a file, or of an item of a file. Tests and gates
/// are left out, blank lines are not.
fn lines(source: &str) -> Vec<(PathBuf, usize)> {
    let (file, item) =
        source.split_once('#').map_or((source, None), |(file, item)| (file, Some(item)));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
    if path.is_dir() {
        let entries = fs::read_dir(&path).expect("a folder of the sources can be listed");
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let names = names.filter(|name| name.ends_with(".rs") && name != "tests.rs");
        return names.flat_map(|name| lines(&format!("{file}{name}"))).collect();
    }

    let text = fs::read_to_string(&path).expect("a source can be read");
    let code = text.lines().take_while(|line| line.trim() != "#[cfg(test)]");
    let code: Vec<&str> = code.filter(|line| !line.contains("parts::gate!(")).collect();
    let spans = match item {
        Some(item) => items(&code, item),
        None => vec![0..code.len()],
    };
    assert!(!spans.is_empty(), "{source} is not in the sources");
    spans.into_iter().flatten().map(|index| (path.clone(), index)).collect()
}

/// Finds the items that begin with `item`, such as `fn solve`, with their comments. The sources are formatted, so an item
/// ends at the brace below its beginning, and a constant at its semicolon.
fn items(code: &[&str], item: &str) -> Vec<std::ops::Range<usize>> {
    let begins = |line: &str| {
        let line = line.trim_start();
        let line = ["pub(super) ", "pub(crate) ", "pub "]
            .iter()
            .find_map(|visible| line.strip_prefix(visible))
            .unwrap_or(line);
        line.strip_prefix(item)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    let is_comment = |line: &str| {
        let line = line.trim_start();
        line.starts_with("///") || line.starts_with("#[")
    };

    let mut spans = vec![];
    for (at, line) in code.iter().enumerate().filter(|(_, line)| begins(line)) {
        let before = code[..at].iter().rev().take_while(|line| is_comment(line)).count();
        let indent = &line[..line.len() - line.trim_start().len()];
        let closing = format!("{indent}}}");
        let ends = |line: &str| {
            if item.starts_with("const") { line.ends_with(';') } else { line.starts_with(&closing) }
        };

        let one_line = line.ends_with('}') || line.ends_with(';');
        let length =
            if one_line { 0 } else { code[at..].iter().position(|line| ends(line)).unwrap_or(0) };
        spans.push(at - before..at + length + 1);
    }
    spans
}
