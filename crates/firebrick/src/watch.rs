//! A run's way to tell how it goes, and whoever hears it: a terminal, a notebook, a test, or nobody.

use std::sync::mpsc::Receiver;

use firebrick_core::{Completion, Metrics, Prompt, RewardedGroup, Score, Seed, Step, Verdict};
use firebrick_runs::Summary;
use firebrick_train::{Observer, Phase};

/// Hears of a run while it goes. Every method does nothing by itself, and `()` hears nothing.
///
/// A watcher decides nothing: a run without one gives the same numbers, and its record
/// is in its folder. A watcher that fails to show something has to bear it alone.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not watch runs",
    label = "needs `impl Watcher`, whose methods all have a body already"
)]
pub trait Watcher: Send {
    /// A stage begins and will take `total` units; 0 where nobody knows how many. Stages lie inside of each
    /// other: a warm-up is evaluated while it goes.
    fn begin(&mut self, stage: Stage, total: u64) {
        let _ = (stage, total);
    }

    /// The stage that began last will take `units` more than it said.
    fn extend(&mut self, units: u64) {
        let _ = units;
    }

    /// The stage that began last is `units` further.
    fn advance(&mut self, units: u64) {
        let _ = units;
    }

    /// The stage that began last is over. One that fails ends with the run.
    fn end(&mut self) {}

    /// A text that a person should read: a line, without its end.
    fn note(&mut self, text: &str) {
        let _ = text;
    }

    /// Numbers of `step`, by the names that the book's page of metrics has: those of a rollout step, of a
    /// supervised step that was measured, or of an evaluation, which is at step 0 before the first rollout.
    fn metrics(&mut self, step: Step, metrics: &Metrics) {
        let _ = (step, metrics);
    }

    /// A completion that was sampled for training in `step`, whose numbers came before: a right one and a wrong one where there
    /// are such, of other prompts each time.
    fn sampled(&mut self, step: Step, example: &Example) {
        let _ = (step, example);
    }

    /// A completion of an evaluation on the held-out prompts, whose numbers come next: a right one and a
    /// wrong one where there are such, of other prompts each time.
    fn example(&mut self, example: &Example) {
        let _ = example;
    }

    /// The run is over.
    fn finished(&mut self, summary: &Summary) {
        let _ = summary;
    }
}

impl<T: Watcher + ?Sized> Watcher for Box<T> {
    fn begin(&mut self, stage: Stage, total: u64) {
        (**self).begin(stage, total);
    }

    fn extend(&mut self, units: u64) {
        (**self).extend(units);
    }

    fn advance(&mut self, units: u64) {
        (**self).advance(units);
    }

    fn end(&mut self) {
        (**self).end();
    }

    fn note(&mut self, text: &str) {
        (**self).note(text);
    }

    fn metrics(&mut self, step: Step, metrics: &Metrics) {
        (**self).metrics(step, metrics);
    }

    fn sampled(&mut self, step: Step, example: &Example) {
        (**self).sampled(step, example);
    }

    fn example(&mut self, example: &Example) {
        (**self).example(example);
    }

    fn finished(&mut self, summary: &Summary) {
        (**self).finished(summary);
    }
}

impl Watcher for () {}

/// A completion to be shown, and what it was judged.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Example<'a> {
    /// What it was to continue, with its reference.
    pub prompt: &'a Prompt,
    /// What the policy wrote.
    pub completion: &'a Completion,
    /// What the verifier said of it.
    pub score: &'a Score,
}

/// The first right completion and the first that is none, from a prompt on that `seed` draws.
pub(crate) fn examples(groups: &[RewardedGroup], seed: Seed) -> Vec<Example<'_>> {
    let first = (seed.stream().uniform_at(0) * groups.len() as f64) as usize;
    let all = || {
        let in_turn = groups.iter().cycle().skip(first).take(groups.len());
        in_turn.flat_map(|RewardedGroup { group, rewards }| {
            let answers = group.completions.iter().zip(rewards);
            answers.map(|(completion, reward)| Example {
                prompt: &group.prompt,
                completion,
                score: &reward.score,
            })
        })
    };
    let is_right = |example: &Example| example.score.verdict == Verdict::Right;
    [all().find(is_right), all().find(|example| !is_right(example))].into_iter().flatten().collect()
}

/// A part of a run that takes long enough to be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Reading the model and the data; nobody knows how long that takes.
    Load,
    /// Supervised steps.
    Warmup,
    /// Sampling; a unit is a completion.
    Rollout,
    /// Optimizer updates; a unit is a mini-batch.
    Update,
    /// Evaluation; a unit is a completion.
    Eval,
    /// Writing a checkpoint, of which nobody knows either.
    Save,
}

impl Stage {
    /// A word or two for a person.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Load => "loading",
            Stage::Warmup => "warm-up",
            Stage::Rollout => "rollout",
            Stage::Update => "update",
            Stage::Eval => "held-out",
            Stage::Save => "saving",
        }
    }
}

/// The phases of the trainer as stages of the run.
pub(crate) struct Phases<'a> {
    pub(crate) watcher: &'a mut dyn Watcher,
    /// Lines of the run's parts, which a person should read while a phase still goes on.
    pub(crate) notes: &'a Receiver<String>,
    /// Keeps them.
    pub(crate) keep: &'a dyn Fn(&str),
}

impl Observer for Phases<'_> {
    fn begin(&mut self, phase: Phase, total: usize) {
        let stage = match phase {
            Phase::Rollout => Stage::Rollout,
            Phase::Update => Stage::Update,
            Phase::Eval => Stage::Eval,
        };
        self.watcher.begin(stage, total as u64);
    }

    fn extend(&mut self, units: usize) {
        self.watcher.extend(units as u64);
    }

    fn advance(&mut self, units: usize) {
        for note in self.notes.try_iter() {
            self.watcher.note(&note);
            (self.keep)(&note);
        }
        self.watcher.advance(units as u64);
    }

    fn end(&mut self) {
        self.watcher.end();
    }
}
