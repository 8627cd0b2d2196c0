//! Progress bars.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::width::Width;

/// Progress bars of long work. Clones draw together, so that the [`Terminal`](crate::terminal::Terminal)'s lines and
/// the bars keep out of each other's way.
#[derive(Clone, Debug)]
pub struct Bars {
    all: MultiProgress,
    quiet: bool,
}

impl Bars {
    /// Makes bars that are drawn on `target`.
    pub fn new(target: ProgressDrawTarget) -> Self {
        Bars { all: MultiProgress::with_draw_target(target), quiet: false }
    }

    /// Makes bars on standard error. They are not drawn if it is not a terminal.
    pub fn on_stderr() -> Self {
        Bars::new(ProgressDrawTarget::stderr())
    }

    /// Makes bars that nobody sees, for a program that says nothing while it waits.
    pub fn hidden() -> Self {
        Bars { quiet: true, ..Bars::new(ProgressDrawTarget::hidden()) }
    }

    /// Returns whether lines about waiting are unwanted too.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Shows a bar for `total` units, such as completions to sample. A `total` of 0 means that the number is
    /// unknown.
    pub fn bar(&self, name: &str, total: u64) -> Bar {
        // A bar gets the room that the numbers leave, but no more than a reader can take in.
        let narrow = Width::Terminal.columns().is_some_and(|columns| columns < 80);
        let template = match (total, narrow) {
            (0, true) => "{prefix:>10} {spinner} {elapsed}",
            (0, false) => "{prefix:>10} {spinner} {elapsed}{msg}",
            (_, true) => "{prefix:>10} [{wide_bar}] {pos}/{len}",
            (_, false) => "{prefix:>10} [{bar:30}] {pos}/{len}, {eta} left{msg}",
        };

        let style = ProgressStyle::with_template(template)
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("=> ");

        let bar = if total == 0 { ProgressBar::no_length() } else { ProgressBar::new(total) };
        let bar = self.all.add(bar).with_style(style).with_prefix(name.to_owned());
        if total == 0 && !self.all.is_hidden() {
            // Only time moves such a bar.
            bar.enable_steady_tick(TICK);
        }

        Bar { bar }
    }

    /// Calls `write` while no bar is on the screen.
    pub(crate) fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        self.all.suspend(write)
    }
}

/// Interval at which a bar without a length turns.
const TICK: Duration = Duration::from_millis(200);

/// A bar that is shown until it is dropped. It may move to the thread that works.
#[derive(Debug)]
pub struct Bar {
    bar: ProgressBar,
}

impl Bar {
    /// Makes the bar longer by `units`.
    pub fn extend(&self, units: u64) {
        self.bar.inc_length(units);
    }

    /// Advances the bar by `units`.
    pub fn advance(&self, units: u64) {
        self.bar.inc(units);
    }

    /// Shows a short text after the bar, if there is room.
    pub fn note(&self, text: &str) {
        self.bar.set_message(format!(" {text}"));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
