//! Options of the policy loss.

use serde::{Deserialize, Serialize};

/// How the losses of tokens become one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// Mean over all tokens of the update (DAPO).
    #[default]
    TokenMean,
    /// Mean over the tokens of a prompt's group, then over prompts.
    PromptMean,
    /// Mean over the tokens of a completion, then over completions (GRPO).
    SequenceMean,
    /// Sum over the tokens of a completion, then mean over completions.
    SequenceSum,
    /// Sum over the tokens of a completion, divided by a constant length, then mean over completions (Dr. GRPO).
    Constant,
}

/// How a policy learns from its teacher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DistillationLoss {
    /// By the tokens that the policy wrote: the difference of a token's two log-probabilities is an advantage.
    #[default]
    PolicyGradient,
    /// By all tokens of the vocabulary: KL(teacher ‖ policy) is a loss, at each token that the policy wrote. The policy
    /// learns to make everything likely that the teacher might have written there.
    ForwardKl,
    /// By all tokens of the vocabulary: KL(policy ‖ teacher) is a loss. The policy learns to write nothing that the teacher
    /// would not have written. It is what `policy_gradient` estimates from one token.
    ReverseKl,
}

/// An estimator of the KL divergence, from the log-ratio of the policy and its reference at one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum KlEstimator {
    /// The log-ratio: unbiased, noisy, may be negative.
    K1,
    /// Half the squared log-ratio: biased, low variance.
    K2,
    /// Ratio minus 1 minus log-ratio: unbiased, never negative.
    K3,
    /// The absolute log-ratio: a distance, and no estimate of the divergence.
    Abs,
}

/// Takes tokens out of the loss that one of two policies finds far likelier than the other: the policy that the update
/// starts from, and the policy that sampled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TisGate {
    /// How the distance of the two probabilities of a token is measured.
    pub divergence: TokenDivergence,
    /// What is taken out.
    #[serde(default)]
    pub level: GateLevel,
    /// Largest divergence, above 0, that stays in the loss.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0.0)))]
    pub max: f64,
}

/// A divergence of two policies at one token, as if there were that token and all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TokenDivergence {
    /// The total variation: the difference of the two probabilities.
    Tv,
    /// The KL divergence of the updated policy from the policy that sampled.
    BinaryKl,
}

/// What a [`TisGate`] takes out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GateLevel {
    /// Each token whose divergence is larger.
    #[default]
    Token,
    /// All tokens of a completion whose mean divergence is larger.
    Sequence,
}
