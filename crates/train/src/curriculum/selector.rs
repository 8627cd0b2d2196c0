//! The curriculum at work during one step.

use std::collections::BTreeMap;

use firebrick_core::{Metrics, PromptSource, Reward, RewardedGroup, Seed, Step};
use rand::seq::index;
use serde::{Deserialize, Serialize};

use super::{
    Beta, Curriculum, CurriculumRule, PosteriorRule, PromptHistory, PromptRecord, VarianceRule,
    has_spread,
};
use crate::draw::{Drawn, PromptSelector, next};

/// The curriculum during a step: the records of earlier steps, and those of this step. The step's own records are
/// kept apart until it is done, so that a step that fails or ends at the cap leaves no trace.
pub(crate) struct CurriculumSelector<'a> {
    history: &'a PromptHistory,
    config: &'a Curriculum,
    step: Step,
    group_size: usize,
    /// The prior at the step's beginning.
    prior: Beta,
    /// The predictions for the prompts that are being sampled, by draw.
    predicted: BTreeMap<u64, f64>,
    fresh: BTreeMap<u64, PromptRecord>,
    /// The number of draws that the variance rule has looked at, and the number that it left to sample.
    looked: usize,
    sampled: usize,
    stats: CurriculumStats,
}

/// The curriculum's work in a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CurriculumStats {
    /// The number of draws that the rule passed over.
    pub(crate) skipped: usize,
    /// The number of skipped draws that were sampled all the same.
    pub(crate) put_back: usize,
    /// The number of draws that the rule would have passed over if their records had been younger.
    pub(crate) expired: usize,
    /// The number of completions of the draws that were passed over for good.
    pub(crate) completions: usize,
    /// The number of groups whose spread was predicted.
    pub(crate) predictions: usize,
    /// Sums over these groups: the predicted probability; 1 if there was spread; the squared difference.
    pub(crate) predicted: f64,
    pub(crate) came: f64,
    pub(crate) squared_error: f64,
}

impl CurriculumStats {
    pub(crate) fn measure(&self, metrics: &mut Metrics) {
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

/// The limit of draws for each prompt that is sampled. Looking costs little, but not nothing. If fewer draws
/// than this are worth sampling, the rule has no prompts to find.
const LOOKS: usize = 32;

impl<'a> CurriculumSelector<'a> {
    pub(crate) fn new(
        history: &'a PromptHistory,
        config: &'a Curriculum,
        step: Step,
        group_size: usize,
    ) -> Self {
        // The variance rule asks for no prior, and a pass over ten million prompts takes a second.
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
            fresh: BTreeMap::new(),
            looked: 0,
            sampled: 0,
            stats: CurriculumStats::default(),
        }
    }

    /// Draws one batch, of which the rule leaves a part: in a step's first round `count` draws, then as many
    /// as will most likely leave `count`. Another batch is drawn only if nothing is left, which happens if
    /// the batch is so small that a fifth of it is no prompt. At the limit one prompt of the last batch is
    /// taken.
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
            sampled => (count * self.looked).div_ceil(sampled).clamp(count, limit),
        };
        let mut looked = 0;
        loop {
            let draws = draws.min(limit - looked);
            let batch: Vec<Drawn> = (0..draws).map(|_| next(source)).collect();
            let records: Vec<_> = batch.iter().map(|(_, prompt)| self.get(prompt.id)).collect();
            let seed = seed.derive("put back", &[looked as u64]);
            let mut selection = rule.select(&records, self.step, seed);
            looked += draws;
            if selection.selected.is_empty() && selection.put_back.is_empty() && looked >= limit {
                selection.put_back = index::sample(&mut seed.rng(), draws, 1).into_vec();
            }
            self.stats.skipped += selection.skipped.len();
            self.stats.put_back += selection.put_back.len();
            self.stats.expired += selection.expired;
            let sampled = [selection.selected, selection.put_back].concat();
            self.looked += draws;
            self.sampled += sampled.len();
            if !sampled.is_empty() {
                return sampled.into_iter().map(|place| batch[place].clone()).collect();
            }
        }
    }

    /// Draws until `count` prompts are worth sampling, or the limit is reached. The places that are left then
    /// go to the best predictions among the prompts that were passed over. A round of fewer groups would cost
    /// a step its size. And when the policy moves, predictions are too low or too high for all prompts alike,
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
            let place = sampled.len() as u64;
            let explore = || seed.derive("explore", &[place]).stream().uniform_at(0) < rule.explore;
            self.stats.skipped += usize::from(skip);
            if skip && !explore() {
                skipped.push((predicted, (draw, prompt)));
            } else {
                self.stats.put_back += usize::from(skip);
                self.predicted.insert(draw, predicted);
                sampled.push((draw, prompt));
            }
        }
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
        rule.posterior(self.prior, record, steps as f64).spread_probability(self.group_size)
    }

    fn get(&self, id: u64) -> Option<PromptRecord> {
        self.fresh.get(&id).copied().or_else(|| self.history.get(id))
    }
}

impl PromptSelector for CurriculumSelector<'_> {
    /// Gives prompts in the order of their draws, except for prompts that were put back. Makes at most one
    /// pass over `source`, and no more than [`LOOKS`] draws for each place.
    fn draw(&mut self, source: &mut dyn PromptSource, count: usize, seed: Seed) -> Vec<Drawn> {
        let pass = usize::try_from(source.size()).unwrap_or(usize::MAX);
        let limit = pass.min(count.saturating_mul(LOOKS)).max(count);
        match self.config.rule {
            CurriculumRule::Variance(rule) => self.by_variance(rule, source, count, limit, seed),
            CurriculumRule::Posterior(rule) => self.by_posterior(rule, source, count, limit, seed),
        }
    }

    /// True for the variance rule, because it puts back a share of a batch, and a share of a few prompts is
    /// no prompt.
    fn whole_rounds(&self) -> bool {
        matches!(self.config.rule, CurriculumRule::Variance(_))
    }

    fn note(&mut self, group: &RewardedGroup) {
        let id = group.group.prompt.id;
        if let Some(predicted) = self.predicted.remove(&group.group.draw) {
            let came = f64::from(u8::from(has_spread(group, self.config)));
            self.stats.predictions += 1;
            self.stats.predicted += predicted;
            self.stats.came += came;
            self.stats.squared_error += (predicted - came).powi(2);
        }
        // If the judge failed, the group says nothing about the prompt.
        if group.rewards.iter().any(Reward::is_judged) {
            let record = PromptRecord::after(self.get(id), group, self.step, self.config);
            self.fresh.insert(id, record);
        }
    }

    fn finish(self: Box<Self>) -> Option<(CurriculumStats, BTreeMap<u64, PromptRecord>)> {
        let completions = (self.stats.skipped - self.stats.put_back) * self.group_size;
        Some((CurriculumStats { completions, ..self.stats }, self.fresh))
    }
}
