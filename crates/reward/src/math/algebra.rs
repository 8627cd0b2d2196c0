//! Whether two scalar expressions are the same, and which is greater.

use super::{Certainty, budget::Budget, expr::Expr};

/// What comparing two expressions gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Decision {
    Equal(Certainty),
    Different(Certainty),
    /// One side has no value: division by zero, ∞ − ∞, ….
    Undefined,
    Undecided(Why),
}

/// Why two expressions could not be told apart or together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The budget ran out.
    OverBudget,
    /// The methods here do not decide it.
    OutOfReach,
}
