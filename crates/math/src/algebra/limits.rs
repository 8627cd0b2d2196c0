//! How far the methods go: their shares of the budget, and why there may be no exact value.

use crate::budget::OverBudget;

/// The share of the budget that exact arithmetic may take.
pub(super) const EXACT_SHARE: f64 = 0.5;

/// The share of what is then left that residues may take.
pub(super) const MODULAR_SHARE: f64 = 0.5;

/// Why there is no exact value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The expression has no value at all.
    Undefined,
    /// Its value is too large to be computed.
    TooLarge,
    /// It has no normal form.
    Opaque,
    OverBudget,
}

impl From<OverBudget> for Stop {
    fn from(_: OverBudget) -> Self {
        Stop::OverBudget
    }
}
