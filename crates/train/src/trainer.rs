use std::{collections::BTreeMap, time::Instant};

use burn::module::Module;
use firebrick_core::{
    AdvantageEstimator, Fate, Group, GroupFilter, Metrics, Prompt, PromptSource, RewardScale,
    RewardShaper, RewardedGroup, Seed, Step, Trained, Verdict, Verifier,
};
use firebrick_models::{Compute, PolicyModel};
use firebrick_rollout::{RolloutEngine, RolloutError, Sampling};
use rand::seq::SliceRandom;

use crate::{
    AdaptiveUpdates, Aggregation, Critic, Dynamic, EvalReport, LrSchedule, Memory, Optimizer,
    Phrases, Sample, SamplingReport, StepOutcome, TrainError, TrainerState, UpdateTotals, Updater,
    ahead::Start,
    collect::Collection,
    evaluate,
    mini_batch::MiniBatch,
    report::{Sampled, Updated},
    reward,
    samples::{leave_out, measure_change, measure_importance, samples_of},
};

/// The DAPO loop over a policy. Everything that it is made of can be exchanged.
///
/// A step publishes the weights, samples, and updates, one after the other: then every completion comes
/// from the policy that is trained on it. With [`TrainConfig::max_staleness`] it publishes, and samples the next step while it
/// updates. A completion tells which weights wrote it, and a sample keeps the log-probabilities of the policy that wrote it
/// apart from those of the policy that the update starts from.
pub struct Trainer<M: Module> {
    /// The policy in training.
    pub policy: M,
    /// The frozen policy of the KL penalty; only where the objective asks for one.
    pub reference: Option<M>,
    /// Gives advantages token by token; without one the task's estimator gives them.
    pub critic: Option<Critic<M>>,
    /// Samples completions.
    pub engine: Box<dyn RolloutEngine<M>>,
    /// Gives prompts.
    pub source: Box<dyn PromptSource>,
    /// Judges completions.
    pub task: Task,
    /// What is counted in the completions' texts.
    pub phrases: Phrases,
    /// Turns samples into gradients.
    pub updater: Updater,
    /// Turns gradients into weights.
    pub optimizer: Box<dyn Optimizer<M>>,
    /// The policy's learning rate; its first step is the first that moves the policy.
    pub schedule: Box<dyn LrSchedule>,
    /// Sizes and rules.
    pub config: TrainConfig,
    /// The run's randomness.
    pub seed: Seed,
    /// What a resumed run needs, besides weights and optimizer.
    pub state: TrainerState,
    /// Whether the weights are on the way from one step to the next: true from a step's first update
    /// to its end, and after a device failed in between.
    pub midway: bool,
}

/// From completions to advantages.
pub struct Task {
    /// Scores a completion.
    pub verifier: Box<dyn Verifier>,
    /// The ends of the accuracy reward.
    pub scale: RewardScale,
    /// Applied in order.
    pub shapers: Vec<Box<dyn RewardShaper>>,
    /// Decides which groups are trained on.
    pub filter: Box<dyn GroupFilter>,
    /// From the step's rewards to advantages; none where a critic gives them.
    pub advantage: Option<Box<dyn AdvantageEstimator>>,
}

impl Task {
    /// Judges and shapes what the policy of `step` wrote.
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
    /// What is done about groups that the task's filter does not keep.
    pub dynamic: Dynamic,
    /// Which prompts are not sampled, from what earlier groups of theirs were like.
    pub memory: Option<Memory>,
    /// So many times a step's prompts are sampled at most; 0 means as often as it takes.
    pub max_rounds: usize,
    /// What happens when they did not suffice.
    pub on_cap: OnCap,
    /// Keep surplus groups for the next step.
    pub keep_surplus: bool,
    /// How many steps the policy may be ahead of the weights that a step is sampled with, but for surplus groups: 0, or 1.
    pub max_staleness: u64,
    /// No step after this one is sampled before its turn.
    pub last_step: Step,
    /// How many steps old a surplus group may be when it is used.
    pub max_surplus_age: u64,
    /// Completions per optimizer update.
    pub mini_batch: usize,
    /// How many updates a mini-batch gets; without a rule it is one.
    pub adaptive: Option<AdaptiveUpdates>,
    /// How training completions are drawn.
    pub sampling: Sampling,
    /// Weighs tokens by how much more likely the policy that the update starts from would have sampled
    /// them than the one that did, at most so many times ([`Sample::weigh`]). The log-probabilities of the
    /// update's own policy are then computed anew before it. For engines whose numerics or weights are
    /// others than the trainer's.
    pub importance_cap: Option<f64>,
    /// With a cap: completions are left out whose tokens are less likely than so many times, or more likely than so many, under the
    /// policy that the update starts from, in their geometric mean.
    pub importance_range: Option<[f64; 2]>,
    /// Whose log-probabilities are the old policy's; with a cap they are recomputed.
    pub old_logprobs: OldLogprobs,
    /// Every so many steps each token's ratio and entropy are read ([`StepReport::trained`]); 0 is never.
    pub look_every: u64,
    /// The largest share of completions that may have no verdict, in [0, 1]: above it nothing is learnt or measured.
    pub max_errors: f64,
}

/// Whose log-probabilities the loss takes for those of the policy that an update starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OldLogprobs {
    /// The updater's, while they differ from the engine's by more than [`OldLogprobs::BOUND`]; and at first, where
    /// products are in a format that makes it likely.
    #[default]
    Auto,
    /// The engine's.
    Sampled,
    /// The updater's.
    Recomputed,
}

impl OldLogprobs {
    /// The mean difference, on the same weights, from which on they are recomputed. A fortieth of DAPO's lower clip: what two
    /// ways of rounding differ by should not clip a token.
    pub const BOUND: f64 = 0.005;
}

impl TrainConfig {
    /// Rounds of sampling after which a step goes on with what it has. One, where groups that are
    /// missing are meant to be missing: those that were dropped, and, without dynamic sampling, those
    /// that the memory left out.
    pub fn rounds(&self) -> usize {
        match self.dynamic {
            Dynamic::Filter | Dynamic::Replace { .. } => self.max_rounds,
            Dynamic::Off if self.memory.is_none() => self.max_rounds,
            Dynamic::Drop | Dynamic::Off => 1,
        }
    }

    /// Whether a step with too few groups after its rounds is one for [`OnCap`].
    pub(crate) fn wants_all(&self) -> bool {
        match self.dynamic {
            Dynamic::Filter | Dynamic::Replace { .. } => true,
            Dynamic::Off => self.memory.is_none(),
            Dynamic::Drop => false,
        }
    }
}

/// What a step does when sampling reached its cap with too few groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCap {
    /// Trains on those there are; the loss is divided by their tokens.
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

/// Hears how far a phase has come.
pub trait Observer {
    /// `phase` begins and will take `total` units: completions for a rollout, mini-batches for an
    /// update.
    fn begin(&mut self, phase: Phase, total: usize);

    /// The phase will take so many units more than it said.
    fn extend(&mut self, units: usize);

    /// So many more units are done.
    fn advance(&mut self, units: usize);

    /// The phase has ended.
    fn end(&mut self);
}

/// Hears nothing.
impl Observer for () {
    fn begin(&mut self, _: Phase, _: usize) {}
    fn extend(&mut self, _: usize) {}
    fn advance(&mut self, _: usize) {}
    fn end(&mut self) {}
}

/// What a step did.
#[derive(Clone, Debug)]
pub struct StepReport {
    /// The outcome of sampling.
    pub sampling: SamplingReport,
    /// The outcome of the updates.
    pub update: UpdateTotals,
    /// All of its numbers by name, for whoever records them.
    pub metrics: Metrics,
    /// Every group that was sampled, kept or not.
    pub groups: Vec<RewardedGroup>,
    /// The fate of each, by its draw.
    pub fates: BTreeMap<u64, Fate>,
    /// The completions that counted in an update, by the draws of their groups and their places in them. A group may be of an
    /// earlier step.
    pub trained: BTreeMap<(u64, usize), Trained>,
    /// Mini-batches that were skipped because their gradient was not finite.
    pub skipped: Vec<Vec<Sample>>,
    /// Why the run should end here, if it should.
    pub stop: Option<String>,
}

impl<M: PolicyModel> Trainer<M> {
    /// One step: rollouts, rewards, advantages, updates.
    ///
    /// # Errors
    /// When the engine or the device fails, or the cap was reached and the configuration makes
    /// that an error. The state is then as it was after the step before, as it is when the cap ends
    /// the run without one, but for the count of sampled completions; a device that fails during
    /// the updates, or a step that is interrupted there, leaves weights between the two, and
    /// [`Trainer::midway`] says so.
    pub fn step(&mut self, observer: &mut dyn Observer) -> Result<StepReport, TrainError> {
        let TrainerState { generated, skipped_in_a_row, .. } = self.state;
        let report = self.whole_step(observer);
        let interrupted = matches!(
            report,
            Err(TrainError::Interrupted | TrainError::Rollout(RolloutError::Interrupted))
        );
        if interrupted && !self.midway {
            // It comes again, and counts then.
            (self.state.generated, self.state.skipped_in_a_row) = (generated, skipped_in_a_row);
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
        self.publish()?;
        let (mut sampled, cursor) = match self.state.ahead.clone().filter(|it| it.step == step) {
            Some(ahead) => {
                self.state.generated += ahead.sampled.completions();
                (ahead.sampled, ahead.cursor)
            }
            None => (self.sample_groups(step, observer)?, self.source.cursor()),
        };
        self.bear(sampled.errors(), sampled.completions())?;
        if sampled.stop.is_some() {
            return Ok(self.report(sampled, Updated::default(), began));
        }
        let (samples, measured) = self.samples(&sampled.kept)?;
        let surplus = std::mem::take(&mut sampled.put_aside);
        let records = std::mem::take(&mut sampled.records);
        let mut ahead = None;
        let updated = if self.config.max_staleness > 0 && step < self.config.last_step {
            let (surplus, mut memory) = (surplus.clone(), self.state.memory.clone());
            memory.extend(records.clone());
            let start = Start { surplus, memory, cursor };
            let updated;
            (updated, ahead) = self.update_and_sample(step, samples, start, observer);
            updated?
        } else {
            self.update(step, samples, observer)?
        };
        self.state.step = step;
        self.state.surplus = surplus;
        self.state.memory.extend(records);
        self.state.cursor = cursor;
        self.state.ahead = ahead;
        self.midway = false;
        // What an older policy wrote differs by more than rounding.
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

    /// Gives the policy as it is to the engine: what is sampled from now on comes from it.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn publish(&mut self) -> Result<(), TrainError> {
        Ok(self.engine.publish(&self.policy, self.state.step)?)
    }

    /// Accuracy of the current policy on `prompts`, with the same random numbers at every step, so
    /// that a curve shows the policy's change and not the draw's. The groups come back as well.
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
        observer.begin(Phase::Eval, prompts.len() * samples);
        let seed = self.seed.derive("eval", &[]);
        let advance = &mut |units| observer.advance(units);
        let engine = self.engine.as_mut();
        let report =
            evaluate(engine, &*self.task.verifier, prompts, samples, sampling, seed, advance);
        observer.end();
        let (report, groups) = report?;
        let errors = report.verdicts[Verdict::Error as usize];
        self.bear(errors as u64, report.verdicts.iter().sum::<usize>() as u64)?;
        Ok((report, groups))
    }

    /// Ends where too many of the completions have no verdict.
    pub(crate) fn bear(&self, errors: u64, completions: u64) -> Result<(), TrainError> {
        let most = self.config.max_errors;
        match errors as f64 > most * completions as f64 {
            true => Err(TrainError::Unjudged { errors, completions, most }),
            false => Ok(()),
        }
    }

    /// Samples until enough groups have spread, or the cap is reached.
    fn sample_groups(
        &mut self,
        step: u64,
        observer: &mut dyn Observer,
    ) -> Result<Sampled, TrainError> {
        let Trainer { policy, config, state, source, engine, task, seed, .. } = self;
        source.seek(state.cursor);
        let mut collection = Collection::begin(config, &state.surplus, &state.memory, step, *seed);
        let vocab = policy.head().dims()[0];
        collection.run(engine.as_mut(), source.as_mut(), task, vocab, observer)?;
        let generated = collection.sampled.completions();
        let sampled = collection.finish();
        state.generated += generated;
        sampled
    }

    /// The kept groups as samples, with their advantages; token by token from a critic, if there is one.
    fn samples(&mut self, groups: &[RewardedGroup]) -> Result<(Vec<Sample>, Metrics), TrainError> {
        let mut samples = samples_of(groups, self.task.advantage.as_deref())?;
        let mut metrics = Metrics::default();
        let cap = self.config.importance_cap;
        if cap.is_some() || self.recomputes() {
            let logprobs = self.within_room(&samples, |trainer| {
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
            if let Some(range) = self.config.importance_range {
                metrics.set("rollout/importance_masked", leave_out(&mut samples, range));
            }
        }
        let logprobs = self.within_room(&samples, |trainer| {
            let reference = trainer.reference.as_ref();
            reference.map(|reference| trainer.updater.logprobs(reference, &samples)).transpose()
        })?;
        for (sample, logprobs) in samples.iter_mut().zip(logprobs.into_iter().flatten()) {
            sample.ref_logprobs = logprobs;
        }
        metrics.extend(self.appraise(&mut samples)?);
        Ok((samples, metrics))
    }

    /// Whether the log-probabilities that came with the samples are not taken for the old policy's.
    fn recomputes(&self) -> bool {
        match self.config.old_logprobs {
            OldLogprobs::Sampled => false,
            OldLogprobs::Recomputed => true,
            // The difference is the age's, and the ratio is to show it.
            OldLogprobs::Auto if self.config.max_staleness > 0 => false,
            OldLogprobs::Auto => match self.state.logprob_diff {
                Some(difference) => difference > OldLogprobs::BOUND,
                None => self.policy.compute() != Compute::F32,
            },
        }
    }

    /// Tells if a gradient that was not finite is to be made again with a smaller loss scale.
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

    /// Optimizer updates over shuffled mini-batches, of equal size as far as that goes: a last one
    /// of a few leftovers would move the weights as far as a whole one, with more noise.
    pub(crate) fn update(
        &mut self,
        step: u64,
        samples: Vec<Sample>,
        observer: &mut dyn Observer,
    ) -> Result<Updated, TrainError> {
        let began = Instant::now();
        let total = samples.len();
        let mut units = self.units(samples);
        units.shuffle(&mut self.seed.derive("mini_batches", &[step]).rng());
        let count = total.div_ceil(self.config.mini_batch.max(1)).min(units.len());
        let lr = self.policy_lr()?;
        let looks = self.config.look_every > 0 && step.is_multiple_of(self.config.look_every);
        let mut updated = Updated { lr, looks, ..Updated::default() };
        observer.begin(Phase::Update, count);
        for index in 0..count {
            let batch =
                units[units.len() * index / count..units.len() * (index + 1) / count].concat();
            if batch.iter().all(|sample| sample.counted() == 0) {
                updated.empty += 1;
            } else {
                MiniBatch { trainer: self, samples: &batch, lr, updated: &mut updated }.learn()?;
            }
            observer.advance(1);
        }
        observer.end();
        updated.seconds = began.elapsed().as_secs_f64();
        Ok(updated)
    }

    /// What a mini-batch is made of: completions; whole groups where the loss is a mean over each.
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
        // A group and its copies have one draw.
        let trained = std::mem::take(&mut updated.trained).into_iter();
        let trained = trained.map(|((group, place), trained)| {
            ((sampled.kept[group as usize].group.draw, place), trained)
        });
        let trained = trained.collect();
        let sampling = sampled.measure(&mut metrics);
        self.phrases.measure(&sampled.all, &mut metrics);
        let (update, skipped) = updated.measure(&mut metrics);
        let whole_layers = self.updater.cut.whole_layers.min(self.policy.layers());
        metrics.set("update/whole_layers", whole_layers as f64);
        if self.config.memory.is_some() {
            metrics.set("sampling/memory_prompts", self.state.memory.len() as f64);
        }
        metrics.set("time/step", began.elapsed().as_secs_f64());
        let Sampled { all, fates, stop, .. } = sampled;
        StepReport { sampling, update, metrics, groups: all, fates, trained, skipped, stop }
    }
}

/// How many steps the policy of `step` is ahead of those that wrote its completions: the mean, and the most.
fn staleness(groups: &[RewardedGroup], step: Step) -> (f64, f64) {
    let completions = groups.iter().flat_map(|group| &group.group.completions);
    let ages = completions.map(|it| (step - 1).saturating_sub(it.policy_version) as f64);
    let (count, sum, most) = ages.fold((0.0, 0.0, 0.0f64), |(count, sum, most), age| {
        (count + 1.0, sum + age, most.max(age))
    });
    (sum / f64::max(count, 1.0), most)
}
