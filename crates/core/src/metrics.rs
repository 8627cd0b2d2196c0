//! The metrics of a step.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Named numbers of one step, such as `reward/credit`, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Metrics(pub BTreeMap<String, f64>);

impl Metrics {
    /// Sets `name`, replacing an earlier value.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<f64>) {
        self.0.insert(name.into(), value.into());
    }

    /// Returns the value of `name`, if it was set.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Takes over every entry of `other`.
    pub fn extend(&mut self, other: Metrics) {
        self.0.extend(other.0);
    }
}
