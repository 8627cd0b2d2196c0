//! Numbers of a run that a diagnosis looks at: those of its first and of its latest steps, and a few of all steps.

use std::{collections::BTreeMap, ops::RangeInclusive};

use firebrick_core::Step;
use firebrick_runs::{Given, RunError, Store};

use super::ENDED;
use crate::HELDOUT_PROMPTS;

/// Numbers of a run that the rules look at.
pub(super) struct History {
    series: BTreeMap<String, Vec<(Step, f64)>>,
    /// Number of completions of the recent steps, and the number of those that could not be judged.
    pub(super) errors: (u64, u64),
    /// Most frequent answer in recent steps.
    pub(super) given: Option<Given>,
    /// Number of prompts of a held-out accuracy, if that is known.
    pub(super) heldout: Option<u64>,
    /// Why the last process ended, if it could say so.
    pub(super) ended: Option<String>,
}

/// Number of steps at the end that are called recent. They are compared with as many steps before them.
pub(super) const RECENT: Step = 10;

/// Number of steps at the beginning that show the policy as it began.
const FIRST: Step = 5;

impl History {
    /// Reads all numbers of the run.
    pub(super) fn read_all(store: &Store) -> Result<Self, RunError> {
        History::from_series(store, store.all_series(&(0..=store.last_step()?))?)
    }

    /// Reads the numbers of the first steps and the last ones, and of the metrics `whole` those of all steps. These are few,
    /// however long the run is.
    pub(super) fn read_ends(store: &Store, whole: &[String]) -> Result<Self, RunError> {
        let last = store.last_step()?;
        let late = last.saturating_sub(2 * RECENT).max(FIRST + 1);
        let mut series = store.all_series(&(0..=FIRST))?;
        for (name, points) in store.all_series(&(late..=last))? {
            series.entry(name).or_default().extend(points);
        }
        let whole: Vec<&str> = whole.iter().map(String::as_str).collect();
        series.extend(store.series(&whole, &(0..=last))?);
        History::from_series(store, series)
    }

    fn from_series(
        store: &Store,
        series: BTreeMap<String, Vec<(Step, f64)>>,
    ) -> Result<Self, RunError> {
        let ended = store.info(ENDED)?.filter(|why| !why.is_empty());
        let heldout = store.info(HELDOUT_PROMPTS)?.and_then(|count| count.parse().ok());
        let mut history = History { series, errors: (0, 0), given: None, heldout, ended };
        let recent = history.recent();
        history.errors = store.errors(&recent)?;
        history.given = store.most_given(&recent)?;
        Ok(history)
    }

    /// Returns the last step that has numbers, or 0 if none has.
    pub(super) fn last(&self) -> Step {
        self.points("sampling/completions").last().map_or(0, |(step, _)| *step)
    }

    pub(super) fn recent(&self) -> RangeInclusive<Step> {
        let last = self.last();
        // Steps are counted from 1.
        last.saturating_sub(RECENT - 1).max(1).min(last)..=last
    }

    /// Tells whether there are recent steps, and others before them to compare them with.
    pub(super) fn is_long(&self) -> bool {
        self.last() >= 2 * RECENT
    }

    fn points(&self, name: &str) -> &[(Step, f64)] {
        self.series.get(name).map_or(&[], Vec::as_slice)
    }

    fn values(&self, name: &str, steps: &RangeInclusive<Step>) -> Vec<f64> {
        let within = self.points(name).iter().filter(|(step, _)| steps.contains(step));
        within.map(|(_, value)| *value).filter(|value| value.is_finite()).collect()
    }

    /// Returns the sum over recent steps.
    pub(super) fn sum(&self, name: &str) -> f64 {
        self.values(name, &self.recent()).iter().sum()
    }

    /// Returns the mean over those recent steps that have the number.
    pub(super) fn mean(&self, name: &str) -> Option<f64> {
        mean(&self.values(name, &self.recent()))
    }

    /// Returns the mean over those of the recent steps in which the number is above 0.
    pub(super) fn mean_above_zero(&self, name: &str) -> Option<f64> {
        let mut values = self.values(name, &self.recent());
        values.retain(|value| *value > 0.0);
        mean(&values)
    }

    /// Returns the mean over the `RECENT` steps before the recent ones.
    pub(super) fn mean_before(&self, name: &str) -> Option<f64> {
        let start = *self.recent().start();
        mean(&self.values(name, &(start.saturating_sub(RECENT)..=start.saturating_sub(1))))
    }

    /// Returns the mean over the first steps.
    pub(super) fn mean_first(&self, name: &str) -> Option<f64> {
        mean(&self.values(name, &(1..=FIRST)))
    }

    /// Returns the oldest value.
    pub(super) fn oldest(&self, name: &str) -> Option<f64> {
        self.points(name).iter().map(|(_, value)| *value).find(|value| value.is_finite())
    }

    /// Returns the newest value.
    pub(super) fn newest(&self, name: &str) -> Option<f64> {
        self.points(name).iter().rev().map(|(_, value)| *value).find(|value| value.is_finite())
    }

    /// Returns the share of right completions in the recent steps.
    pub(super) fn share_right(&self) -> Option<f64> {
        self.share("reward/right", "sampling/completions")
    }

    /// Returns the share of right completions in the first steps.
    pub(super) fn share_right_at_first(&self) -> Option<f64> {
        Some(self.mean_first("reward/right")? / self.mean_first("sampling/completions")?.max(1.0))
    }

    /// Returns the value of step 1.
    pub(super) fn first(&self, name: &str) -> Option<f64> {
        self.values(name, &(1..=1)).first().copied()
    }

    /// Returns the step with the largest value, and the value.
    pub(super) fn most(&self, name: &str) -> Option<(Step, f64)> {
        let finite = self.points(name).iter().filter(|(_, value)| value.is_finite());
        finite.max_by(|a, b| a.1.total_cmp(&b.1)).copied()
    }

    /// Returns the highest mean over `RECENT` steps that follow each other, after the last of these steps.
    pub(super) fn highest(&self, name: &str) -> Option<(Step, f64)> {
        let means = self.points(name).windows(RECENT as usize).filter_map(|of| {
            let (first, last) = (of.first()?.0, of.last()?.0);
            let values: Vec<f64> = of.iter().map(|(_, value)| *value).collect();
            if last - first < RECENT { Some((last, mean(&values)?)) } else { None }
        });
        let finite = means.filter(|(_, mean)| mean.is_finite());
        finite.max_by(|one, other| one.1.total_cmp(&other.1))
    }

    /// Returns the mean over the `RECENT` steps up to `step`.
    pub(super) fn mean_until(&self, name: &str, step: Step) -> Option<f64> {
        mean(&self.values(name, &(step.saturating_sub(RECENT - 1)..=step)))
    }

    /// Returns the mean over the steps up to the first in which `other` was `bound` or less.
    pub(super) fn mean_until_low(&self, name: &str, other: &str, bound: f64) -> Option<f64> {
        let (step, _) = self.points(other).iter().find(|(_, value)| *value <= bound)?;
        mean(&self.values(name, &(1..=*step)))
    }

    /// Returns the largest mean of three neighbouring steps and the last of them, if the mean of three steps was lower by
    /// more than `lost` at most ten steps later.
    pub(super) fn fallen(&self, name: &str, lost: f64) -> Option<(Step, f64)> {
        let means = self.points(name).windows(3).map(|of| {
            let values: Vec<f64> = of.iter().map(|(_, value)| *value).collect();
            (of[2].0, mean(&values).unwrap_or(f64::NAN))
        });
        let means: Vec<(Step, f64)> = means.filter(|(_, mean)| mean.is_finite()).collect();
        let best = means.iter().copied().max_by(|one, other| one.1.total_cmp(&other.1))?;
        let soon = means.iter().filter(|(step, _)| (best.0..=best.0 + 10).contains(step));
        soon.map(|(_, mean)| best.1 - mean).any(|fall| fall > lost).then_some(best)
    }

    /// Returns the largest sum of the two numbers within a step.
    pub(super) fn most_of_sum(&self, one: &str, other: &str) -> f64 {
        let others: BTreeMap<Step, f64> = self.points(other).iter().copied().collect();
        let sums =
            self.points(one).iter().map(|(step, value)| value + others.get(step).unwrap_or(&0.0));
        sums.filter(|sum| sum.is_finite()).fold(0.0, f64::max)
    }

    /// Returns one number as a share of another, over recent steps.
    pub(super) fn share(&self, part: &str, whole: &str) -> Option<f64> {
        let whole = self.sum(whole);
        (whole > 0.0).then(|| self.sum(part) / whole)
    }

    /// Lists the steps in which the number was above `bound`.
    pub(super) fn steps_above(&self, name: &str, bound: f64) -> Vec<Step> {
        let points = self.points(name).iter();
        points.filter(|(_, value)| *value > bound).map(|(step, _)| *step).collect()
    }

    /// Returns the mean over those of the first and the recent steps in which `other` was 0.
    pub(super) fn mean_without(&self, name: &str, other: &str) -> Option<f64> {
        let with = self.steps_above(other, 0.0);
        let recent = self.recent();
        let of_interest = |step: &Step| *step <= FIRST || recent.contains(step);
        let points = self.points(name).iter();
        let points = points
            .filter(|(step, value)| of_interest(step) && !with.contains(step) && value.is_finite());
        mean(&points.map(|(_, value)| *value).collect::<Vec<_>>())
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
