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

    /// Adds to the value of `name`, which is 0 if it was not set.
    pub fn add(&mut self, name: impl Into<String>, value: impl Into<f64>) {
        *self.0.entry(name.into()).or_default() += value.into();
    }

    /// Returns the value of `name`, if it was set.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Adds every entry of `other` to the one of its name.
    #[must_use]
    pub fn plus(mut self, other: Metrics) -> Metrics {
        other.0.into_iter().for_each(|(name, value)| self.add(name, value));
        self
    }

    /// Takes over every entry of `other`.
    pub fn extend(&mut self, other: Metrics) {
        self.0.extend(other.0);
    }
}
