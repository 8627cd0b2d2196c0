//! The limits of the methods: their shares of the budget, and the reasons why there may be no exact value.

use crate::budget::OverBudget;

/// The share of the budget that exact arithmetic may take.
pub(super) const EXACT_SHARE: f64 = 0.5;

/// The share of the remaining budget that residues may take.
pub(super) const MODULAR_SHARE: f64 = 0.5;

/// The reason why there is no exact value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The expression has no value at all.
    Undefined,
    /// The value is too large to be computed.
    TooLarge,
    /// The expression has no normal form.
    Opaque,
    OverBudget,
}

impl From<OverBudget> for Stop {
    fn from(_: OverBudget) -> Self {
        Stop::OverBudget
    }
}
