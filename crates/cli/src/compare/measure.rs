//! Numbers of one run that a comparison is made from.

use std::{collections::BTreeMap, path::Path};

use firebrick::HELDOUT_PROMPTS;
use firebrick_core::Step;
use firebrick_runs::{Store, Summary};
use serde::Serialize;

use super::{
    last_steps,
    metric::{RunMetric, end_of, values_of_metric},
};
use crate::ProgramError;

/// Results of a finished run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Held-out accuracy, the mean of the evaluations in the last steps; `None` without held-out prompts.
    pub accuracy: Option<f64>,
    /// An upper bound of one evaluation's standard error: the error if each of the independent prompts is answered
    /// once.
    pub standard_error: Option<f64>,
    /// Number of prompts that the accuracy is measured on.
    pub heldout_prompts: Option<u64>,
    /// Number of rollout steps.
    pub steps: u64,
    /// Completions sampled for training.
    pub completions: u64,
    /// Seconds of the steps: sampling, judging, updating.
    pub seconds: f64,
    /// Seconds from start to end, with SFT, evaluations and checkpoints. If the run shares another run's
    /// SFT, that phase counts as if it were its own.
    pub total_seconds: f64,
    /// Entropy of the policy over the last steps, in nats.
    pub entropy: Option<f64>,
    /// Mean number of tokens of a completion over the last steps.
    pub length: Option<f64>,
    /// Share of completions cut off over the last steps.
    pub truncated: Option<f64>,
    /// Metrics that the comparison asks for by their names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<RunMetric>,
    /// Why the run ended.
    pub stopped_because: String,
    /// Evaluations, starting with the one before the first step.
    pub evaluations: Vec<Evaluation>,
}

/// An evaluation, and the cost of the training before it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// Step after which it was made; 0 is before the first step.
    pub step: Step,
    /// Completions sampled until then.
    pub completions: f64,
    /// Seconds of the steps until then.
    pub seconds: f64,
    /// Held-out accuracy.
    pub accuracy: f64,
}

impl Measured {
    /// Reads the numbers from the folder of a finished run, with the metrics of these names.
    ///
    /// # Errors
    /// Fails if the run's record is missing or damaged.
    pub fn read(folder: &Path, metrics: &[String]) -> Result<Self, ProgramError> {
        let summary = Summary::read(&folder.join("summary.json"))?;
        let store = Store::open_read_only(&folder.join("run.db"))?;

        let values = |name| values_of_metric(&store, name, summary.steps);
        let completions = Total::new(values("sampling/completions")?);
        let seconds = Total::new(values("time/step")?);
        // The curve begins where the steps begin: after SFT, if there was one.
        let start = summary.heldout.after_sft.or(summary.heldout.initial);
        let logged = values("eval/heldout_accuracy")?;

        let evaluation = |(step, accuracy)| {
            let (completions, seconds) = (completions.until(step), seconds.until(step));
            Evaluation { step, completions, seconds, accuracy }
        };
        // A number that is no share was not measured.
        let is_share = |(_, accuracy): &(Step, f64)| (0.0..=1.0).contains(accuracy);
        let measured = start.map(|accuracy| (0, accuracy)).into_iter().chain(logged);
        let evaluations: Vec<Evaluation> = measured.filter(is_share).map(evaluation).collect();

        // One evaluation is noisy, so the accuracy is the mean of those in the last quarter of the steps.
        let begin = summary.steps - last_steps(summary.steps);
        let last = evaluations.iter().filter(|at| at.step > begin).map(|at| at.accuracy);
        let accuracy = super::mean(last).or(evaluations.last().map(|last| last.accuracy));
        let heldout_prompts = store.info(HELDOUT_PROMPTS)?.and_then(|count| count.parse().ok());

        let over_last_steps = |name| -> Result<Option<f64>, ProgramError> {
            Ok(end_of(&values(name)?, summary.steps))
        };
        let metrics = metrics.iter().map(|name| RunMetric::read(&store, name, summary.steps));
        Ok(Measured {
            accuracy,
            // The standard error of a share p among n independent prompts is √(p·(1 − p) / n).
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
            metrics: metrics.collect::<Result<_, _>>()?,
            stopped_because: summary.stopped_because,
            evaluations,
        })
    }

    /// Returns the accuracy before the first step.
    pub(super) fn start(&self) -> Option<f64> {
        self.evaluations.first().filter(|first| first.step == 0).map(|first| first.accuracy)
    }

    /// Returns the evaluation after `step`.
    pub(super) fn evaluation_at(&self, step: Step) -> Option<Evaluation> {
        self.evaluations.iter().find(|at| at.step == step).copied()
    }

    /// Returns the first evaluation at or above `target`. Nothing was measured between evaluations, so nothing is
    /// interpolated.
    pub(super) fn reach(&self, target: f64) -> Option<Evaluation> {
        self.evaluations.iter().find(|at| at.accuracy >= target).copied()
    }
}

/// Running sum of a metric, by step.
struct Total(BTreeMap<Step, f64>);

impl Total {
    fn new(values: Vec<(Step, f64)>) -> Self {
        let mut sum = 0.0;
        let add = |(step, value): (Step, f64)| {
            sum += value;
            (step, sum)
        };
        Total(values.into_iter().map(add).collect())
    }

    fn until(&self, step: Step) -> f64 {
        self.0.range(..=step).next_back().map_or(0.0, |(_, sum)| *sum)
    }
}
