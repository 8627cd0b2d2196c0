//! The groups of a step, while they are being collected: dynamic sampling at work.

use std::{collections::BTreeMap, thread, time::Instant};

use firebrick_core::{Fate, Group, GroupFilter, PromptSource, RewardedGroup, Seed};
use firebrick_rollout::{Flight, GroupRequest, RequestId, RolloutEngine};

use crate::{
    Dynamic, Filled, Observer, OnCap, Phase, PromptMemory, Refill, Task, TrainConfig, TrainError,
    copies,
    draw::{PromptSelector, selector},
    judge::Judge,
    report::Sampled,
};

/// Sends prompts out and takes groups in, until there are enough or the cap is reached.
///
/// Nobody waits for a whole round: further prompts go out while earlier groups are still being written, and
/// groups are judged at the same time. All the same, the requests depend on no clock and no batch. Groups are
/// taken in the order in which their prompts were drawn, a quarter of a step's groups at a time, and only
/// these groups decide how many more prompts are wanted. A quarter is taken in when all of its groups were
/// finished before the last call to the engine: by then the groups are judged, or the loop waits until they
/// are. So an engine that computes in this process gets its requests in the same turn every time.
pub(crate) struct Collection<'a> {
    config: &'a TrainConfig,
    step: u64,
    seed: Seed,
    selector: Box<dyn PromptSelector + 'a>,
    refill: Refill,
    /// The number of prompts that were drawn, and the number of those whose groups were offered to the
    /// filter.
    drawn: RequestId,
    offered: RequestId,
    /// The number of times that prompts were drawn.
    draws: u64,
    flight: Flight,
    /// The judged groups that wait for their turn to be offered.
    early: BTreeMap<RequestId, RewardedGroup>,
    /// The groups and counts so far; the lists of groups to train on are filled at the end.
    pub(crate) sampled: Sampled,
}

impl<'a> Collection<'a> {
    /// Begins with the surplus of earlier steps, as far as it is not stale. The surplus is copied, because a
    /// step that ends the run at the cap leaves the state as it was: if the run is resumed with a higher cap,
    /// the step samples the same groups again, and goes on from them.
    pub(crate) fn begin(
        config: &'a TrainConfig,
        surplus: &[RewardedGroup],
        memory: &'a PromptMemory,
        step: u64,
        seed: Seed,
    ) -> Self {
        let (carried, stale): (Vec<_>, Vec<_>) = surplus
            .iter()
            .cloned()
            .partition(|group| step - group.group.step <= config.max_surplus_age);
        let (carried_count, stale) = (carried.len(), stale.len());
        let mut refill = Refill::new(config.prompts_per_step, config.rounds(), carried);
        refill.enough = config.dynamic.enough(refill.target);
        let selector = selector(config.memory.as_ref(), memory, step, config.group_size);
        let sampled = Sampled { stale, carried: carried_count, ..Sampled::default() };
        Collection {
            config,
            step,
            seed,
            selector,
            refill,
            drawn: 0,
            offered: 0,
            draws: 0,
            flight: Flight::default(),
            early: BTreeMap::new(),
            sampled,
        }
    }

    /// Samples until there are enough groups, or no more may be asked for. The policy knows the tokens below
    /// `vocab`.
    ///
    /// # Errors
    /// When the engine or the verifier fails.
    pub(crate) fn run<M>(
        &mut self,
        engine: &mut dyn RolloutEngine<M>,
        source: &mut dyn PromptSource,
        task: &Task,
        vocab: usize,
        observer: &mut dyn Observer,
    ) -> Result<(), TrainError> {
        if self.refill.status() == Filled::Full {
            return Ok(());
        }
        thread::scope(|scope| {
            let mut judge = Judge::begin(scope, task, self.step);
            let began = Instant::now();
            let outcome = self.sample(engine, source, &mut judge, task, vocab, observer);
            observer.end();
            self.sampled.reward_seconds = judge.seconds;
            if outcome.is_err() {
                self.flight.cancel(engine);
                judge.end();
            }
            self.sampled.waited_seconds = outcome?;
            let seconds = began.elapsed().as_secs_f64();
            self.sampled.rollout_seconds = seconds - self.sampled.waited_seconds;
            Ok(())
        })
    }

    /// Samples, and gives the seconds that were spent waiting for the judge.
    fn sample<M>(
        &mut self,
        engine: &mut dyn RolloutEngine<M>,
        source: &mut dyn PromptSource,
        judge: &mut Judge<'_>,
        task: &Task,
        vocab: usize,
        observer: &mut dyn Observer,
    ) -> Result<f64, TrainError> {
        let quarter = self.refill.target.div_ceil(4) as RequestId;
        // All requests before this one were finished before the last call to the engine.
        let mut settled = 0;
        let mut waited = 0.0;
        loop {
            // ANCHOR: tour
            let requests = self.draw(source);
            let completions = requests.len() * self.config.group_size;
            match (completions, self.draws) {
                (0, _) => {}
                (_, 1) => observer.begin(Phase::Rollout, completions),
                _ => observer.extend(completions),
            }
            self.flight.ask(requests)?;
            let until = (self.offered + quarter).min(self.drawn);
            while self.flight.open() > 0 && settled < until {
                settled = self.flight.first_open().unwrap_or(self.drawn);
                let answers = self.flight.fetch(engine, &mut |units| observer.advance(units))?;
                known_tokens(&answers, vocab)?;
                judge.give(answers);
            }
            let began = Instant::now();
            while !(self.offered..until).all(|id| self.early.contains_key(&id)) {
                self.early.extend(judge.take()?);
            }
            waited += began.elapsed().as_secs_f64();
            self.offer(until, &*task.filter);
            if self.offered == self.drawn && self.refill.want(0) == 0 {
                return Ok(waited);
            }
            // ANCHOR_END: tour
        }
    }

    /// Makes requests for the prompts that are wanted now, as far as that is known.
    fn draw(&mut self, source: &mut dyn PromptSource) -> Vec<GroupRequest> {
        let in_flight = (self.drawn - self.offered) as usize;
        let whole = self.selector.whole_rounds() && in_flight > 0;
        let count = if whole { 0 } else { self.refill.want(in_flight) };
        if count == 0 {
            return Vec::new();
        }
        self.refill.ask(count);
        self.draws += 1;
        let seed = self.seed.derive("memory", &[self.step, self.draws]);
        let drawn = self.selector.draw(source, count, seed);
        let seed = self.seed.derive("rollout", &[self.step]);
        let config = self.config;
        let mut requests =
            GroupRequest::of_prompts(drawn, config.group_size, &config.sampling, seed);
        for request in &mut requests {
            request.id += self.drawn;
            request.step = self.step;
        }
        self.drawn += requests.len() as u64;
        requests
    }

    /// Takes in the judged groups before the request `until`, in the order of their draws.
    fn offer(&mut self, until: RequestId, filter: &dyn GroupFilter) {
        while self.offered < until
            && let Some(group) = self.early.remove(&self.offered)
        {
            self.offered += 1;
            self.selector.note(&group);
            self.sampled.all.push(group.clone());
            let draw = group.group.draw;
            self.sampled.fates.insert(draw, self.refill.take(group, filter));
        }
    }

    /// Gives the groups to train on, or the reason to end the run.
    ///
    /// # Errors
    /// When the cap was reached and the configuration makes that an error.
    pub(crate) fn finish(self) -> Result<Sampled, TrainError> {
        let Collection { config, step, seed, selector, refill, mut sampled, .. } = self;
        sampled.rounds = refill.rounds;
        sampled.filtered = refill.filtered;
        let full = refill.status() == Filled::Full || !config.wants_all();
        let (rounds, kept, wanted) = (refill.rounds, refill.kept.len(), refill.enough);
        let (groups, surplus) = refill.finish();
        sampled.fates.extend(surplus.iter().map(|group| (group.group.draw, Fate::Surplus)));
        sampled.kept = groups;
        if let (Dynamic::Replace { .. }, true) = (config.dynamic, full) {
            let places = config.prompts_per_step - sampled.kept.len();
            for index in copies(sampled.kept.len(), places, seed.derive("copies", &[step])) {
                sampled.kept.push(sampled.kept[index].clone());
                sampled.copied += 1;
            }
        }
        if let Some((recalled, records)) = selector.finish() {
            sampled.recalled = Some(recalled);
            sampled.records = records;
        }
        sampled.surplus = surplus.len();
        match config.on_cap {
            OnCap::Stop if !full => {
                sampled.stop = Some(format!(
                    "sampling.max_rounds = {rounds} was reached with {kept} of {wanted} groups"
                ));
            }
            OnCap::Error if !full => {
                return Err(TrainError::CapReached { step, rounds, kept, wanted });
            }
            _ => sampled.put_aside = if config.keep_surplus { surplus } else { Vec::new() },
        }
        Ok(sampled)
    }
}

/// Checks the tokens, because an engine may be another program, and its tokens index into the embedding.
fn known_tokens(groups: &[(RequestId, Group)], vocab: usize) -> Result<(), TrainError> {
    let completions = groups.iter().flat_map(|(_, group)| &group.completions);
    let mut tokens = completions.flat_map(|completion| &completion.tokens);
    match tokens.find(|&&token| token as usize >= vocab) {
        None => Ok(()),
        Some(&token) => Err(TrainError::Token { token, vocab }),
    }
}
