//! The updates of a step: its mini-batches, and as many updates as each of them gets.

use std::{slice, time::Instant};

use firebrick_core::{Seed, Step};
use rand::seq::SliceRandom;

use crate::{
    adaptive::{Repeatable, Signals, mean_advantage, mean_change, repeat},
    checkpoint::TrainerState,
    config::TrainConfig,
    error::TrainError,
    learner::{Learner, Update, checked_logprobs},
    logprob_check::LogprobCheck,
    observer::{Observer, Phase},
    report::Updated,
    sample::Sample,
};

/// The updates of a step.
pub(crate) struct Updates<'a, L: Learner> {
    pub(crate) learner: &'a mut L,
    pub(crate) config: &'a TrainConfig,
    pub(crate) state: &'a mut TrainerState,
    pub(crate) seed: Seed,
    pub(crate) step: Step,
    /// The policy's learning rate.
    pub(crate) lr: f64,
}

impl<L: Learner> Updates<'_, L> {
    /// Makes updates over shuffled mini-batches of nearly equal size. A last mini-batch of a few leftovers would move
    /// the weights as far as a full one, with more noise.
    pub(crate) fn run(
        mut self,
        samples: Vec<Sample>,
        logprob_check: Option<LogprobCheck>,
        observer: &mut dyn Observer,
    ) -> Result<Updated, TrainError> {
        let started = Instant::now();
        let total = samples.len();
        let mut units = self.units(samples);
        units.shuffle(&mut self.seed.derive("mini_batches", &[self.step]).rng());
        let count = total.div_ceil(self.config.mini_batch.max(1)).min(units.len());

        let interval = self.config.token_stats_every;
        let record_token_stats = interval > 0 && self.step.is_multiple_of(interval);
        let lr = self.lr;
        let mut updated = Updated { lr, record_token_stats, logprob_check, ..Updated::default() };
        let before = if count == 1 { self.before_single_update(&units)? } else { None };

        observer.begin(Phase::Update, count);
        for index in 0..count {
            let batch =
                units[units.len() * index / count..units.len() * (index + 1) / count].concat();

            if batch.iter().all(|sample| sample.loss_tokens() == 0) {
                updated.empty += 1;
            } else {
                MiniBatch { updates: &mut self, samples: batch, updated: &mut updated }.run()?;
            }
            observer.advance(1);
        }

        if let Some(before) = before.filter(|_| updated.updates == 1) {
            let logprobs = self.learner.logprobs(slice::from_ref(&before))?;
            updated.moved = Some(mean_change(&[before], &logprobs));
        }

        observer.end();
        updated.seconds = started.elapsed().as_secs_f64();
        Ok(updated)
    }

    /// Returns a sample with the log-probabilities of its tokens before the step's single update. Such an update
    /// computes its ratios where the old policy is, so that its own numbers look the same whether it moves the policy
    /// or not. The shortest sample is enough.
    fn before_single_update(
        &mut self,
        units: &[Vec<Sample>],
    ) -> Result<Option<Sample>, TrainError> {
        if self.config.adaptive.is_some() || !self.learner.trains_policy() {
            return Ok(None);
        }

        let counts = units.iter().flatten().filter(|sample| sample.loss_tokens() > 0);
        let Some(shortest) = counts.min_by_key(|sample| sample.length()) else { return Ok(None) };
        let samples = vec![shortest.clone()];
        let logprobs = checked_logprobs(self.learner.logprobs(&samples)?, &samples)?;
        let before = samples.into_iter().zip(logprobs);
        Ok(before.map(|(sample, old_logprobs)| Sample { old_logprobs, ..sample }).next())
    }

    /// Returns the units that mini-batches are made of: completions, or whole groups if the learner needs them.
    fn units(&self, samples: Vec<Sample>) -> Vec<Vec<Sample>> {
        let whole_groups = self.learner.needs_whole_groups();
        let mut units: Vec<Vec<Sample>> = Vec::new();

        for sample in samples {
            match units.last_mut() {
                Some(unit) if whole_groups && unit[0].group == sample.group => unit.push(sample),
                _ => units.push(vec![sample]),
            }
        }

        units
    }
}

/// One mini-batch of a step, and where its results are recorded.
struct MiniBatch<'a, 'b, L: Learner> {
    updates: &'a mut Updates<'b, L>,
    /// The samples of the mini-batch; at least one of them counts.
    samples: Vec<Sample>,
    updated: &'a mut Updated,
}

impl<L: Learner> MiniBatch<'_, '_, L> {
    /// Makes the updates of the mini-batch: one, or as many as [`crate::adaptive::AdaptiveUpdates`] plans. A completion
    /// counts once among the trained ones, however many updates there are. It does not count while only the
    /// critic is trained.
    fn run(mut self) -> Result<(), TrainError> {
        if !self.updates.learner.trains_policy() {
            return self.warm_critic();
        }

        let updates_before = self.updated.updates;
        match self.updates.config.adaptive {
            Some(rule) => {
                if self.updated.logprob_check.is_some() {
                    let logprobs = self.logprobs()?;
                    self.refuse(&logprobs);
                }
                if self.counts() {
                    let repeats = repeat(&mut self, &rule)?;
                    self.updated.repeats.push(repeats);
                }
            }
            None => {
                let (mut update, _) = self.pass()?;
                // The pass has the log-probabilities, and nothing has moved yet.
                if self.updated.logprob_check.is_some() {
                    let logprobs = self.updates.learner.logprobs_of(&update, &self.samples)?;
                    if self.refuse(&checked_logprobs(logprobs, &self.samples)?) {
                        update
                            .logprob_change
                            .into_iter()
                            .for_each(|it| self.updated.note_change(it));
                        if self.counts() {
                            (update, _) = self.pass()?;
                        }
                    }
                }
                if self.counts() {
                    self.apply(update)?;
                }
            }
        }

        if !self.counts() {
            self.updated.empty += 1;
        }

        if self.updated.updates > updates_before {
            let in_loss = self.samples.iter().filter(|sample| sample.in_loss).count();
            self.updates.state.trained += in_loss as u64;
        }
        Ok(())
    }

    /// Takes completions out of the loss whose log-probabilities can't be those of the policy. Returns true
    /// if there are any. `logprobs` has each sample's log-probabilities under the current policy.
    fn refuse(&mut self, logprobs: &[Vec<f32>]) -> bool {
        let Some(check) = &self.updated.logprob_check else { return false };
        let moved = self.updated.updates > 0;
        let refused = check.refused(&self.samples, logprobs, moved);

        for &index in &refused {
            self.samples[index].in_loss = false;
        }
        self.updated.refused += refused.len();
        !refused.is_empty()
    }

    fn logprobs(&mut self) -> Result<Vec<Vec<f32>>, TrainError> {
        checked_logprobs(self.updates.learner.logprobs(&self.samples)?, &self.samples)
    }

    /// Returns true if anything counts in the loss.
    fn counts(&self) -> bool {
        self.samples.iter().any(|sample| sample.loss_tokens() > 0)
    }

    /// Makes one update of the critic, however many updates the policy would get: such updates end by the
    /// policy's change, and here the policy is not trained.
    fn warm_critic(self) -> Result<(), TrainError> {
        let learner = &mut *self.updates.learner;
        let update = learner.gradient(&self.samples)?;
        let applied = learner.apply(update, &self.samples, false)?;

        if let Some((outcome, lr)) = applied.critic {
            self.updated.critic.add(outcome, lr);
            if !outcome.skipped {
                self.updated.note(applied.update);
            }
        }
        Ok(())
    }
}

impl<L: Learner> Repeatable for MiniBatch<'_, '_, L> {
    type Pass = Update<L::Gradient>;

    fn pass(&mut self) -> Result<(Update<L::Gradient>, Signals), TrainError> {
        let update = self.updates.learner.gradient(&self.samples)?;
        let is_known = update.logprob_change.is_some() && update.entropy.is_some();
        if self.updates.config.adaptive.is_some() && !is_known {
            return Err(TrainError::NoSignals);
        }

        let signals = Signals {
            advantage: mean_advantage(&self.samples),
            change: update.logprob_change.map_or(f64::NAN, |change| change.mean),
            entropy: update.entropy.unwrap_or(f64::NAN),
        };
        Ok((update, signals))
    }

    fn apply(&mut self, update: Update<L::Gradient>) -> Result<bool, TrainError> {
        let token_stats = self.updated.record_token_stats;
        let applied = self.updates.learner.apply(update, &self.samples, token_stats)?;

        let skipped = applied.outcome.skipped;
        let in_a_row = &mut self.updates.state.skipped_in_a_row;
        *in_a_row = if skipped { *in_a_row + 1 } else { 0 };

        if skipped {
            self.updated.skipped.push(self.samples.clone());
            return Ok(false);
        }
        let (expected, actual) = (self.samples.len(), applied.trained.len());
        if actual != expected {
            return Err(TrainError::Answer { what: "records of samples", expected, actual });
        }

        let shared = applied.update.prompt_sharing * applied.update.tokens as f64;
        self.updated.prompt_sharing += shared;

        // Only the first of several updates is recorded, because the others begin where it ended.
        let of_samples = self.samples.iter().zip(applied.trained);
        for (sample, trained) in of_samples.filter(|(sample, _)| sample.in_loss) {
            self.updated.trained.entry((sample.group, sample.place)).or_insert(trained);
        }

        self.updated.add(applied.update, applied.outcome.grad_norm);
        if let Some((outcome, lr)) = applied.critic {
            self.updated.critic.add(outcome, lr);
        }
        Ok(true)
    }

    fn change(&mut self) -> Result<f64, TrainError> {
        let logprobs = self.logprobs()?;
        Ok(mean_change(&self.samples, &logprobs))
    }
}
