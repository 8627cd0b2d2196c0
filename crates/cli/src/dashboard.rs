//! A run over the whole terminal.

mod screen;

use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, Write as _},
    process::exit,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use firebrick::{Example, Stage, Watcher};
use firebrick_core::{Metrics, Step, Verdict, printable};
use firebrick_runs::Summary;
use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
};

use crate::{answer::Answer, closing, terminal::Terminal};

/// Draws a run over the whole terminal: held-out accuracy, a curve to choose, the newest answers with their verdicts,
/// notes, and the phase. At the end, notes and the closing table go to a [`Terminal`], where they can be read
/// afterwards.
pub(crate) struct Dashboard {
    shared: Arc<Shared>,
    /// Draws and reads keys; `None` while the terminal is not taken over.
    drawing: Option<JoinHandle<()>>,
    afterwards: Terminal,
}

/// What the run tells, and the reader decides.
struct Shared {
    state: Mutex<State>,
    /// Set when something is to be drawn.
    changed: AtomicBool,
    /// Set when the terminal is to be given back.
    over: AtomicBool,
    /// Set when the reader ends the run, or the watching.
    stop: Arc<AtomicBool>,
}

/// What is on the screen.
#[derive(Default)]
struct State {
    name: String,
    device: String,
    /// What a reader who leaves should know; `None` if nothing ends but the watching.
    leave: Option<&'static str>,
    /// Last finished step, and their number.
    step: Step,
    steps: Step,
    /// Phases that are under way, the innermost last.
    phases: Vec<Phase>,
    /// Values by step, of the metrics that can be drawn.
    curves: BTreeMap<&'static str, Vec<(f64, f64)>>,
    /// Last value of each metric.
    last: BTreeMap<String, f64>,
    /// Seconds of the last steps, from which the time left is estimated.
    recent: VecDeque<f64>,
    right: Option<Answer>,
    wrong: Option<Answer>,
    notes: Vec<String>,
    /// Index of the curve beside the held-out accuracy.
    chosen: usize,
    /// True while the reader is asked whether to leave.
    asks: bool,
}

/// A phase, with its number of units and the number of finished ones.
struct Phase {
    stage: Stage,
    total: u64,
    done: u64,
    /// Share of a rollout that its tokens have come to.
    tokens: f64,
    began: Instant,
}

/// A metric that is drawn, with its name on the screen.
struct Curve {
    metric: &'static str,
    name: &'static str,
    /// True for values between 0 and 1.
    share: bool,
}

const fn curve(metric: &'static str, name: &'static str, share: bool) -> Curve {
    Curve { metric, name, share }
}

const HELDOUT: Curve = curve("eval/heldout_accuracy", "held-out accuracy", true);

/// Curves that the arrow keys choose from.
const CURVES: [Curve; 11] = [
    curve("reward/credit", "credit in training", true),
    curve("reward/mean", "reward", false),
    curve("loss/entropy", "entropy, nats", false),
    curve("rollout/length_mean", "length, tokens", false),
    curve("rollout/truncated", "cut off", true),
    curve("update/grad_norm", "gradient norm", false),
    curve("loss/approx_kl", "change of the policy", false),
    curve("rollout/logprob_diff_mean", "sampler against trainer", false),
    curve("rollout/tokens_per_second", "tokens/s", false),
    curve("time/step", "seconds of a step", false),
    curve("memory/peak_bytes", "memory, GiB", false),
];

/// Bytes of a gibibyte.
const GIBIBYTE: f64 = (1_u64 << 30) as f64;

/// Number of last steps that the time left is estimated from.
const RECENT: usize = 20;

/// Pause between two looks at keys and changes.
const PAUSE: Duration = Duration::from_millis(100);

impl Dashboard {
    /// Makes a dashboard of the run `name` on `device`, which opens at the first phase. With `leave`, a reader who leaves
    /// ends the run, is asked before, and told this. `afterwards` gets the notes and the end once the terminal is given
    /// back. `stop` is set when the reader asks for the end.
    pub(crate) fn new(
        name: &str,
        device: String,
        leave: Option<&'static str>,
        stop: Arc<AtomicBool>,
        afterwards: Terminal,
    ) -> Self {
        let state = State {
            name: printable(name),
            device,
            leave,
            steps: afterwards.total(),
            ..State::default()
        };
        let shared = Shared {
            state: Mutex::new(state),
            changed: AtomicBool::new(true),
            over: AtomicBool::new(false),
            stop,
        };
        Dashboard { shared: Arc::new(shared), drawing: None, afterwards }
    }

    /// Takes the terminal over, unless the dashboard has it already.
    fn open(&mut self) {
        if self.drawing.is_some() {
            return;
        }
        let Ok(terminal) = ratatui::try_init() else { return };
        TAKEN.store(true, Ordering::Relaxed);
        keep_ctrl_c();
        self.shared.over.store(false, Ordering::Relaxed);
        let shared = self.shared.clone();
        self.drawing = thread::Builder::new()
            .name("dashboard".into())
            .spawn(move || show(&shared, terminal))
            .inspect_err(|_| give_back())
            .ok();
    }

    /// Gives the terminal back, and prints the notes that arrived meanwhile.
    fn close(&mut self) {
        let Some(drawing) = self.drawing.take() else { return };
        self.shared.over.store(true, Ordering::Relaxed);
        let _ = drawing.join();
        let notes = std::mem::take(&mut self.shared.state().notes);
        notes.iter().for_each(|note| self.afterwards.note(note));
    }

    /// Changes what is on the screen.
    fn change(&mut self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.state());
        self.shared.changed.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what a key asks for.
    fn press(&self, code: KeyCode, modifiers: KeyModifiers) {
        let mut state = self.state();
        let curves = CURVES.len();
        let asked = std::mem::replace(&mut state.asks, false);
        match code {
            KeyCode::Left => state.chosen = (state.chosen + curves - 1) % curves,
            KeyCode::Right => state.chosen = (state.chosen + 1) % curves,
            // Where the terminal makes no signal of it.
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => {
                self.stop.store(true, Ordering::Relaxed);
            }
            KeyCode::Char('q') if state.leave.is_none() => self.stop.store(true, Ordering::Relaxed),
            KeyCode::Char('q') => state.asks = true,
            KeyCode::Char('s') if asked => self.stop.store(true, Ordering::Relaxed),
            // What was sampled so far is in the run's database.
            KeyCode::Char('k') if asked => {
                give_back();
                let _ = writeln!(io::stderr(), "{}", state.leave.unwrap_or_default());
                exit(130);
            }
            _ => {}
        }
        self.changed.store(true, Ordering::Relaxed);
    }
}

/// True while the terminal is taken over.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Gives the terminal back, if a dashboard has it. A program that ends at once calls this before.
pub(crate) fn give_back() {
    if TAKEN.swap(false, Ordering::Relaxed) {
        ratatui::restore();
    }
}

/// Draws and reads keys until the terminal is to be given back.
fn show(shared: &Shared, mut terminal: DefaultTerminal) {
    while !shared.over.load(Ordering::Relaxed) {
        if shared.changed.swap(false, Ordering::Relaxed) {
            let state = shared.state();
            let _ = terminal.draw(|frame| screen::draw(frame, &state));
        }
        if !event::poll(PAUSE).unwrap_or(false) {
            continue;
        }
        match event::read() {
            Ok(Event::Key(key)) if key.kind == KeyEventKind::Press => {
                shared.press(key.code, key.modifiers);
            }
            Ok(Event::Resize(..)) => shared.changed.store(true, Ordering::Relaxed),
            _ => {}
        }
    }
    give_back();
}

impl Watcher for Dashboard {
    fn begin(&mut self, stage: Stage, total: u64) {
        self.open();
        let phase = Phase { stage, total, done: 0, tokens: 0.0, began: Instant::now() };
        self.change(|state| state.phases.push(phase));
    }

    fn extend(&mut self, units: u64) {
        self.change(|state| {
            if let Some(phase) = state.phases.last_mut() {
                phase.total += units;
            }
        });
    }

    fn advance(&mut self, units: u64) {
        self.change(|state| {
            if let Some(phase) = state.phases.last_mut() {
                phase.done += units;
            }
        });
    }

    fn tokens(&mut self, sampled: u64, most: u64) {
        self.change(|state| {
            if let Some(phase) = state.phases.last_mut() {
                phase.tokens = sampled as f64 / most.max(1) as f64;
            }
        });
    }

    fn end(&mut self) {
        self.change(|state| {
            state.phases.pop();
        });
    }

    fn note(&mut self, text: &str) {
        if self.drawing.is_none() {
            return self.afterwards.note(text);
        }
        let text = text.to_owned();
        self.change(|state| state.notes.push(text));
    }

    fn metrics(&mut self, step: Step, metrics: &Metrics) {
        self.open();
        self.change(|state| state.take(step, metrics));
    }

    fn sampled(&mut self, _: Step, example: &Example) {
        let answer = Answer::of_example(example);
        let right = example.score.verdict == Verdict::Right;
        self.change(|state| {
            let place = if right { &mut state.right } else { &mut state.wrong };
            *place = Some(answer);
        });
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

impl State {
    fn take(&mut self, step: Step, metrics: &Metrics) {
        for Curve { metric, .. } in CURVES.iter().chain([&HELDOUT]) {
            if let Some(value) = metrics.get(metric).filter(|value| value.is_finite()) {
                let value = if metric.ends_with("_bytes") { value / GIBIBYTE } else { value };
                self.curves.entry(metric).or_default().push((step as f64, value));
            }
        }
        self.last.extend(metrics.0.iter().map(|(name, value)| (name.clone(), *value)));

        // A step that sampled nothing has no reward, and is a step too.
        if metrics.get("sampling/groups_kept").is_some() {
            self.step = step;
        }
        if let Some(seconds) = metrics.get("time/step").filter(|seconds| seconds.is_finite()) {
            self.recent.push_back(seconds);
            if self.recent.len() > RECENT {
                self.recent.pop_front();
            }
        }
    }

    /// Writes the time left of the run, once a step has shown it.
    fn time_left(&self) -> Option<String> {
        let steps = self.steps.checked_sub(self.step).filter(|steps| *steps > 0)?;
        let mean = self.recent.iter().sum::<f64>() / self.recent.len() as f64;
        (!self.recent.is_empty()).then(|| closing::duration(mean * steps as f64))
    }
}

impl Phase {
    /// Share that is done; `None` if nobody knows it.
    fn share(&self) -> Option<f64> {
        let share = self.done as f64 / self.total as f64;
        (self.total > 0).then(|| share.max(self.tokens).min(1.0))
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        self.close();
    }
}

/// Gives Ctrl-C its meaning back, which a terminal without line editing takes for a letter.
fn keep_ctrl_c() {
    #[cfg(unix)]
    {
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

        let Ok(mut modes) = tcgetattr(std::io::stdin()) else { return };
        modes.local_modes.insert(LocalModes::ISIG);
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &modes);
    }
}
