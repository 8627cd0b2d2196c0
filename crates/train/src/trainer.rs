//! The training loop: one step publishes weights, samples, judges and updates.

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
    mini_batch::MiniBatch,
    prefetch::Start,
    report::{Sampled, Updated},
    reward,
    samples::{leave_out, measure_change, measure_importance, samples_of},
    trust::Trust,
};

/// The DAPO loop over a policy. Each of its parts can be exchanged.
///
/// A step publishes the weights, samples, and updates, one after the other. So every completion comes from
/// the policy that is trained on it. With [`TrainConfig::max_staleness`] it publishes, and samples the next
/// step while it updates. A completion tells which weights wrote it, and a sample keeps the log-probabilities
/// of the policy that wrote it apart from those of the policy that the update starts from.
pub struct Trainer<M: Module> {
    /// The policy in training.
    pub policy: M,
    /// The frozen policy of the KL penalty; `None` unless the objective asks for one.
    pub reference: Option<M>,
    /// The critic, which gives advantages token by token. Without a critic the task's estimator gives them.
    pub critic: Option<Critic<M>>,
    /// The engine that samples completions.
    pub engine: Box<dyn RolloutEngine<M>>,
    /// The source of the prompts.
    pub source: Box<dyn PromptSource>,
    /// The task, which judges completions.
    pub task: Task,
    /// The phrases that are counted in the completions' texts.
    pub phrases: Phrases,
    /// The updater, which turns samples into gradients.
    pub updater: Updater,
    /// The optimizer, which turns gradients into weights.
    pub optimizer: Box<dyn Optimizer<M>>,
    /// The schedule of the policy's learning rate; its first step is the first that moves the policy.
    pub schedule: Box<dyn LrSchedule>,
    /// The sizes and rules of the loop.
    pub config: TrainConfig,
    /// The run's randomness.
    pub seed: Seed,
    /// The state that a resumed run needs, besides weights and optimizer.
    pub state: TrainerState,
    /// True if the weights are on the way from one step to the next: from a step's first update to its end,
    /// and after a device failed in between.
    pub mid_update: bool,
}

/// The way from completions to advantages.
pub struct Task {
    /// The verifier, which scores a completion.
    pub verifier: Box<dyn Verifier>,
    /// The scale, which gives the ends of the base reward.
    pub scale: RewardScale,
    /// The shapers of the reward, applied in order.
    pub shapers: Vec<Box<dyn RewardShaper>>,
    /// The filter, which decides which groups are trained on.
    pub filter: Box<dyn GroupFilter>,
    /// The estimator that turns the step's rewards into advantages; `None` if a critic gives them.
    pub advantage: Option<Box<dyn AdvantageEstimator>>,
    /// The number of cores that judging leaves to others: 2 beside a GPU, for the thread that asks for launches and
    /// for the one that makes them. On a stand-in driver, a launch from two busy cores took 18 times as long.
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

/// The sizes and rules of the loop.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainConfig {
    /// The number of completions per prompt.
    pub group_size: usize,
    /// The number of groups per step.
    pub prompts_per_step: usize,
    /// The treatment of groups that the task's filter does not keep.
    pub dynamic: Dynamic,
    /// The curriculum, which picks prompts that are not sampled because of their earlier groups.
    pub curriculum: Option<Curriculum>,
    /// The largest number of rounds in a step, each of as many prompts as the step wants groups; 0 means no
    /// limit.
    pub max_rounds: usize,
    /// The action of a step if its rounds did not suffice.
    pub on_cap: OnCap,
    /// True if surplus groups are kept for the next step.
    pub carry_over: bool,
    /// The number of steps that the policy may be ahead of the weights that a step is sampled with, surplus
    /// groups aside: 0 or 1.
    pub max_staleness: u64,
    /// The last step that may be sampled before its turn.
    pub last_step: Step,
    /// The largest age of a surplus group, in steps, when it is used.
    pub max_carry_over_age: u64,
    /// The number of completions per optimizer update.
    pub mini_batch: usize,
    /// The rule for the number of updates of a mini-batch; `None` means one update.
    pub adaptive: Option<AdaptiveUpdates>,
    /// The way in which training completions are drawn.
    pub sampling: Sampling,
    /// The cap of importance weights ([`Sample::weigh`]), if tokens are weighted. A weight is how much more
    /// likely the policy that the update starts from would have sampled the token than the policy that did.
    /// The log-probabilities of the first policy are then computed again before the update. This is for
    /// engines whose numerics or weights differ from the trainer's.
    pub tis_cap: Option<f64>,
    /// The smallest and the largest ratio between these two policies, as the geometric mean over a
    /// completion's tokens. Completions outside are left out. It only applies with a cap.
    pub tis_mask: Option<[f64; 2]>,
    /// The source of the old policy's log-probabilities; with a cap they are recomputed.
    pub old_logprobs: OldLogprobs,
    /// The number of steps from one look at each token's ratio and entropy to the next
    /// ([`StepReport::trained`]); 0 means never.
    pub look_every: u64,
    /// The largest share of completions that may have no verdict, in [0, 1]. Above it nothing is learnt or
    /// measured.
    pub max_errors: f64,
}

/// The source of the log-probabilities that the loss takes for those of the policy that an update starts
/// from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OldLogprobs {
    /// The updater gives them if they differ from the engine's by more than [`OldLogprobs::BOUND`]. Before
    /// the difference is known, it gives them if the format of products makes such a difference likely. With
    /// [`TrainConfig::max_staleness`] the engine gives them.
    #[default]
    Auto,
    /// The engine gives them.
    Sampled,
    /// The updater gives them.
    Recomputed,
}

impl OldLogprobs {
    /// The mean difference, on the same weights, above which log-probabilities are recomputed. It is a
    /// fortieth of DAPO's lower clip: the difference between two ways of rounding should not clip a token.
    pub const BOUND: f64 = 0.005;
}

impl TrainConfig {
    /// Gives the number of sampling rounds after which a step continues with the groups that it has. It is one
    /// if missing groups are meant to be missing: groups that were dropped, and, without dynamic sampling,
    /// groups that the curriculum left out.
    pub fn rounds(&self) -> usize {
        match self.dynamic {
            Dynamic::Filter | Dynamic::Replace { .. } => self.max_rounds,
            Dynamic::Off if self.curriculum.is_none() => self.max_rounds,
            Dynamic::Drop | Dynamic::Off => 1,
        }
    }

    /// Tells whether [`OnCap`] decides about a step with too few groups after its rounds.
    pub(crate) fn wants_all(&self) -> bool {
        match self.dynamic {
            Dynamic::Filter | Dynamic::Replace { .. } => true,
            Dynamic::Off => self.curriculum.is_none(),
            Dynamic::Drop => false,
        }
    }
}

/// The actions of a step that reached its sampling cap with too few groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCap {
    /// Trains on the groups that there are; the loss is divided by their tokens.
    TrainSmaller,
    /// Ends the run, cleanly.
    Stop,
    /// Ends the run with an error.
    Error,
}

/// A part of the run that takes long enough to be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Sampling completions.
    Rollout,
    /// Optimizer updates.
    Update,
    /// Evaluation.
    Eval,
}

/// Hears about the progress of a phase.
pub trait Observer {
    /// Hears that `phase` begins and will take `total` units: completions for a rollout, mini-batches for an
    /// update.
    fn begin(&mut self, phase: Phase, total: usize);

    /// Hears that the phase will take `units` more than `begin` said.
    fn extend(&mut self, units: usize);

    /// Hears that `units` more are done.
    fn advance(&mut self, units: usize);

    /// Hears that the phase has ended.
    fn end(&mut self);
}

/// Hears nothing.
impl Observer for () {
    fn begin(&mut self, _: Phase, _: usize) {}
    fn extend(&mut self, _: usize) {}
    fn advance(&mut self, _: usize) {}
    fn end(&mut self) {}
}

/// The result of a step.
#[derive(Clone, Debug)]
pub struct StepReport {
    /// The outcome of sampling.
    pub sampling: SamplingReport,
    /// The outcome of the updates.
    pub update: UpdateTotals,
    /// All numbers of the step by name, for the record.
    pub metrics: Metrics,
    /// Every group that was sampled, kept or not.
    pub groups: Vec<RewardedGroup>,
    /// The status of each group, by its draw.
    pub statuses: BTreeMap<u64, GroupStatus>,
    /// The completions that counted in an update, by the draws of their groups and their places in them. A
    /// group may be of an earlier step.
    pub trained: BTreeMap<(u64, usize), Trained>,
    /// The mini-batches that were skipped because their gradient was not finite.
    pub skipped: Vec<Vec<Sample>>,
    /// The reason why the run should end here, if it should.
    pub stop: Option<String>,
}

impl<M: PolicyModel> Trainer<M> {
    /// Does one step: rollouts, rewards, advantages, updates.
    ///
    /// # Errors
    /// When the engine or the device fails, or the cap was reached and the configuration makes that an error.
    /// The state is then as it was after the previous step, except for the count of sampled completions. This
    /// count too is as it was if the run was told to end. This also holds if the cap ends the run without an error. If
    /// a device fails during the updates, or the step is interrupted there, the weights are between two steps, and
    /// [`Trainer::mid_update`] is true.
    pub fn step(&mut self, observer: &mut dyn Observer) -> Result<StepReport, TrainError> {
        let TrainerState { generated, skipped_in_a_row, loss_scale, .. } = self.state;
        let report = self.whole_step(observer);
        if let (Err(error), false) = (&report, self.mid_update) {
            // The step will be done again, and its gradients count then.
            self.state.skipped_in_a_row = skipped_in_a_row;
            self.state.loss_scale = loss_scale;
            // A verifier that is interrupted has words of its own.
            let ends = self.updater.interrupted.is_set()
                || matches!(
                    error,
                    TrainError::Interrupted | TrainError::Rollout(RolloutError::Interrupted)
                );
            if ends {
                self.state.generated = generated;
            }
        }
        report
    }

    fn whole_step(&mut self, observer: &mut dyn Observer) -> Result<StepReport, TrainError> {
        let began = Instant::now();
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
            return Ok(self.report(sampled, Updated::default(), began));
        }
        let prefetches = self.config.max_staleness > 0 && step < self.config.last_step;
        if !prefetches {
            self.engine.sleep();
        }
        let (samples, measured) = self.samples(&sampled.kept)?;
        let tolerance = self.engine.tolerance();
        let trust = tolerance.map(|tolerance| Trust::new(tolerance, &sampled.kept, step));
        let carried_over = std::mem::take(&mut sampled.carried_over);
        let records = std::mem::take(&mut sampled.records);
        let mut prefetched = None;
        let updated = if prefetches {
            let (carried_over, mut history) = (carried_over.clone(), self.state.history.clone());
            history.extend(records.clone());
            let start = Start { carried_over, history, cursor };
            let updated;
            (updated, prefetched) = self.update_and_prefetch(step, samples, trust, start, observer);
            updated?
        } else {
            self.update(step, samples, trust, observer)?
        };
        self.state.step = step;
        self.state.carried_over = carried_over;
        self.state.history.extend(records);
        self.state.cursor = cursor;
        self.state.prefetched = prefetched;
        self.mid_update = false;
        // ANCHOR_END: tour
        // Completions of an older policy differ by more than rounding.
        let (mean, most) = staleness(&sampled.kept, step);
        let fresh = most == 0.0;
        let mut report = self.report(sampled, updated, began);
        report.metrics.extend(measured);
        report.metrics.set("rollout/staleness_mean", mean);
        report.metrics.set("rollout/staleness_max", most);
        let difference = report.metrics.get("rollout/logprob_diff_mean");
        if fresh && let Some(difference) = difference.filter(|it| it.is_finite()) {
            self.state.logprob_diff = Some(difference);
        }
        Ok(report)
    }

    /// Gives the present policy to the engine, which samples from it from now on.
    fn publish(&mut self) -> Result<(), TrainError> {
        Ok(self.engine.publish(&self.policy, self.state.step)?)
    }

    /// Publishes the present policy and measures its accuracy on `prompts`, with the same random numbers at every step,
    /// so that a curve shows the policy's change and not the draw's. Gives the groups as well.
    ///
    /// # Errors
    /// When the engine fails, or too many completions could not be judged.
    pub fn evaluate(
        &mut self,
        prompts: &[Prompt],
        samples: usize,
        sampling: &Sampling,
        observer: &mut dyn Observer,
    ) -> Result<(EvalReport, Vec<RewardedGroup>), TrainError> {
        self.publish()?;
        observer.begin(Phase::Eval, prompts.len() * samples);
        let seed = self.seed.derive("eval", &[]);
        let advance = &mut |units| observer.advance(units);
        let engine = self.engine.as_mut();
        let report =
            evaluate(engine, &*self.task.verifier, prompts, samples, sampling, seed, advance);
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

    /// Makes samples of the kept groups, with their advantages. A critic, if there is one, gives them token
    /// by token.
    fn samples(&mut self, groups: &[RewardedGroup]) -> Result<(Vec<Sample>, Metrics), TrainError> {
        let mut samples = samples_of(groups, self.task.advantage.as_deref())?;
        let mut metrics = Metrics::default();
        let cap = self.config.tis_cap;
        if cap.is_some() || self.recomputes() {
            let logprobs = self.retry_on_oom(&samples, |trainer| {
                trainer.updater.logprobs(&trainer.policy, &samples)
            })?;
            for (sample, logprobs) in samples.iter_mut().zip(logprobs) {
                if sample.counted() > 0 {
                    sample.old_logprobs = logprobs;
                }
            }
            measure_change(&samples, &mut metrics);
        }
        if let Some(cap) = cap {
            samples.iter_mut().for_each(|sample| sample.weigh(cap));
            measure_importance(&samples, cap, &mut metrics);
            if let Some(range) = self.config.tis_mask {
                metrics.set("rollout/tis_masked", leave_out(&mut samples, range));
            }
        }
        let logprobs = self.retry_on_oom(&samples, |trainer| {
            let reference = trainer.reference.as_ref();
            reference.map(|reference| trainer.updater.logprobs(reference, &samples)).transpose()
        })?;
        for (sample, logprobs) in samples.iter_mut().zip(logprobs.into_iter().flatten()) {
            sample.ref_logprobs = logprobs;
        }
        metrics.extend(self.appraise(&mut samples)?);
        Ok((samples, metrics))
    }

    /// Tells whether log-probabilities are computed again for the old policy, instead of taking those of the
    /// samples.
    fn recomputes(&self) -> bool {
        match self.config.old_logprobs {
            OldLogprobs::Sampled => false,
            OldLogprobs::Recomputed => true,
            // Here the age of the weights makes the difference, and the ratio has to show it.
            OldLogprobs::Auto if self.config.max_staleness > 0 => false,
            OldLogprobs::Auto => match self.state.logprob_diff {
                Some(difference) => difference > OldLogprobs::BOUND,
                None => self.policy.compute() != Compute::F32,
            },
        }
    }

    /// Tells whether a gradient that was not finite is to be made again with a smaller loss scale.
    pub(crate) fn scale_again(&mut self, outcome: &StepOutcome) -> bool {
        let scale = &mut self.state.loss_scale;
        if self.policy.compute() != Compute::F16 {
            return false;
        }
        if !outcome.skipped {
            scale.fits();
        }
        outcome.skipped && scale.overflows()
    }

    /// Makes optimizer updates over shuffled mini-batches of nearly equal size. A last mini-batch of a few
    /// leftovers would move the weights as far as a whole one, with more noise.
    pub(crate) fn update(
        &mut self,
        step: u64,
        samples: Vec<Sample>,
        trust: Option<Trust>,
        observer: &mut dyn Observer,
    ) -> Result<Updated, TrainError> {
        let began = Instant::now();
        let total = samples.len();
        let mut units = self.units(samples);
        units.shuffle(&mut self.seed.derive("mini_batches", &[step]).rng());
        let count = total.div_ceil(self.config.mini_batch.max(1)).min(units.len());
        let lr = self.policy_lr()?;
        let looks = self.config.look_every > 0 && step.is_multiple_of(self.config.look_every);
        let mut updated = Updated { lr, looks, trust, ..Updated::default() };
        observer.begin(Phase::Update, count);
        for index in 0..count {
            let batch =
                units[units.len() * index / count..units.len() * (index + 1) / count].concat();
            if batch.iter().all(|sample| sample.counted() == 0) {
                updated.empty += 1;
            } else {
                MiniBatch { trainer: self, samples: batch, lr, updated: &mut updated }.learn()?;
            }
            observer.advance(1);
        }
        observer.end();
        updated.seconds = began.elapsed().as_secs_f64();
        Ok(updated)
    }

    /// Gives the units that mini-batches are made of: completions, or whole groups if the loss is a mean over
    /// each group.
    fn units(&self, samples: Vec<Sample>) -> Vec<Vec<Sample>> {
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

    fn report(&self, sampled: Sampled, mut updated: Updated, began: Instant) -> StepReport {
        let mut metrics = Metrics::default();
        // A group and its copies have the same draw.
        let trained = std::mem::take(&mut updated.trained).into_iter();
        let trained = trained.map(|((group, place), trained)| {
            ((sampled.kept[group as usize].group.draw, place), trained)
        });
        let trained = trained.collect();
        let sampling = sampled.measure(&mut metrics);
        self.phrases.measure(&sampled.all, &mut metrics);
        let (update, skipped) = updated.measure(&mut metrics);
        let whole_layers = self.updater.micro_batching.whole_layers.min(self.policy.layers());
        metrics.set("update/whole_layers", whole_layers as f64);
        if self.config.curriculum.is_some() {
            metrics.set("sampling/curriculum_prompts", self.state.history.len() as f64);
        }
        metrics.set("time/step", began.elapsed().as_secs_f64());
        let Sampled { all, statuses, stop, .. } = sampled;
        StepReport { sampling, update, metrics, groups: all, statuses, trained, skipped, stop }
    }
}

/// Measures how many steps the policy of `step` is ahead of the policies that wrote its completions: the
/// mean, and the most.
fn staleness(groups: &[RewardedGroup], step: Step) -> (f64, f64) {
    let completions = groups.iter().flat_map(|group| &group.group.completions);
    let ages = completions.map(|it| (step - 1).saturating_sub(it.policy_version) as f64);
    let (count, sum, most) = ages.fold((0.0, 0.0, 0.0f64), |(count, sum, most), age| {
        (count + 1.0, sum + age, most.max(age))
    });
    (sum / f64::max(count, 1.0), most)
}
