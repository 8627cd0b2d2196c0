//! Charts of a run, and the meaning of each.

use std::collections::BTreeMap;

use firebrick_core::Step;

/// A chart: metrics that are shown together.
#[derive(Debug)]
pub(crate) struct Chart {
    /// Address of the chart on the page, after `chart-`.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// Unit of the values, if the title does not say it.
    pub(crate) unit: &'static str,
    /// Metrics, each with its text in the legend. A name with a `*` matches several metrics. Its text is followed by
    /// the part of the name that the `*` matches.
    pub(crate) lines: &'static [(&'static str, &'static str)],
    pub(crate) scale: Scale,
    /// What the chart means, its healthy values, and a remedy for others.
    pub(crate) about: &'static str,
    /// Section of the book's page of metrics.
    pub(crate) section: &'static str,
}

/// Scale of the vertical axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Values without a transformation.
    Linear,
    /// Values between 0 and 1. The axis shows only the part that has values.
    Share,
    /// Decimal logarithms of the values. Values that are not above 0 are left out.
    Log,
}

/// Charts under one heading.
pub(crate) struct Heading {
    pub(crate) title: &'static str,
    pub(crate) charts: &'static [Chart],
}

pub(crate) const HEADINGS: &[Heading] = &[
    Heading {
        title: "Does it learn?",
        charts: &[
            Chart {
                id: "reward",
                title: "Reward",
                unit: "mean after shaping",
                lines: &[("reward/mean", "reward")],
                scale: Scale::Linear,
                about: "The reward of everything that was sampled, kept or not. It should rise, \
                        with noise. If it is flat from the beginning, look at the findings on this \
                        page first.",
                section: "reward",
            },
            Chart {
                id: "heldout",
                title: "Held-out accuracy",
                unit: "share right",
                lines: &[("eval/heldout_accuracy", "held-out"), ("eval/*/accuracy", "")],
                scale: Scale::Share,
                about: "The share of right answers to prompts that are never trained on. The band \
                        contains the accuracy with a probability of 95 % (bootstrap over prompts). \
                        A gain that stays within the band may be luck.",
                section: "time-memory-and-evaluation",
            },
            Chart {
                id: "difficulty",
                title: "Held-out accuracy by difficulty",
                unit: "share right",
                lines: &[("eval/difficulty/*", "")],
                scale: Scale::Share,
                about: "The held-out accuracy of each difficulty that the data names (data.columns.difficulty). If only the easy \
                        questions get better, the harder ones lack groups with spread.",
                section: "time-memory-and-evaluation",
            },
            Chart {
                id: "data_source",
                title: "Held-out accuracy by data set",
                unit: "share right",
                lines: &[("eval/data_source/*", "")],
                scale: Scale::Share,
                about: "The held-out accuracy of each data set of data.train, if it is a list. If one of them falls while the \
                        others rise, give it a larger weight.",
                section: "time-memory-and-evaluation",
            },
            Chart {
                id: "credit",
                title: "Credit in training",
                unit: "mean credit",
                lines: &[("reward/credit", "credit")],
                scale: Scale::Share,
                about: "The credit of everything that was sampled. Groups teach most while it is between 0.2 and 0.8: near 0 \
                        and near 1 most groups have no spread.",
                section: "reward",
            },
            Chart {
                id: "parts",
                title: "Reward by part",
                unit: "mean credit",
                lines: &[("reward/part/*", "")],
                scale: Scale::Linear,
                about: "The parts of a weighted reward. If a part of form rises while the answers do not, the policy learns the \
                        form alone: give the form less weight.",
                section: "reward",
            },
            Chart {
                id: "verdicts",
                title: "Verdicts",
                unit: "completions",
                lines: &[
                    ("reward/right", "right"),
                    ("reward/wrong", "wrong"),
                    ("reward/unparsable", "unparsable"),
                    ("reward/over_budget", "over budget"),
                    ("reward/error", "error"),
                ],
                scale: Scale::Linear,
                about: "Unparsable completions should become rare within the first steps. An error \
                        is a failure of the judge: there should be none.",
                section: "reward",
            },
        ],
    },
    Heading {
        title: "What does it write?",
        charts: &[
            Chart {
                id: "length",
                title: "Length",
                unit: "tokens",
                lines: &[
                    ("rollout/length_mean", "all"),
                    ("rollout/length_right", "right"),
                    ("rollout/length_wrong", "wrong"),
                ],
                scale: Scale::Linear,
                about: "Length may grow as long as accuracy grows with it. If length grows alone, \
                        shape it: overlong shaping takes reward from completions that come near \
                        the limit.",
                section: "rollout",
            },
            Chart {
                id: "truncated",
                title: "Cut off",
                unit: "share of completions",
                lines: &[("rollout/truncated", "cut off")],
                scale: Scale::Share,
                about: "The share of completions that ran into the limit. Above 0.3 the limit is too short for the task, or \
                        the policy does not end its answers.",
                section: "rollout",
            },
            Chart {
                id: "groups",
                title: "Groups",
                unit: "per step",
                lines: &[
                    ("sampling/groups_kept", "trained on"),
                    ("sampling/groups_filtered", "filtered"),
                    ("sampling/groups_all_right", "all right"),
                    ("sampling/groups_all_wrong", "none right"),
                ],
                scale: Scale::Linear,
                about: "Filtered groups have no spread and teach nothing. If most groups are all \
                        right, the prompts are too easy. If most groups have no right answer, the \
                        prompts are too hard.",
                section: "sampling",
            },
        ],
    },
    Heading {
        title: "How does the policy move?",
        charts: &[
            Chart {
                id: "entropy",
                title: "Entropy",
                unit: "nats per token",
                lines: &[("loss/entropy", "entropy")],
                scale: Scale::Linear,
                about: "Entropy falls slowly while a policy learns. Near 0 all samples are the \
                        same and nothing is explored. If entropy rises without end, the policy \
                        dissolves: lower the learning rate.",
                section: "loss",
            },
            Chart {
                id: "clip",
                title: "Clipped tokens",
                unit: "share",
                lines: &[("loss/clip_fraction_low", "below"), ("loss/clip_fraction_high", "above")],
                scale: Scale::Linear,
                about: "The share of tokens whose ratio left the bounds. It is 0 where a step has one update. More than a few \
                        hundredths say that the steps are too large.",
                section: "loss",
            },
            Chart {
                id: "gradient",
                title: "Gradient norm",
                unit: "before clipping",
                lines: &[("update/grad_norm", "policy"), ("critic/grad_norm", "critic")],
                scale: Scale::Log,
                about: "The norm should stay within an order of magnitude. A jump that stays comes \
                        before most collapses.",
                section: "update",
            },
            Chart {
                id: "change",
                title: "Change of the policy",
                unit: "KL estimate, nats per token",
                lines: &[("loss/approx_kl", "within the step"), ("loss/kl", "from the reference")],
                scale: Scale::Linear,
                about: "The distance that a step has moved the policy. If it is 0 throughout, nothing is learnt: look at the learning rate \
                        and at skipped updates.",
                section: "loss",
            },
            Chart {
                id: "mismatch",
                title: "Sampler against trainer",
                unit: "difference of log-probabilities",
                lines: &[
                    ("rollout/logprob_diff_mean", "mean"),
                    ("rollout/logprob_diff_max", "largest"),
                ],
                scale: Scale::Log,
                about: "Sampler and trainer compute the same log-probabilities, so only rounding \
                        remains: about 1e-7 in f32, and more where surplus groups of earlier steps \
                        are used.",
                section: "rollout",
            },
            Chart {
                id: "lr",
                title: "Learning rate",
                unit: "",
                lines: &[("update/lr", "policy"), ("critic/lr", "critic")],
                scale: Scale::Linear,
                about: "The learning rate of the recipe's schedule.",
                section: "update",
            },
        ],
    },
    Heading {
        title: "Where does the time go?",
        charts: &[
            Chart {
                id: "time",
                title: "Time by phase",
                unit: "seconds of a step",
                lines: &[
                    ("time/step", "whole step"),
                    ("time/rollout", "sampling"),
                    ("time/reward", "judging"),
                    ("time/update", "updating"),
                    ("time/reward_wait", "waiting for the judge"),
                    ("time/record", "waiting for the record"),
                ],
                scale: Scale::Linear,
                about: "Judging overlaps with sampling, so the phases need not add up. The longest phase is the one to make \
                        faster.",
                section: "time-memory-and-evaluation",
            },
            Chart {
                id: "memory",
                title: "Memory",
                unit: "the most so far, bytes",
                lines: &[("memory/peak_bytes", "peak")],
                scale: Scale::Linear,
                about: "The machine's memory that the process held, without a GPU's. It should be constant after the first steps.",
                section: "time-memory-and-evaluation",
            },
            Chart {
                id: "speed",
                title: "Speed",
                unit: "tokens per second",
                lines: &[
                    ("rollout/tokens_per_second", "sampling"),
                    ("update/tokens_per_second", "updating"),
                ],
                scale: Scale::Linear,
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
    pub(crate) metric: String,
    pub(crate) words: String,
    pub(crate) points: Vec<(Step, f64)>,
}

/// Limit of the curves that a pattern may match: more of them could not be told apart.
const MOST: usize = 16;

impl Chart {
    /// Returns the chart's curves among a run's metrics. A curve without a number is left out. A curve that is 0
    /// throughout is left out if another curve is not, unless the chart shows shares.
    pub(crate) fn curves(&self, series: &BTreeMap<String, Vec<(Step, f64)>>) -> Vec<Curve> {
        let mut curves = Vec::new();
        for (position, (pattern, words)) in self.lines.iter().enumerate() {
            let named = series.iter().filter_map(|(name, points)| {
                let rest = if pattern == name { Some("") } else { rest(pattern, name) };
                rest.map(|rest| (name, format!("{words}{rest}"), points))
            });
            for (more, (name, words, points)) in named.take(MOST).enumerate() {
                let metric = name.clone();
                let points = points.clone();
                curves.push(Curve { position: position + more, metric, words, points });
            }
        }

        curves.retain(|curve| curve.points.iter().any(|(_, value)| value.is_finite()));
        // A curve of zeros counts events that did not happen. But an accuracy of 0 is a result.
        let is_empty = |curve: &Curve| curve.points.iter().all(|(_, value)| *value == 0.0);
        if self.scale != Scale::Share && !curves.iter().all(is_empty) {
            curves.retain(|curve| !is_empty(curve));
        }

        curves
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
