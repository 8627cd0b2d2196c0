//! Choice of the prompts that a step samples.

use std::collections::BTreeMap;

use firebrick_core::{Prompt, PromptSource, RewardedGroup, Seed};

use crate::sampler::curriculum::{
    Curriculum, CurriculumSelector, CurriculumStats, PromptHistory, PromptRecord,
};

/// A prompt with the number of its draw.
pub(crate) type Drawn = (u64, Prompt);

/// Chooses the prompts of a step.
pub(crate) trait PromptSelector {
    /// Draws at least one prompt for a step that wants `count` more prompts, and about `count` prompts if it
    /// can. `count` is at least 1.
    fn draw(&mut self, source: &mut dyn PromptSource, count: usize, seed: Seed) -> Vec<Drawn>;

    /// Returns true if all groups have to be judged before more prompts are drawn.
    fn whole_rounds(&self) -> bool {
        false
    }

    /// Notes the outcome of a group that was sampled, whether the group was kept or not.
    fn note(&mut self, group: &RewardedGroup);

    /// Ends the step, and returns the count of prompts passed over and the records that the step leaves;
    /// `None` without a curriculum.
    fn finish(self: Box<Self>) -> Option<(CurriculumStats, BTreeMap<u64, PromptRecord>)>;
}

/// Makes the selector of a step: with a curriculum if `rule` is given, else all prompts in their order.
pub(crate) fn selector<'a>(
    rule: Option<&'a Curriculum>,
    history: &'a PromptHistory,
    step: u64,
    group_size: usize,
) -> Box<dyn PromptSelector + 'a> {
    match rule {
        Some(rule) => Box::new(CurriculumSelector::new(history, rule, step, group_size)),
        None => Box::new(InOrder),
    }
}

/// Takes every prompt as it comes.
struct InOrder;

impl PromptSelector for InOrder {
    fn draw(&mut self, source: &mut dyn PromptSource, count: usize, _: Seed) -> Vec<Drawn> {
        (0..count).map(|_| next(source)).collect()
    }

    fn note(&mut self, _: &RewardedGroup) {}

    fn finish(self: Box<Self>) -> Option<(CurriculumStats, BTreeMap<u64, PromptRecord>)> {
        None
    }
}

/// Draws the next prompt of `source`, with the number of its draw.
pub(crate) fn next(source: &mut dyn PromptSource) -> Drawn {
    (source.cursor(), source.draw())
}
