//! Limits of the methods: their shares of the budget, and the reasons why there may be no exact value.

use crate::budget::OverBudget;

/// Share of the budget that exact arithmetic may take.
pub(super) const EXACT_SHARE: f64 = 0.5;

/// Share of the remaining budget that residues may take.
pub(super) const MODULAR_SHARE: f64 = 0.5;

/// Reason why there is no exact value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AlgebraError {
    /// There is no value at all.
    Undefined,
    /// The value is too large to be computed.
    TooLarge,
    /// There is no normal form.
    Opaque,
    OverBudget,
}

impl From<OverBudget> for AlgebraError {
    fn from(_: OverBudget) -> Self {
        AlgebraError::OverBudget
    }
}
