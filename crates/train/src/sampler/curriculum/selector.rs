//! Selector of a step's prompts by a curriculum.

use std::collections::BTreeMap;

use firebrick_core::{
    Metrics, PromptSource, Reward, RewardedGroup, Seed, Step,
    config::{CurriculumRule, PosteriorRule, VarianceRule},
};
use rand::seq::index;
use serde::{Deserialize, Serialize};

use super::{Beta, Curriculum, PromptHistory, PromptRecord, Selection, has_spread};
use crate::sampler::draw::{Drawn, PromptSelector, next};

/// Curriculum during a step: the records of earlier steps, and those of this step. The step's own records are
/// kept apart until it is done, so that a step that fails or ends at the cap leaves no trace.
pub(crate) struct CurriculumSelector<'a> {
    history: &'a PromptHistory,
    config: &'a Curriculum,
    step: Step,
    group_size: usize,
    /// Prior at the step's beginning.
    prior: Beta,
    /// Predictions for the prompts that are being sampled, by draw.
    predicted: BTreeMap<u64, f64>,
    new_records: BTreeMap<u64, PromptRecord>,
    /// Draws that the variance rule has examined, and those of them that it kept.
    examined: usize,
    sampled: usize,
    stats: CurriculumStats,
}

/// What the curriculum did in a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CurriculumStats {
    /// Draws that the rule passed over.
    pub(crate) skipped: usize,
    /// Skipped draws that were sampled all the same.
    pub(crate) put_back: usize,
    /// Draws that the rule would have passed over if their records had been younger.
    pub(crate) expired: usize,
    /// Completions of the draws that were passed over for good.
    pub(crate) completions: usize,
    /// Groups whose spread was predicted.
    pub(crate) predictions: usize,
    /// Sums over these groups: the predicted probability; 1 if there was spread; the squared difference.
    pub(crate) predicted: f64,
    pub(crate) came: f64,
    pub(crate) squared_error: f64,
}

impl CurriculumStats {
    pub(crate) fn record_metrics(&self, metrics: &mut Metrics) {
        metrics.set("sampling/skipped", self.skipped as f64);
        metrics.set("sampling/skipped_put_back", self.put_back as f64);
        metrics.set("sampling/expired", self.expired as f64);
        metrics.set("sampling/completions_skipped", self.completions as f64);
        if self.predictions > 0 {
            let mean = |sum: f64| sum / self.predictions as f64;
            metrics.set("sampling/spread_predicted", mean(self.predicted));
            metrics.set("sampling/spread_came", mean(self.came));
            metrics.set("sampling/spread_brier", mean(self.squared_error));
        }
    }
}

/// Limit of draws for each prompt that is sampled, because each draw costs a little. If fewer than one in this
/// many draws is worth sampling, the rule has no prompts to find.
const MAX_DRAWS_PER_PROMPT: usize = 32;

impl<'a> CurriculumSelector<'a> {
    pub(crate) fn new(
        history: &'a PromptHistory,
        config: &'a Curriculum,
        step: Step,
        group_size: usize,
    ) -> Self {
        // The variance rule needs no prior, and a pass over ten million prompts takes a second.
        let prior = match config.rule {
            CurriculumRule::Posterior(_) => Beta::of_prompts(history.records.values()),
            CurriculumRule::Variance(_) => Beta { a: 1.0, b: 1.0 },
        };

        CurriculumSelector {
            history,
            config,
            step,
            group_size,
            prior,
            predicted: BTreeMap::new(),
            new_records: BTreeMap::new(),
            examined: 0,
            sampled: 0,
            stats: CurriculumStats::default(),
        }
    }

    /// Draws one batch, of which the rule keeps a part: in a step's first round `count` draws, then as many as
    /// will most likely keep `count`. Another batch is drawn only if nothing was kept, which happens if the
    /// batch is so small that a fifth of it is less than one prompt. At the limit one prompt of the last batch
    /// is taken.
    fn by_variance(
        &mut self,
        rule: VarianceRule,
        source: &mut dyn PromptSource,
        count: usize,
        limit: usize,
        seed: Seed,
    ) -> Vec<Drawn> {
        let draws = match self.sampled {
            0 => count,
            sampled => (count * self.examined).div_ceil(sampled).clamp(count, limit),
        };

        let mut examined = 0;
        loop {
            let draws = draws.min(limit - examined);
            let batch: Vec<Drawn> = (0..draws).map(|_| next(source)).collect();
            let records: Vec<_> = batch.iter().map(|(_, prompt)| self.get(prompt.id)).collect();

            let seed = seed.derive("put back", &[examined as u64]);
            let mut selection = Selection::new(&rule, &records, self.step, seed);
            examined += draws;

            if selection.selected.is_empty() && selection.put_back.is_empty() && examined >= limit {
                selection.put_back = index::sample(&mut seed.rng(), draws, 1).into_vec();
            }

            self.stats.skipped += selection.skipped.len();
            self.stats.put_back += selection.put_back.len();
            self.stats.expired += selection.expired;

            let sampled = [selection.selected, selection.put_back].concat();
            self.examined += draws;
            self.sampled += sampled.len();

            if !sampled.is_empty() {
                return sampled.into_iter().map(|index| batch[index].clone()).collect();
            }
        }
    }

    /// Draws until `count` prompts are worth sampling, or the limit is reached. What is missing then is filled
    /// with the best predictions among the prompts that were passed over: a round of fewer groups would make
    /// the step smaller, and when the policy moves, predictions are too low or too high for all prompts alike,
    /// so only their order can be relied on.
    fn by_posterior(
        &mut self,
        rule: PosteriorRule,
        source: &mut dyn PromptSource,
        count: usize,
        limit: usize,
        seed: Seed,
    ) -> Vec<Drawn> {
        let mut sampled = Vec::new();
        let mut skipped = Vec::new();
        for _ in 0..limit {
            if sampled.len() == count {
                break;
            }
            let (draw, prompt) = next(source);

            let record = self.get(prompt.id);
            let predicted = self.predict(rule, record.as_ref());
            let skip = record.is_some() && predicted < rule.min_spread_probability;
            let position = sampled.len() as u64;
            let explore =
                || seed.derive("explore", &[position]).stream().uniform_at(0) < rule.explore;

            self.stats.skipped += usize::from(skip);

            if skip && !explore() {
                skipped.push((predicted, (draw, prompt)));
            } else {
                self.stats.put_back += usize::from(skip);
                self.predicted.insert(draw, predicted);
                sampled.push((draw, prompt));
            }
        }

        // A round keeps its size: the best of those passed over fill it up.
        if sampled.len() < count {
            // The sort is stable, so that equal predictions stay in the order of their draws.
            skipped.sort_by(|(one, _), (other, _)| other.total_cmp(one));
            skipped.truncate(count - sampled.len());
            self.stats.put_back += skipped.len();
            for (predicted, drawn) in skipped {
                self.predicted.insert(drawn.0, predicted);
                sampled.push(drawn);
            }
        }

        sampled
    }

    fn predict(&self, rule: PosteriorRule, record: Option<&PromptRecord>) -> f64 {
        let steps = record.map_or(0, |record| self.step.saturating_sub(record.step.into()));
        self.prior.posterior(&rule, record, steps as f64).spread_probability(self.group_size)
    }

    fn get(&self, id: u64) -> Option<PromptRecord> {
        self.new_records.get(&id).copied().or_else(|| self.history.get(id))
    }
}

impl PromptSelector for CurriculumSelector<'_> {
    /// Draws prompts in their order, except for those that were put back. Makes at most one pass over
    /// `source`, and no more than [`MAX_DRAWS_PER_PROMPT`] draws for each prompt wanted.
    fn draw(&mut self, source: &mut dyn PromptSource, count: usize, seed: Seed) -> Vec<Drawn> {
        let pass = usize::try_from(source.size()).unwrap_or(usize::MAX);
        let limit = pass.min(count.saturating_mul(MAX_DRAWS_PER_PROMPT)).max(count);
        match self.config.rule {
            CurriculumRule::Variance(rule) => self.by_variance(rule, source, count, limit, seed),
            CurriculumRule::Posterior(rule) => self.by_posterior(rule, source, count, limit, seed),
        }
    }

    /// True for the variance rule: it puts back a fraction of a batch, and a fraction of a few prompts may be
    /// none.
    fn whole_rounds(&self) -> bool {
        matches!(self.config.rule, CurriculumRule::Variance(_))
    }

    fn note(&mut self, group: &RewardedGroup) {
        let id = group.group.prompt.id;
        if let Some(predicted) = self.predicted.remove(&group.group.draw) {
            let actual = f64::from(u8::from(has_spread(group, self.config)));
            self.stats.predictions += 1;
            self.stats.predicted += predicted;
            self.stats.came += actual;
            self.stats.squared_error += (predicted - actual).powi(2);
        }

        // If the judge failed, the group says nothing about the prompt.
        if group.rewards.iter().any(Reward::is_judged) {
            let record = PromptRecord::after(self.get(id), group, self.step, self.config);
            self.new_records.insert(id, record);
        }
    }

    fn finish(self: Box<Self>) -> Option<(CurriculumStats, BTreeMap<u64, PromptRecord>)> {
        let completions = (self.stats.skipped - self.stats.put_back) * self.group_size;
        Some((CurriculumStats { completions, ..self.stats }, self.new_records))
    }
}
