//! A run on burn-train's dashboard.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    process::exit,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use burn_train::{
    Interrupter,
    logger::TrainingProgressLogger as _,
    metric::{
        MetricAttributes, MetricDefinition, MetricEntry, MetricId, NumericAttributes, NumericEntry,
        SerializedEntry,
    },
    renderer::{
        MetricState, MetricsRenderer as _, MetricsRendererTraining as _,
        tui::TuiMetricsRendererWrapper,
    },
};
use firebrick::{Example, Stage, Watcher, burn::data::dataloader::Progress};
use firebrick_core::{Metrics, Step, Verdict, printable};
use firebrick_runs::Summary;

use crate::{answer::Answer, terminal::Terminal};

/// Draws a run over the whole terminal: curves to choose from, the phase and the run's progress, memory, and the
/// latest completions with their verdicts. At the end, notes and the closing table go to a [`Terminal`], where
/// they can be read afterwards.
pub(crate) struct Dashboard {
    renderer: Option<TuiMetricsRendererWrapper>,
    interrupter: Interrupter,
    /// Set when the reader ends the run.
    stop: Arc<AtomicBool>,
    name: String,
    leave: &'static str,
    afterwards: Terminal,
    notes: Vec<String>,
    /// Metrics that the renderer knows.
    known_metrics: BTreeSet<String>,
    /// Phases that are under way, the innermost last, each with its number of units and the number of finished
    /// units.
    phases: Vec<(Stage, u64, u64)>,
    /// Current step, from 1, and the part of it that is done, out of [`WHOLE`].
    step: Step,
    share: u64,
    /// When the renderer last heard of the progress.
    last_shown: Instant,
}

/// Curves, the first of which is shown first. The renderer has one curve for each name.
const CURVES: [(&str, &str); 15] = [
    ("reward/mean", "Reward"),
    ("eval/heldout_accuracy", "Held-out"),
    ("reward/credit", "Credit"),
    ("loss/entropy", "Entropy"),
    ("rollout/length_mean", "Length"),
    ("rollout/truncated", "Cut off"),
    ("sampling/groups_kept", "Groups kept"),
    ("sampling/groups_filtered", "Filtered"),
    ("update/grad_norm", "Gradient"),
    ("loss/clip_fraction_high", "Clipped"),
    ("rollout/logprob_diff_mean", "Mismatch"),
    ("rollout/tokens_per_second", "Tokens/s"),
    ("time/rollout", "Sampling s"),
    ("time/update", "Updating s"),
    ("memory/peak_bytes", "Memory GiB"),
];

/// Bytes of a gibibyte.
const GIBIBYTE: f64 = (1_u64 << 30) as f64;

/// Interval at which the renderer draws.
const REDRAWN: Duration = Duration::from_millis(100);

/// Number of parts of a step that a bar can show.
const WHOLE: u64 = 1000;

// The first entries of the list, which a small terminal shows too.
const RIGHT: &str = "Right";
const WRONG: &str = "Wrong";
const NOTE: &str = "Note";

impl Dashboard {
    /// Makes a dashboard of the run `name`, which opens at the first phase. `leave` says what ends when the reader
    /// leaves, because the renderer's own text fits only a program that trains. `afterwards` gets the notes and the end
    /// once the terminal is given back. `stop` is set when the reader asks for the end.
    pub(crate) fn new(
        name: &str,
        leave: &'static str,
        stop: Arc<AtomicBool>,
        afterwards: Terminal,
    ) -> Self {
        Dashboard {
            renderer: None,
            interrupter: Interrupter::new(),
            stop,
            name: printable(name),
            leave,
            afterwards,
            notes: Vec::new(),
            known_metrics: BTreeSet::new(),
            phases: Vec::new(),
            step: 1,
            share: 0,
            last_shown: Instant::now(),
        }
    }

    /// Takes the terminal over, unless the dashboard has it already.
    fn open(&mut self) {
        if self.renderer.is_some() {
            return;
        }

        let mut renderer = TuiMetricsRendererWrapper::new(self.interrupter.clone(), None);
        renderer.start(self.steps(), 0, None, Some(&self.name));
        keep_ctrl_c();
        self.renderer = Some(renderer);

        self.turn_to(1);
        for entry in [RIGHT, WRONG] {
            self.say(entry, "–");
        }
        let leave = self.leave;
        self.say(NOTE, leave);

        // The curves that a reader wants first are defined first, whichever curve gets a value first.
        for (_, curve) in &CURVES[..2] {
            self.define(curve, numeric());
        }
    }

    /// Gives the terminal back, and prints the notes that arrived meanwhile.
    fn close(&mut self) {
        if self.renderer.take().is_some() {
            let notes = std::mem::take(&mut self.notes);
            notes.iter().for_each(|note| self.afterwards.note(note));
        }
    }

    fn steps(&self) -> usize {
        self.afterwards.total().max(1) as usize
    }

    /// Continues with a step, counted from 1. Its bar starts over.
    fn turn_to(&mut self, step: Step) {
        self.step = step;
        self.share = 0;
        self.tell(|renderer| {
            // The renderer takes epochs from 0 and shows them from 1.
            renderer.update_epoch(step.saturating_sub(1) as usize);
            renderer.start_split("train", &progress(0, WHOLE));
        });
    }

    /// Calls the renderer. The renderer's "stop immediately" is a panic, which this function turns into the end of
    /// the program. The completions sampled so far are in the run's database.
    fn tell(&mut self, tell: impl FnOnce(&mut TuiMetricsRendererWrapper)) {
        let Some(renderer) = &mut self.renderer else { return };
        if catch_unwind(AssertUnwindSafe(|| tell(renderer))).is_err() {
            self.afterwards.note(self.leave);
            exit(130);
        }
    }

    fn say(&mut self, entry: &str, text: &str) {
        let text = printable(text);
        let state = MetricState::Generic(self.entry(entry, &text, MetricAttributes::None));
        self.tell(|renderer| renderer.update_train(state));
    }

    fn draw(&mut self, curve: &str, value: f64, heldout: bool) {
        let entry = self.entry(curve, &short(value), numeric());

        // A value that is not finite is a gap, which keeps its position on the axis.
        let point = value.is_finite().then_some(NumericEntry::Value(value));
        let state = MetricState::Numeric(entry, point);
        self.tell(|renderer| {
            if heldout {
                renderer.update_valid(state);
            } else {
                renderer.update_train(state);
            }
        });
    }

    fn entry(&mut self, name: &str, text: &str, attributes: MetricAttributes) -> MetricEntry {
        let id = self.define(name, attributes);
        MetricEntry::new(id, SerializedEntry::new(text.to_owned(), text.to_owned()))
    }

    /// Makes a name known to the renderer.
    fn define(&mut self, name: &str, attributes: MetricAttributes) -> MetricId {
        let id = MetricId::new(Arc::new(name.to_owned()));
        if self.known_metrics.insert(name.to_owned()) {
            let definition = MetricDefinition {
                metric_id: id.clone(),
                name: Arc::new(name.to_owned()),
                description: None,
                attributes,
            };
            self.tell(|renderer| renderer.register_metric(definition));
        }
        id
    }

    /// Shows the current phase and the progress of the step. The renderer expects steps of equal size that never
    /// go back. So sampling is half of a step, however often it grows, and updating is the other half.
    fn progress(&mut self) {
        self.last_shown = Instant::now();
        let Some(&(stage, total, done)) = self.phases.last() else { return };

        let (name, step) = (&self.name, self.step);
        let label = match total {
            0 => format!("{name}, {} {done}", stage.name()),
            _ => format!("{name}, {} {done} of {total}", stage.name()),
        };

        let steps = self.steps();
        self.tell(|renderer| {
            // Only `start` changes the label. It restarts the count of steps.
            renderer.start(steps, 0, None, Some(&label));
            renderer.update_epoch(step.saturating_sub(1) as usize);
        });

        // A phase of unknown length has no share yet.
        let half = (WHOLE / 2 * done.min(total)).checked_div(total).unwrap_or(0);
        match stage {
            Stage::Rollout => self.share = self.share.max(half),
            Stage::Update => self.share = self.share.max(WHOLE / 2 + half),
            // Other phases, such as an evaluation, have their own bar and leave the step's alone.
            _ => {
                return self.tell(|renderer| {
                    let progress = progress(done, total.max(done).max(1));
                    renderer.start_split("valid", &progress);
                    renderer.update_split(&progress);
                });
            }
        }

        let progress = progress(self.share, WHOLE);
        self.tell(|renderer| {
            renderer.start_split("train", &progress);
            renderer.update_split(&progress);
        });
    }

    fn answer(&mut self, entry: &str, answer: &Answer) {
        // A small panel has room for this much next to the other entries. The panel breaks lines itself.
        let words: Vec<String> = answer.within(160).split_whitespace().map(str::to_owned).collect();
        self.say(entry, &words.join(" "));
    }
}

impl Watcher for Dashboard {
    fn begin(&mut self, stage: Stage, total: u64) {
        self.open();
        self.phases.push((stage, total, 0));
        self.progress();
    }

    fn extend(&mut self, units: u64) {
        if let Some((_, total, _)) = self.phases.last_mut() {
            *total += units;
        }
    }

    fn advance(&mut self, units: u64) {
        if let Some((_, _, done)) = self.phases.last_mut() {
            *done += units;
        }
        // Thousands of completions may finish in a second, but the renderer draws only ten times.
        if self.last_shown.elapsed() >= REDRAWN {
            self.progress();
        }
        if self.interrupter.should_stop() {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn tokens(&mut self, sampled: u64, most: u64) {
        // Completions end late in a rollout. Until then its tokens move the bar, from which the renderer estimates the
        // time that is left.
        if let Some((Stage::Rollout, ..)) = self.phases.last() {
            let share = (WHOLE / 2 * sampled.min(most)).checked_div(most).unwrap_or(0);
            self.share = self.share.max(share);
        }
    }

    fn end(&mut self) {
        self.phases.pop();
        self.progress();
    }

    fn note(&mut self, text: &str) {
        if self.renderer.is_none() {
            return self.afterwards.note(text);
        }
        self.say(NOTE, text);
        self.notes.push(text.to_owned());
    }

    fn metrics(&mut self, step: Step, metrics: &Metrics) {
        self.open();
        for (name, curve) in CURVES {
            if let Some(value) = metrics.get(name) {
                let value = if name.ends_with("_bytes") { value / GIBIBYTE } else { value };
                self.draw(curve, value, name.starts_with("eval/"));
            }
        }

        // A step that sampled nothing has no reward, and is a step too.
        match metrics.get("sampling/groups_kept") {
            Some(_) if step < self.afterwards.total() => self.turn_to(step + 1),
            Some(_) => self.tell(|renderer| renderer.update_split(&progress(WHOLE, WHOLE))),
            None => {}
        }
    }

    fn sampled(&mut self, _: Step, example: &Example) {
        let right = example.score.verdict == Verdict::Right;
        self.answer(if right { RIGHT } else { WRONG }, &Answer::of_example(example));
    }

    fn example(&mut self, example: &Example) {
        self.afterwards.remember(example);
        self.sampled(0, example);
    }

    fn finished(&mut self, summary: &Summary) {
        self.close();
        self.afterwards.finished(summary);
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        self.close();
    }
}

/// Makes the progress of `done` out of `total` units.
fn progress(done: u64, total: u64) -> Progress {
    Progress::new(done as usize, total as usize, None)
}

fn numeric() -> MetricAttributes {
    NumericAttributes { unit: None, higher_is_better: true }.into()
}

fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if !(1e-3..1e6).contains(&size) => format!("{value:.2e}"),
        size if size >= 100.0 => format!("{value:.0}"),
        _ => format!("{value:.4}"),
    }
}

/// Restores the meaning of Ctrl-C once the renderer has set the terminal up, since the renderer would take it for an
/// unknown letter.
fn keep_ctrl_c() {
    #[cfg(unix)]
    {
        use std::thread::sleep;

        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

        // The renderer sets the terminal up in its own time: this waits for it, two seconds at most.
        for _ in 0..100 {
            let Ok(mut modes) = tcgetattr(std::io::stdin()) else { return };
            if !modes.local_modes.contains(LocalModes::ICANON) {
                modes.local_modes.insert(LocalModes::ISIG);
                let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &modes);
                return;
            }
            sleep(Duration::from_millis(20));
        }
    }
}
