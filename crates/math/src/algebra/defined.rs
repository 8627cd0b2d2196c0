//! Tests whether an expression is sure to have a value.

use num_rational::BigRational;
use num_traits::{Signed, Zero};

use super::{
    attempt,
    numeric::{self, Agreement},
};
use crate::{
    budget::Budget,
    expr::{Constant, Expr, Function},
};

/// Tells whether an expression is sure to have a value, so that no denominator, no argument of a logarithm and no
/// base of a power can be zero in disguise.
pub(super) fn has_value(e: &Expr, budget: &mut Budget) -> bool {
    if budget.spend(8).is_err() || !e.children().iter().all(|part| has_value(part, budget)) {
        return false;
    }

    match e {
        Expr::Constant(Constant::Infinity | Constant::NotANumber) => false,
        Expr::Quotient(parts) => is_nonzero(&parts[1], budget),
        Expr::Root(parts) => {
            matches!(&parts[0], Expr::Number(degree) if degree.is_positive())
        }
        Expr::Power(parts) => {
            matches!(&parts[1], Expr::Number(exponent) if exponent.is_positive())
                || is_nonzero(&parts[0], budget)
        }
        Expr::Call(Function::Ln, parts) => parts.iter().all(|part| is_nonzero(part, budget)),
        Expr::Call(function, parts) => match function {
            Function::Sin
            | Function::Cos
            | Function::Arctan
            | Function::Sinh
            | Function::Cosh
            | Function::Tanh
            | Function::Exp
            | Function::Abs
            | Function::Re
            | Function::Im
            | Function::Conjugate => true,
            Function::Factorial | Function::DoubleFactorial => {
                matches!(parts.as_slice(), [Expr::Number(n)] if n.is_integer() && !n.is_negative())
                    || matches!(parts.as_slice(), [Expr::Call(Function::Factorial, _)])
            }
            Function::Binomial | Function::Permutations => parts
                .iter()
                .all(|n| matches!(n, Expr::Number(n) if n.is_integer() && !n.is_negative())),
            // The other functions are defined for some arguments only, which enclosures have to decide.
            _ => equals_itself(e, budget),
        },
        Expr::Fold(_) => equals_itself(e, budget),
        _ => true,
    }
}

fn equals_itself(e: &Expr, budget: &mut Budget) -> bool {
    matches!(numeric::agree(e, e, budget), Ok(Agreement::Close { .. }))
}

/// Tells whether an expression is sure not to be zero. Unknown functions count as not being zero.
fn is_nonzero(e: &Expr, budget: &mut Budget) -> bool {
    match attempt(e, budget) {
        Ok(value) => value.as_number().is_some_and(|number| !number.is_zero()),
        Err(_) => {
            let zero = Expr::Number(BigRational::zero());
            matches!(numeric::agree(e, &zero, budget), Ok(Agreement::Distinct))
        }
    }
}
