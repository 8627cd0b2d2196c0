//! How a run reports its progress: to a terminal, a notebook, a test, or nobody.

use std::sync::mpsc::Receiver;

use firebrick_core::{Completion, Metrics, Prompt, RewardedGroup, Score, Seed, Step, Verdict};
use firebrick_runs::Summary;
use firebrick_train::{Observer, Phase};

/// A listener to a run's progress. By default every method does nothing, and `()` ignores everything.
///
/// A watcher does not change the run: a run without one gives the same numbers, and its record is in its folder. A
/// watcher that fails to show something has to handle that itself.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not watch runs",
    label = "needs `impl Watcher`, whose methods all have a body already"
)]
pub trait Watcher: Send {
    /// Called when a stage begins that will take `total` units, or 0 if their number is not known. Stages are nested:
    /// SFT is evaluated while it runs.
    fn begin(&mut self, stage: Stage, total: u64) {
        let _ = (stage, total);
    }

    /// Called when the stage that began last will take `units` more than was said.
    fn extend(&mut self, units: u64) {
        let _ = units;
    }

    /// Called when the stage that began last is `units` further.
    fn advance(&mut self, units: u64) {
        let _ = units;
    }

    /// Called when the stage that began last has sampled this many tokens, of `most` if every completion gets as long as
    /// it may, before it is called for the completions that have ended. Not every engine knows.
    fn tokens(&mut self, sampled: u64, most: u64) {
        let _ = (sampled, most);
    }

    /// Called when the stage that began last is over. A stage that fails ends with the run.
    fn end(&mut self) {}

    /// Called with a text for the user: a line, without its end.
    fn note(&mut self, text: &str) {
        let _ = text;
    }

    /// Called with numbers of `step`, by their names on the book's page of metrics. They are those of a rollout step,
    /// of a supervised step that was measured, or of an evaluation, which is at step 0 before the first rollout.
    fn metrics(&mut self, step: Step, metrics: &Metrics) {
        let _ = (step, metrics);
    }

    /// Called with a completion that was sampled for training in `step`, after that step's numbers. There is a right
    /// one and a wrong one, if there are such, of different prompts each time.
    fn sampled(&mut self, step: Step, example: &Example) {
        let _ = (step, example);
    }

    /// Called with a completion of an evaluation on the held-out prompts, before that evaluation's numbers. There is a
    /// right one and a wrong one, if there are such, of different prompts each time.
    fn example(&mut self, example: &Example) {
        let _ = example;
    }

    /// Called when the run is over.
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

    fn tokens(&mut self, sampled: u64, most: u64) {
        (**self).tokens(sampled, most);
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

/// Two watchers of the same run: each is called with everything.
impl<A: Watcher, B: Watcher> Watcher for (A, B) {
    fn begin(&mut self, stage: Stage, total: u64) {
        self.0.begin(stage, total);
        self.1.begin(stage, total);
    }

    fn extend(&mut self, units: u64) {
        self.0.extend(units);
        self.1.extend(units);
    }

    fn advance(&mut self, units: u64) {
        self.0.advance(units);
        self.1.advance(units);
    }

    fn tokens(&mut self, sampled: u64, most: u64) {
        self.0.tokens(sampled, most);
        self.1.tokens(sampled, most);
    }

    fn end(&mut self) {
        self.0.end();
        self.1.end();
    }

    fn note(&mut self, text: &str) {
        self.0.note(text);
        self.1.note(text);
    }

    fn metrics(&mut self, step: Step, metrics: &Metrics) {
        self.0.metrics(step, metrics);
        self.1.metrics(step, metrics);
    }

    fn sampled(&mut self, step: Step, example: &Example) {
        self.0.sampled(step, example);
        self.1.sampled(step, example);
    }

    fn example(&mut self, example: &Example) {
        self.0.example(example);
        self.1.example(example);
    }

    fn finished(&mut self, summary: &Summary) {
        self.0.finished(summary);
        self.1.finished(summary);
    }
}

/// A completion to be shown, with its verdict.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Example<'a> {
    /// Prompt that was continued, with its reference.
    pub prompt: &'a Prompt,
    /// Completion by the policy.
    pub completion: &'a Completion,
    /// Score by the verifier.
    pub score: &'a Score,
}

/// Finds the first right completion and the first that is not right, starting at a prompt that `seed` draws.
pub(crate) fn examples(groups: &[RewardedGroup], seed: Seed) -> Vec<Example<'_>> {
    let first = (seed.stream().uniform_at(0) * groups.len() as f64) as usize;
    let candidates = || {
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
    [candidates().find(is_right), candidates().find(|example| !is_right(example))]
        .into_iter()
        .flatten()
        .collect()
}

/// A part of a run that takes long enough to be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Reading the model and the data; its duration is not known.
    Load,
    /// Supervised fine-tuning. A unit is a step.
    Sft,
    /// Sampling. A unit is a completion.
    Rollout,
    /// Optimizer updates. A unit is a mini-batch.
    Update,
    /// Evaluation. A unit is a completion.
    Eval,
    /// Writing a checkpoint; its duration is not known either.
    Save,
}

impl Stage {
    /// Returns a short name for the user.
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

/// Phases of the trainer as stages of the run.
pub(crate) struct Phases<'a> {
    pub(crate) watcher: &'a mut dyn Watcher,
    /// Lines of the run's parts for the user, which are shown while a phase is still running.
    pub(crate) notes: &'a Receiver<String>,
    /// Keeps these lines in the record.
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

    fn tokens(&mut self, sampled: u64, most: u64) {
        self.watcher.tokens(sampled, most);
    }

    fn end(&mut self) {
        self.watcher.end();
    }
}
