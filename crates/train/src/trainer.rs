use std::time::Instant;

use burn::module::Module;
use firebrick_core::{
    AdvantageEstimator, GroupFilter, Metrics, Prompt, PromptSource, RewardScale, RewardShaper,
    RewardedGroup, Seed, Verifier,
};
use firebrick_models::PolicyModel;
use firebrick_rollout::{GroupRequest, RolloutEngine, Sampling, generate};
use rand::seq::SliceRandom;

use crate::{
    AdamW, AdaptiveUpdates, Aggregation, Critic, Dynamic, EvalReport, Filled, Memory, Phrases,
    Refill, Sample, TrainError, TrainerState, Updater, copies,
    eval::score,
    evaluate,
    memory::{Recall, next},
    mini_batch::MiniBatch,
    report::{Sampled, Updated},
};

/// The DAPO loop over a policy. Everything that it is made of can be exchanged.
pub struct Trainer<M: Module> {
    /// The policy in training.
    pub policy: M,
    /// The frozen policy of the KL penalty; only where the objective asks for one.
    pub reference: Option<M>,
    /// Gives advantages token by token; without one they are the group's.
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
    pub optimizer: AdamW,
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
    /// From shaped rewards to advantages.
    pub advantage: Box<dyn AdvantageEstimator>,
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
    /// Rounds of sampling per step; 0 means as many as it takes.
    pub max_rounds: usize,
    /// What happens when they did not suffice.
    pub on_cap: OnCap,
    /// Keep surplus groups for the next step.
    pub keep_surplus: bool,
    /// How many steps old a surplus group may be when it is used.
    pub max_staleness: u64,
    /// Completions per optimizer update.
    pub mini_batch: usize,
    /// How many updates a mini-batch gets; without a rule it is one.
    pub adaptive: Option<AdaptiveUpdates>,
    /// Learning rate after its warm-up.
    pub lr: f64,
    /// Steps over which it rises from 0.
    pub lr_warmup_steps: u64,
    /// How training completions are drawn.
    pub sampling: Sampling,
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
    fn wants_all(&self) -> bool {
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

    /// So many more units are done.
    fn advance(&mut self, units: usize);

    /// The phase has ended.
    fn end(&mut self);
}

/// Hears nothing.
impl Observer for () {
    fn begin(&mut self, _: Phase, _: usize) {}
    fn advance(&mut self, _: usize) {}
    fn end(&mut self) {}
}

/// What a step did.
#[derive(Clone, Debug)]
pub struct StepReport {
    /// Its numbers.
    pub metrics: Metrics,
    /// Every group that was sampled, kept or not.
    pub groups: Vec<RewardedGroup>,
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
    /// the updates leaves weights between the two, and [`Trainer::midway`] says so.
    pub fn step(&mut self, observer: &mut dyn Observer) -> Result<StepReport, TrainError> {
        let began = Instant::now();
        let step = self.state.step + 1;
        if self.updater.objective.needs_reference() && self.reference.is_none() {
            return Err(TrainError::NoReference);
        }
        self.engine.publish(&self.policy, self.state.step)?;
        let mut sampled = self.sample_groups(step, observer)?;
        if sampled.stop.is_some() {
            return Ok(self.report(sampled, Updated::default(), began));
        }
        let mut samples = self.advantages(&sampled.kept)?;
        let appraised = self.appraise(&mut samples)?;
        let updated = self.update(step, samples, observer)?;
        self.state.step = step;
        self.state.surplus = std::mem::take(&mut sampled.put_aside);
        self.state.memory.extend(std::mem::take(&mut sampled.records));
        self.state.cursor = self.source.cursor();
        self.midway = false;
        let mut report = self.report(sampled, updated, began);
        report.metrics.extend(appraised);
        Ok(report)
    }

    /// Accuracy of the current policy on `prompts`, with the same random numbers at every step, so
    /// that a curve shows the policy's change and not the draw's.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn evaluate(
        &mut self,
        prompts: &[Prompt],
        samples: usize,
        sampling: &Sampling,
        observer: &mut dyn Observer,
    ) -> Result<EvalReport, TrainError> {
        observer.begin(Phase::Eval, prompts.len() * samples);
        let seed = self.seed.derive("eval", &[]);
        let advance = &mut |units| observer.advance(units);
        let engine = self.engine.as_mut();
        let report =
            evaluate(engine, &*self.task.verifier, prompts, samples, sampling, seed, advance);
        observer.end();
        Ok(report?.0)
    }

    /// Samples until enough groups have spread, or the cap is reached.
    fn sample_groups(
        &mut self,
        step: u64,
        observer: &mut dyn Observer,
    ) -> Result<Sampled, TrainError> {
        let config = &self.config;
        self.source.seek(self.state.cursor);
        // Copied, because a step that ends the run at the cap leaves the state as it was: resumed
        // with a higher cap it samples the same groups again, and goes on from them.
        let (carried, stale): (Vec<_>, Vec<_>) = self
            .state
            .surplus
            .iter()
            .cloned()
            .partition(|group| step - group.group.step <= config.max_staleness);
        let carried_count = carried.len();
        let mut refill = Refill::new(config.prompts_per_step, config.rounds(), carried);
        refill.enough = config.dynamic.enough(refill.target);
        let mut recall = config
            .memory
            .as_ref()
            .map(|memory| Recall::new(&self.state.memory, memory, step, config.group_size));
        let mut sampled =
            Sampled { stale: stale.len(), carried: carried_count, ..Sampled::default() };

        while refill.status() == Filled::NeedMore {
            let count = refill.next_round(carried_count);
            let source = self.source.as_mut();
            let drawn = match &mut recall {
                Some(recall) => {
                    let seed = self.seed.derive("memory", &[step, refill.rounds as u64]);
                    recall.draw(source, count, seed)
                }
                None => (0..count).map(|_| next(source)).collect(),
            };
            let seed = self.seed.derive("rollout", &[step]);
            let requests =
                GroupRequest::of_prompts(drawn, config.group_size, &config.sampling, seed);
            let began = Instant::now();
            observer.begin(Phase::Rollout, requests.len() * config.group_size);
            let advance = &mut |units| observer.advance(units);
            let groups = generate(&mut *self.engine, requests, advance);
            observer.end();
            sampled.rollout_seconds += began.elapsed().as_secs_f64();

            let began = Instant::now();
            let mut groups = score(groups?, &*self.task.verifier, self.task.scale, step);
            for group in &mut groups {
                for shaper in &self.task.shapers {
                    shaper.shape(&group.group, &mut group.rewards);
                }
            }
            sampled.reward_seconds += began.elapsed().as_secs_f64();
            if let Some(recall) = &mut recall {
                groups.iter().for_each(|group| recall.note(group));
            }
            sampled.all.extend(groups.iter().cloned());
            refill.offer(groups, &*self.task.filter);
        }

        sampled.rounds = refill.rounds;
        sampled.filtered = refill.filtered;
        let full = refill.status() == Filled::Full || !config.wants_all();
        let (rounds, kept, wanted) = (refill.rounds, refill.kept.len(), refill.enough);
        let (groups, surplus) = refill.finish();
        sampled.kept = groups;
        if let (Dynamic::Replace { .. }, true) = (config.dynamic, full) {
            let places = config.prompts_per_step - sampled.kept.len();
            let seed = self.seed.derive("copies", &[step]);
            for index in copies(sampled.kept.len(), places, seed) {
                sampled.kept.push(sampled.kept[index].clone());
                sampled.copied += 1;
            }
        }
        if let Some((recalled, records)) = recall.map(Recall::finish) {
            sampled.recalled = Some(recalled);
            sampled.records = records;
        }
        sampled.surplus = surplus.len();
        self.state.generated += sampled.completions();
        match config.on_cap {
            OnCap::Stop if !full => {
                let reason = format!(
                    "sampling.max_rounds = {rounds} was reached with {kept} of {wanted} groups"
                );
                sampled.stop = Some(reason);
                return Ok(sampled);
            }
            OnCap::Error if !full => {
                return Err(TrainError::CapReached { step, rounds, kept, wanted });
            }
            _ => {}
        }
        sampled.put_aside = if config.keep_surplus { surplus } else { Vec::new() };
        Ok(sampled)
    }

    /// One advantage per completion of every kept group.
    fn advantages(&self, groups: &[RewardedGroup]) -> Result<Vec<Sample>, TrainError> {
        let mut samples = Vec::new();
        for (index, group) in groups.iter().enumerate() {
            let shaped: Vec<f32> = group.rewards.iter().map(|reward| reward.shaped).collect();
            let advantages = self.task.advantage.advantages(&shaped);
            let completions = group.group.completions.iter().zip(&group.rewards).zip(advantages);
            samples.extend(completions.map(|((completion, reward), advantage)| Sample {
                prompt: group.group.prompt.tokens.clone(),
                completion: completion.tokens.clone(),
                old_logprobs: completion.logprobs.clone(),
                ref_logprobs: Vec::new(),
                advantage,
                token_values: None,
                live: reward.live,
                // And not its draw: the copy of a group is a group of its own.
                group: index as u64,
            }));
        }
        if let Some(reference) = &self.reference {
            let logprobs = self.updater.logprobs(reference, &samples)?;
            for (sample, logprobs) in samples.iter_mut().zip(logprobs) {
                sample.ref_logprobs = logprobs;
            }
        }
        Ok(samples)
    }

    /// Optimizer updates over shuffled mini-batches, of equal size as far as that goes: a last one
    /// of a few leftovers would move the weights as far as a whole one, with more noise.
    fn update(
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
        let lr = self.policy_lr();
        let mut updated = Updated { lr, ..Updated::default() };
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

    fn report(&self, sampled: Sampled, updated: Updated, began: Instant) -> StepReport {
        let mut metrics = Metrics::default();
        sampled.measure(&mut metrics);
        self.phrases.measure(&sampled.all, &mut metrics);
        let skipped = updated.measure(&mut metrics);
        if self.config.memory.is_some() {
            metrics.set("sampling/memory_prompts", self.state.memory.len() as f64);
        }
        metrics.set("time/step", began.elapsed().as_secs_f64());
        StepReport { metrics, groups: sampled.all, skipped, stop: sampled.stop }
    }
}
