//! The way a run tells of its progress, to a terminal, a notebook, a test, or nobody.

use std::sync::mpsc::Receiver;

use firebrick_core::{Completion, Metrics, Prompt, RewardedGroup, Score, Seed, Step, Verdict};
use firebrick_runs::Summary;
use firebrick_train::{Observer, Phase};

/// A listener that hears of a run while it goes. By default every method does nothing, and `()` hears nothing.
///
/// A watcher decides nothing: a run without one gives the same numbers, and its record is in its folder. A
/// watcher that fails to show something has to bear it alone.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not watch runs",
    label = "needs `impl Watcher`, whose methods all have a body already"
)]
pub trait Watcher: Send {
    /// Hears that a stage begins and will take `total` units, or 0 if nobody knows how many. Stages lie inside
    /// each other: SFT is evaluated while it goes.
    fn begin(&mut self, stage: Stage, total: u64) {
        let _ = (stage, total);
    }

    /// Hears that the stage that began last will take `units` more than it said.
    fn extend(&mut self, units: u64) {
        let _ = units;
    }

    /// Hears that the stage that began last is `units` further.
    fn advance(&mut self, units: u64) {
        let _ = units;
    }

    /// Hears that the stage that began last is over. A stage that fails ends with the run.
    fn end(&mut self) {}

    /// Hears a text that a person should read: a line, without its end.
    fn note(&mut self, text: &str) {
        let _ = text;
    }

    /// Hears numbers of `step`, by their names on the book's page of metrics. They are those of a rollout step,
    /// of a supervised step that was measured, or of an evaluation, which is at step 0 before the first
    /// rollout.
    fn metrics(&mut self, step: Step, metrics: &Metrics) {
        let _ = (step, metrics);
    }

    /// Hears a completion that was sampled for training in `step`, whose numbers came before. There is a right
    /// one and a wrong one, as far as there are such, of other prompts each time.
    fn sampled(&mut self, step: Step, example: &Example) {
        let _ = (step, example);
    }

    /// Hears a completion of an evaluation on the held-out prompts, whose numbers come next. There is a right
    /// one and a wrong one, as far as there are such, of other prompts each time.
    fn example(&mut self, example: &Example) {
        let _ = example;
    }

    /// Hears that the run is over.
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

/// A completion to be shown, with its verdict.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Example<'a> {
    /// The prompt that was continued, with its reference.
    pub prompt: &'a Prompt,
    /// The policy's completion.
    pub completion: &'a Completion,
    /// The verifier's score.
    pub score: &'a Score,
}

/// Finds the first right completion and the first that is not right, from a prompt on that `seed` draws.
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
    /// Supervised fine-tuning. A unit is a step.
    Sft,
    /// Sampling. A unit is a completion.
    Rollout,
    /// Optimizer updates. A unit is a mini-batch.
    Update,
    /// Evaluation. A unit is a completion.
    Eval,
    /// Writing a checkpoint; nobody knows how long that takes either.
    Save,
}

impl Stage {
    /// Returns a word or two for a person.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Load => "loading",
            Stage::Sft => "sft",
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
    /// Lines of the run's parts, which a person should read while a phase is still running.
    pub(crate) notes: &'a Receiver<String>,
    /// The keeper of these lines.
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
