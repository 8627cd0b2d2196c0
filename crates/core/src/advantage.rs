//! The trait `AdvantageEstimator`, which turns the rewards of a step into advantages.

use crate::RewardedGroup;

/// Turns the rewards of a step into advantages.
///
/// An estimator sees the whole step, so it may normalise over a group, over the step, or each part of a reward
/// separately.
///
/// ```
/// use firebrick_core::{AdvantageEstimator, Advantages, RewardedGroup};
///
/// /// The reward, less 0.5.
/// struct Shifted;
///
/// impl AdvantageEstimator for Shifted {
///     fn advantages(&self, groups: &[RewardedGroup]) -> Vec<Advantages> {
///         let of_group = |group: &RewardedGroup| group.shaped_rewards().map(|reward| reward - 0.5).collect();
///         groups.iter().map(|group| Advantages::PerCompletion(of_group(group))).collect()
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not estimate advantages",
    label = "needs `fn advantages(&self, groups: &[RewardedGroup]) -> Vec<Advantages>`"
)]
pub trait AdvantageEstimator: Send + Sync {
    /// Returns one entry per group of the step, in the groups' order. An estimator uses the shaped rewards
    /// ([`RewardedGroup::shaped_rewards`]), including those of completions that are not in the loss. Finite rewards
    /// give finite advantages.
    fn advantages(&self, groups: &[RewardedGroup]) -> Vec<Advantages>;
}

impl<T: AdvantageEstimator + ?Sized> AdvantageEstimator for Box<T> {
    fn advantages(&self, groups: &[RewardedGroup]) -> Vec<Advantages> {
        (**self).advantages(groups)
    }
}

/// Advantages of one group, as an estimator returns them.
#[derive(Clone, Debug, PartialEq)]
pub enum Advantages {
    /// One number per completion, for each of its tokens.
    PerCompletion(Vec<f32>),
    /// One list per completion, with a number for each of its tokens. Tokens that the policy did not write have a
    /// number too, although it is not used.
    PerToken(Vec<Vec<f32>>),
}
