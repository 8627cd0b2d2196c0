//! Compares two scalar expressions: are they the same, and which is greater?
//!
//! Expressions whose values are rational numbers are compared exactly. All others are compared by enclosures of their
//! values, at points if they have variables: enclosures that exclude each other prove that the values differ, and
//! values that agree to hundreds of bits are called equal, with the chance of error that is left. Where neither shows
//! anything, the comparison is undecided.

mod ball;
mod defined;
mod exact;
mod function;
mod integer;
mod interval;
mod numeric;
mod real;
mod written;

use std::cmp::Ordering;

use num_rational::BigRational;
use num_traits::{Signed, Zero};

use crate::{
    budget::{Budget, OverBudget},
    expr::{Constant, Expr},
    judgement::Certainty,
};
use defined::has_value;
use exact::Value;
use integer::ExactError;
use numeric::Agreement;

/// Result of comparing two expressions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Decision {
    Equal(Certainty),
    Different(Certainty),
    /// One side has no value: division by zero, ∞ − ∞, ….
    Undefined,
    Undecided(UndecidedReason),
}

/// Reason why a comparison of two expressions reached no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UndecidedReason {
    /// The budget ran out.
    OverBudget,
    /// No method here can decide the comparison.
    OutOfReach,
}

/// Fewest bits in which two numbers must agree to be called equal: √(10^40+1) and 10^20 agree to 134.
const ENOUGH_BITS: u32 = 200;

/// Share of the budget that exact arithmetic may take, so that it does not starve the enclosures.
const EXACT_SHARE: f64 = 0.5;

/// Tells whether two expressions are equal wherever both are defined. An undefined expression equals nothing, not
/// even itself.
pub(crate) fn equal(a: &Expr, b: &Expr, budget: &mut Budget) -> Decision {
    if let (Expr::Number(a) | Expr::Decimal(a), Expr::Number(b) | Expr::Decimal(b)) = (a, b) {
        return proved(a == b);
    }

    compared(a, b, ENOUGH_BITS, budget, numeric::agree)
}

/// Returns the verdicts of exact arithmetic and of evaluation, if both reach one. The two have to be the same.
#[cfg(any(test, fuzzing))]
pub(crate) fn both_ways(a: &Expr, b: &Expr, budget: &mut Budget) -> Option<(bool, bool)> {
    let proved = match exactly(a, b, budget) {
        ExactVerdict::Decided(Decision::Equal(Certainty::Proved)) => true,
        ExactVerdict::Decided(Decision::Different(Certainty::Proved)) => false,
        _ => return None,
    };

    match numeric::agree(a, b, budget) {
        Ok(Agreement::Distinct) => Some((proved, false)),
        Ok(Agreement::Close { bits, points }) if evidence(bits, points) >= ENOUGH_BITS => {
            Some((proved, true))
        }
        _ => None,
    }
}

/// Tells whether two expressions, one of which holds a decimal, are equal when both are rounded to `places` places
/// after the point.
///
/// A decimal that is given to more places may be rounded correctly there and still come out different when it is
/// rounded again: 11.3137085 is 8√2, which is 11.313708 to six places.
pub(crate) fn equal_rounded(a: &Expr, b: &Expr, places: u32, budget: &mut Budget) -> Decision {
    let decision = equal_to(a, b, places, budget);
    let given = [a, b].into_iter().filter_map(integer::places_given).min();

    match given.filter(|given| *given > places) {
        Some(given) if matches!(decision, Decision::Different(_)) => equal_to(a, b, given, budget),
        _ => decision,
    }
}

fn equal_to(a: &Expr, b: &Expr, places: u32, budget: &mut Budget) -> Decision {
    if let (Some(a), Some(b)) = (rational(a, budget), rational(b, budget)) {
        let rounded = integer::same_to(&a, &b, places, budget);
        return rounded.map_or(Decision::Undecided(UndecidedReason::OverBudget), proved);
    }

    compared(a, b, 0, budget, |a, b, budget| numeric::rounded::agree(a, b, places, budget))
}

/// Compares exactly where that is possible, and otherwise by values, which have to agree in `enough` bits.
fn compared(
    a: &Expr,
    b: &Expr,
    enough: u32,
    budget: &mut Budget,
    agree: impl FnOnce(&Expr, &Expr, &mut Budget) -> Result<Agreement, OverBudget>,
) -> Decision {
    match exactly(a, b, budget) {
        ExactVerdict::Decided(decision) => decision,
        ExactVerdict::Open { .. } if a == b && has_value(a, budget) => proved(true),
        // Infinity has no enclosure, so evaluation would find nothing.
        ExactVerdict::Open { over_budget } if holds_infinity(a) || holds_infinity(b) => {
            undecided(over_budget)
        }
        ExactVerdict::Open { over_budget } => by_value(agree(a, b, budget), over_budget, enough),
    }
}

/// Tells which of two real constants is greater, infinity included.
pub(crate) fn order(a: &Expr, b: &Expr, budget: &mut Budget) -> Option<Ordering> {
    let zero = Value::from(BigRational::zero());
    match (attempt(a, budget), attempt(b, budget)) {
        (Ok(a), Ok(b)) => return Some(a.order(&b)),
        (Err(ExactError::Undefined), _) | (_, Err(ExactError::Undefined)) => return None,
        // Infinity is beyond every real number, as it is beyond zero.
        (Ok(infinity @ Value::Infinity { .. }), Err(_)) => {
            return numeric::is_real(b, budget).then(|| infinity.order(&zero));
        }
        (Err(_), Ok(infinity @ Value::Infinity { .. })) => {
            return numeric::is_real(a, budget).then(|| zero.order(&infinity));
        }
        _ => {}
    }
    if let Ok(Some(order)) = numeric::order(a, b, budget) {
        return Some(order);
    }

    // Enclosures that do not exclude each other are no order, but they may be close enough.
    match equal(a, b, budget) {
        Decision::Equal(_) => Some(Ordering::Equal),
        _ => None,
    }
}

/// Tells whether a = k·b with a constant k other than zero, so that a = 0 wherever b = 0. If so, returns whether k
/// is positive, and how sure that is.
pub(crate) fn proportional(a: &Expr, b: &Expr, budget: &mut Budget) -> Option<(bool, Certainty)> {
    if let (Some(a), Some(b)) = (rational(a, budget), rational(b, budget)) {
        let both_or_neither = a.is_zero() == b.is_zero();
        return both_or_neither.then(|| (a.is_negative() == b.is_negative(), Certainty::Proved));
    }

    match numeric::ratio(a, b, budget) {
        Ok(Some((positive, Agreement::Close { bits, points })))
            if evidence(bits, points) >= ENOUGH_BITS =>
        {
            Some((positive, Certainty::Probable { bits: evidence(bits, points) }))
        }
        _ => None,
    }
}

/// Returns the exact value of an expression, if the value is a rational number.
pub(crate) fn rational(e: &Expr, budget: &mut Budget) -> Option<BigRational> {
    if let Expr::Number(number) | Expr::Decimal(number) = e {
        return Some(number.clone());
    }
    match attempt(e, budget) {
        Ok(Value::Number(number)) => Some(number),
        _ => None,
    }
}

/// Writes an expression as plain text: a rational value in lowest terms, and any other as it stands.
pub(crate) fn canonical(e: &Expr, budget: &mut Budget) -> String {
    match attempt(e, budget) {
        Ok(Value::Number(number)) => {
            // Writing the digits is quadratic in their number.
            let limbs = integer::bits(&number) / 64;
            let paid = budget.spend(limbs * limbs).is_ok();
            if paid { number.to_string() } else { written::written(e) }
        }
        Ok(Value::Infinity { positive }) => if positive { "infinity" } else { "-infinity" }.into(),
        Err(_) => written::written(e),
    }
}

fn holds_infinity(e: &Expr) -> bool {
    e.any(&|part| matches!(part, Expr::Constant(Constant::Infinity)))
}

fn proved(equal: bool) -> Decision {
    if equal { Decision::Equal(Certainty::Proved) } else { Decision::Different(Certainty::Proved) }
}

fn by_value(agreement: Result<Agreement, OverBudget>, over_budget: bool, enough: u32) -> Decision {
    match agreement {
        Ok(Agreement::Distinct) => proved(false),
        Ok(Agreement::Undefined) => Decision::Undefined,
        Ok(Agreement::Close { bits, points }) if evidence(bits, points) >= enough => {
            Decision::Equal(Certainty::Probable { bits: evidence(bits, points) })
        }
        Err(OverBudget) => Decision::Undecided(UndecidedReason::OverBudget),
        Ok(_) => undecided(over_budget),
    }
}

/// Counts the bits in which two functions agree, over all points: each is an independent trial.
fn evidence(bits: u32, points: u32) -> u32 {
    bits.saturating_mul(points)
}

fn undecided(over_budget: bool) -> Decision {
    Decision::Undecided(if over_budget {
        UndecidedReason::OverBudget
    } else {
        UndecidedReason::OutOfReach
    })
}

/// Verdict of exact arithmetic on two expressions.
enum ExactVerdict {
    Decided(Decision),
    Open { over_budget: bool },
}

fn exactly(a: &Expr, b: &Expr, budget: &mut Budget) -> ExactVerdict {
    let left = attempt(a, budget);
    // Equal expressions need only one evaluation.
    let right = if a == b { left.clone() } else { attempt(b, budget) };

    ExactVerdict::Decided(match (&left, &right) {
        (Err(ExactError::Undefined), _) | (_, Err(ExactError::Undefined)) => Decision::Undefined,
        (Ok(a), Ok(b)) => proved(a == b),
        // A value without infinity in it is finite, however large.
        (Ok(Value::Infinity { .. }), Err(_)) if !holds_infinity(b) => proved(false),
        (Err(_), Ok(Value::Infinity { .. })) if !holds_infinity(a) => proved(false),
        _ => {
            let over_budget = [left, right].contains(&Err(ExactError::OverBudget));
            return ExactVerdict::Open { over_budget };
        }
    })
}

/// Computes the exact value with a part of the budget.
fn attempt(e: &Expr, budget: &mut Budget) -> Result<Value, ExactError> {
    let mut attempt = budget.portion(EXACT_SHARE);
    let value = exact::value(e, &mut attempt);
    budget.settle(attempt);
    value
}

#[cfg(test)]
mod tests;
