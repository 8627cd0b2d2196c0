//! Training loop: one step publishes weights, samples, judges and updates.

use std::{collections::BTreeMap, mem, panic::resume_unwind, thread, time::Instant};

use firebrick_core::{
    GroupStatus, Metrics, Prompt, RewardedGroup, Seed, Step, Trained, config::OldLogprobs,
};
use firebrick_rollout::{RolloutError, Sampling};

use crate::{
    checkpoint::TrainerState,
    config::TrainConfig,
    error::TrainError,
    eval::{EvalReport, evaluate},
    learner::{Learner, checked_logprobs},
    logprob_check::LogprobCheck,
    observer::{Observer, Phase, PhaseTokens},
    phrases::Phrases,
    report::{SamplingReport, UpdateTotals, Updated},
    sample::Sample,
    sampler::{
        Sampler,
        sampled::{Beginning, Prefetched, Sampled},
    },
    samples::{
        gate_by_divergence, mask_by_tis_ratio, measure_logprob_diff, measure_tis_weights,
        samples_of,
    },
    updates::Updates,
};

/// Runs DAPO: a sampler, a learner, and the clock that drives both. Each of their parts can be replaced.
///
/// A step publishes the weights, samples, and updates, one after the other, so training is on-policy. With
/// [`TrainConfig::max_staleness`] it publishes, and samples the next step while it updates. A completion
/// records which weights wrote it, and a sample keeps the log-probabilities of the policy that wrote it apart
/// from those of the policy that the update starts from.
pub struct Trainer<L: Learner> {
    /// Draws prompts, samples completions and judges them.
    pub sampler: Sampler<L::Policy>,
    /// Turns samples into new weights.
    pub learner: L,
    /// Rules of the loop.
    pub config: TrainConfig,
    /// Phrases that are counted in the completions' texts.
    pub tracked_phrases: Phrases,
    /// The run's randomness.
    pub seed: Seed,
    /// What a resumed run needs, besides the learner's own state.
    pub state: TrainerState,
}

/// Result of a step.
#[derive(Clone, Debug)]
pub struct StepReport {
    /// Outcome of sampling.
    pub sampling: SamplingReport,
    /// Outcome of the updates.
    pub update: UpdateTotals,
    /// Every metric of the step, by name.
    pub metrics: Metrics,
    /// Every group that was sampled, kept or not.
    pub groups: Vec<RewardedGroup>,
    /// Status of each group, by its draw.
    pub statuses: BTreeMap<u64, GroupStatus>,
    /// Completions that counted in an update, by the draws of their groups and their indices in them. A group
    /// may be of an earlier step.
    pub trained: BTreeMap<(u64, usize), Trained>,
    /// Mini-batches that were skipped because their gradient was not finite.
    pub skipped: Vec<Vec<Sample>>,
    /// Reason why the run should end here, if it should.
    pub stop: Option<String>,
}

impl<L: Learner> Trainer<L> {
    /// Makes a trainer that begins with the first step.
    pub fn new(sampler: Sampler<L::Policy>, learner: L, config: TrainConfig, seed: Seed) -> Self {
        Trainer {
            sampler,
            learner,
            config,
            tracked_phrases: Phrases::default(),
            seed,
            state: TrainerState::default(),
        }
    }

    /// Does one step: rollouts, rewards, advantages, updates.
    ///
    /// # Errors
    /// When the engine or the device fails, or the cap was reached and the configuration makes that an error.
    /// These guarantees then hold, and also if the cap ends the run without an error:
    ///
    /// - The state is as it was after the previous step, except for the count of sampled completions.
    /// - If the run was interrupted, this count too is as it was.
    /// - If a device failed during the updates, or the step was interrupted there, the weights are between two
    ///   steps, and [`Learner::is_mid_step`] is true.
    pub fn step(&mut self, observer: &mut dyn Observer) -> Result<StepReport, TrainError> {
        match (&self.sampler.task.advantage, self.learner.estimates_advantages()) {
            (None, false) => return Err(TrainError::NoAdvantage),
            (Some(_), true) => return Err(TrainError::TwoAdvantages),
            _ => {}
        }

        let TrainerState { step, generated, skipped_in_a_row, .. } = self.state;
        let lr = self.learner.begin_step(step + 1)?;
        let report = self.step_inner(lr, observer);
        self.learner.end_step(self.state.step > step);

        if !self.learner.is_mid_step()
            && let Err(error) = &report
        {
            // The step is retried, so its counters are reset.
            self.state.skipped_in_a_row = skipped_in_a_row;

            // A verifier that is interrupted has its own error.
            let interrupted = self.learner.is_interrupted()
                || matches!(
                    error,
                    TrainError::Interrupted | TrainError::Rollout(RolloutError::Interrupted)
                );
            if interrupted {
                self.state.generated = generated;
            }
        }

        report
    }

    fn step_inner(
        &mut self,
        lr: f64,
        observer: &mut dyn Observer,
    ) -> Result<StepReport, TrainError> {
        let started = Instant::now();
        let step = self.state.step + 1;
        // ANCHOR: tour
        self.publish()?;
        let (mut sampled, cursor) = match self.state.prefetched.clone().filter(|it| it.step == step)
        {
            Some(prefetched) => {
                self.state.generated += prefetched.sampled.completions();
                (prefetched.sampled, prefetched.cursor)
            }
            None => (self.sample(step, observer)?, self.sampler.source.cursor()),
        };

        self.sampler.check_error_rate(&sampled)?;
        if sampled.stop.is_some() {
            return Ok(self.report(sampled, Updated::default(), started));
        }

        let prefetches = self.config.max_staleness > 0 && step < self.config.last_step;
        if !prefetches {
            self.sampler.engine.sleep();
        }

        let Built { samples, metrics, logprob_diff } = self.build_samples(&sampled.kept)?;
        let logprob_check = self
            .sampler
            .engine
            .tolerance()
            .map(|logprob_tolerance| LogprobCheck::new(logprob_tolerance, &sampled.kept, step));

        let carried_over = mem::take(&mut sampled.carried_over);
        let records = mem::take(&mut sampled.records);
        let (updated, prefetched) = if prefetches {
            let mut history = self.state.history.clone();
            history.extend(records.clone());
            let carried_over = &carried_over;
            let (seed, vocab) = (self.seed, self.learner.vocab());
            let from =
                Beginning { step: step + 1, seed, carried_over, history: &history, cursor, vocab };
            self.update_and_prefetch(samples, logprob_check, lr, &from, observer)?
        } else {
            (self.updates(step, lr).run(samples, logprob_check, observer)?, None)
        };

        // Commit the state only here: a step that failed before leaves it as it was.
        self.state.step = step;
        self.state.carried_over = carried_over;
        self.state.history.extend(records);
        self.state.cursor = cursor;
        self.state.prefetched = prefetched;
        // ANCHOR_END: tour
        let (staleness_mean, staleness_max) = staleness(&sampled.kept, step);
        let on_policy = staleness_max == 0.0;

        let logprob_diff = logprob_diff.or(updated.first_change.map(|change| change.mean));
        let mut report = self.report(sampled, updated, started);
        report.metrics.extend(metrics);
        report.metrics.set("rollout/staleness_mean", staleness_mean);
        report.metrics.set("rollout/staleness_max", staleness_max);

        // The log-probabilities of an older policy differ by more than rounding.
        if on_policy && let Some(logprob_diff) = logprob_diff.filter(|it| it.is_finite()) {
            self.state.logprob_diff = Some(logprob_diff);
        }
        Ok(report)
    }

    /// Publishes the current policy to the engine, which then samples from it.
    fn publish(&mut self) -> Result<(), TrainError> {
        Ok(self.sampler.engine.publish(self.learner.policy(), self.state.step)?)
    }

    /// Publishes the current policy and measures its accuracy on `prompts`, with the same random numbers at
    /// every step, so that a curve shows the policy's change and not the draw's. Returns the groups as well.
    ///
    /// # Errors
    /// When the engine fails, or too many completions could not be judged.
    pub fn evaluate(
        &mut self,
        prompts: &[Prompt],
        completions_per_prompt: usize,
        sampling: &Sampling,
        observer: &mut dyn Observer,
    ) -> Result<(EvalReport, Vec<RewardedGroup>), TrainError> {
        self.publish()?;
        observer.begin(Phase::Eval, prompts.len() * completions_per_prompt);

        let seed = self.seed.derive("eval", &[]);
        let Sampler { engine, task, config, .. } = &mut self.sampler;
        let tokens = PhaseTokens::begin(engine.as_ref());
        let most = prompts.len() * completions_per_prompt * sampling.max_completion_tokens;
        let advance = &mut |units| {
            if let Some(sampled) = tokens.sampled() {
                observer.tokens(sampled, most as u64);
            }
            observer.advance(units);
        };
        let report = evaluate(
            engine.as_mut(),
            &*task.verifier,
            prompts,
            completions_per_prompt,
            sampling,
            seed,
            advance,
        );
        observer.end();

        let (report, groups) = report?;
        report.check_errors(config.max_errors)?;
        Ok((report, groups))
    }

    /// Samples the groups of a step.
    fn sample(&mut self, step: Step, observer: &mut dyn Observer) -> Result<Sampled, TrainError> {
        let TrainerState { carried_over, history, cursor, generated, .. } = &mut self.state;
        let (seed, cursor, vocab) = (self.seed, *cursor, self.learner.vocab());
        let from = Beginning { step, seed, carried_over, history, cursor, vocab };
        self.sampler.sample(&from, generated, observer)
    }

    /// Trains on `samples`, and samples the next step meanwhile. The outcome depends on no clock: sampling before the
    /// update would yield the same groups.
    ///
    /// If sampling fails, nothing is lost: the next step samples then, and fails only if sampling fails again. If it
    /// is interrupted, this step ends too: otherwise the next step would be sampled by other weights when the run
    /// continues.
    fn update_and_prefetch(
        &mut self,
        samples: Vec<Sample>,
        logprob_check: Option<LogprobCheck>,
        lr: f64,
        from: &Beginning<'_>,
        observer: &mut dyn Observer,
    ) -> Result<(Updated, Option<Prefetched>), TrainError> {
        let Trainer { sampler, learner, config, state, seed, .. } = self;
        let updates = Updates { learner, config, state, seed: *seed, step: from.step - 1, lr };

        let (updated, prefetched) = thread::scope(|scope| {
            let sampling = scope.spawn(|| prefetch(sampler, from));
            (updates.run(samples, logprob_check, observer), sampling.join())
        });

        let prefetched = prefetched.unwrap_or_else(|panic| resume_unwind(panic));
        let updated = updated?;
        match prefetched {
            // Engine and verifier each have their own error for an interruption.
            Err(_) if self.learner.is_interrupted() => Err(TrainError::Interrupted),
            prefetched => Ok((updated, prefetched.unwrap_or_default())),
        }
    }

    fn updates(&mut self, step: Step, lr: f64) -> Updates<'_, L> {
        let Trainer { learner, config, state, seed, .. } = self;
        Updates { learner, config, state, seed: *seed, step, lr }
    }

    /// Builds samples from the kept groups, with their advantages. The learner completes them.
    fn build_samples(&mut self, groups: &[RewardedGroup]) -> Result<Built, TrainError> {
        let mut logprob_diff = None;
        let mut samples = samples_of(groups, self.sampler.task.advantage.as_deref())?;
        let mut metrics = Metrics::default();

        let cap = self.config.tis_cap;
        if cap.is_some() || self.recomputes_old_logprobs() {
            let logprobs = checked_logprobs(self.learner.logprobs(&samples)?, &samples)?;
            for (sample, logprobs) in samples.iter_mut().zip(logprobs) {
                if sample.loss_tokens() > 0 {
                    sample.old_logprobs = logprobs;
                }
            }
            logprob_diff = measure_logprob_diff(&samples, &mut metrics);
        }

        if let Some(cap) = cap {
            samples.iter_mut().for_each(|sample| sample.set_tis_weights(cap));
            measure_tis_weights(&samples, cap, &mut metrics);
            if let Some(range) = self.config.tis_mask {
                metrics.set("rollout/tis_masked", mask_by_tis_ratio(&mut samples, range));
            }
            if let Some(gate) = self.config.tis_gate {
                metrics.set("rollout/tis_gated", gate_by_divergence(&mut samples, gate));
            }
        }

        metrics.extend(self.learner.appraise(&mut samples)?);
        Ok(Built { samples, metrics, logprob_diff })
    }

    /// Returns true if log-probabilities are recomputed for the old policy, instead of taken from the
    /// samples.
    fn recomputes_old_logprobs(&self) -> bool {
        match self.config.old_logprobs {
            OldLogprobs::Sampled => false,
            OldLogprobs::Recomputed => true,
            // Here the gap comes from staleness, and recomputing would hide it from the ratio.
            OldLogprobs::Auto if self.config.max_staleness > 0 => false,
            OldLogprobs::Auto => match self.state.logprob_diff {
                Some(logprob_diff) => logprob_diff > OldLogprobs::MAX_LOGPROB_DIFF,
                None => self.learner.has_low_precision(),
            },
        }
    }

    fn report(&self, sampled: Sampled, mut updated: Updated, started: Instant) -> StepReport {
        let mut metrics = Metrics::default();
        // A group and its copies have the same draw.
        let trained = mem::take(&mut updated.trained).into_iter();
        let trained = trained.map(|((group, index), trained)| {
            ((sampled.kept[group as usize].group.draw, index), trained)
        });
        let trained = trained.collect();

        let sampling = sampled.record_metrics(&mut metrics);
        sampled.record_data_sources(&self.sampler.config.data_sources, &mut metrics);
        self.tracked_phrases.record_metrics(&sampled.all, &mut metrics);
        let (update, skipped) = updated.record_metrics(&mut metrics);

        self.learner.record_metrics(&mut metrics);
        metrics.extend(self.sampler.task.verifier.take_costs());
        if self.sampler.config.curriculum.is_some() {
            metrics.set("sampling/curriculum_prompts", self.state.history.len() as f64);
        }

        metrics.set("time/step", started.elapsed().as_secs_f64());
        let Sampled { all, statuses, stop, .. } = sampled;
        StepReport { sampling, update, metrics, groups: all, statuses, trained, skipped, stop }
    }
}

/// Samples of a step, ready for its updates.
struct Built {
    samples: Vec<Sample>,
    metrics: Metrics,
    /// Mean difference between the log-probabilities of the old policy and those that the engine gave, if they were
    /// recomputed.
    logprob_diff: Option<f64>,
}

/// Samples the groups of the next step, while a step is trained on.
fn prefetch<P>(
    sampler: &mut Sampler<P>,
    from: &Beginning<'_>,
) -> Result<Option<Prefetched>, TrainError> {
    // The completions count when their step begins.
    let sampled = sampler.sample(from, &mut 0, &mut ())?;
    let cursor = sampler.source.cursor();
    // A step that would end the run is sampled again, because the cause could be fixed before.
    let usable = sampled.stop.is_none() && sampler.check_error_rate(&sampled).is_ok();
    Ok(usable.then_some(Prefetched { step: from.step, sampled, cursor }))
}

/// Measures how many steps the policy of `step` is ahead of the policies that wrote its completions: the mean
/// and the maximum.
fn staleness(groups: &[RewardedGroup], step: Step) -> (f64, f64) {
    let completions = groups.iter().flat_map(|group| &group.group.completions);
    let ages = completions.map(|it| (step - 1).saturating_sub(it.policy_version) as f64);
    let (count, sum, max) = ages
        .fold((0.0, 0.0, 0.0f64), |(count, sum, max), age| (count + 1.0, sum + age, max.max(age)));

    (sum / f64::max(count, 1.0), max)
}
