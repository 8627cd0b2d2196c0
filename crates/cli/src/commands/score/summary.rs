//! Summary of `firebrick score`: a table of verdicts by suite.

use std::{collections::HashMap, fmt, time::Duration};

use firebrick_core::{Verdict, counted};

use super::{JudgedRow, Outcome};

/// Counts by suite. Its size grows only with the number of suites.
#[derive(Default)]
pub(super) struct Summary {
    /// Suites in the order of their first rows.
    suites: Vec<(String, Tally)>,
    index: HashMap<String, usize>,
    all: Tally,
    skipped: u64,
    bad_lines: u64,
}

#[derive(Clone, Default)]
struct Tally {
    rows: u64,
    verdicts: [u64; Verdict::ALL.len()],
    /// Number of rows whose expected verdict counts.
    expected: u64,
    false_positives: u64,
    false_negatives: u64,
    time: Duration,
    slowest: Duration,
}

impl Summary {
    pub(super) fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Judged(row) => {
                self.suite(row.suite.as_deref().unwrap_or("-")).count(row);
                self.all.count(row);
            }
            Outcome::Skipped => self.skipped += 1,
            Outcome::Bad(_) => self.bad_lines += 1,
        }
    }

    /// Returns the number of lines that were not rows.
    pub(super) fn bad_lines(&self) -> u64 {
        self.bad_lines
    }

    fn suite(&mut self, name: &str) -> &mut Tally {
        let index = match self.index.get(name) {
            Some(&index) => index,
            None => {
                self.suites.push((name.to_owned(), Tally::default()));
                self.index.insert(name.to_owned(), self.suites.len() - 1);
                self.suites.len() - 1
            }
        };
        &mut self.suites[index].1
    }
}

impl Tally {
    fn count(&mut self, row: &JudgedRow) {
        self.rows += 1;
        self.verdicts[row.judged.verdict as usize] += 1;
        if let Some(agrees) = row.agrees() {
            self.expected += 1;
            self.false_positives += u64::from(!agrees && row.is_right());
            self.false_negatives += u64::from(!agrees && !row.is_right());
        }

        self.time += row.time;
        self.slowest = self.slowest.max(row.time);
    }

    fn cells(&self, name: &str) -> [String; COLUMNS.len()] {
        let [right, wrong, unparsable, over_budget, error] = self.verdicts;
        let of_expected = |count: u64| match self.expected {
            0 => "-".to_owned(),
            _ => count.to_string(),
        };
        let micros = |time: Duration| format!("{:.1}", 1e6 * time.as_secs_f64());

        [
            super::row::clip(name),
            self.rows.to_string(),
            right.to_string(),
            wrong.to_string(),
            unparsable.to_string(),
            over_budget.to_string(),
            error.to_string(),
            self.agreement(),
            of_expected(self.false_positives),
            of_expected(self.false_negatives),
            micros(self.time.div_f64(self.rows.max(1) as f64)),
            micros(self.slowest),
        ]
    }

    /// Writes the share of agreement. It is rounded down, so that 100 % means no exception.
    fn agreement(&self) -> String {
        if self.expected == 0 {
            return "-".to_owned();
        }
        let agree = self.expected - self.false_positives - self.false_negatives;
        let hundredths = u128::from(agree) * 10_000 / u128::from(self.expected);
        format!("{}.{:02} %", hundredths / 100, hundredths % 100)
    }
}

const COLUMNS: [&str; 12] = [
    "suite",
    "rows",
    "right",
    "wrong",
    "unparsable",
    "over budget",
    "error",
    "agreement",
    "false pos.",
    "false neg.",
    "µs mean",
    "µs max",
];

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let mut table = vec![COLUMNS.map(str::to_owned)];
        table.extend(self.suites.iter().map(|(name, tally)| tally.cells(name)));
        // With one suite, the row of all rows would repeat it.
        if self.suites.len() != 1 {
            table.push(self.all.cells("all"));
        }

        let width = |column: usize| {
            table.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..COLUMNS.len()).map(width).collect();

        for cells in &table {
            write!(f, "{:<width$}", cells[0], width = widths[0])?;
            for (cell, width) in cells.iter().zip(&widths).skip(1) {
                write!(f, "  {cell:>width$}")?;
            }
            writeln!(f)?;
        }

        if self.skipped > 0 {
            let test = if self.skipped == 1 { "tests" } else { "test" };
            writeln!(
                f,
                "skipped: {} that {test} the options of another program",
                counted(self.skipped, "row")
            )?;
        }
        if self.bad_lines > 0 {
            writeln!(
                f,
                "unreadable: {}, each named on standard error",
                counted(self.bad_lines, "row")
            )?;
        }
        Ok(())
    }
}
