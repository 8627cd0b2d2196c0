//! What can be told from an expression as it was written: that it has a value, what occurs in it.

use std::hash::{DefaultHasher, Hash, Hasher};

use num_rational::BigRational;
use num_traits::{Signed, Zero};

use super::super::{
    budget::Budget,
    expr::{Constant, Expr, Function},
};
use super::{
    EXACT_SHARE, MODULAR_SHARE,
    atom::Algebra,
    exact::Value,
    modular,
    numeric::{self, Agreement},
};

/// Whether an expression is sure to have a value: no denominator, no argument of a logarithm, no
/// base of a power that may be zero in disguise.
pub(super) fn has_value(e: &Expr, budget: &mut Budget) -> bool {
    let parts_have =
        |budget: &mut Budget| children(e).into_iter().all(|part| has_value(part, budget));
    if budget.spend(8).is_err() || !parts_have(budget) {
        return false;
    }
    match e {
        Expr::Constant(Constant::Infinity) => false,
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
            // The others have values here and there, which enclosures have to find.
            _ => equals_itself(e, budget),
        },
        Expr::Fold(_) => equals_itself(e, budget),
        _ => true,
    }
}

fn equals_itself(e: &Expr, budget: &mut Budget) -> bool {
    matches!(numeric::agree(e, e, budget), Ok(Agreement::Close { .. }))
}

/// Whether an expression is sure not to be zero, or, for one with unknown functions, not known to
/// be.
fn is_nonzero(e: &Expr, budget: &mut Budget) -> bool {
    let mut attempt = budget.portion(EXACT_SHARE);
    let mut algebra = Algebra::new(&mut attempt);
    let exact = match algebra.evaluate(e) {
        Ok(Value::Number(number)) => Some(!number.is_zero()),
        Ok(Value::Form(form)) if algebra.is_surely_nonzero(&form.numer) => Some(true),
        Ok(Value::Form(_)) if holds(e, &|part| matches!(part, Expr::Apply(..))) => Some(true),
        _ => None,
    };
    budget.settle(attempt);
    exact.unwrap_or_else(|| {
        let mut attempt = budget.portion(MODULAR_SHARE);
        let nonzero = modular::is_nonzero(e, &mut attempt);
        budget.settle(attempt);
        nonzero || {
            let zero = Expr::Number(BigRational::zero());
            matches!(numeric::agree(e, &zero, budget), Ok(Agreement::Distinct))
        }
    })
}

/// Two expressions in an order that does not depend on how they were given, so that neither does
/// what becomes of them: where the budget ends, and which of several normal forms is met first.
pub(super) fn arranged<'e>(a: &'e Expr, b: &'e Expr) -> (&'e Expr, &'e Expr) {
    let fingerprint = |e: &Expr| {
        let mut hasher = DefaultHasher::new();
        hash(e, &mut hasher);
        hasher.finish()
    };
    if fingerprint(a) <= fingerprint(b) { (a, b) } else { (b, a) }
}

fn hash(e: &Expr, hasher: &mut DefaultHasher) {
    std::mem::discriminant(e).hash(hasher);
    match e {
        Expr::Number(number) | Expr::Decimal(number) => {
            number.is_negative().hash(hasher);
            number.numer().iter_u64_digits().for_each(|digit| digit.hash(hasher));
            number.denom().iter_u64_digits().for_each(|digit| digit.hash(hasher));
        }
        Expr::Symbol(name) | Expr::Apply(name, _) => name.hash(hasher),
        Expr::Constant(constant) => constant.hash(hasher),
        Expr::Call(function, _) => function.hash(hasher),
        Expr::Fold(fold) => (fold.kind, &fold.index).hash(hasher),
        _ => {}
    }
    let parts = children(e);
    parts.len().hash(hasher);
    parts.into_iter().for_each(|part| hash(part, hasher));
}

pub(super) fn holds_infinity(e: &Expr) -> bool {
    holds(e, &|part| matches!(part, Expr::Constant(Constant::Infinity)))
}

fn holds(e: &Expr, what: &dyn Fn(&Expr) -> bool) -> bool {
    what(e) || children(e).into_iter().any(|part| holds(part, what))
}

/// The parts of an expression.
fn children(e: &Expr) -> Vec<&Expr> {
    match e {
        Expr::Number(_) | Expr::Decimal(_) | Expr::Symbol(_) | Expr::Constant(_) => vec![],
        Expr::Sum(parts) | Expr::Product(parts) | Expr::Call(_, parts) | Expr::Apply(_, parts) => {
            parts.iter().collect()
        }
        Expr::Negate(inner) | Expr::Degrees(inner) => vec![inner],
        Expr::Quotient(parts) | Expr::Power(parts) | Expr::Root(parts) => parts.iter().collect(),
        Expr::Fold(fold) => vec![&fold.from, &fold.to, &fold.body],
    }
}
