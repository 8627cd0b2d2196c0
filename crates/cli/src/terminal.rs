//! A run as a person sees it in a terminal.

use std::{
    borrow::Cow,
    collections::VecDeque,
    io::{self, Write},
};

use firebrick::{Example, Stage, Watcher};
use firebrick_core::{Metrics, Step, printable_lines};
use firebrick_device::{Kind, Name};
use firebrick_runs::Summary;

pub use crate::width::Width;
use crate::{
    answer::Answer,
    bars::{Bar, Bars},
    closing,
};

/// A view of a run: one line for each step, evaluations with an answer or two, a bar for every stage, and a
/// closing table.
///
/// It picks the values to show by the metrics' names, and shows `-` for an absent value. A closed terminal is not a
/// reason to end a run.
pub struct Terminal {
    out: Box<dyn Write + Send>,
    bars: Bars,
    /// Bars of the stages that are under way, the innermost last.
    stages: Vec<Bar>,
    color: bool,
    total: Step,
    width: Width,
    /// Device that the commands at the end name, unless it is the CPU. No commands are printed if the outer
    /// option is `None`.
    command_device: Option<Option<Name>>,
    lines: usize,
    /// Columns under the last heading.
    columns: Vec<&'static Column>,
    /// Seconds of the last steps, from which the time left is estimated.
    recent: VecDeque<f64>,
    /// Time left of the run, once a step has shown it.
    time_left: Option<String>,
    heldout: Option<f64>,
    /// Answers of the evaluation whose accuracy comes next.
    answers: Vec<Answer>,
    /// A prompt to try the model with.
    prompt: Option<String>,
}

impl Terminal {
    /// Makes a view of a run of `total` steps. It writes its lines to `out`, between `bars`.
    ///
    /// The program decides on `color`: true on a terminal, unless `NO_COLOR` is set. Lines may have any length,
    /// unless [`Terminal::within`] limits it.
    pub fn new(out: Box<dyn Write + Send>, bars: Bars, color: bool, total: Step) -> Self {
        Terminal {
            out,
            bars,
            stages: Vec::new(),
            color,
            total,
            width: Width::Endless,
            command_device: None,
            lines: 0,
            columns: Vec::new(),
            recent: VecDeque::new(),
            time_left: None,
            heldout: None,
            answers: Vec::new(),
            prompt: None,
        }
    }

    /// Returns the run's number of steps.
    #[cfg(feature = "tui")]
    pub(crate) fn total(&self) -> Step {
        self.total
    }

    /// Keeps the prompt of an answer for the commands at the end.
    pub(crate) fn remember(&mut self, example: &Example) {
        // A longer or quoted prompt would make a command that nobody types again.
        let is_shell_word = |text: &&str| {
            text.chars().count() <= 30
                && !text.contains(|c: char| c.is_control() || c == '\'' || c == '<')
        };
        self.prompt = Some(example.prompt.question_text()).filter(is_shell_word).map(String::from);
    }

    /// Makes a view for a command that trains nothing, on standard error.
    pub fn plain(bars: Bars) -> Self {
        Terminal::new(Box::new(io::stderr()), bars, false, 0).within(Width::Terminal)
    }

    /// Keeps lines within `width`. A step's line leaves out the columns that matter least, answers are cut, and
    /// notes are broken into lines.
    #[must_use]
    pub fn within(mut self, width: Width) -> Self {
        self.width = width;
        self
    }

    /// Prints at the end the commands that a user would give next, for a run on `device`.
    #[must_use]
    pub fn with_next_commands(mut self, device: Name) -> Self {
        self.command_device = Some(Some(device).filter(|device| device.kind != Kind::Cpu));
        self
    }
}

impl Watcher for Terminal {
    fn begin(&mut self, stage: Stage, total: u64) {
        let bar = self.bars.bar(stage.name(), total);
        if let Some(time_left) = &self.time_left {
            bar.note(&format!("({time_left} to the end)"));
        }
        self.stages.push(bar);
    }

    fn extend(&mut self, units: u64) {
        if let Some(bar) = self.stages.last() {
            bar.extend(units);
        }
    }

    fn advance(&mut self, units: u64) {
        if let Some(bar) = self.stages.last() {
            bar.advance(units);
        }
    }

    fn tokens(&mut self, sampled: u64, most: u64) {
        if let Some(bar) = self.stages.last() {
            bar.tokens(sampled, most);
        }
    }

    fn end(&mut self) {
        self.stages.pop();
    }

    fn note(&mut self, text: &str) {
        let text = &printable_lines(text);
        let lines = match self.width.columns() {
            Some(columns) => broken(text, columns),
            None => vec![text.clone()],
        };
        let _ = lines.iter().try_for_each(|line| self.line(line));
    }

    fn metrics(&mut self, step: Step, metrics: &Metrics) {
        let _ = self.show(step, metrics);
    }

    fn example(&mut self, example: &Example) {
        self.remember(example);
        self.answers.push(Answer::of_example(example));
    }

    fn finished(&mut self, summary: &Summary) {
        let _ = self.close(summary);
    }
}

/// Columns of a step's line between its number and the time left.
const COLUMNS: [Column; 11] = [
    Column { heading: "reward", width: 7, rank: 0, cell: |m| fixed(m, "reward/mean", 3) },
    Column { heading: "credit", width: 8, rank: 1, cell: |m| fixed(m, "reward/credit", 3) },
    Column { heading: "entropy", width: 7, rank: 4, cell: |m| fixed(m, "loss/entropy", 3) },
    Column {
        heading: "clip low",
        width: 8,
        rank: 8,
        cell: |m| fixed(m, "loss/clip_fraction_low", 5),
    },
    Column { heading: "high", width: 7, rank: 9, cell: |m| fixed(m, "loss/clip_fraction_high", 5) },
    Column { heading: "length", width: 7, rank: 3, cell: |m| fixed(m, "rollout/length_mean", 1) },
    Column { heading: "kept/out", width: 8, rank: 2, cell: groups },
    Column {
        heading: "tokens/s",
        width: 8,
        rank: 7,
        cell: |m| fixed(m, "rollout/tokens_per_second", 0),
    },
    Column { heading: "rollout", width: 7, rank: 5, cell: |m| seconds(m, "time/rollout") },
    Column { heading: "judge", width: 6, rank: 10, cell: |m| seconds(m, "time/reward") },
    Column { heading: "update", width: 6, rank: 6, cell: |m| seconds(m, "time/update") },
];

struct Column {
    heading: &'static str,
    width: usize,
    /// If a terminal has no room for all columns, the one with the highest rank is left out first.
    rank: usize,
    /// Writes the column's cell from the metrics.
    cell: fn(&Metrics) -> String,
}

/// Gap between two columns.
const GAP: &str = "  ";
/// Width of the column of the time left.
const LEFT: usize = 6;

/// Returns the columns that fit into `room`, next to the `taken` letters and the time left.
fn columns_within(room: Option<usize>, taken: usize) -> Vec<&'static Column> {
    let mut columns: Vec<&Column> = COLUMNS.iter().collect();
    let width = |columns: &[&Column]| {
        let cells: usize = columns.iter().map(|column| GAP.len() + column.width).sum();
        taken + cells + GAP.len() + LEFT
    };
    while let Some(last) = columns.iter().map(|column| column.rank).max()
        && room.is_some_and(|room| width(&columns) > room)
    {
        columns.retain(|column| column.rank != last);
    }
    columns
}

/// Lines between two headings: about as many as a small terminal shows at a time.
const HEADING_EVERY: usize = 20;

/// Width of an answer if lines may have any length.
const ANSWER: usize = 200;

/// Number of last steps that the time left is estimated from. Completions get longer as a run continues, so the
/// mean over all steps would promise too early an end.
const RECENT: usize = 20;

impl Terminal {
    /// Writes the closing table: the result, the cost, and the path of the last checkpoint.
    fn close(&mut self, summary: &Summary) -> io::Result<()> {
        self.line("")?;
        for row in closing::table(summary, summary.checkpoint.as_deref()) {
            self.note(&row);
        }
        if let Some(device) = self.command_device {
            for row in closing::next(summary, self.prompt.as_deref(), device) {
                self.line(&row)?;
            }
        }
        self.out.flush()
    }

    fn show(&mut self, step: Step, metrics: &Metrics) -> io::Result<()> {
        if let Some(loss) = metrics.get("sft/loss") {
            let accuracy = metrics.get("sft/accuracy");
            let accuracy = accuracy
                .map(|a| format!("   accuracy {}", closing::decimals(a, 3)))
                .unwrap_or_default();
            let loss = closing::decimals(loss, 4);
            self.line(&format!("SFT     {step:>6}   loss {loss}{accuracy}"))?;
        }

        // A step that sampled nothing has no reward, and is a step too.
        if metrics.get("sampling/groups_kept").is_some() {
            self.step(step, metrics)?;
        }

        if let Some(accuracy) = metrics.get("eval/heldout_accuracy") {
            self.evaluation(step, accuracy, metrics.get("eval/heldout_credit"))?;
        }

        self.out.flush()
    }

    fn step(&mut self, step: Step, metrics: &Metrics) -> io::Result<()> {
        let digits = self.total.to_string().len();
        let width = 2 * digits + 1;
        if self.lines.is_multiple_of(HEADING_EVERY) {
            self.columns = columns_within(self.width.columns(), width);
            let headings = self.row(|column| column.heading.to_owned());
            let heading = format!("{:>width$}{headings}{GAP}{:>LEFT$}", "step", "left");
            self.painted(Some("2"), &heading)?;
        }
        self.lines += 1;

        let count = format!("{step:>digits$}/{}", self.total);
        let cells = self.row(|column| (column.cell)(metrics));
        let time_left = self.time_left(step, metrics);
        // Bars show the time left only once it was measured, and not after the last step.
        self.time_left = (!self.recent.is_empty() && step < self.total).then(|| time_left.clone());
        self.line(&format!("{count:>width$}{cells}{GAP}{time_left:>LEFT$}"))
    }

    fn row(&self, cell: impl Fn(&Column) -> String) -> String {
        let columns = self.columns.iter();
        columns.map(|column| format!("{GAP}{:>1$}", cell(column), column.width)).collect()
    }

    fn evaluation(&mut self, step: Step, accuracy: f64, credit: Option<f64>) -> io::Result<()> {
        let change = match self.heldout {
            // So large a change would only fill the line with digits.
            Some(before) if (accuracy - before).abs() > 1e6 => String::new(),
            Some(before) => format!(" ({:+.3})", accuracy - before),
            None => String::new(),
        };

        let when = match (step, self.heldout) {
            (0, None) => "before training".to_owned(),
            (0, Some(_)) => "after SFT".to_owned(),
            _ => format!("after step {step}"),
        };

        self.heldout = Some(accuracy);
        let credit = closing::partial(credit, Some(accuracy));
        let credit = credit.map_or_else(String::new, |credit| format!(", credit {credit},"));
        let accuracy = closing::decimals(accuracy, 3);
        let text = format!("held-out accuracy {accuracy}{change}{credit} {when}");
        self.painted(Some("36"), &text)?;

        let room = self.width.columns().unwrap_or(ANSWER);
        for answer in std::mem::take(&mut self.answers) {
            self.painted(Some("2"), &answer.within(room))?;
        }
        Ok(())
    }

    fn time_left(&mut self, step: Step, metrics: &Metrics) -> String {
        if let Some(took) = metrics.get("time/step").filter(|took| took.is_finite()) {
            self.recent.push_back(took);
            if self.recent.len() > RECENT {
                self.recent.pop_front();
            }
        }

        if self.recent.is_empty() {
            return "-".into();
        }

        let mean = self.recent.iter().sum::<f64>() / self.recent.len() as f64;
        closing::duration(mean * self.total.saturating_sub(step) as f64)
    }

    /// Writes one line with the bars out of the way.
    fn line(&mut self, text: &str) -> io::Result<()> {
        self.painted(None, text)
    }

    /// Writes one line in a color, if there are colors. Nothing else here emits escape sequences.
    fn painted(&mut self, code: Option<&str>, text: &str) -> io::Result<()> {
        let mut text = printable_lines(text);
        if let Some(code) = code.filter(|_| self.color) {
            text = format!("\x1b[{code}m{text}\x1b[0m");
        }

        let out = &mut self.out;
        self.bars.suspend(|| writeln!(out, "{text}"))
    }
}

/// Tells whether the environment allows colors on a terminal.
pub(crate) fn wants_color() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    !refused
}

/// Breaks the lines of a text for standard output, if that is a terminal with too few columns. The further lines
/// are indented by `indent` spaces.
pub(crate) fn for_stdout(text: &str, indent: usize) -> String {
    let Some(columns) = columns_of_stdout() else { return text.to_owned() };
    let lines = text.lines().flat_map(|line| indented(line, columns, indent));
    lines.map(|line| line + "\n").collect()
}

/// Returns the width of standard output; `None` if it is not a terminal.
pub(crate) fn columns_of_stdout() -> Option<usize> {
    let size = terminal_size::terminal_size_of(io::stdout());
    size.map(|(terminal_size::Width(columns), _)| usize::from(columns))
}

/// Breaks a text into lines of at most `columns`, which all begin in the column where the text does.
fn broken(text: &str, columns: usize) -> Vec<String> {
    indented(text, columns, text.len() - text.trim_start_matches(' ').len())
}

/// Breaks a text into lines of at most `columns`, all but the first indented by `indent` spaces. A path stays in one
/// piece.
fn indented(text: &str, columns: usize, indent: usize) -> Vec<String> {
    let indent = " ".repeat(indent.min(columns / 2));
    let options = textwrap::Options::new(columns)
        .break_words(false)
        .word_separator(textwrap::WordSeparator::AsciiSpace)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .subsequent_indent(&indent);

    let lines = textwrap::wrap(text, options);
    lines.into_iter().map(Cow::into_owned).collect()
}

fn fixed(metrics: &Metrics, name: &str, decimals: usize) -> String {
    metrics.get(name).map_or_else(|| "-".into(), |value| closing::decimals(value, decimals))
}

fn seconds(metrics: &Metrics, name: &str) -> String {
    metrics.get(name).map_or_else(|| "-".into(), closing::duration)
}

fn groups(metrics: &Metrics) -> String {
    let kept = fixed(metrics, "sampling/groups_kept", 0);
    format!("{kept}/{}", fixed(metrics, "sampling/groups_filtered", 0))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use indicatif::ProgressDrawTarget;

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_align_under_a_heading_that_comes_again() {
        let page = Page::default();
        let bars = Bars::new(ProgressDrawTarget::hidden());
        let mut terminal = Terminal::new(Box::new(page.clone()), bars, false, 200);

        let mut metrics = Metrics::default();
        metrics.set("eval/heldout_accuracy", 0.012);
        terminal.metrics(0, &metrics);

        for step in 1..=21 {
            let mut metrics = Metrics::default();
            for (name, value) in [
                ("reward/mean", -0.41),
                ("reward/credit", 0.295),
                ("loss/entropy", f64::NAN),
                ("loss/clip_fraction_high", 0.0021),
                ("rollout/length_mean", 1013.4),
                ("sampling/groups_kept", 64.0),
                ("sampling/groups_filtered", 112.0),
                ("rollout/tokens_per_second", 12034.0),
                ("time/rollout", 3725.0),
                ("time/reward", 0.004),
                ("time/update", 61.2),
                ("time/step", 10.0),
            ] {
                metrics.set(name, value);
            }
            terminal.metrics(step, &metrics);
        }

        // The surplus of an earlier step filled this one.
        let mut without = Metrics::default();
        without.set("sampling/groups_kept", 64.0);
        terminal.metrics(22, &without);
        terminal.begin(Stage::Rollout, 10);
        terminal.advance(3);
        terminal.end();

        let text = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..3],
            [
                "held-out accuracy 0.012 before training",
                "   step   reward    credit  entropy  clip low     high   length  kept/out  tokens/s  rollout   judge  update    left",
                "  1/200   -0.410     0.295      NaN         -  0.00210   1013.4    64/112     12034    1h02m    4 ms   1m01s  33m10s",
            ]
        );
        assert_eq!(lines.iter().filter(|line| line.contains("step   reward")).count(), 2);
        let last = lines.last().unwrap();
        assert!(last.starts_with(" 22/200        -         -        -"), "{last}");
        let widths: Vec<usize> = lines[1..].iter().map(|line| line.chars().count()).collect();
        assert!(widths.iter().all(|&width| width == widths[0]), "{widths:?}");
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn what_matters_least_goes_first_and_no_line_is_too_long() {
        let all = columns_within(None, 7).len();
        let mut before = all;
        for room in (30..=120).rev() {
            let columns = columns_within(Some(room), 7);
            let width = 7 + columns.iter().map(|column| GAP.len() + column.width).sum::<usize>();
            assert!(width + GAP.len() + LEFT <= room, "{room}");
            assert!(columns.len() <= before, "{room}");
            before = columns.len();
        }

        let headings: Vec<_> = columns_within(Some(40), 7).iter().map(|c| c.heading).collect();
        assert_eq!(headings, ["reward", "credit"]);

        for text in ["  a note of some words that is too long for a line", "one", ""] {
            let lines = broken(text, 20);
            assert!(lines.iter().all(|line| line.chars().count() <= 20), "{lines:?}");
            let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
            assert_eq!(words(&lines.join(" ")), words(text));
        }

        assert_eq!(
            broken("see /a/path/that/has/no/end and more", 12)[1],
            "/a/path/that/has/no/end"
        );
    }
}
