//! `firebrick metrics`: prints the numbers of a run, or writes them for other viewers.

mod events;
mod row;

use std::{
    collections::BTreeMap,
    io::{ErrorKind, Write},
    ops::RangeInclusive,
    path::PathBuf,
    thread,
    time::Duration,
};

use clap::{Args, ValueEnum};
use firebrick::{
    Error, Step,
    diagnose::ENDED,
    runs::{Store, json_line},
};
use firebrick_core::{printable, printable_lines};

use self::{events::Export, row::row};
use crate::{ProgramError, error::STDOUT, glob::matches, names::verl_name};

/// Arguments of `firebrick metrics`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Metrics {
    /// The run, by its name or folder; it may still be under way
    #[arg(value_parser = super::run())]
    run: PathBuf,
    /// Metrics to print, such as reward/credit or 'time/*'; by default all, in a table the eight that say most
    names: Vec<String>,
    /// The form of the output
    #[arg(long, value_enum, default_value_t = Form::Jsonl)]
    form: Form,
    /// Print all metrics in a table too
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// Print only the last STEPS steps
    #[arg(long, value_name = "STEPS")]
    last: Option<u64>,
    /// Print new steps every second, until the run ends
    #[arg(long)]
    follow: bool,
    /// The folder to write the file of --form tensorboard or wandb into
    #[arg(long, value_name = "FOLDER", required_if_eq_any = [("form", "tensorboard"), ("form", "wandb")])]
    out: Option<PathBuf>,
    /// Give metrics the names that verl uses, and leave out the metrics that verl does not have
    #[arg(long)]
    verl: bool,
}

const EXAMPLES: &str = "\
Examples:
  firebrick metrics runs/quickstart
  firebrick metrics runs/quickstart --form table --last 20
  firebrick metrics runs/quickstart --form table reward/credit 'loss/*'
  firebrick metrics runs/quickstart --form csv 'time/*' > time.csv
  firebrick metrics runs/quickstart --form row
  firebrick metrics runs/quickstart --follow eval/heldout_accuracy
  firebrick metrics runs/quickstart --form tensorboard --out board/quickstart --follow
  firebrick metrics runs/quickstart --form wandb --out . && wandb sync wandb/offline-run-*";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// One JSON object per step
    Jsonl,
    /// Comma-separated values, with a line of names
    Csv,
    /// A table for a person to read
    Table,
    /// One row of a Markdown table for a finished run: its name, device, accuracies, steps, time and memory
    Row,
    /// An event file in the folder --out, for `tensorboard --logdir`
    #[value(name = "tensorboard")]
    TensorBoard,
    /// A run of Weights & Biases in the folder --out, for `wandb sync`
    Wandb,
}

/// A metric's stored name, and its name in the output.
type Column = (String, String);

/// Metrics of a table if none are named: those that the book looks at first, and three that show how the run goes.
const FIRST: [&str; 8] = [
    "reward/mean",
    "reward/credit",
    "eval/heldout_accuracy",
    "loss/entropy",
    "rollout/length_mean",
    "rollout/truncated",
    "update/grad_norm",
    "time/step",
];

/// Number of steps that are read in one query.
const CHUNK: usize = 1000;

impl Metrics {
    pub(super) fn run(self) -> Result<(), ProgramError> {
        let database = self.run.join("run.db");
        if !database.is_file() {
            return Err(ProgramError::NotARun { path: self.run });
        }
        let store = Store::open_read_only(&database)?;

        if let (Form::Jsonl | Form::Csv | Form::Table | Form::Row, Some(out)) =
            (self.form, &self.out)
        {
            return Err(ProgramError::NoOut { out: out.clone() });
        }

        if let (Form::TensorBoard | Form::Wandb, Some(out)) = (self.form, &self.out) {
            self.columns(&store)?;
            let column = |name: &str| self.column(name.to_owned());
            let export =
                Export { run: &self.run, store: &store, form: self.form, out, column: &column };
            return export.write(self.follow);
        }

        if self.form == Form::Row {
            return super::print(&format!("{}\n", row(&self.run)?));
        }

        match self.print(&store, &mut std::io::stdout().lock()) {
            // It is not an error if a reader such as head stops early.
            Err(ProgramError::Library(Error::File { source, .. }))
                if source.kind() == ErrorKind::BrokenPipe =>
            {
                Ok(())
            }
            printed => printed,
        }
    }

    fn print(&self, store: &Store, out: &mut dyn Write) -> Result<(), ProgramError> {
        let mut next_step =
            self.last.map_or(0, |last| (store.last_step().unwrap_or(0) + 1).saturating_sub(last));
        let mut columns = self.columns(store)?;
        let mut header_printed = false;

        loop {
            // This is read before the steps, so that no step of a run that ends meanwhile is missed.
            let has_ended = store.info(ENDED)?.is_some_and(|why| !why.is_empty());

            // A run that has just begun has no metrics yet, so the names are asked for again.
            if columns.is_empty() && self.follow {
                columns = self.columns(store)?;
            }

            // The first line of a table fixes its names.
            if !header_printed && !columns.is_empty() {
                self.print_header(&columns, out)?;
                header_printed = true;
            }

            while !columns.is_empty() {
                let steps = store.steps(next_step, CHUNK)?;
                let (Some(&first), Some(&last)) = (steps.first(), steps.last()) else { break };
                self.rows(store, &columns, &(first..=last), out)?;
                next_step = last + 1;
            }

            out.flush().map_err(stdout_error)?;
            if !self.follow || has_ended {
                if columns.is_empty() {
                    super::warn("no step is finished: there are no numbers yet".into());
                }
                return Ok(());
            }
            thread::sleep(Duration::from_secs(1));
        }
    }

    /// Returns the metrics that are asked for and exist.
    fn columns(&self, store: &Store) -> Result<Vec<Column>, ProgramError> {
        let names = store.metric_names()?;
        let matches_name = |pattern: &String, name: &String| {
            matches(pattern, name)
                || self.verl && verl_name(name).is_some_and(|name| matches(pattern, name))
        };

        let unknown = |pattern: &&String| !names.iter().any(|name| matches_name(pattern, name));
        // A run without metrics may still get any of them.
        if !names.is_empty()
            && let Some(pattern) = self.names.iter().find(unknown)
        {
            return Err(ProgramError::NoMetric { name: pattern.clone(), run: self.run.clone() });
        }

        // A run of another kind may have none of them.
        let first = FIRST.iter().filter(|&&first| names.iter().any(|name| name == first));
        let first: Vec<Column> = first.filter_map(|name| self.column((*name).into())).collect();
        let is_short = self.form == Form::Table && self.names.is_empty() && !self.all;
        if is_short && !first.is_empty() {
            return Ok(first);
        }
        Ok(names.into_iter().filter_map(|name| self.column(name)).collect())
    }

    /// Returns a metric with the name that it is printed under, if it is asked for.
    fn column(&self, name: String) -> Option<Column> {
        let display_name = if self.verl { verl_name(&name)?.to_owned() } else { name.clone() };

        let is_match =
            |pattern: &String| matches(pattern, &name) || matches(pattern, &display_name);
        let is_wanted = self.names.is_empty() || self.names.iter().any(is_match);
        is_wanted.then_some((name, display_name))
    }

    fn print_header(&self, columns: &[Column], out: &mut dyn Write) -> Result<(), ProgramError> {
        let names = columns.iter().map(|(_, name)| name.as_str());
        let line = match self.form {
            Form::Jsonl | Form::Row | Form::TensorBoard | Form::Wandb => return Ok(()),
            Form::Csv => {
                names.fold("step".to_owned(), |line, name| format!("{line},{}", csv(name)))
            }
            Form::Table => names.fold(format!("{:>6}", "step"), |line, name| {
                format!("{line}  {:>width$}", printable(name), width = width(name))
            }),
        };

        writeln!(out, "{}", printable_lines(&line)).map_err(stdout_error)
    }

    fn rows(
        &self,
        store: &Store,
        columns: &[Column],
        steps: &RangeInclusive<Step>,
        out: &mut dyn Write,
    ) -> Result<(), ProgramError> {
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();

        let mut rows: BTreeMap<Step, BTreeMap<String, f64>> = BTreeMap::new();
        for (name, points) in store.series(&names, steps)? {
            for (step, value) in points {
                rows.entry(step).or_default().insert(name.clone(), value);
            }
        }

        for (step, values) in rows {
            let cells = columns.iter().map(|(name, display_name)| (display_name, values.get(name)));
            let line = match self.form {
                Form::Jsonl | Form::Row | Form::TensorBoard | Form::Wandb => {
                    json_line(step, cells.filter_map(|(name, value)| Some((name.clone(), *value?))))
                }
                Form::Csv => cells.fold(step.to_string(), |line, (_, value)| {
                    format!("{line},{}", value.map_or(String::new(), |value| all_digits(*value)))
                }),
                Form::Table => cells.fold(format!("{step:>6}"), |line, (name, value)| {
                    let value = value.map_or(String::new(), |value| short(*value));
                    format!("{line}  {value:>width$}", width = width(name))
                }),
            };
            writeln!(out, "{}", printable_lines(&line)).map_err(stdout_error)?;
        }
        Ok(())
    }
}

fn stdout_error(source: std::io::Error) -> ProgramError {
    Error::File { path: STDOUT.into(), source }.into()
}

/// Writes a name as a field of CSV (RFC 4180) that no spreadsheet takes for a formula. If a comma is the decimal point,
/// spreadsheets split fields at semicolons, even inside quotes.
fn csv(name: &str) -> String {
    let mut field = String::new();
    for part in printable(name).split_inclusive([';', '|']) {
        // The full-width characters are those of Japanese keyboards. None of our metric names starts with a dash.
        let begin = part.trim_start_matches(['"', ' ']);
        if begin.starts_with(['=', '+', '-', '@', '＝', '＋', '－', '＠']) {
            field.push('\'');
        }
        field += part;
    }

    if field.contains([',', '"', ';']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field
    }
}

/// Writes a number with all of its digits, but a very large or small one as a power of ten.
fn all_digits(value: f64) -> String {
    match value.abs() {
        1e16..f64::INFINITY => format!("{value:e}"),
        size if size > 0.0 && size < 1e-7 => format!("{value:e}"),
        _ => value.to_string(),
    }
}

/// Returns the width of a column, with room for its name and for any number.
fn width(name: &str) -> usize {
    printable(name).chars().count().max(9)
}

/// Writes a number in at most nine characters.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        1e-3..1e4 => format!("{value:.4}"),
        1e4..1e8 => format!("{value:.0}"),
        _ => format!("{value:.2e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{all_digits, csv};

    #[test]
    fn a_name_with_a_comma_is_one_field() {
        assert_eq!(csv("eval/difficulty/Level 5"), "eval/difficulty/Level 5");
        assert_eq!(csv("eval/difficulty/a, \"b\""), "\"eval/difficulty/a, \"\"b\"\"\"");
    }

    #[test]
    fn no_name_is_a_formula() {
        for (name, field) in [
            ("=HYPERLINK(A1)", "'=HYPERLINK(A1)"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("＝1", "'＝1"),
            ("=1,2", "\"'=1,2\""),
            (" =1", "' =1"),
            ("\t=1", "\\t=1"),
            ("\r\n=1", "\\r\\n=1"),
            ("a;=1", "\"a;'=1\""),
            ("\"=1\"", "\"'\"\"=1\"\"\""),
            ("reward/a-b", "reward/a-b"),
        ] {
            assert_eq!(csv(name), field);
        }
    }

    #[test]
    fn a_number_of_csv_is_whole_and_short() {
        let numbers = [0.1, -2.0, 1e308, -1e-300, 1e15, 0.0, f64::INFINITY].map(all_digits);
        assert_eq!(numbers, ["0.1", "-2", "1e308", "-1e-300", "1000000000000000", "0", "inf"]);
    }
}
