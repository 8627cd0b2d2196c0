//! Sizes and rules of sampling.

use firebrick_core::config::{Dynamic, OnCap};
use firebrick_rollout::Sampling;

use crate::sampler::curriculum::Curriculum;

/// Sizes and rules of sampling.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SamplerConfig {
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
    /// Largest age of a surplus group, in steps, when it is used.
    pub max_carry_over_age: u64,
    /// How training completions are drawn.
    pub sampling: Sampling,
    /// Largest share of completions that may have no verdict, in [0, 1]. Above it the step fails, and so does
    /// an evaluation.
    pub max_errors: f64,
    /// Names of the data sets ([`Prompt::data_source`](firebrick_core::Prompt::data_source)) that have metrics of their
    /// own.
    pub data_sources: Vec<String>,
}

impl SamplerConfig {
    /// Makes the rules of one round of prompts per step, without dynamic sampling. Any share of the completions may
    /// have no verdict (`max_errors` is 1).
    pub fn new(group_size: usize, prompts_per_step: usize, sampling: Sampling) -> Self {
        SamplerConfig {
            group_size,
            prompts_per_step,
            dynamic: Dynamic::Off,
            curriculum: None,
            max_rounds: 1,
            on_cap: OnCap::TrainSmaller,
            carry_over: false,
            max_carry_over_age: 0,
            sampling,
            max_errors: 1.0,
            data_sources: Vec::new(),
        }
    }

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
