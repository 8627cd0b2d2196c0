//! Options of an update.

use serde::{Deserialize, Serialize};

/// A source of the old policy's log-probabilities in the loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OldLogprobs {
    /// The sampler's, or the trainer's while the two differ by more than 0.005 on average on the same weights. The
    /// trainer's cost a pass through the model. In 16 bits the first step uses the trainer's, to measure the
    /// difference. If steps are sampled ahead (`max_staleness` above 0), it is always the sampler's.
    #[default]
    Auto,
    /// The sampler's.
    Sampled,
    /// The trainer's, which cost a pass through the model in each step.
    Recomputed,
}

impl OldLogprobs {
    /// Mean difference, on the same weights, above which log-probabilities are recomputed. It is a fortieth
    /// of DAPO's lower clip: the difference between two ways of rounding should not clip a token.
    pub const MAX_LOGPROB_DIFF: f64 = 0.005;
}

/// When completions of one prompt share it in an update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SharePrompts {
    /// They share it if that saves a twentieth of the tokens.
    #[default]
    Auto,
    /// They share it whenever a mini-batch has several of them.
    Always,
    /// They never share it.
    Never,
}
