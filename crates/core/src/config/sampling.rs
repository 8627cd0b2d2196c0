//! Options of dynamic sampling.

use serde::{Deserialize, Serialize};

/// What a step does with groups without spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Dynamic {
    /// Further prompts are sampled instead, until there are enough groups (DAPO).
    #[default]
    Filter,
    /// Copies of other groups of the step replace them. Further prompts are sampled only if too few groups have
    /// spread.
    Replace {
        /// Share of groups, in [0, 1). If more than this share of the groups has spread, copies of them replace
        /// the others.
        #[serde(default = "min_ratio")]
        #[cfg_attr(feature = "schema", schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0)))]
        min_ratio: f64,
    },
    /// They are left out, and the step trains on fewer groups.
    Drop,
    /// They are trained on like the others. The exception is a group of which overlong filtering has left nothing:
    /// without a curriculum, a further group is sampled instead.
    Off,
}

impl Dynamic {
    /// Returns the name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Dynamic::Filter => "filter",
            Dynamic::Replace { .. } => "replace",
            Dynamic::Drop => "drop",
            Dynamic::Off => "off",
        }
    }

    /// Returns the number of kept groups that ends the sampling of a step that wants `target` groups.
    pub fn enough(self, target: usize) -> usize {
        match self {
            Dynamic::Replace { min_ratio } => {
                ((target as f64 * min_ratio) as usize + 1).min(target)
            }
            _ => target,
        }
    }
}

/// What happens if the allowed rounds of sampling did not fill a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnCap {
    /// Train on the groups there are.
    #[default]
    TrainSmaller,
    /// End the run cleanly.
    Stop,
    /// End the run with an error.
    Error,
}

fn min_ratio() -> f64 {
    0.3
}
