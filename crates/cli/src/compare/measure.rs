//! The numbers of one run that a comparison is made from.

use std::{collections::BTreeMap, path::Path};

use firebrick::HELDOUT_PROMPTS;
use firebrick_core::Step;
use firebrick_runs::{Store, Summary};
use serde::Serialize;

use super::last_steps;
use crate::ProgramError;

/// What a finished run did and became.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Held-out accuracy, the mean of the evaluations in the last steps; none without held-out prompts.
    pub accuracy: Option<f64>,
    /// The standard error of one evaluation, at most: that of so many independent prompts, each
    /// answered once.
    pub standard_error: Option<f64>,
    /// Prompts that it is measured on.
    pub heldout_prompts: Option<u64>,
    /// Rollout steps.
    pub steps: u64,
    /// Completions sampled for training.
    pub completions: u64,
    /// Seconds of the steps: sampling, judging, updating.
    pub seconds: f64,
    /// Seconds from start to end, with warm-up, evaluations and checkpoints; the warm-up of a run that
    /// shares another's counts as if it were its own.
    pub total_seconds: f64,
    /// Entropy of the policy over the last steps, in nats.
    pub entropy: Option<f64>,
    /// Tokens of a completion over the last steps.
    pub length: Option<f64>,
    /// Share of completions cut off over the last steps.
    pub truncated: Option<f64>,
    /// Why it ended.
    pub stopped_because: String,
    /// Its evaluations, from that before the first step.
    pub evaluations: Vec<Evaluation>,
}

/// An evaluation, and what had been spent when it was made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// After which step; 0 is before the first.
    pub step: Step,
    /// Completions sampled until then.
    pub completions: f64,
    /// Seconds of the steps until then.
    pub seconds: f64,
    /// Held-out accuracy.
    pub accuracy: f64,
}

impl Measured {
    /// Reads the numbers from the folder of a finished run.
    ///
    /// # Errors
    /// When its record is missing or damaged.
    pub fn read(folder: &Path) -> Result<Self, ProgramError> {
        let summary = Summary::read(&folder.join("summary.json"))?;
        let store = Store::open_read_only(&folder.join("run.db"))?;
        let completions = Total::of(&store, "sampling/completions")?;
        let seconds = Total::of(&store, "time/step")?;
        let start = summary.heldout.after_warmup.or(summary.heldout.initial);
        let logged = store.metrics("eval/heldout_accuracy")?;
        let evaluation = |(step, accuracy)| {
            let (completions, seconds) = (completions.until(step), seconds.until(step));
            Evaluation { step, completions, seconds, accuracy }
        };
        let evaluations: Vec<Evaluation> =
            start.map(|accuracy| (0, accuracy)).into_iter().chain(logged).map(evaluation).collect();
        let begin = summary.steps - last_steps(summary.steps);
        let last = evaluations.iter().filter(|at| at.step > begin).map(|at| at.accuracy);
        let accuracy = super::mean(last).or(evaluations.last().map(|last| last.accuracy));
        let heldout_prompts = store.info(HELDOUT_PROMPTS)?.and_then(|count| count.parse().ok());
        let over_last_steps = |name| last_mean(&store, name, summary.steps);
        Ok(Measured {
            accuracy,
            standard_error: accuracy
                .zip(heldout_prompts)
                .map(|(p, prompts): (f64, u64)| (p * (1.0 - p) / prompts.max(1) as f64).sqrt()),
            heldout_prompts,
            steps: summary.steps,
            completions: summary.completions.generated,
            seconds: seconds.until(Step::MAX),
            total_seconds: summary.seconds.total,
            entropy: over_last_steps("loss/entropy")?,
            length: over_last_steps("rollout/length_mean")?,
            truncated: over_last_steps("rollout/truncated")?,
            stopped_because: summary.stopped_because,
            evaluations,
        })
    }

    /// The accuracy before the first step.
    pub(super) fn start(&self) -> Option<f64> {
        self.evaluations.first().filter(|first| first.step == 0).map(|first| first.accuracy)
    }

    /// The evaluation after that step.
    pub(super) fn at(&self, step: Step) -> Option<Evaluation> {
        self.evaluations.iter().find(|at| at.step == step).copied()
    }

    /// The first evaluation at or above `target`. Between evaluations nobody measured, so nothing
    /// is interpolated.
    pub(super) fn reach(&self, target: f64) -> Option<Evaluation> {
        self.evaluations.iter().find(|at| at.accuracy >= target).copied()
    }
}

/// What a metric adds up to, by step.
struct Total(BTreeMap<Step, f64>);

impl Total {
    fn of(store: &Store, metric: &str) -> Result<Self, ProgramError> {
        let mut sum = 0.0;
        let add = |(step, value): (Step, f64)| {
            sum += value;
            (step, sum)
        };
        Ok(Total(store.metrics(metric)?.into_iter().map(add).collect()))
    }

    fn until(&self, step: Step) -> f64 {
        self.0.range(..=step).next_back().map_or(0.0, |(_, sum)| *sum)
    }
}

/// The mean of a metric over the last steps; those without a number, as the entropy of a step that
/// made no update, are left out.
fn last_mean(store: &Store, metric: &str, steps: u64) -> Result<Option<f64>, ProgramError> {
    let values = store.metrics(metric)?;
    let last = values.iter().filter(|(step, value)| {
        *step > steps - last_steps(steps) && *step <= steps && value.is_finite()
    });
    Ok(super::mean(last.map(|(_, value)| *value)))
}
