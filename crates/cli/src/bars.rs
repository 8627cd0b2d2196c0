//! Progress bars.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use indicatif::{
    HumanDuration, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle,
};

use crate::width::Width;

/// Progress bars of long work. Clones draw together, so that the [`Terminal`](crate::terminal::Terminal)'s lines and
/// the bars keep out of each other's way.
#[derive(Clone, Debug)]
pub struct Bars {
    all: MultiProgress,
    quiet: bool,
    /// Seconds that a unit took in the last bar of each name.
    paces: Arc<Mutex<BTreeMap<String, f64>>>,
}

impl Bars {
    /// Makes bars that are drawn on `target`.
    pub fn new(target: ProgressDrawTarget) -> Self {
        Bars { all: MultiProgress::with_draw_target(target), quiet: false, paces: Arc::default() }
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
            (_, false) => "{prefix:>10} [{bar:30}] {pos}/{len}, {left}{msg}",
        };

        let pace = locked(&self.paces).get(name).copied();
        let tokens = Arc::new(Mutex::new(None));
        let known = tokens.clone();
        let left = move |state: &ProgressState, out: &mut dyn fmt::Write| {
            let work = Work {
                elapsed: state.elapsed().as_secs_f64(),
                done: state.pos(),
                total: state.len().unwrap_or(0),
                tokens: *locked(&known),
                pace,
            };
            let _ = out.write_str(&work.in_words());
        };

        let style = ProgressStyle::with_template(template)
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .with_key("left", left)
            .progress_chars("=> ");

        let bar = if total == 0 { ProgressBar::no_length() } else { ProgressBar::new(total) };
        let bar = self.all.add(bar).with_style(style).with_prefix(name.to_owned());
        if total == 0 && !self.all.is_hidden() {
            // Only time moves such a bar.
            bar.enable_steady_tick(TICK);
        }

        Bar { bar, tokens, paces: self.paces.clone() }
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
    /// Tokens that were sampled, and the most that they can become.
    tokens: Arc<Mutex<Option<(u64, u64)>>>,
    paces: Arc<Mutex<BTreeMap<String, f64>>>,
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

    /// Says how many tokens were sampled so far, of `most` at most. The bar is drawn with them when it advances.
    pub fn tokens(&self, sampled: u64, most: u64) {
        *locked(&self.tokens) = Some((sampled, most));
    }

    /// Shows a short text after the bar, if there is room.
    pub fn note(&self, text: &str) {
        self.bar.set_message(format!(" {text}"));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        // A bar that was broken off says nothing about the next one.
        let position = self.bar.position();
        if position > 0 && Some(position) == self.bar.length() {
            let pace = self.bar.elapsed().as_secs_f64() / position as f64;
            locked(&self.paces).insert(self.bar.prefix(), pace);
        }
        self.bar.finish_and_clear();
    }
}

/// Locks a mutex of numbers, which no panic leaves half written.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is known of a bar's work when it is drawn.
#[derive(Clone, Copy)]
struct Work {
    /// Seconds since its beginning.
    elapsed: f64,
    done: u64,
    total: u64,
    /// Tokens that were sampled, and the most that they can become.
    tokens: Option<(u64, u64)>,
    /// Seconds that a unit of such work took last time.
    pace: Option<f64>,
}

impl Work {
    /// Says how long the work has taken, and how long it still takes, if anything is known about that.
    fn in_words(&self) -> String {
        let words = |seconds: f64| {
            format!("{:#}", HumanDuration(Duration::from_secs_f64(seconds.clamp(0.0, 1e9))))
        };
        let gone = words(self.elapsed);
        match (self.guess(), self.bound()) {
            (Some(guess), bound) => {
                let left = bound.map_or(guess, |bound| guess.min(bound));
                format!("{gone} gone, {} left", words(left))
            }
            (None, Some(bound)) => format!("{gone} gone, at most {} left", words(bound)),
            (None, None) => format!("{gone} gone, time left unknown"),
        }
    }

    /// Guesses the seconds that are left. At the beginning the work takes as long as last time. The more of it is done,
    /// the more its own speed counts. Nothing is done for long if completions end late.
    fn guess(&self) -> Option<f64> {
        let share = self.done as f64 / self.total.max(self.done).max(1) as f64;
        let like_last_time = self.pace.map(|pace| pace * self.total as f64 - self.elapsed);
        let like_this_time = (self.done > 0).then(|| self.elapsed * (1.0 - share) / share);
        match (like_last_time.filter(|&left| left > 0.0), like_this_time) {
            (Some(last), Some(this)) => Some((1.0 - share) * last + share * this),
            (last, this) => last.or(this),
        }
    }

    /// Returns the seconds that all tokens that may still come would take, at the speed of those that have come.
    fn bound(&self) -> Option<f64> {
        let (sampled, most) = self.tokens.filter(|&(sampled, _)| sampled > 0)?;
        Some(self.elapsed * most.saturating_sub(sampled) as f64 / sampled as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 384 completions of up to 48 tokens are 18,432 tokens at most. A minute has gone.
    #[test]
    fn the_time_left_follows_from_tokens_and_from_last_time_and_not_from_a_first_answer() {
        let none = Work { elapsed: 60.0, done: 0, total: 384, tokens: None, pace: None };
        let first = Work { done: 1, ..none };
        let counted = |work: Work, sampled| Work { tokens: Some((sampled, 18_432)), ..work };

        assert_eq!(none.in_words(), "60s gone, time left unknown");
        assert_eq!(counted(none, 0).in_words(), "60s gone, time left unknown");
        assert_eq!(counted(none, 9_216).in_words(), "60s gone, at most 60s left");

        // By its one answer the rollout would take 383 minutes more.
        assert_eq!(first.in_words(), "60s gone, 6h left");
        assert_eq!(counted(first, 9_216).in_words(), "60s gone, 60s left");
        assert_eq!(counted(first, 18_000).in_words(), "60s gone, 1s left");

        // The last rollout took 96 s.
        let again = Work { pace: Some(0.25), ..none };
        assert_eq!(again.in_words(), "60s gone, 36s left");
        // Half is done: the mean of 36 s, like last time, and 60 s, like this time.
        assert_eq!(Work { done: 192, ..again }.in_words(), "60s gone, 48s left");
        // It takes longer than last time.
        let longer = Work { elapsed: 100.0, done: 288, ..again };
        assert_eq!(longer.in_words(), "2m gone, 33s left");
        assert_eq!(Work { done: 384, ..longer }.in_words(), "2m gone, 0s left");
    }

    #[test]
    fn a_bar_that_was_completed_sets_the_pace_of_the_next() {
        let bars = Bars::hidden();
        let pace = || locked(&bars.paces).get("rollout").copied();

        let broken_off = bars.bar("rollout", 10);
        broken_off.advance(9);
        drop(broken_off);
        assert_eq!(pace(), None);

        let whole = bars.bar("rollout", 10);
        whole.advance(10);
        drop(whole);
        assert!(pace().is_some_and(|pace| pace >= 0.0));
    }
}
