//! Comparison of recipes, each run with several seeds, as `firebrick compare` makes it.

mod effect;
mod figure;
mod measure;
mod metric;
mod sft;
mod table;

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use firebrick::{Error, INTERRUPTED};
use firebrick_core::Step;
use firebrick_runs::{Summary, write_atomically};
use serde::{Serialize, Serializer};

use crate::ProgramError;

pub use effect::Effect;
use effect::{Seeded, paired_differences};
pub use firebrick::differences::{Difference, differences};
pub use measure::{Evaluation, Measured};
pub use metric::{ComparedMetric, MetricPoint, RecipeMetric, RunMetric};
pub use sft::sft_folders;
pub(crate) use table::differing;

/// Results of the runs of several recipes.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Command that made the comparison.
    pub command: String,
    /// Version of firebrick, devices and number of cores; the version alone if the runs were there already.
    pub machine: String,
    /// Accuracy to reach, whose cost is measured; `None` if nothing was learnt.
    pub target: Option<Target>,
    /// Settings in which the recipes differ.
    pub differences: Vec<Difference>,
    /// Recipes, the baseline first.
    pub recipes: Vec<Compared>,
    /// Metrics that were asked for by their names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<ComparedMetric>,
}

/// A held-out accuracy to reach.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    /// A share of right answers, in [0, 1].
    pub accuracy: f64,
    /// Where the target is from, in words.
    pub origin: String,
}

/// A recipe with its runs.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// Name of the recipe.
    pub name: String,
    /// File or built-in name of the recipe, as given, or folder of the variant.
    #[serde(serialize_with = "path_text")]
    pub recipe: PathBuf,
    /// Means over its finished runs.
    pub means: Means,
    /// Evaluations that all of its finished runs have.
    pub curve: Vec<Point>,
    /// Runs, one for each seed.
    pub runs: Vec<Outcome>,
}

/// A run of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Seed of the run: the recipe's own, or one of the numbers after it.
    pub seed: u64,
    /// Folder of the run.
    #[serde(serialize_with = "path_text")]
    pub folder: PathBuf,
    /// Whether it is finished, and with which numbers.
    #[serde(flatten)]
    pub state: State,
    /// First evaluation at or above the target.
    pub reached: Option<Evaluation>,
}

/// State of a run.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// Not begun, or interrupted.
    Unfinished,
    /// Ended in an error, or can't be read.
    Failed {
        /// Message of the error.
        problem: String,
    },
    /// Finished, with these numbers.
    Finished(Measured),
}

/// Means over the finished runs of a recipe.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Means {
    /// Number of finished runs.
    pub finished: usize,
    /// Held-out accuracy over the last steps.
    pub accuracy: Option<f64>,
    /// Standard deviation of the accuracy over the seeds; `None` for one seed.
    pub accuracy_deviation: Option<f64>,
    /// Gain in accuracy over the first recipe's run with the same seed; `None` for the first recipe.
    pub gain: Option<f64>,
    /// Standard deviation of the gain over the seeds.
    pub gain_deviation: Option<f64>,
    /// Number of runs that reached the target.
    pub reached: usize,
    /// Steps up to the target, over the runs that reached it.
    pub steps_to_target: Option<f64>,
    /// Completions sampled up to the target, over the runs that reached it.
    pub completions_to_target: Option<f64>,
    /// Seconds of training up to the target, over the runs that reached it.
    pub seconds_to_target: Option<f64>,
    /// Number of rollout steps.
    pub steps: Option<f64>,
    /// Completions sampled for training.
    pub completions: Option<f64>,
    /// Seconds of the steps, without evaluation and SFT.
    pub seconds: Option<f64>,
    /// Entropy of the policy over the last steps, in nats.
    pub entropy: Option<f64>,
    /// Tokens of a completion over the last steps.
    pub length: Option<f64>,
    /// Share of completions cut off over the last steps.
    pub truncated: Option<f64>,
}

/// An evaluation as the mean over the runs of a recipe.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Step after which it was made.
    pub step: Step,
    /// Mean number of completions sampled until then.
    pub completions: f64,
    /// Mean seconds of training until then.
    pub seconds: f64,
    /// Mean accuracy.
    pub accuracy: f64,
    /// Accuracy of the worst run.
    pub least: f64,
    /// Accuracy of the best run.
    pub most: f64,
}

/// Writes a path as text. JSON has no other words for a path, and one such path must not cost the whole file.
fn path_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// Returns the number of steps that the values at the end are means over: the last quarter. One step is a noisy
/// sample of a policy, and so is one evaluation; a shorter end would often have a single evaluation.
fn last_steps(steps: u64) -> u64 {
    steps.div_ceil(4)
}

impl Comparison {
    /// Compares the runs that exist so far. Without a `target`, the target is nine tenths of the way from the
    /// accuracy before the first step to that of the best recipe: too high to be reached by luck alone, and below
    /// the plateau that a good recipe may never leave.
    pub fn new(
        command: String,
        machine: String,
        differences: Vec<Difference>,
        target: Option<f64>,
        mut recipes: Vec<Compared>,
    ) -> Self {
        let target = match target {
            Some(accuracy) => Some(Target { accuracy, origin: "given with --target".into() }),
            None => default_target(&recipes),
        };

        for recipe in &mut recipes {
            for run in &mut recipe.runs {
                let finished = run.state.measured();
                run.reached = finished
                    .zip(target.as_ref())
                    .and_then(|(run, target)| run.reach(target.accuracy));
            }
            recipe.means = Means::of_runs(&recipe.runs);
            recipe.curve = curve(&recipe.runs);
        }

        if let Some((first, others)) = recipes.split_first_mut() {
            others.iter_mut().for_each(|recipe| recipe.means.compare(&first.runs, &recipe.runs));
        }

        let metrics = ComparedMetric::compare_all(&recipes);
        Comparison { command, machine, target, differences, recipes, metrics }
    }

    /// Writes `compare.md`, `compare.json` and `compare.svg` into `folder`, and `metrics.svg` if metrics were asked for. A
    /// figure of an earlier comparison that has no successor is removed.
    ///
    /// # Errors
    /// Fails if one of the files can't be written or removed.
    pub fn write(&self, folder: &Path) -> Result<(), ProgramError> {
        let json = serde_json::to_string_pretty(self).unwrap_or_default() + "\n";
        write_atomically(&folder.join("compare.json"), json.as_bytes())?;

        let mut figures = Vec::new();
        for (name, title, drawn) in [
            ("compare.svg", "Held-out accuracy against its cost", figure::accuracy(self)),
            ("metrics.svg", "The metrics, step by step", figure::metrics(self)),
        ] {
            let path = folder.join(name);
            let drawn = drawn.map_err(|problem| Error::File {
                path: path.clone(),
                source: std::io::Error::other(problem),
            })?;
            match drawn {
                Some(drawn) => {
                    write_atomically(&path, drawn.as_bytes())?;
                    figures.push((name, title));
                }
                None => remove(&path).map_err(ProgramError::file(&path))?,
            }
        }

        let page = table::page(self, &figures);
        Ok(write_atomically(&folder.join("compare.md"), page.as_bytes())?)
    }

    /// Returns the table, with the notes that explain it, and a table of each metric.
    pub fn table(&self) -> String {
        table::table(self)
    }
}

impl Compared {
    /// Makes a recipe whose runs are to be compared.
    pub fn new(name: String, recipe: PathBuf, runs: Vec<Outcome>) -> Self {
        Compared { name, recipe, means: Means::default(), curve: Vec::new(), runs }
    }
}

impl Outcome {
    /// Makes a run that is to be compared.
    pub fn new(seed: u64, folder: PathBuf, state: State) -> Self {
        Outcome { seed, folder, state, reached: None }
    }
}

impl State {
    /// Reads the state of the run in `folder`, with the metrics of these names if it is finished. A run whose summary or
    /// record is damaged counts as failed, so that it costs none of the other runs.
    pub fn read(folder: &Path, metrics: &[String]) -> Self {
        let read = || -> Result<Self, ProgramError> {
            let summary = folder.join("summary.json");
            let is_absent = |error: std::io::Error| error.kind() == ErrorKind::NotFound;
            if summary.symlink_metadata().is_err_and(is_absent)
                || Summary::read(&summary)?.stopped_because == INTERRUPTED
            {
                return Ok(State::Unfinished);
            }
            Ok(State::Finished(Measured::read(folder, metrics)?))
        };
        read().unwrap_or_else(|error| State::Failed { problem: error.to_string() })
    }

    /// Returns the numbers of a finished run.
    pub fn measured(&self) -> Option<&Measured> {
        match self {
            State::Finished(measured) => Some(measured),
            State::Unfinished | State::Failed { .. } => None,
        }
    }
}

fn remove(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns the target that holds by default. The text of its origin appears in the table's note.
fn default_target(recipes: &[Compared]) -> Option<Target> {
    let measured = |recipe: &Compared| -> Vec<Measured> {
        recipe.runs.iter().filter_map(|run| run.state.measured()).cloned().collect()
    };
    let starts = recipes.iter().flat_map(measured).filter_map(|run| run.start());
    let start = mean(starts)?;

    let ends = recipes
        .iter()
        .filter_map(|recipe| mean(measured(recipe).iter().filter_map(|r| r.accuracy)));
    let best = ends.fold(f64::NEG_INFINITY, f64::max);

    // The target has as many digits as are shown, so that the table names exactly the accuracy that was compared
    // with.
    let accuracy = ((start + 0.9 * (best - start)) * 1e3).round() / 1e3;

    let origin = format!(
        "nine tenths of the way from {start:.3}, the mean before the first step, to {best:.3}, the \
         best recipe's mean at the end"
    );
    (accuracy > start).then_some(Target { accuracy, origin })
}

impl Means {
    fn of_runs(runs: &[Outcome]) -> Self {
        let finished: Vec<&Measured> = runs.iter().filter_map(|run| run.state.measured()).collect();
        let mean_of = |value: fn(&Measured) -> Option<f64>| {
            mean(finished.iter().filter_map(|run| value(run)))
        };

        let first_reached: Vec<&Evaluation> =
            runs.iter().filter_map(|run| run.reached.as_ref()).collect();
        let mean_until =
            |value: fn(&Evaluation) -> f64| mean(first_reached.iter().map(|at| value(at)));
        let accuracies: Vec<f64> = finished.iter().filter_map(|run| run.accuracy).collect();

        Means {
            finished: finished.len(),
            accuracy: mean(accuracies.iter().copied()),
            accuracy_deviation: deviation(&accuracies),
            gain: None,
            gain_deviation: None,
            reached: first_reached.len(),
            steps_to_target: mean_until(|at| at.step as f64),
            completions_to_target: mean_until(|at| at.completions),
            seconds_to_target: mean_until(|at| at.seconds),
            steps: mean_of(|run| Some(run.steps as f64)),
            completions: mean_of(|run| Some(run.completions as f64)),
            seconds: mean_of(|run| Some(run.seconds)),
            entropy: mean_of(|run| run.entropy),
            length: mean_of(|run| run.length),
            truncated: mean_of(|run| run.truncated),
        }
    }

    /// Computes the gain over the first recipe. Runs of one seed begin alike, so their difference says more than
    /// the difference of the means: a lucky start of a seed cancels out.
    fn compare(&mut self, first_runs: &[Outcome], own_runs: &[Outcome]) {
        let accuracies = |runs: &[Outcome]| -> Vec<Seeded> {
            let accuracy = |run: &Outcome| Some((run.seed, run.state.measured()?.accuracy?));
            runs.iter().filter_map(accuracy).collect()
        };

        let gains = paired_differences(&accuracies(own_runs), &accuracies(first_runs));
        self.gain = mean(gains.iter().copied());
        self.gain_deviation = deviation(&gains);
    }
}

/// Returns the evaluations that every finished run has, because runs that end early must not distort the mean of the
/// others.
fn curve(runs: &[Outcome]) -> Vec<Point> {
    let finished: Vec<&Measured> = runs.iter().filter_map(|run| run.state.measured()).collect();
    let Some((first_run, other_runs)) = finished.split_first() else { return Vec::new() };

    let point = |at: &Evaluation| {
        // A single run without this evaluation drops the point.
        let other_evaluations = other_runs.iter().map(|run| run.evaluation_at(at.step));
        let mut evaluations = other_evaluations.collect::<Option<Vec<Evaluation>>>()?;
        evaluations.push(*at);
        let mean_of =
            |value: fn(&Evaluation) -> f64| mean(evaluations.iter().map(value)).unwrap_or(f64::NAN);
        let accuracies = || evaluations.iter().map(|at| at.accuracy);

        Some(Point {
            step: at.step,
            completions: mean_of(|at| at.completions),
            seconds: mean_of(|at| at.seconds),
            accuracy: mean_of(|at| at.accuracy),
            least: accuracies().fold(f64::INFINITY, f64::min),
            most: accuracies().fold(f64::NEG_INFINITY, f64::max),
        })
    };

    first_run.evaluations.iter().filter_map(point).collect()
}

/// Returns the mean; `None` if there are no values.
fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0_u32, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}

/// Returns the standard deviation of a sample, over n − 1; `None` for fewer than two values.
fn deviation(values: &[f64]) -> Option<f64> {
    let center = mean(values.iter().copied())?;
    let squares: f64 = values.iter().map(|value| (value - center).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a run that is evaluated every 10 steps. Each step has 100 completions and takes 2 seconds.
    fn run(seed: u64, accuracies: &[f64]) -> Outcome {
        let evaluation = |(index, &accuracy): (usize, &f64)| Evaluation {
            step: 10 * index as u64,
            completions: 1000.0 * index as f64,
            seconds: 20.0 * index as f64,
            accuracy,
        };
        let steps = 10 * (accuracies.len() as u64 - 1);

        let measured = Measured {
            accuracy: accuracies.last().copied(),
            standard_error: None,
            heldout_prompts: None,
            steps,
            completions: 100 * steps,
            seconds: 2.0 * steps as f64,
            total_seconds: 0.0,
            entropy: None,
            length: None,
            truncated: None,
            metrics: Vec::new(),
            stopped_because: "steps".into(),
            evaluations: accuracies.iter().enumerate().map(evaluation).collect(),
        };
        Outcome::new(seed, "".into(), State::Finished(measured))
    }

    fn compare(target: Option<f64>, recipes: &[Vec<Outcome>]) -> Comparison {
        let recipes = recipes.iter().map(|runs| Compared::new("r".into(), "".into(), runs.clone()));
        Comparison::new(String::new(), String::new(), Vec::new(), target, recipes.collect())
    }

    #[test]
    fn the_way_to_the_target_ends_at_the_first_evaluation_there() {
        let failed = Outcome::new(3, "".into(), State::Failed { problem: "no".into() });
        let runs = vec![run(1, &[0.2, 0.5, 0.8, 0.7]), run(2, &[0.3, 0.4, 0.5, 0.9]), failed];
        let comparison = compare(Some(0.8), &[runs, vec![run(1, &[0.2, 0.3])]]);
        let [good, bad] = &comparison.recipes[..] else { panic!() };

        let means = &good.means;
        assert_eq!((means.finished, means.reached), (2, 2));
        assert_eq!(means.steps_to_target, Some(25.0));
        assert_eq!(means.completions_to_target, Some(2500.0));
        assert_eq!(means.seconds_to_target, Some(50.0));
        assert!((means.accuracy.unwrap() - 0.8).abs() < 1e-12);
        // ((0.7 − 0.8)² + (0.9 − 0.8)²) / 1 = 0.02
        assert!((means.accuracy_deviation.unwrap() - 0.02_f64.sqrt()).abs() < 1e-12);

        assert_eq!((bad.means.reached, bad.means.steps_to_target), (0, None));

        // The gain is that of seed 1 alone, which both recipes have.
        assert!((bad.means.gain.unwrap() - (0.3 - 0.7)).abs() < 1e-12);
        assert_eq!((good.means.gain, bad.means.gain_deviation), (None, None));
        assert_eq!(bad.means.accuracy_deviation, None);
    }

    #[test]
    fn the_target_is_nine_tenths_of_the_best_gain() {
        let comparison = compare(
            None,
            &[vec![run(1, &[0.4, 0.9]), run(2, &[0.2, 0.7])], vec![run(1, &[0.3, 0.4])]],
        );

        // The start is 0.3, and the best accuracy is 0.8.
        assert_eq!(comparison.target.unwrap().accuracy, 0.75);
        assert_eq!(compare(None, &[vec![run(1, &[0.4, 0.3])]]).target, None);
        assert_eq!(compare(None, &[vec![]]).target, None);
    }

    #[test]
    fn a_curve_goes_as_far_as_every_run() {
        let comparison = compare(None, &[vec![run(1, &[0.2, 0.5, 0.9]), run(2, &[0.4, 0.7])]]);

        let curve = &comparison.recipes[0].curve;
        let shown: Vec<_> = curve.iter().map(|at| (at.step, at.least, at.most)).collect();
        assert_eq!(shown, [(0, 0.2, 0.4), (10, 0.5, 0.7)]);
        assert!((curve[1].accuracy - 0.6).abs() < 1e-12 && curve[1].completions == 1000.0);
    }
}
