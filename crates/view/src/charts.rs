//! Charts of a run, and the meaning of each.

use std::collections::BTreeMap;

use firebrick_core::Step;

/// A chart: metrics that are shown together.
#[derive(Debug)]
pub(crate) struct Chart<'a> {
    /// Address of the chart on the page, after `chart-`.
    pub(crate) id: &'a str,
    pub(crate) title: &'a str,
    /// What is measured, in words below the title; empty if the title says it.
    pub(crate) measure: &'static str,
    pub(crate) unit: Unit,
    /// Metrics, each with its text in the legend. A name with a `*` matches several metrics. Its text is followed by
    /// the part of the name that the `*` matches.
    pub(crate) lines: &'a [(&'a str, &'a str)],
    pub(crate) form: Form,
    /// What the chart means, its healthy values, and a remedy for others; empty if nothing is known.
    pub(crate) about: &'static str,
    /// Section of the book's page of metrics.
    pub(crate) section: &'static str,
}

/// Unit in which values are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Number,
    /// Values between 0 and 1, read as percentages.
    Share,
    Seconds,
    Bytes,
}

/// How values become lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Values as they are.
    Plain,
    /// Values on an axis of decimal logarithms. Values that are not above 0 are left out.
    Log,
    /// Counts, divided by the metric of this name. They grow by themselves where steps need more sampling.
    Of(&'static str),
    /// Such shares that together are all, one above the other.
    Stacked(&'static str),
}

/// Charts under one heading.
pub(crate) struct Heading {
    /// Address of the heading on the page, after `part-`.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) charts: &'static [Chart<'static>],
}

/// The chart that stands first, twice as large as the others.
pub(crate) const LEAD: Chart<'static> = Chart {
    id: "heldout",
    title: "Held-out accuracy",
    measure: "right answers to prompts that are never trained on",
    unit: Unit::Share,
    lines: &[
        ("eval/heldout_accuracy", "held-out"),
        ("eval/*/accuracy", ""),
        (BEHIND, "right in training"),
    ],
    form: Form::Plain,
    about: "The share of right answers to prompts that are never trained on. The band contains the accuracy with a \
            probability of 95 % (bootstrap over prompts), and a gain that stays within it may be luck. Behind it is the \
            share of right answers among everything that was sampled in training. Groups teach most while that is between \
            20 and 80 %: near 0 and near 100 % most groups have no spread.",
    section: "time-memory-and-evaluation",
};

/// Metric that is drawn thin, behind the others of the leading chart, as a share of the completions.
pub(crate) const BEHIND: &str = "reward/right";

/// Metric that counts the completions of a step.
const COMPLETIONS: &str = "sampling/completions";

pub(crate) const HEADINGS: &[Heading] = &[
    Heading {
        id: "learns",
        title: "Does it learn?",
        charts: &[
            Chart {
                id: "reward",
                title: "Reward",
                measure: "mean after shaping",
                unit: Unit::Number,
                lines: &[("reward/mean", "reward")],
                form: Form::Plain,
                about: "The reward of everything that was sampled, kept or not. It should rise, \
                        with noise. If it is flat from the beginning, look at the findings on this \
                        page first.",
                section: "reward",
            },
            Chart {
                id: "difficulty",
                title: "Held-out accuracy by difficulty",
                measure: "right answers",
                unit: Unit::Share,
                lines: &[("eval/difficulty/*", "")],
                form: Form::Plain,
                about: "The held-out accuracy of each difficulty that the data names (data.columns.difficulty). If only the easy \
                        questions get better, the harder ones lack groups with spread.",
                section: "time-memory-and-evaluation",
            },
            Chart {
                id: "data_source",
                title: "Held-out accuracy by data set",
                measure: "right answers",
                unit: Unit::Share,
                lines: &[("eval/data_source/*", "")],
                form: Form::Plain,
                about: "The held-out accuracy of each data set of data.train, if it is a list. If one of them falls while the \
                        others rise, give it a larger weight.",
                section: "time-memory-and-evaluation",
            },
            Chart {
                id: "data_source_credit",
                title: "Credit by data set",
                measure: "mean credit in training",
                unit: Unit::Share,
                lines: &[("data_source/*/credit", "")],
                form: Form::Plain,
                about: "The mean credit of everything that was sampled of each data set. Near 0 and near 1 few of its \
                        groups have spread, so it teaches little.",
                section: "data-sets",
            },
            Chart {
                id: "parts",
                title: "Reward by part",
                measure: "mean credit",
                unit: Unit::Number,
                lines: &[("reward/part/*", "")],
                form: Form::Plain,
                about: "The parts of a weighted reward. If a part of form rises while the answers do not, the policy learns the \
                        form alone: give the form less weight.",
                section: "reward",
            },
            Chart {
                id: "verdicts",
                title: "Verdicts",
                measure: "of the completions of a step",
                unit: Unit::Share,
                lines: &[
                    ("reward/right", "right"),
                    ("reward/wrong", "wrong"),
                    ("reward/unparsable", "unparsable"),
                    ("reward/over_budget", "over budget"),
                    ("reward/error", "error"),
                ],
                form: Form::Stacked(COMPLETIONS),
                about: "Unparsable completions should become rare within the first steps. An error \
                        is a failure of the judge: there should be none.",
                section: "reward",
            },
        ],
    },
    Heading {
        id: "writes",
        title: "What does it write?",
        charts: &[
            Chart {
                id: "length",
                title: "Length",
                measure: "tokens of a completion",
                unit: Unit::Number,
                lines: &[
                    ("rollout/length_mean", "all"),
                    ("rollout/length_right", "right"),
                    ("rollout/length_wrong", "wrong"),
                ],
                form: Form::Plain,
                about: "Length may grow as long as accuracy grows with it. If length grows alone, \
                        shape it: overlong shaping takes reward from completions that come near \
                        the limit.",
                section: "rollout",
            },
            Chart {
                id: "truncated",
                title: "Cut off",
                measure: "completions at the limit of tokens",
                unit: Unit::Share,
                lines: &[("rollout/truncated", "cut off")],
                form: Form::Plain,
                about: "The share of completions that ran into the limit. Above 30 % the limit is too short for the task, or \
                        the policy does not end its answers.",
                section: "rollout",
            },
            Chart {
                id: "groups",
                title: "Groups without spread",
                measure: "of the groups that a step sampled",
                unit: Unit::Share,
                lines: &[
                    ("sampling/groups_filtered", "no spread"),
                    ("sampling/groups_all_right", "all right"),
                    ("sampling/groups_all_wrong", "none right"),
                ],
                form: Form::Of("sampling/groups_sampled"),
                about: "Groups without spread teach nothing. If most groups are all right, the prompts are too easy. If most groups \
                        have no right answer, the prompts are too hard.",
                section: "sampling",
            },
            Chart {
                id: "data_source_kept",
                title: "Kept groups by data set",
                measure: "of the groups that a step sampled of it",
                unit: Unit::Share,
                lines: &[("data_source/*/kept", "")],
                form: Form::Plain,
                about: "The share of each data set's groups that dynamic sampling kept. The others teach nothing: if \
                        they are most of a data set, give it less weight, or other questions.",
                section: "data-sets",
            },
            Chart {
                id: "data_source_completions",
                title: "Completions by data set",
                measure: "of the completions of a step",
                unit: Unit::Share,
                lines: &[("data_source/*/completions", "")],
                form: Form::Stacked(COMPLETIONS),
                about: "Each data set's share of everything that was sampled, kept or not. With weights it is near \
                        the data set's share of their sum.",
                section: "data-sets",
            },
        ],
    },
    Heading {
        id: "moves",
        title: "How does the policy move?",
        charts: &[
            Chart {
                id: "entropy",
                title: "Entropy",
                measure: "nats per token",
                unit: Unit::Number,
                lines: &[("loss/entropy", "entropy")],
                form: Form::Plain,
                about: "Entropy falls slowly while a policy learns. Near 0 all samples are the \
                        same and nothing is explored. If entropy rises without end, the policy \
                        dissolves: lower the learning rate.",
                section: "loss",
            },
            Chart {
                id: "clip",
                title: "Clipped tokens",
                measure: "tokens whose ratio left the bounds",
                unit: Unit::Share,
                lines: &[("loss/clip_fraction_high", "above"), ("loss/clip_fraction_low", "below")],
                form: Form::Plain,
                about: "The share of tokens whose ratio left the bounds. It is 0 where a step has one update. More than a few \
                        per cent say that the steps are too large.",
                section: "loss",
            },
            Chart {
                id: "gradient",
                title: "Gradient norm",
                measure: "before clipping",
                unit: Unit::Number,
                lines: &[("update/grad_norm", "policy"), ("critic/grad_norm", "critic")],
                form: Form::Log,
                about: "The norm should stay within an order of magnitude. A jump that stays comes \
                        before most collapses.",
                section: "update",
            },
            Chart {
                id: "change",
                title: "Change of the policy",
                measure: "nats a token",
                unit: Unit::Number,
                lines: &[
                    ("update/logprob_moved", "moved"),
                    ("loss/approx_kl", "KL of the step"),
                    ("loss/kl", "KL to reference"),
                ],
                form: Form::Plain,
                about: "How far a step moves the policy: where a step has one update, by how much it changed a \
                        log-probability; where it has several, by the KL between them. If it is 0 throughout, nothing is \
                        learnt: look at the learning rate and at skipped updates.",
                section: "update",
            },
            Chart {
                id: "mismatch",
                title: "Sampler against trainer",
                measure: "difference of log-probabilities",
                unit: Unit::Number,
                lines: &[
                    ("rollout/logprob_diff_mean", "mean"),
                    ("rollout/logprob_diff_max", "largest"),
                ],
                form: Form::Log,
                about: "Sampler and trainer compute the same log-probabilities, so only rounding \
                        remains: about 1e-7 in f32, and more where surplus groups of earlier steps \
                        are used.",
                section: "rollout",
            },
            Chart {
                id: "lr",
                title: "Learning rate",
                measure: "",
                unit: Unit::Number,
                lines: &[("update/lr", "policy"), ("critic/lr", "critic")],
                form: Form::Plain,
                about: "The learning rate of the recipe's schedule.",
                section: "update",
            },
        ],
    },
    Heading {
        id: "time",
        title: "Where does the time go?",
        charts: &[
            Chart {
                id: "time",
                title: "Time by phase",
                measure: "of a step",
                unit: Unit::Seconds,
                lines: &[
                    ("time/step", "whole step"),
                    ("time/rollout", "sampling"),
                    ("time/reward", "judging"),
                    ("time/update", "updating"),
                    ("time/reward_wait", "judge's rest"),
                    ("time/record", "record"),
                ],
                form: Form::Plain,
                about: "Judging overlaps with sampling, so the phases need not add up. The longest phase is the one to make \
                        faster.",
                section: "time-memory-and-evaluation",
            },
            Chart {
                id: "memory",
                title: "Memory",
                measure: "the most so far",
                unit: Unit::Bytes,
                lines: &[("memory/peak_bytes", "peak")],
                form: Form::Plain,
                about: "The machine's memory that the process held, without a GPU's. It should be constant after the first steps.",
                section: "time-memory-and-evaluation",
            },
            Chart {
                id: "speed",
                title: "Speed",
                measure: "tokens per second",
                unit: Unit::Number,
                lines: &[
                    ("rollout/tokens_per_second", "sampling"),
                    ("update/tokens_per_second", "updating"),
                ],
                form: Form::Plain,
                about: "Speed falls as completions get longer. A fall at the same length comes from outside: another \
                        program, heat, or a slow judge.",
                section: "rollout",
            },
        ],
    },
];

/// A curve of a chart.
pub(crate) struct Curve {
    /// Position among all of the chart's lines, including those without numbers. It sets the curve's colour or dashes.
    pub(crate) position: usize,
    /// Index of the chart's line that it is of.
    pub(crate) pattern: usize,
    pub(crate) metric: String,
    pub(crate) words: String,
    pub(crate) points: Vec<(Step, f64)>,
}

/// Limit of the curves that a pattern may match: more of them could not be told apart.
const MOST: usize = 16;

impl<'a> Chart<'a> {
    /// Returns the chart of a metric that has no place among the others.
    pub(crate) fn of_metric(id: &'a str, line: &'a [(&'a str, &'a str)]) -> Self {
        let title = line[0].0;
        let unit = match title {
            name if name.starts_with("time/") || name.ends_with("_seconds") => Unit::Seconds,
            name if name.ends_with("_bytes") => Unit::Bytes,
            _ => Unit::Number,
        };
        let section = match title.split('/').next() {
            Some("reward") => "reward",
            Some("sampling") => "sampling",
            Some("data_source") => "data-sets",
            Some("rollout") => "rollout",
            Some("loss") => "loss",
            Some("update") => "update",
            _ => "time-memory-and-evaluation",
        };
        Chart { id, title, measure: "", unit, lines: line, form: Form::Plain, about: "", section }
    }

    /// Returns the chart's curves among a run's metrics. A curve without a number is left out. A curve that is 0
    /// throughout is left out if another curve is not, unless it is a result.
    pub(crate) fn curves(&self, series: &BTreeMap<String, Vec<(Step, f64)>>) -> Vec<Curve> {
        let mut curves = Vec::new();
        for (index, (pattern, words)) in self.lines.iter().enumerate() {
            let named = series.iter().filter_map(|(name, points)| {
                let rest = if pattern == name { Some("") } else { rest(pattern, name) };
                rest.map(|rest| (name, format!("{words}{rest}"), points))
            });
            for (more, (name, words, points)) in named.take(MOST).enumerate() {
                let metric = name.clone();
                let points = self.shares(name, points, series);
                let position = index + more;
                curves.push(Curve { position, pattern: index, metric, words, points });
            }
        }

        curves.retain(|curve| curve.points.iter().any(|(_, value)| value.is_finite()));
        // A curve of zeros counts events that did not happen. But an accuracy or a credit of 0 is a result.
        let is_empty = |curve: &Curve| {
            let is_result = ["eval/", "data_source/"].iter().any(|it| curve.metric.starts_with(it));
            !is_result && curve.points.iter().all(|(_, value)| *value == 0.0)
        };
        if !curves.iter().all(is_empty) {
            curves.retain(|curve| !is_empty(curve));
        }

        curves
    }

    /// Divides counts by what they are a part of. Other values stay as they are.
    fn shares(
        &self,
        name: &str,
        points: &[(Step, f64)],
        series: &BTreeMap<String, Vec<(Step, f64)>>,
    ) -> Vec<(Step, f64)> {
        let whole = match self.form {
            Form::Of(whole) | Form::Stacked(whole) => whole,
            _ if name == BEHIND => COMPLETIONS,
            _ => return points.to_vec(),
        };
        let wholes: BTreeMap<Step, f64> =
            series.get(whole).into_iter().flatten().copied().collect();
        let share = |&(step, count): &(Step, f64)| {
            let whole = wholes.get(&step).filter(|whole| **whole > 0.0)?;
            Some((step, count / whole))
        };
        points.iter().filter_map(share).collect()
    }

    /// Tells whether a metric has its place in the chart by a pattern, which other metrics may match too.
    pub(crate) fn has_pattern(&self, metric: &str) -> bool {
        self.lines.iter().all(|(name, _)| *name != metric)
    }

    /// Tells whether there is never more than one curve for a run.
    pub(crate) fn has_one_line(&self) -> bool {
        self.lines.len() == 1 && !self.lines[0].0.contains('*')
    }
}

/// Returns the part of `name` that the single `*` of the pattern matches; `None` if they don't match, or if the pattern
/// has no `*`.
fn rest<'a>(pattern: &str, name: &'a str) -> Option<&'a str> {
    let (before, after) = pattern.split_once('*')?;
    name.strip_prefix(before)?.strip_suffix(after).filter(|rest| !rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_set_without_a_right_answer_keeps_its_curve() {
        let all = |value: f64| vec![(1, value), (2, value)];
        let series = BTreeMap::from([
            ("data_source/easy/credit".to_owned(), all(0.5)),
            ("data_source/hard/credit".to_owned(), all(0.0)),
            ("data_source/hard/completions".to_owned(), all(8.0)),
        ]);
        let mut charts = HEADINGS.iter().flat_map(|heading| heading.charts);
        let chart = charts.find(|chart| chart.id == "data_source_credit").unwrap();

        let words: Vec<String> =
            chart.curves(&series).into_iter().map(|curve| curve.words).collect();
        assert_eq!(words, ["easy", "hard"]);
    }
}
