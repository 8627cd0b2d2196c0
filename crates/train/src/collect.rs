//! The groups of a step, while they are being collected: dynamic sampling at work.

use firebrick_core::{GroupFilter, PromptSource, RewardedGroup, Seed};

use crate::{
    Dynamic, Filled, OnCap, Refill, TrainConfig, TrainError, TrainerState, copies,
    draw::{Drawn, PromptSelector, selector},
    report::Sampled,
};

/// Rounds of prompts go out, groups come in, until there are enough or the cap is reached.
pub(crate) struct Collection<'a> {
    config: &'a TrainConfig,
    step: u64,
    seed: Seed,
    selector: Box<dyn PromptSelector + 'a>,
    refill: Refill,
    /// The groups and counts so far; the lists of groups to train on are filled at the end.
    pub(crate) sampled: Sampled,
}

impl<'a> Collection<'a> {
    /// Begins with the surplus of earlier steps, as far as it is not stale. It is copied, because a step
    /// that ends the run at the cap leaves the state as it was: resumed with a higher cap it samples the
    /// same groups again, and goes on from them.
    pub(crate) fn begin(
        config: &'a TrainConfig,
        state: &'a TrainerState,
        step: u64,
        seed: Seed,
    ) -> Self {
        let (carried, stale): (Vec<_>, Vec<_>) = state
            .surplus
            .iter()
            .cloned()
            .partition(|group| step - group.group.step <= config.max_staleness);
        let (carried_count, stale) = (carried.len(), stale.len());
        let mut refill = Refill::new(config.prompts_per_step, config.rounds(), carried);
        refill.enough = config.dynamic.enough(refill.target);
        let selector = selector(config.memory.as_ref(), &state.memory, step, config.group_size);
        let sampled = Sampled { stale, carried: carried_count, ..Sampled::default() };
        Collection { config, step, seed, selector, refill, sampled }
    }

    /// True while another round is allowed and needed.
    pub(crate) fn needs_more(&self) -> bool {
        self.refill.status() == Filled::NeedMore
    }

    /// The prompts of the next round.
    pub(crate) fn draw(&mut self, source: &mut dyn PromptSource) -> Vec<Drawn> {
        let count = self.refill.next_round(self.sampled.carried);
        let seed = self.seed.derive("memory", &[self.step, self.refill.rounds as u64]);
        self.selector.draw(source, count, seed)
    }

    /// Takes in the groups of a round.
    pub(crate) fn offer(&mut self, groups: Vec<RewardedGroup>, filter: &dyn GroupFilter) {
        groups.iter().for_each(|group| self.selector.note(group));
        self.sampled.all.extend(groups.iter().cloned());
        self.refill.offer(groups, filter);
    }

    /// The groups to train on, or why the run should end.
    ///
    /// # Errors
    /// When the cap was reached and the configuration makes that an error.
    pub(crate) fn finish(self) -> Result<Sampled, TrainError> {
        let Collection { config, step, seed, selector, refill, mut sampled } = self;
        sampled.rounds = refill.rounds;
        sampled.filtered = refill.filtered;
        let full = refill.status() == Filled::Full || !config.wants_all();
        let (rounds, kept, wanted) = (refill.rounds, refill.kept.len(), refill.enough);
        let (groups, surplus) = refill.finish();
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
