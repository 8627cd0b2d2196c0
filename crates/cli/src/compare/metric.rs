//! Metrics of a comparison, by their names: their means at the end, what each recipe changes in them, and their curves.

use std::collections::BTreeMap;

use firebrick_core::Step;
use firebrick_runs::Store;
use serde::Serialize;

use super::{
    Compared, Outcome, deviation,
    effect::{Effect, Seeded},
    last_steps, mean,
};
use crate::ProgramError;

/// A metric of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunMetric {
    /// Name of the metric.
    pub name: String,
    /// Mean over the last steps; `None` if none of them has the metric.
    pub end: Option<f64>,
    /// Its finite values, by step.
    #[serde(skip)]
    pub(super) values: Vec<(Step, f64)>,
}

/// A metric of all recipes of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedMetric {
    /// Name of the metric.
    pub name: String,
    /// The metric of each recipe, in the comparison's order. The first one is the baseline.
    pub recipes: Vec<RecipeMetric>,
}

/// A metric over the finished runs of a recipe.
#[derive(Clone, Debug, Serialize)]
pub struct RecipeMetric {
    /// Name of the recipe.
    pub recipe: String,
    /// Number of runs that have the metric in their last steps.
    pub seeds: usize,
    /// Mean of the runs' means over their last steps.
    pub mean: Option<f64>,
    /// Standard deviation over the seeds; `None` for one seed.
    pub deviation: Option<f64>,
    /// What the recipe changes; `None` for the baseline, and for too few runs.
    pub effect: Option<Effect>,
    /// Course of the metric, as far as all runs have it.
    pub curve: Vec<MetricPoint>,
}

/// A point of a metric's curve: the runs' means over some neighbouring steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricPoint {
    /// Last of these steps.
    pub step: Step,
    /// Mean over the runs.
    pub mean: f64,
    /// Value of the lowest run.
    pub least: f64,
    /// Value of the highest run.
    pub most: f64,
}

/// Most points of a curve. A step is noisy, so a long run has the mean of several steps in each.
const POINTS: Step = 50;

impl RunMetric {
    /// Reads the metric of a run that has done so many `steps`. A run that never logged it has no values.
    pub(super) fn read(store: &Store, name: &str, steps: Step) -> Result<Self, ProgramError> {
        let values = values_of_metric(store, name, steps)?;
        Ok(RunMetric { name: name.to_owned(), end: end_of(&values, steps), values })
    }

    /// Returns the means over `width` steps each, by the last of these steps.
    fn blocks(&self, width: Step) -> BTreeMap<Step, f64> {
        let mut blocks: BTreeMap<Step, Vec<f64>> = BTreeMap::new();
        for (step, value) in &self.values {
            let last = step.div_ceil(width).saturating_mul(width);
            blocks.entry(last).or_default().push(*value);
        }
        let block = |(step, values): (Step, Vec<f64>)| Some((step, mean(values.into_iter())?));
        blocks.into_iter().filter_map(block).collect()
    }
}

/// Reads the values of a metric that can be added up and drawn: finite ones, of the `steps` that the run has done. Someone
/// else's record may have others.
pub(super) fn values_of_metric(
    store: &Store,
    name: &str,
    steps: Step,
) -> Result<Vec<(Step, f64)>, ProgramError> {
    let mut values = store.metrics(name)?;
    values.retain(|(step, value)| *step <= steps && value.is_finite());
    Ok(values)
}

/// Returns the mean over the last of the steps. It leaves out steps without a number, such as the entropy of a step that
/// made no update.
pub(super) fn end_of(values: &[(Step, f64)], steps: Step) -> Option<f64> {
    let before = steps - last_steps(steps);
    mean(values.iter().filter(|(step, _)| *step > before).map(|(_, value)| *value))
}

impl ComparedMetric {
    /// Puts the metrics that were read from the runs next to each other, by recipe.
    pub(super) fn compare_all(recipes: &[Compared]) -> Vec<Self> {
        let runs = || recipes.iter().flat_map(|recipe| &recipe.runs);
        let measured = || runs().filter_map(|run| run.state.measured());
        let steps = measured().map(|run| run.steps).max().unwrap_or(0);

        // All runs were asked for the same metrics.
        let names = measured().next().map(|run| run.metrics.as_slice()).unwrap_or_default();
        names.iter().map(|metric| ComparedMetric::compare(&metric.name, steps, recipes)).collect()
    }

    fn compare(name: &str, steps: Step, recipes: &[Compared]) -> Self {
        let width = steps.div_ceil(POINTS).max(1);
        let ends: Vec<Vec<Seeded>> =
            recipes.iter().map(|recipe| ends_of_runs(name, &recipe.runs)).collect();

        let of_recipe = |(index, recipe): (usize, &Compared)| {
            let values: Vec<f64> = ends[index].iter().map(|(_, end)| *end).collect();
            RecipeMetric {
                recipe: recipe.name.clone(),
                seeds: values.len(),
                mean: mean(values.iter().copied()),
                deviation: deviation(&values),
                effect: if index == 0 { None } else { Effect::between(&ends[index], &ends[0]) },
                curve: curve(name, width, &recipe.runs),
            }
        };
        let recipes = recipes.iter().enumerate().map(of_recipe).collect();
        ComparedMetric { name: name.to_owned(), recipes }
    }
}

/// Returns the finished runs' metrics of this name, with the seeds of the runs.
fn metric_of_runs<'runs>(
    name: &'runs str,
    runs: &'runs [Outcome],
) -> impl Iterator<Item = (u64, &'runs RunMetric)> {
    runs.iter().filter_map(move |run| {
        let metrics = &run.state.measured()?.metrics;
        Some((run.seed, metrics.iter().find(|metric| metric.name == name)?))
    })
}

fn ends_of_runs(name: &str, runs: &[Outcome]) -> Vec<Seeded> {
    metric_of_runs(name, runs).filter_map(|(seed, metric)| Some((seed, metric.end?))).collect()
}

/// Returns the points that every run has, because a run that ends early must not distort the mean of the others.
fn curve(name: &str, width: Step, runs: &[Outcome]) -> Vec<MetricPoint> {
    let blocks: Vec<_> =
        metric_of_runs(name, runs).map(|(_, metric)| metric.blocks(width)).collect();
    let Some((first, others)) = blocks.split_first() else { return Vec::new() };

    let point = |(&step, &value): (&Step, &f64)| {
        let others = others.iter().map(|blocks| blocks.get(&step).copied());
        let mut values = others.collect::<Option<Vec<f64>>>()?;
        values.push(value);
        Some(MetricPoint {
            step,
            mean: mean(values.iter().copied())?,
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            most: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    };
    first.iter().filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(values: impl IntoIterator<Item = f64>) -> RunMetric {
        let values: Vec<(Step, f64)> = (1..).zip(values).collect();
        let end = end_of(&values, values.len() as Step);
        RunMetric { name: "a".into(), end, values }
    }

    #[test]
    fn the_end_is_the_last_quarter() {
        assert_eq!(metric([9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 1.0, 2.0]).end, Some(1.5));
        assert_eq!(metric([9.0, 9.0, 9.0, 9.0, 1.0, 2.0]).end, Some(1.5));
        assert_eq!(metric([]).end, None);
        // A step without an update has no entropy.
        assert_eq!(end_of(&[(1, 9.0), (7, 3.0)], 8), Some(3.0));
        assert_eq!(end_of(&[(1, 9.0)], 8), None);
    }

    #[test]
    fn a_curve_has_means_of_neighbouring_steps_and_no_step_beyond_the_last() {
        let blocks = metric([1.0, 3.0, 5.0, 7.0, 9.0]).blocks(2);
        assert_eq!(blocks, BTreeMap::from([(2, 2.0), (4, 6.0), (6, 9.0)]));

        let strange = RunMetric { name: "a".into(), end: None, values: vec![(Step::MAX, 1.0)] };
        assert_eq!(strange.blocks(2).into_keys().collect::<Vec<_>>(), [Step::MAX]);
    }
}
