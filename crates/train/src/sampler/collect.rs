//! Collection of a step's groups: dynamic sampling at work.

use std::{collections::BTreeMap, thread, time::Instant};

use firebrick_core::{
    Group, GroupFilter, GroupStatus, PromptSource, RewardedGroup, Seed,
    config::{Dynamic, OnCap},
};
use firebrick_rollout::{GroupRequest, InFlight, RequestId, RolloutEngine};

use crate::{
    error::TrainError,
    observer::{Observer, Phase, PhaseTokens},
    sampler::{
        config::SamplerConfig,
        draw::{PromptSelector, selector},
        dynamic::{BufferStatus, GroupBuffer, copies},
        judge::Judge,
        sampled::{Beginning, Sampled},
        task::Task,
    },
};

/// Sends prompts to the engine and takes groups in, until there are enough or the cap is reached.
///
/// Nobody waits for a full round: further prompts are sent while earlier groups are still being written, and
/// groups are judged at the same time. All the same, the requests depend on no clock and no batch. Groups are
/// taken in the order in which their prompts were drawn, a quarter of a step's groups at a time, and only
/// these groups decide how many more prompts are wanted. A quarter is taken in when all of its groups were
/// finished before the last call to the engine: by then the groups are judged, or the loop waits until they
/// are. So an engine that computes in this process gets its requests at the same point every time.
pub(crate) struct Collection<'a> {
    config: &'a SamplerConfig,
    step: u64,
    seed: Seed,
    selector: Box<dyn PromptSelector + 'a>,
    buffer: GroupBuffer,
    /// Prompts that were drawn, and those of them whose groups were offered to the filter.
    drawn: RequestId,
    offered: RequestId,
    /// How often prompts were drawn.
    draws: u64,
    in_flight: InFlight,
    /// Judged groups that wait for their turn to be offered.
    early: BTreeMap<RequestId, RewardedGroup>,
    /// Groups and counts so far; the lists of groups to train on are filled at the end.
    pub(crate) sampled: Sampled,
}

impl<'a> Collection<'a> {
    /// Begins with the groups that earlier steps carried over, as far as they are not stale. They are copied,
    /// because a step that ends the run at the cap leaves the state as it was: if the run is resumed with a
    /// higher cap, the step samples the same groups again, and continues from them.
    pub(crate) fn begin(config: &'a SamplerConfig, from: &Beginning<'a>) -> Self {
        let Beginning { step, seed, carried_over, history, .. } = *from;
        let (carried, stale): (Vec<_>, Vec<_>) = carried_over
            .iter()
            .cloned()
            .partition(|group| step - group.group.step <= config.max_carry_over_age);
        let carried_count = carried.len();

        let mut buffer = GroupBuffer::new(config.prompts_per_step, config.rounds(), carried);
        buffer.enough = config.dynamic.enough(buffer.target);

        let selector = selector(config.curriculum.as_ref(), history, step, config.group_size);
        let sampled = Sampled { stale: stale.len(), carried: carried_count, ..Sampled::default() };
        Collection {
            config,
            step,
            seed,
            selector,
            buffer,
            drawn: 0,
            offered: 0,
            draws: 0,
            in_flight: InFlight::default(),
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
        if self.buffer.status() == BufferStatus::Full {
            return Ok(());
        }

        thread::scope(|scope| {
            let mut judge = Judge::begin(scope, task, self.step);
            let started = Instant::now();
            let outcome = self.sample(engine, source, &mut judge, task, vocab, observer);
            observer.end();
            self.sampled.reward_seconds = judge.seconds;

            if outcome.is_err() {
                self.in_flight.cancel(engine);
                judge.end();
            }

            self.sampled.waited_seconds = outcome?;
            let seconds = started.elapsed().as_secs_f64();
            self.sampled.rollout_seconds = seconds - self.sampled.waited_seconds;
            Ok(())
        })
    }

    /// Samples, and returns the seconds that were spent waiting for the judge.
    fn sample<M>(
        &mut self,
        engine: &mut dyn RolloutEngine<M>,
        source: &mut dyn PromptSource,
        judge: &mut Judge<'_>,
        task: &Task,
        vocab: usize,
        observer: &mut dyn Observer,
    ) -> Result<f64, TrainError> {
        let quarter = self.buffer.target.div_ceil(4) as RequestId;
        // Every request before this one was finished before the last call to the engine.
        let mut settled = 0;
        let mut waited = 0.0;
        let tokens = PhaseTokens::begin(engine);
        let longest = self.config.sampling.max_completion_tokens as u64;
        loop {
            // ANCHOR: tour
            let requests = self.draw(source);
            let completions = requests.len() * self.config.group_size;
            match (completions, self.draws) {
                (0, _) => {}
                (_, 1) => observer.begin(Phase::Rollout, completions),
                _ => observer.extend(completions),
            }

            self.in_flight.ask(requests)?;

            let until = (self.offered + quarter).min(self.drawn);
            while self.in_flight.open() > 0 && settled < until {
                settled = self.in_flight.first_open().unwrap_or(self.drawn);
                let most = self.drawn * self.config.group_size as u64 * longest;
                let mut advance = |units| {
                    if let Some(sampled) = tokens.sampled() {
                        observer.tokens(sampled, most);
                    }
                    observer.advance(units);
                };
                let answers = self.in_flight.fetch(engine, &mut advance)?;
                known_tokens(&answers, vocab)?;
                judge.give(answers);
            }

            let started = Instant::now();
            while !(self.offered..until).all(|id| self.early.contains_key(&id)) {
                self.early.extend(judge.take()?);
            }
            waited += started.elapsed().as_secs_f64();

            self.offer(until, &*task.filter);
            if self.offered == self.drawn && self.buffer.want(0) == 0 {
                return Ok(waited);
            }
            // ANCHOR_END: tour
        }
    }

    /// Makes requests for the prompts that are wanted now, as far as that is known.
    fn draw(&mut self, source: &mut dyn PromptSource) -> Vec<GroupRequest> {
        let in_flight = (self.drawn - self.offered) as usize;
        let round_is_open = self.selector.whole_rounds() && in_flight > 0;
        let count = if round_is_open { 0 } else { self.buffer.want(in_flight) };
        if count == 0 {
            return Vec::new();
        }

        self.buffer.ask(count);
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
            self.sampled.statuses.insert(draw, self.buffer.take(group, filter));
        }
    }

    /// Returns the groups to train on, or the reason to end the run.
    ///
    /// # Errors
    /// When the cap was reached and the configuration makes that an error.
    pub(crate) fn finish(self) -> Result<Sampled, TrainError> {
        let Collection { config, step, seed, selector, buffer, mut sampled, .. } = self;
        sampled.rounds = buffer.rounds;
        sampled.filtered = buffer.filtered;
        let full = buffer.status() == BufferStatus::Full || !config.requires_full_batch();
        let rounds = buffer.rounds;
        let kept = buffer.kept.len();
        let wanted = buffer.enough;

        let (groups, surplus) = buffer.finish();
        sampled
            .statuses
            .extend(surplus.iter().map(|group| (group.group.draw, GroupStatus::Surplus)));
        sampled.kept = groups;

        if full && matches!(config.dynamic, Dynamic::Replace { .. }) {
            let missing = config.prompts_per_step - sampled.kept.len();
            for index in copies(sampled.kept.len(), missing, seed.derive("copies", &[step])) {
                sampled.kept.push(sampled.kept[index].clone());
                sampled.copied += 1;
            }
        }

        if let Some((curriculum, records)) = selector.finish() {
            sampled.curriculum = Some(curriculum);
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
            _ => sampled.carried_over = if config.carry_over { surplus } else { Vec::new() },
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
