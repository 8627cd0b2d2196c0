//! Samples: completions as plain numbers, ready for the update.

use firebrick_core::{Completion, TokenId, Trained};
use serde::{Deserialize, Serialize};

use crate::numbers;

/// One completion, ready for the update: plain numbers, no tensors. Lists have one entry for each token of
/// the completion, no matter who wrote the token.
///
/// Up to three policies matter to a token. The behaviour policy sampled it. The old policy is the one that
/// the update starts from; ratios are clipped against it. The reference policy is the one that a KL penalty
/// is measured from. With the local engine the behaviour policy and the old policy are the same, except for
/// groups that were carried over from an earlier step.
///
/// In JSON a number that is not finite is one of the strings `NaN`, `Infinity` and `-Infinity`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Sample {
    /// The tokens of the prompt; at least one.
    pub prompt: Vec<TokenId>,
    /// The tokens that a teacher reads in place of the prompt; empty if it reads the prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub teacher_prompt: Vec<TokenId>,
    /// The tokens of the completion.
    pub completion: Vec<TokenId>,
    /// True where the policy wrote the token; other tokens are read and not trained on.
    pub mask: Vec<bool>,
    /// The log-probabilities under the behaviour policy, as its engine gave them.
    #[serde(with = "numbers")]
    pub rollout_logprobs: Vec<f32>,
    /// The log-probabilities under the old policy.
    #[serde(with = "numbers")]
    pub old_logprobs: Vec<f32>,
    /// The log-probabilities under the reference policy; empty without a KL penalty.
    #[serde(with = "numbers")]
    pub ref_logprobs: Vec<f32>,
    /// Weights that multiply the policy loss: those of truncated importance sampling (TIS) between behaviour policy and
    /// old policy, and 0 for a token without a policy loss; empty if nothing is weighted.
    #[serde(with = "numbers")]
    pub importance: Vec<f32>,
    /// The completion's shaped reward.
    #[serde(with = "numbers::one")]
    pub reward: f32,
    /// Advantages: how much better each token was than expected.
    #[serde(with = "numbers")]
    pub advantages: Vec<f32>,
    /// A critic's values and targets for the completion, if there is a critic.
    pub token_values: Option<TokenValues>,
    /// False if every token is out of the loss.
    pub in_loss: bool,
    /// The name of the data set that the prompt is from, if there are several; else empty.
    #[serde(default)]
    pub data_source: String,
    /// The number of the group that the completion belongs to.
    pub group: u64,
    /// The completion's index in its group, from 0.
    #[serde(default)]
    pub place: usize,
}

impl Sample {
    /// Makes a sample with advantages of 0, whose old policy is the policy that sampled the completion.
    pub fn new(prompt: &[TokenId], completion: &Completion, group: u64) -> Self {
        Sample {
            prompt: prompt.to_vec(),
            teacher_prompt: Vec::new(),
            completion: completion.tokens.clone(),
            mask: completion.mask.clone(),
            rollout_logprobs: completion.logprobs.clone(),
            old_logprobs: completion.logprobs.clone(),
            ref_logprobs: Vec::new(),
            importance: Vec::new(),
            reward: 0.0,
            advantages: vec![0.0; completion.tokens.len()],
            token_values: None,
            in_loss: true,
            data_source: String::new(),
            group,
            place: 0,
        }
    }

    /// Gives all tokens of the sample the same advantage.
    pub fn with_advantage(mut self, advantage: f32) -> Self {
        self.advantages = vec![advantage; self.completion.len()];
        self
    }

    /// Counts the tokens that enter the loss.
    pub fn loss_tokens(&self) -> usize {
        if self.in_loss { self.policy_tokens().count() } else { 0 }
    }

    /// Returns the sample's record of an update, as far as it is known before the update.
    pub fn trained(&self) -> Trained {
        let sum: f32 = self.policy_tokens().map(|index| self.advantages[index]).sum();
        let count = self.policy_tokens().count();
        Trained { advantage: sum / count.max(1) as f32, ..Trained::default() }
    }

    /// Returns the indices of the tokens that the policy wrote.
    pub fn policy_tokens(&self) -> impl Iterator<Item = usize> {
        self.mask.iter().enumerate().filter(|(_, by_policy)| **by_policy).map(|(index, _)| index)
    }

    /// Sets the weights of truncated importance sampling (TIS): min(cap, π_old / π_rollout) for each token
    /// (Ionides 2008), where π_rollout is the behaviour policy. So a token sampled by another policy counts
    /// as often as the old policy would have sampled it. The cap bounds the variance.
    pub fn set_tis_weights(&mut self, cap: f64) {
        let ratio = |(old, rollout): (&f32, &f32)| (f64::from(*old) - f64::from(*rollout)).exp();
        let pairs = self.old_logprobs.iter().zip(&self.rollout_logprobs);
        self.importance = pairs.map(|pair| ratio(pair).min(cap) as f32).collect();
    }

    pub(crate) fn length(&self) -> usize {
        // A teacher's pass has to fit as well.
        self.prompt.len().max(self.teacher_prompt.len()) + self.completion.len()
    }
}

/// A critic's values of one completion: one number per token, 0 for a token that the policy did not write.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct TokenValues {
    /// The critic's values before the step's first update.
    #[serde(with = "crate::numbers")]
    pub values: Vec<f32>,
    /// What the critic should have predicted.
    #[serde(with = "crate::numbers")]
    pub returns: Vec<f32>,
}
