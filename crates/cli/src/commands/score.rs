//! `firebrick score`: judges rows of gold answers and responses as a recipe's reward would.

mod by_recipe;
mod explain;
mod lines;
mod row;
mod rule;
mod summary;

use std::{
    io::{self, Write},
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::Args;
use firebrick::Error;
use firebrick_core::{Verdict, printable, printable_lines};
use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
use serde::Serialize;

pub use row::{Row, RowError};
pub use rule::{Judged, Mode, Options, Rule};

use self::{
    lines::{Line, Lines},
    summary::Summary,
};
use crate::{ProgramError, error::STDOUT};

const EXAMPLES: &str = "\
A row is one line with one JSON object: \"gold\" and \"response\", and if you
like \"id\", \"suite\", \"expected\" (true or false), \"config\" ({\"mode\": …}
and its options) and \"disputed\".

Examples:
  firebrick score answers.jsonl
  firebrick score --rows answers.jsonl > verdicts.jsonl
  firebrick score --kind dapo --disagreements answers.jsonl
  firebrick score --recipe my-task/recipe.toml answers.jsonl
  firebrick score --explain row-17 answers.jsonl
  zcat answers.jsonl.gz | firebrick score -";

/// Arguments of `firebrick score`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Score {
    /// The files of JSON lines; - is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Judge every row by this rule, whatever its config.mode says; its other options stay
    #[arg(long, value_enum, value_name = "RULE", hide_possible_values = true, long_help = KINDS)]
    kind: Option<Mode>,
    /// Judge answers by this recipe's own reward, whatever its kind. A row then has "question", "reference" and
    /// "completion", as `firebrick eval --completions` writes them, and "expected" may be a score
    #[arg(long, value_name = "RECIPE", conflicts_with_all = ["kind", "explain"])]
    recipe: Option<PathBuf>,
    /// Print one JSON object per row, and the summary on standard error
    #[arg(long)]
    rows: bool,
    /// Like --rows, but print only the rows whose verdict is not the expected one
    #[arg(long, conflicts_with = "rows")]
    disagreements: bool,
    /// Print how this row was judged, and nothing else
    #[arg(long, value_name = "ID", conflicts_with_all = ["rows", "disagreements"])]
    explain: Option<String>,
}

const KINDS: &str = "\
Judge every row by this rule, whatever its config.mode says; its other options stay: math, dapo, \
dapo_strict_box, gsm8k, gsm8k_flexible, choice, or any other name that config.mode can have";

impl Score {
    pub(super) fn run(self) -> Result<u8, ProgramError> {
        let lines = Lines::open(&self.files)?;
        match (&self.recipe, &self.explain) {
            (Some(recipe), _) => by_recipe::score(recipe, lines, self.shown()),
            (None, Some(id)) => self.explain(lines, id),
            (None, None) => self.score(lines),
        }
    }

    /// Judges all rows. A batch is judged on every core and printed before the next batch is read.
    fn score(&self, mut lines: Lines) -> Result<u8, ProgramError> {
        let mut out = io::BufWriter::new(io::stdout().lock());
        let mut summary = Summary::default();
        let shown = self.shown();

        loop {
            let batch = lines.batch()?;
            if batch.is_empty() {
                break;
            }

            let outcomes: Vec<Outcome> =
                batch.into_par_iter().map(|line| Outcome::of_line(line, self.kind)).collect();
            for outcome in &outcomes {
                summary.count(outcome);
                match outcome {
                    Outcome::Judged(row) if shown.shows(row.agrees()) => {
                        if let Some(end) = ended(row.print(&mut out)) {
                            return end;
                        }
                    }
                    Outcome::Bad(problem) => complain(problem),
                    Outcome::Judged(_) | Outcome::Skipped => {}
                }
            }
        }

        let printed = if shown != Shown::None {
            // Standard error may already be closed, and then nobody reads this.
            super::print_note(&summary.to_string());
            out.flush()
        } else {
            out.write_all(printable_lines(&summary.to_string()).as_bytes())
                .and_then(|()| out.flush())
        };

        // Lines that are not rows fail the command, although all others were judged.
        ended(printed).unwrap_or(Ok(u8::from(summary.bad_lines() > 0)))
    }

    fn shown(&self) -> Shown {
        match (self.rows, self.disagreements) {
            (true, _) => Shown::All,
            (false, true) => Shown::Disagreements,
            (false, false) => Shown::None,
        }
    }

    /// Explains the row with this id. Only that row is judged, and the search ends with it.
    fn explain(&self, mut lines: Lines, id: &str) -> Result<u8, ProgramError> {
        let mut has_bad_line = false;
        loop {
            let batch = lines.batch()?;
            if batch.is_empty() {
                return Err(ProgramError::NoSuchRow { id: id.to_owned() });
            }

            for line in batch {
                match line.row() {
                    Ok(row) if line.id(&row) == id => {
                        let text = explain::explain(&line, &row, self.kind);
                        let text = printable_lines(&text);
                        return ended(io::stdout().write_all(text.as_bytes()))
                            .unwrap_or(Ok(u8::from(has_bad_line)));
                    }
                    Ok(_) => {}
                    Err(problem) => {
                        has_bad_line = true;
                        complain(&problem);
                    }
                }
            }
        }
    }
}

/// Rows that are printed one by one.
#[derive(Clone, Copy, PartialEq)]
enum Shown {
    None,
    All,
    /// Those whose verdict is not the expected one.
    Disagreements,
}

impl Shown {
    /// Tells whether a row is printed. `agrees` is `None` if it expects no verdict.
    fn shows(self, agrees: Option<bool>) -> bool {
        match self {
            Shown::None => false,
            Shown::All => true,
            Shown::Disagreements => agrees == Some(false),
        }
    }
}

/// Returns how the command ends if it could not print; `None` if it could.
///
/// A reader such as `head` closes the pipe when it has seen enough, which is not a failure.
fn ended(printed: io::Result<()>) -> Option<Result<u8, ProgramError>> {
    let source = printed.err()?;
    Some(match source.kind() {
        io::ErrorKind::BrokenPipe => Ok(0),
        _ => Err(Error::File { path: STDOUT.into(), source }.into()),
    })
}

/// Writes one line to standard error, which may be closed.
fn complain(problem: &str) {
    super::warn(problem.to_owned());
}

/// Result of one line.
enum Outcome {
    Judged(JudgedRow),
    /// Tests an option that only another program has.
    Skipped,
    /// Is not a row. The text says where the line is, and why it is not one.
    Bad(String),
}

impl Outcome {
    fn of_line(line: Line, kind: Option<Mode>) -> Self {
        let row = match line.row() {
            Ok(row) => row,
            Err(problem) => return Outcome::Bad(problem),
        };
        let Some(rule) = row.rule(kind) else { return Outcome::Skipped };

        let began = Instant::now();
        let judged = rule.judge(&row.gold, &row.response);
        let time = began.elapsed();
        Outcome::Judged(JudgedRow {
            id: line.id(&row),
            counts: row.counts(),
            suite: row.suite,
            expected: row.expected,
            judged,
            time,
        })
    }
}

/// A judgement, next to the verdict that the row expects. The response is not kept.
struct JudgedRow {
    id: String,
    suite: Option<String>,
    expected: Option<bool>,
    /// True if the expected verdict counts.
    counts: bool,
    judged: Judged,
    /// Time that the judging took, without reading the row.
    time: Duration,
}

impl JudgedRow {
    fn is_right(&self) -> bool {
        self.judged.verdict == Verdict::Right
    }

    /// Returns whether the verdict is the expected one; `None` if the row expects none, or its expectation does not
    /// count.
    fn agrees(&self) -> Option<bool> {
        self.expected.filter(|_| self.counts).map(|expected| expected == self.is_right())
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        #[derive(Serialize)]
        struct Printed<'a> {
            id: &'a str,
            verdict: Verdict,
            extracted: Option<&'a str>,
            canonical: Option<&'a str>,
            why: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            expected: Option<bool>,
            #[serde(skip_serializing_if = "Option::is_none")]
            agrees: Option<bool>,
        }

        let printed = Printed {
            id: &self.id,
            verdict: self.judged.verdict,
            extracted: self.judged.extracted.as_deref(),
            canonical: self.judged.canonical.as_deref(),
            why: &self.judged.why,
            expected: self.expected,
            agrees: self.expected.map(|expected| expected == self.is_right()),
        };

        let line = serde_json::to_string(&printed)?;
        writeln!(out, "{}", printable(&line))
    }
}
