//! A run as a person sees it.

use std::{
    collections::VecDeque,
    io::{self, Write},
};

use firebrick::{Stage, Watcher};
use firebrick_core::{Metrics, Step};
use firebrick_runs::Summary;

use crate::{
    bars::{Bar, Bars},
    closing,
};

/// One line a step, evaluations, a bar for every stage, and a closing table.
///
/// It reads what to show from the metrics' names; what is absent is shown as `-`. What a closed terminal
/// can't show is no reason to end a run.
pub struct Terminal {
    out: Box<dyn Write + Send>,
    bars: Bars,
    /// The bars of the stages that are under way, the innermost last.
    stages: Vec<Bar>,
    color: bool,
    total: Step,
    lines: usize,
    /// Seconds of the last steps, for the time left.
    recent: VecDeque<f64>,
    heldout: Option<f64>,
}

impl Terminal {
    /// A front end for a run of `total` steps that writes its lines to `out`, between `bars`.
    ///
    /// `color` is the program's to decide: yes on a terminal, unless `NO_COLOR` is set.
    pub fn new(out: Box<dyn Write + Send>, bars: Bars, color: bool, total: Step) -> Self {
        let (stages, recent) = (Vec::new(), VecDeque::new());
        Terminal { out, bars, stages, color, total, lines: 0, recent, heldout: None }
    }

    /// One for a command that trains nothing, on standard error.
    pub fn plain(bars: Bars) -> Self {
        Terminal::new(Box::new(io::stderr()), bars, false, 0)
    }
}

impl Watcher for Terminal {
    fn begin(&mut self, stage: Stage, total: u64) {
        self.stages.push(self.bars.bar(stage.name(), total));
    }

    fn advance(&mut self, units: u64) {
        if let Some(bar) = self.stages.last() {
            bar.advance(units);
        }
    }

    fn end(&mut self) {
        self.stages.pop();
    }

    fn note(&mut self, text: &str) {
        let _ = self.line(text);
    }

    fn metrics(&mut self, step: Step, metrics: &Metrics) {
        let _ = self.show(step, metrics);
    }

    fn finished(&mut self, summary: &Summary) {
        let _ = self.close(summary);
    }
}

/// The columns of a step's line: heading, width, and how the metrics fill it.
const COLUMNS: [Column; 11] = [
    Column { heading: "reward", width: 7, cell: |m| fixed(m, "reward/mean", 3) },
    Column { heading: "accuracy", width: 8, cell: |m| fixed(m, "reward/accuracy", 3) },
    Column { heading: "entropy", width: 7, cell: |m| fixed(m, "loss/entropy", 3) },
    Column { heading: "clip low", width: 8, cell: |m| fixed(m, "loss/clip_fraction_low", 5) },
    Column { heading: "high", width: 7, cell: |m| fixed(m, "loss/clip_fraction_high", 5) },
    Column { heading: "length", width: 7, cell: |m| fixed(m, "rollout/length_mean", 1) },
    Column { heading: "kept/out", width: 8, cell: groups },
    Column { heading: "tokens/s", width: 8, cell: |m| fixed(m, "rollout/tokens_per_second", 0) },
    Column { heading: "rollout", width: 7, cell: |m| seconds(m, "time/rollout") },
    Column { heading: "judge", width: 6, cell: |m| seconds(m, "time/reward") },
    Column { heading: "update", width: 6, cell: |m| seconds(m, "time/update") },
];

struct Column {
    heading: &'static str,
    width: usize,
    cell: fn(&Metrics) -> String,
}

/// Lines between two headings: about what a small terminal shows at once.
const HEADING_EVERY: usize = 20;

/// Steps that the time left is estimated from. Completions get longer as a run goes on, so the
/// mean over all of it would promise too early an end.
const RECENT: usize = 20;

impl Terminal {
    /// Writes the closing table: the result, the cost, and where the last checkpoint is.
    fn close(&mut self, summary: &Summary) -> io::Result<()> {
        self.line("")?;
        for row in closing::table(summary, summary.checkpoint.as_deref()) {
            self.line(&row)?;
        }
        self.out.flush()
    }

    fn show(&mut self, step: Step, metrics: &Metrics) -> io::Result<()> {
        if let Some(loss) = metrics.get("warmup/loss") {
            let accuracy = metrics.get("warmup/accuracy");
            let accuracy = accuracy.map(|a| format!("   accuracy {a:.3}")).unwrap_or_default();
            self.line(&format!("warm-up {step:>6}   loss {loss:.4}{accuracy}"))?;
        }
        if metrics.get("reward/mean").is_some() {
            self.step(step, metrics)?;
        }
        if let Some(accuracy) = metrics.get("eval/heldout_accuracy") {
            self.evaluation(step, accuracy)?;
        }
        self.out.flush()
    }

    fn step(&mut self, step: Step, metrics: &Metrics) -> io::Result<()> {
        let digits = self.total.to_string().len();
        let width = 2 * digits + 1;
        if self.lines.is_multiple_of(HEADING_EVERY) {
            let columns = COLUMNS.map(|column| format!("{:>1$}", column.heading, column.width));
            let heading = format!("{:>width$}  {}  {:>6}", "step", columns.join("  "), "left");
            self.line(&self.paint("2", &heading))?;
        }
        self.lines += 1;

        let count = format!("{step:>digits$}/{}", self.total);
        let cells = COLUMNS.map(|column| format!("{:>1$}", (column.cell)(metrics), column.width));
        let left = self.time_left(step, metrics);
        self.line(&format!("{count:>width$}  {}  {left:>6}", cells.join("  ")))
    }

    fn evaluation(&mut self, step: Step, accuracy: f64) -> io::Result<()> {
        let change = match self.heldout {
            Some(before) => format!(" ({:+.3})", accuracy - before),
            None => String::new(),
        };
        let when = match (step, self.heldout) {
            (0, None) => "before training".to_owned(),
            (0, Some(_)) => "after the warm-up".to_owned(),
            _ => format!("after step {step}"),
        };
        self.heldout = Some(accuracy);
        let text = format!("held-out accuracy {accuracy:.3}{change} {when}");
        self.line(&self.paint("36", &text))
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
        let out = &mut self.out;
        self.bars.suspend(|| writeln!(out, "{text}"))
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

fn fixed(metrics: &Metrics, name: &str, decimals: usize) -> String {
    metrics.get(name).map_or_else(|| "-".into(), |value| format!("{value:.decimals$}"))
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
                ("reward/accuracy", 0.295),
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
        terminal.begin(Stage::Rollout, 10);
        terminal.advance(3);
        terminal.end();

        let text = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..3],
            [
                "held-out accuracy 0.012 before training",
                "   step   reward  accuracy  entropy  clip low     high   length  kept/out  tokens/s  rollout   judge  update    left",
                "  1/200   -0.410     0.295      NaN         -  0.00210   1013.4    64/112     12034    1h02m    4 ms   1m01s  33m10s",
            ]
        );
        assert_eq!(lines.iter().filter(|line| line.contains("step   reward")).count(), 2);
        let widths: Vec<usize> = lines[1..].iter().map(|line| line.chars().count()).collect();
        assert!(widths.iter().all(|&width| width == widths[0]), "{widths:?}");
        assert!(!text.contains('\x1b'));
    }
}
