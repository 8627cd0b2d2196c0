//! What is between completions and advantages.

use firebrick_core::{
    AdvantageEstimator, Group, GroupFilter, RewardScale, RewardShaper, RewardedGroup, Step,
    Verifier,
};

use crate::{error::TrainError, sampler::reward::reward};

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
        step: Step,
    ) -> Result<Vec<RewardedGroup>, TrainError> {
        reward(groups, &*self.verifier, self.scale, &self.shapers, step)
    }
}
