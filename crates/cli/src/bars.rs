//! Progress bars.

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::terminal::Width;

/// The progress bars of what takes long. Clones draw in the same place, so that the
/// [`Terminal`](crate::terminal::Terminal)'s lines and the bars keep out of each other's way.
#[derive(Clone, Debug)]
pub struct Bars(MultiProgress);

impl Bars {
    /// Bars drawn on `target`.
    pub fn new(target: ProgressDrawTarget) -> Self {
        Bars(MultiProgress::with_draw_target(target))
    }

    /// Bars on standard error, which are not drawn where it is no terminal.
    pub fn on_stderr() -> Self {
        Bars::new(ProgressDrawTarget::stderr())
    }

    /// Bars that nobody sees.
    pub fn hidden() -> Self {
        Bars::new(ProgressDrawTarget::hidden())
    }

    /// A bar for `total` units, such as completions to sample; 0 when it is unknown how many.
    pub fn bar(&self, name: &str, total: u64) -> Bar {
        let (bar, template) = if total == 0 {
            (ProgressBar::no_length(), "{prefix:>10} {spinner} {pos} {msg}")
        } else {
            // The bar gets what the numbers leave it, and no more than one can take in.
            let template = match Width::Terminal.columns().is_some_and(|columns| columns < 80) {
                true => "{prefix:>10} [{wide_bar}] {pos}/{len} {msg}",
                false => "{prefix:>10} [{bar:30}] {pos}/{len} {msg} ({eta} left)",
            };
            (ProgressBar::new(total), template)
        };
        let style = ProgressStyle::with_template(template)
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("=> ");
        Bar { bar: self.0.add(bar).with_style(style).with_prefix(name.to_owned()) }
    }

    /// Does `write` while no bar is on the screen.
    pub(crate) fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        self.0.suspend(write)
    }
}

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

    /// Moves the bar on by `units`.
    pub fn advance(&self, units: u64) {
        self.bar.inc(units);
    }

    /// Puts a few words behind the bar.
    pub fn note(&self, text: &str) {
        self.bar.set_message(text.to_owned());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
