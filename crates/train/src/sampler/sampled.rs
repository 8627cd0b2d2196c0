//! What sampling a step begins with, and what comes out of it.

use std::collections::BTreeMap;

use firebrick_core::{GroupStatus, RewardedGroup, Seed, Step};
use serde::{Deserialize, Serialize};

use crate::sampler::curriculum::{CurriculumStats, PromptHistory, PromptRecord};

/// What the sampling of a step depends on, besides weights.
#[derive(Clone, Copy)]
pub(crate) struct Beginning<'a> {
    pub(crate) step: Step,
    pub(crate) seed: Seed,
    /// Surplus groups of earlier steps.
    pub(crate) carried_over: &'a [RewardedGroup],
    pub(crate) history: &'a PromptHistory,
    /// Prompts drawn so far.
    pub(crate) cursor: u64,
    /// Number of tokens that the policy knows.
    pub(crate) vocab: usize,
}

/// Result of sampling a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sampled {
    pub(crate) kept: Vec<RewardedGroup>,
    pub(crate) all: Vec<RewardedGroup>,
    /// Status of each group by its draw; a surplus group of an earlier step may be among them.
    pub(crate) statuses: BTreeMap<u64, GroupStatus>,
    /// Groups for the next step.
    pub(crate) carried_over: Vec<RewardedGroup>,
    pub(crate) rounds: usize,
    pub(crate) filtered: usize,
    pub(crate) carried: usize,
    pub(crate) stale: usize,
    pub(crate) surplus: usize,
    /// Kept groups that are copies of others.
    pub(crate) copied: usize,
    /// What the curriculum did, and its new records; nothing without a curriculum.
    pub(crate) curriculum: Option<CurriculumStats>,
    pub(crate) records: BTreeMap<u64, PromptRecord>,
    pub(crate) rollout_seconds: f64,
    pub(crate) reward_seconds: f64,
    /// Seconds in which nothing was sampled because a verdict was waited for.
    pub(crate) waited_seconds: f64,
    pub(crate) stop: Option<String>,
}

impl Sampled {
    pub(crate) fn completions(&self) -> u64 {
        self.all.iter().map(|group| group.rewards.len() as u64).sum()
    }

    /// Counts the completions without a verdict.
    pub(crate) fn errors(&self) -> u64 {
        let rewards = self.all.iter().flat_map(|group| &group.rewards);
        rewards.filter(|reward| !reward.is_judged()).count() as u64
    }
}

/// Groups of a step that were prefetched: sampled with older weights, while the step before was trained on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prefetched {
    pub(crate) step: Step,
    pub(crate) sampled: Sampled,
    /// Prompts drawn by then.
    pub(crate) cursor: u64,
}
