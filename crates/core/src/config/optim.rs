//! Options of an optimizer.

use serde::{Deserialize, Serialize};

/// The number format of an optimizer's moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Moments {
    /// 32 bits.
    #[default]
    #[serde(rename = "float32")]
    F32,
    /// 8 bits for each moment, and a scale for every 64 moments. They take a quarter of the memory, and are
    /// rounded.
    Int8,
}
