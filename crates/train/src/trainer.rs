//! Training loop: one step publishes weights, samples, judges and updates.

use std::{collections::BTreeMap, time::Instant};

use burn::module::Module;
use firebrick_core::{
    AdvantageEstimator, Group, GroupFilter, GroupStatus, Metrics, Prompt, PromptSource,
    RewardScale, RewardShaper, RewardedGroup, Seed, Step, Trained, Verifier,
};
use firebrick_models::{Compute, PolicyModel};
use firebrick_rollout::{RolloutEngine, RolloutError, Sampling};
use rand::seq::SliceRandom;

use crate::{
    AdaptiveUpdates, Aggregation, Critic, Curriculum, Dynamic, EvalReport, LrSchedule, Optimizer,
    Phrases, Sample, SamplingReport, StepOutcome, TrainError, TrainerState, UpdateTotals, Updater,
    collect::Collection,
    eval::check_error_rate,
    evaluate,
    logprob_check::LogprobCheck,
    mini_batch::MiniBatch,
    prefetch::PrefetchInputs,
    report::{Sampled, Updated},
    reward,
    samples::{mask_by_tis_ratio, measure_logprob_diff, measure_tis_weights, samples_of},
};

/// Runs DAPO over a policy. Each of its parts can be replaced.
///
/// A step publishes the weights, samples, and updates, one after the other, so training is on-policy. With
/// [`TrainConfig::max_staleness`] it publishes, and samples the next step while it updates. A completion
/// records which weights wrote it, and a sample keeps the log-probabilities of the policy that wrote it apart
/// from those of the policy that the update starts from.
pub struct Trainer<M: Module> {
    /// Policy in training.
    pub policy: M,
    /// Frozen policy of the KL penalty; `None` unless the objective asks for one.
    pub reference: Option<M>,
    /// Estimates advantages token by token. Without a critic the task's estimator does so.
    pub critic: Option<Critic<M>>,
    /// Samples completions.
    pub engine: Box<dyn RolloutEngine<M>>,
    /// Source of the prompts.
    pub source: Box<dyn PromptSource>,
    /// Judges completions.
    pub task: Task,
    /// Phrases that are counted in the completions' texts.
    pub tracked_phrases: Phrases,
    /// Turns samples into gradients.
    pub updater: Updater,
    /// Turns gradients into weights.
    pub optimizer: Box<dyn Optimizer<M>>,
    /// Schedule of the policy's learning rate; its first step is the first that moves the policy.
    pub schedule: Box<dyn LrSchedule>,
    /// Sizes and rules of the loop.
    pub config: TrainConfig,
    /// The run's randomness.
    pub seed: Seed,
    /// What a resumed run needs, besides weights and optimizer.
    pub state: TrainerState,
    /// True if the weights are between two steps: from a step's first update to its end, and after a device
    /// failed in between.
    pub mid_update: bool,
}

/// Everything between completions and advantages.
pub struct Task {
    /// Scores a completion.
    pub verifier: Box<dyn Verifier>,
    /// Minimum and maximum of the base reward.
    pub scale: RewardScale,
    /// Shapers of the reward, applied in order.
    pub shapers: Vec<Box<dyn RewardShaper>>,
    /// Decides which groups are trained on.
    pub filter: Box<dyn GroupFilter>,
    /// Turns the step's rewards into advantages; `None` if a critic does.
    pub advantage: Option<Box<dyn AdvantageEstimator>>,
    /// Cores that judging leaves free: 2 next to a GPU, for the thread that queues kernel launches and for
    /// the one that makes them. On a stand-in driver, a launch from two busy cores took 18 times as long.
    pub spare_cores: usize,
}

impl Task {
    /// Judges and shapes the completions of the policy of `step`.
    pub(crate) fn reward(
        &self,
        groups: Vec<Group>,
        step: u64,
    ) -> Result<Vec<RewardedGroup>, TrainError> {
        reward(groups, &*self.verifier, self.scale, &self.shapers, step)
    }
}

/// Sizes and rules of the loop.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainConfig {
    /// Completions per prompt.
    pub group_size: usize,
    /// Groups per step.
    pub prompts_per_step: usize,
    /// Dynamic sampling: what is done about groups that the task's filter does not keep.
    pub dynamic: Dynamic,
    /// Picks prompts that are not sampled because of their earlier groups.
    pub curriculum: Option<Curriculum>,
    /// Largest number of rounds in a step; 0 means no limit. One round is `prompts_per_step` prompts.
    pub max_rounds: usize,
    /// What a step does if its rounds did not suffice.
    pub on_cap: OnCap,
    /// True if surplus groups are kept for the next step.
    pub carry_over: bool,
    /// Allowed lag, in steps, between the weights that a step is sampled with and the weights that are trained
    /// on it, surplus groups aside: 0 or 1.
    pub max_staleness: u64,
    /// Last step that may be prefetched.
    pub last_step: Step,
    /// Largest age of a surplus group, in steps, when it is used.
    pub max_carry_over_age: u64,
    /// Completions per optimizer update.
    pub mini_batch: usize,
    /// Rule for the number of updates of a mini-batch; `None` means one update.
    pub adaptive: Option<AdaptiveUpdates>,
    /// How training completions are drawn.
    pub sampling: Sampling,
    /// Cap of truncated importance sampling (TIS), if it is on: each token's loss is multiplied by
    /// min(cap, π_old / π_rollout) ([`Sample::set_tis_weights`]), where π_old is the policy that the update
    /// starts from, and π_rollout the policy that sampled the token. The log-probabilities under π_old are
    /// then recomputed before the update. This is for engines whose numerics or weights differ from the
    /// trainer's.
    pub tis_cap: Option<f64>,
    /// TIS mask: smallest and largest ratio π_old / π_rollout, as the geometric mean over a completion's
    /// tokens. Completions outside are masked. It only applies with a cap.
    pub tis_mask: Option<[f64; 2]>,
    /// Source of the old policy's log-probabilities; with a cap they are recomputed.
    pub old_logprobs: OldLogprobs,
    /// Interval, in steps, at which each token's ratio and entropy are recorded ([`StepReport::trained`]); 0
    /// means never.
    pub token_stats_every: u64,
    /// Largest share of completions that may have no verdict, in [0, 1]. Above it the step fails, and so does
    /// an evaluation.
    pub max_errors: f64,
}

/// Source of the old policy's log-probabilities in the loss: those of the policy that an update starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OldLogprobs {
    /// The updater computes them if they differ from the engine's by more than
    /// [`OldLogprobs::MAX_LOGPROB_DIFF`], and, before the difference is known, if the matmul precision makes
    /// such a difference likely. With [`TrainConfig::max_staleness`] they are the engine's.
    #[default]
    Auto,
    /// They are the engine's.
    Sampled,
    /// The updater computes them.
    Recomputed,
}

impl OldLogprobs {
    /// Mean difference, on the same weights, above which log-probabilities are recomputed. It is a fortieth
    /// of DAPO's lower clip: the difference between two ways of rounding should not clip a token.
    pub const MAX_LOGPROB_DIFF: f64 = 0.005;
}

impl TrainConfig {
    /// Returns the number of sampling rounds after which a step continues with the groups that it has. It is
    /// one if missing groups are not replaced: groups that were dropped, and, without dynamic sampling, groups
    /// that the curriculum left out.
    pub fn rounds(&self) -> usize {
        match self.dynamic {
            Dynamic::Filter | Dynamic::Replace { .. } => self.max_rounds,
            Dynamic::Off if self.curriculum.is_none() => self.max_rounds,
            Dynamic::Drop | Dynamic::Off => 1,
        }
    }

    /// Returns true if [`OnCap`] decides about a step with too few groups after its rounds.
    pub(crate) fn requires_full_batch(&self) -> bool {
        match self.dynamic {
            Dynamic::Filter | Dynamic::Replace { .. } => true,
            Dynamic::Off => self.curriculum.is_none(),
            Dynamic::Drop => false,
        }
    }
}

/// What a step does if it reaches its sampling cap with too few groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCap {
    /// Trains on the groups that were kept; the loss is divided by their tokens.
    TrainSmaller,
    /// Ends the run, cleanly.
    Stop,
    /// Ends the run with an error.
    Error,
}

/// Part of the run that takes long enough to show its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Sampling completions.
    Rollout,
    /// Optimizer updates.
    Update,
    /// Evaluation.
    Eval,
}

/// Follows the progress of a phase.
pub trait Observer {
    /// Notes that `phase` begins and will take `total` units: completions for a rollout, mini-batches for an
    /// update.
    fn begin(&mut self, phase: Phase, total: usize);

    /// Notes that the phase will take `units` more than `begin` said.
    fn extend(&mut self, units: usize);

    /// Notes that `units` more are done.
    fn advance(&mut self, units: usize);

    /// Notes that the phase has ended.
    fn end(&mut self);
}

/// Ignores everything.
impl Observer for () {
    fn begin(&mut self, _: Phase, _: usize) {}
    fn extend(&mut self, _: usize) {}
    fn advance(&mut self, _: usize) {}
    fn end(&mut self) {}
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

impl<M: PolicyModel> Trainer<M> {
    /// Does one step: rollouts, rewards, advantages, updates.
    ///
    /// # Errors
    /// When the engine or the device fails, or the cap was reached and the configuration makes that an error.
    /// These guarantees then hold, and also if the cap ends the run without an error:
    ///
    /// - The state is as it was after the previous step, except for the count of sampled completions.
    /// - If the run was interrupted, this count too is as it was.
    /// - If a device failed during the updates, or the step was interrupted there, the weights are between two
    ///   steps, and [`Trainer::mid_update`] is true.
    pub fn step(&mut self, observer: &mut dyn Observer) -> Result<StepReport, TrainError> {
        let TrainerState { generated, skipped_in_a_row, loss_scale, .. } = self.state;
        let report = self.step_inner(observer);

        if !self.mid_update
            && let Err(error) = &report
        {
            // The step is retried, so its counters are reset.
            self.state.skipped_in_a_row = skipped_in_a_row;
            self.state.loss_scale = loss_scale;

            // A verifier that is interrupted has its own error.
            let interrupted = self.updater.interrupted.is_set()
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

    fn step_inner(&mut self, observer: &mut dyn Observer) -> Result<StepReport, TrainError> {
        let started = Instant::now();
        let step = self.state.step + 1;
        if self.updater.objective.needs_reference() && self.reference.is_none() {
            return Err(TrainError::NoReference);
        }

        match (&self.task.advantage, &self.critic) {
            (None, None) => return Err(TrainError::NoAdvantage),
            (Some(_), Some(_)) => return Err(TrainError::TwoAdvantages),
            _ => {}
        }
        // ANCHOR: tour
        self.publish()?;
        let (mut sampled, cursor) = match self.state.prefetched.clone().filter(|it| it.step == step)
        {
            Some(prefetched) => {
                self.state.generated += prefetched.sampled.completions();
                (prefetched.sampled, prefetched.cursor)
            }
            None => (self.sample_groups(step, observer)?, self.source.cursor()),
        };

        self.check_error_rate(sampled.errors(), sampled.completions())?;
        if sampled.stop.is_some() {
            return Ok(self.report(sampled, Updated::default(), started));
        }

        let prefetches = self.config.max_staleness > 0 && step < self.config.last_step;
        if !prefetches {
            self.engine.sleep();
        }

        let (samples, sample_metrics) = self.build_samples(&sampled.kept)?;
        let logprob_check = self
            .engine
            .tolerance()
            .map(|logprob_tolerance| LogprobCheck::new(logprob_tolerance, &sampled.kept, step));

        let carried_over = std::mem::take(&mut sampled.carried_over);
        let records = std::mem::take(&mut sampled.records);
        let mut prefetched = None;
        let updated = if prefetches {
            let carried_over = carried_over.clone();
            let mut history = self.state.history.clone();
            history.extend(records.clone());
            let inputs = PrefetchInputs { carried_over, history, cursor };
            let updated;
            (updated, prefetched) =
                self.update_and_prefetch(step, samples, logprob_check, inputs, observer);
            updated?
        } else {
            self.update(step, samples, logprob_check, observer)?
        };

        // Commit the state only here: a step that failed before leaves it as it was.
        self.state.step = step;
        self.state.carried_over = carried_over;
        self.state.history.extend(records);
        self.state.cursor = cursor;
        self.state.prefetched = prefetched;
        self.mid_update = false;
        // ANCHOR_END: tour
        let (staleness_mean, staleness_max) = staleness(&sampled.kept, step);
        let on_policy = staleness_max == 0.0;

        let mut report = self.report(sampled, updated, started);
        report.metrics.extend(sample_metrics);
        report.metrics.set("rollout/staleness_mean", staleness_mean);
        report.metrics.set("rollout/staleness_max", staleness_max);

        // The log-probabilities of an older policy differ by more than rounding.
        let logprob_diff = report.metrics.get("rollout/logprob_diff_mean");
        if on_policy && let Some(logprob_diff) = logprob_diff.filter(|it| it.is_finite()) {
            self.state.logprob_diff = Some(logprob_diff);
        }
        Ok(report)
    }

    /// Publishes the current policy to the engine, which then samples from it.
    fn publish(&mut self) -> Result<(), TrainError> {
        Ok(self.engine.publish(&self.policy, self.state.step)?)
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
        let advance = &mut |units| observer.advance(units);
        let engine = self.engine.as_mut();
        let report = evaluate(
            engine,
            &*self.task.verifier,
            prompts,
            completions_per_prompt,
            sampling,
            seed,
            advance,
        );
        observer.end();

        let (report, groups) = report?;
        report.check_errors(self.config.max_errors)?;
        Ok((report, groups))
    }

    /// Fails if too many of the completions have no verdict.
    pub(crate) fn check_error_rate(&self, errors: u64, completions: u64) -> Result<(), TrainError> {
        check_error_rate(errors, completions, self.config.max_errors)
    }

    /// Samples until there are enough groups to train on, or the cap is reached.
    fn sample_groups(
        &mut self,
        step: u64,
        observer: &mut dyn Observer,
    ) -> Result<Sampled, TrainError> {
        let Trainer { policy, config, state, source, engine, task, seed, .. } = self;
        source.seek(state.cursor);

        let mut collection =
            Collection::begin(config, &state.carried_over, &state.history, step, *seed);
        let vocab = policy.head().dims()[0];
        collection.run(engine.as_mut(), source.as_mut(), task, vocab, observer)?;

        let generated = collection.sampled.completions();
        let sampled = collection.finish();
        state.generated += generated;
        sampled
    }

    /// Builds samples from the kept groups, with their advantages. A critic, if there is one, estimates them
    /// token by token.
    fn build_samples(
        &mut self,
        groups: &[RewardedGroup],
    ) -> Result<(Vec<Sample>, Metrics), TrainError> {
        let mut samples = samples_of(groups, self.task.advantage.as_deref())?;
        let mut metrics = Metrics::default();

        let cap = self.config.tis_cap;
        if cap.is_some() || self.recomputes_old_logprobs() {
            let logprobs = self.retry_on_oom(&samples, |trainer| {
                trainer.updater.logprobs(&trainer.policy, &samples)
            })?;

            for (sample, logprobs) in samples.iter_mut().zip(logprobs) {
                if sample.loss_tokens() > 0 {
                    sample.old_logprobs = logprobs;
                }
            }
            measure_logprob_diff(&samples, &mut metrics);
        }

        if let Some(cap) = cap {
            samples.iter_mut().for_each(|sample| sample.set_tis_weights(cap));
            measure_tis_weights(&samples, cap, &mut metrics);
            if let Some(range) = self.config.tis_mask {
                metrics.set("rollout/tis_masked", mask_by_tis_ratio(&mut samples, range));
            }
        }

        let logprobs = self.retry_on_oom(&samples, |trainer| {
            let reference = trainer.reference.as_ref();
            reference.map(|reference| trainer.updater.logprobs(reference, &samples)).transpose()
        })?;
        for (sample, logprobs) in samples.iter_mut().zip(logprobs.into_iter().flatten()) {
            sample.ref_logprobs = logprobs;
        }

        metrics.extend(self.estimate_advantages(&mut samples)?);
        Ok((samples, metrics))
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
                None => self.policy.compute() != Compute::F32,
            },
        }
    }

    /// Returns true if a gradient that was not finite is to be computed again with a smaller loss scale.
    pub(crate) fn retry_with_smaller_scale(&mut self, outcome: &StepOutcome) -> bool {
        let scale = &mut self.state.loss_scale;
        if self.policy.compute() != Compute::F16 {
            return false;
        }

        if !outcome.skipped {
            scale.record_finite();
        }
        outcome.skipped && scale.record_overflow()
    }

    /// Makes optimizer updates over shuffled mini-batches of nearly equal size. A last mini-batch of a few
    /// leftovers would move the weights as far as a full one, with more noise.
    pub(crate) fn update(
        &mut self,
        step: u64,
        samples: Vec<Sample>,
        logprob_check: Option<LogprobCheck>,
        observer: &mut dyn Observer,
    ) -> Result<Updated, TrainError> {
        let started = Instant::now();
        let total = samples.len();
        let mut units = self.minibatch_units(samples);
        units.shuffle(&mut self.seed.derive("mini_batches", &[step]).rng());
        let count = total.div_ceil(self.config.mini_batch.max(1)).min(units.len());

        let lr = self.policy_lr()?;
        let interval = self.config.token_stats_every;
        let record_token_stats = interval > 0 && step.is_multiple_of(interval);
        let mut updated = Updated { lr, record_token_stats, logprob_check, ..Updated::default() };

        observer.begin(Phase::Update, count);
        for index in 0..count {
            let batch =
                units[units.len() * index / count..units.len() * (index + 1) / count].concat();

            if batch.iter().all(|sample| sample.loss_tokens() == 0) {
                updated.empty += 1;
            } else {
                MiniBatch { trainer: self, samples: batch, lr, updated: &mut updated }.run()?;
            }
            observer.advance(1);
        }

        observer.end();
        updated.seconds = started.elapsed().as_secs_f64();
        Ok(updated)
    }

    /// Returns the units that mini-batches are made of: completions, or whole groups if the loss is a mean
    /// over each group.
    fn minibatch_units(&self, samples: Vec<Sample>) -> Vec<Vec<Sample>> {
        let whole_groups = self.updater.aggregation == Aggregation::PromptMean;
        let mut units: Vec<Vec<Sample>> = Vec::new();

        for sample in samples {
            match units.last_mut() {
                Some(unit) if whole_groups && unit[0].group == sample.group => unit.push(sample),
                _ => units.push(vec![sample]),
            }
        }

        units
    }

    fn report(&self, sampled: Sampled, mut updated: Updated, started: Instant) -> StepReport {
        let mut metrics = Metrics::default();
        // A group and its copies have the same draw.
        let trained = std::mem::take(&mut updated.trained).into_iter();
        let trained = trained.map(|((group, index), trained)| {
            ((sampled.kept[group as usize].group.draw, index), trained)
        });
        let trained = trained.collect();

        let sampling = sampled.record_metrics(&mut metrics);
        self.tracked_phrases.record_metrics(&sampled.all, &mut metrics);
        let (update, skipped) = updated.record_metrics(&mut metrics);

        let layers = self.updater.micro_batching.layers_without_recompute.min(self.policy.layers());
        metrics.set("update/whole_layers", layers as f64);
        if self.config.curriculum.is_some() {
            metrics.set("sampling/curriculum_prompts", self.state.history.len() as f64);
        }

        metrics.set("time/step", started.elapsed().as_secs_f64());
        let Sampled { all, statuses, stop, .. } = sampled;
        StepReport { sampling, update, metrics, groups: all, statuses, trained, skipped, stop }
    }
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
