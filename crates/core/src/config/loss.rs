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
