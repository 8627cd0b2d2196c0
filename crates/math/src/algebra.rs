//! Compares two scalar expressions: are they the same, and which is greater?
//!
//! An expression is first brought into an exact normal form: a quotient of polynomials in parts that cannot be
//! taken apart. Equal normal forms prove equality. Unequal normal forms prove inequality if the normal form is
//! unique. Numbers too large for that are compared by their residues, and the rest by enclosures of rising
//! precision. Each method has its own part of the budget, so one that runs out does not starve the next.

mod arithmetic;
mod atom;
mod ball;
mod defined;
mod exact;
mod function;
mod integer;
mod interval;
mod limits;
mod modular;
mod modular_u64;
mod numeric;
mod polynomial;
mod power;
mod real;
mod render;
mod tree;
mod trigonometry;

use std::cmp::Ordering;

use num_rational::BigRational;
use num_traits::Signed;

use crate::{
    budget::{Budget, OverBudget},
    expr::Expr,
    judgement::Certainty,
};
use atom::Algebra;
use defined::has_value;
use exact::Value;
use limits::{AlgebraError, EXACT_SHARE, MODULAR_SHARE};
use modular::Residues;
use numeric::Agreement;
use tree::{arranged, holds_infinity};

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

/// Share of the remaining budget that comparing the sizes of huge constants may take.
const SIZE_SHARE: f64 = 0.25;

/// Tells whether two expressions are equal wherever both are defined. An undefined expression equals nothing, not
/// even itself.
pub(crate) fn equal(a: &Expr, b: &Expr, budget: &mut Budget) -> Decision {
    if let (Expr::Number(a) | Expr::Decimal(a), Expr::Number(b) | Expr::Decimal(b)) = (a, b) {
        return proved(a == b);
    }

    let (a, b) = arranged(a, b);
    let mut over_budget = false;
    match exactly(a, b, budget, &mut over_budget) {
        ExactVerdict::Decided(decision) => return decision,
        ExactVerdict::EqualIfDefined if has_value(a, budget) && has_value(b, budget) => {
            return proved(true);
        }
        ExactVerdict::EqualIfDefined => {}
        ExactVerdict::Open => {
            let mut attempt = budget.portion(MODULAR_SHARE);
            let residues = modular::compare(a, b, &mut attempt);
            budget.settle(attempt);

            match residues {
                Ok(Residues::Different) => return proved(false),
                Ok(Residues::Agree { bits }) => {
                    // The residues of constants can be forged, but hardly together with their sizes.
                    if numeric::are_apart(a, b, &mut budget.portion(SIZE_SHARE)) {
                        return proved(false);
                    }
                    return Decision::Equal(Certainty::Probable { bits });
                }
                Err(error) => over_budget |= error == AlgebraError::OverBudget,
            }
        }
    }

    // Infinity has no enclosure, so evaluation would find nothing.
    if holds_infinity(a) || holds_infinity(b) {
        return undecided(over_budget);
    }

    by_value(numeric::agree(a, b, budget), over_budget, ENOUGH_BITS)
}

/// Returns the verdicts of exact arithmetic and of evaluation, if both reach one. The two have to be the same.
#[cfg(any(test, fuzzing))]
pub(crate) fn both_ways(a: &Expr, b: &Expr, budget: &mut Budget) -> Option<(bool, bool)> {
    let proved = match exactly(a, b, budget, &mut false) {
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
    crate::parts::gate!(GivenPlaces, decision);
    let given = [a, b].into_iter().filter_map(integer::places_given).min();

    match given.filter(|given| *given > places) {
        Some(given) if matches!(decision, Decision::Different(_)) => equal_to(a, b, given, budget),
        _ => decision,
    }
}

fn equal_to(a: &Expr, b: &Expr, places: u32, budget: &mut Budget) -> Decision {
    let (a, b) = arranged(a, b);
    let mut over_budget = false;
    let exact = exactly(a, b, budget, &mut over_budget);

    match exact {
        ExactVerdict::Decided(decision @ (Decision::Equal(_) | Decision::Undefined)) => {
            return decision;
        }
        ExactVerdict::EqualIfDefined if has_value(a, budget) && has_value(b, budget) => {
            return proved(true);
        }
        _ => {}
    }

    if let (Some(a), Some(b)) = (rational(a, budget), rational(b, budget)) {
        let rounded = integer::same_to(&a, &b, places, budget);
        return rounded.map_or(Decision::Undecided(UndecidedReason::OverBudget), proved);
    }

    if holds_infinity(a) || holds_infinity(b) {
        return if let ExactVerdict::Decided(decision) = exact {
            decision
        } else {
            undecided(over_budget)
        };
    }

    let decision = by_value(numeric::rounded::agree(a, b, places, budget), over_budget, 0);
    // Where enclosures stay undecided, the exact difference before rounding is the verdict.
    match (decision, exact) {
        (Decision::Undecided(_), ExactVerdict::Decided(different)) => different,
        (decision, _) => decision,
    }
}

/// Tells which of two real constants is greater, infinity included.
pub(crate) fn order(a: &Expr, b: &Expr, budget: &mut Budget) -> Option<Ordering> {
    crate::parts::gate!(Ordering, None);
    let mut attempt = budget.portion(EXACT_SHARE);
    let mut algebra = Algebra::new(&mut attempt);

    let values = (algebra.evaluate(a), algebra.evaluate(b));
    let known = match values {
        (Err(AlgebraError::Undefined), _) | (_, Err(AlgebraError::Undefined)) => Some(None),
        (Ok(a), Ok(b)) => algebra.compare(&a, &b),
        _ => None,
    };
    budget.settle(attempt);

    if let Some(known) = known {
        return known;
    }
    if let Ok(Some(order)) = numeric::order(a, b, budget) {
        return Some(order);
    }

    // Enclosures can't prove equality, but normal forms may.
    match equal(a, b, budget) {
        Decision::Equal(_) => Some(Ordering::Equal),
        _ => None,
    }
}

/// Tells whether a = k·b with a constant k other than zero, so that a = 0 wherever b = 0. If so, returns whether k
/// is positive, and how sure that is.
pub(crate) fn proportional(a: &Expr, b: &Expr, budget: &mut Budget) -> Option<(bool, Certainty)> {
    crate::parts::gate!(Proportions, None);
    // The inverse of k has the sign of k.
    let (a, b) = arranged(a, b);

    let mut attempt = budget.portion(EXACT_SHARE);
    let exact = Algebra::new(&mut attempt).proportional(a, b);
    budget.settle(attempt);
    match exact {
        Ok(Proportion::Rational { positive }) => return Some((positive, Certainty::Proved)),
        Ok(Proportion::No) | Err(AlgebraError::Undefined) => return None,
        _ => {}
    }

    match numeric::ratio(a, b, budget) {
        Ok(Some((positive, Agreement::Close { bits, points })))
            if evidence(bits, points) >= ENOUGH_BITS =>
        {
            let proved = matches!(exact, Ok(Proportion::Constant));
            let bits = evidence(bits, points);
            let certainty = if proved { Certainty::Proved } else { Certainty::Probable { bits } };
            Some((positive, certainty))
        }
        _ => None,
    }
}

/// Returns the exact value of an expression, if the value is a rational number.
pub(crate) fn rational(e: &Expr, budget: &mut Budget) -> Option<BigRational> {
    if let Expr::Number(number) | Expr::Decimal(number) = e {
        return Some(number.clone());
    }

    let mut attempt = budget.portion(EXACT_SHARE);
    let mut algebra = Algebra::new(&mut attempt);
    let value = algebra.evaluate(e);
    // An uncertain value may come from a division by zero.
    let uncertain = algebra.uncertain;
    budget.settle(attempt);

    match value {
        Ok(Value::Number(number)) if !uncertain => Some(number),
        _ => None,
    }
}

/// Writes the normal form as plain text, such as `x^2 + 2*x + 1`. An expression without a normal form is written
/// unchanged.
pub(crate) fn canonical(e: &Expr, budget: &mut Budget) -> String {
    let mut attempt = budget.portion(EXACT_SHARE);
    let mut algebra = Algebra::new(&mut attempt);
    let text = match algebra.evaluate(e) {
        Ok(value) if !algebra.uncertain => algebra.render(&value).ok(),
        _ => None,
    };

    budget.settle(attempt);
    text.unwrap_or_else(|| render::written(e))
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
#[derive(Clone, Copy)]
enum ExactVerdict {
    Decided(Decision),
    /// The normal forms are equal, but a divisor may be zero in disguise, or a value too large to be computed was
    /// compared by its syntax.
    EqualIfDefined,
    Open,
}

fn exactly(a: &Expr, b: &Expr, budget: &mut Budget, over_budget: &mut bool) -> ExactVerdict {
    let mut attempt = budget.portion(EXACT_SHARE);
    let mut algebra = Algebra::new(&mut attempt);
    // Equal expressions need only one evaluation.
    let identical = a == b;
    let left = algebra.evaluate(a);
    let right = if identical { left.clone() } else { algebra.evaluate(b) };
    *over_budget = [&left, &right].iter().any(|side| matches!(side, Err(AlgebraError::OverBudget)));

    let infinite =
        |value: &Result<Value, AlgebraError>| matches!(value, Ok(Value::Infinity { .. }));
    let exact = match (&left, &right) {
        (Err(AlgebraError::Undefined), _) | (_, Err(AlgebraError::Undefined)) => {
            ExactVerdict::Decided(Decision::Undefined)
        }
        (Ok(a), Ok(b)) => match algebra.is_equal(a, b) {
            Ok(Some(true)) if algebra.uncertain => ExactVerdict::EqualIfDefined,
            Ok(Some(equal)) => ExactVerdict::Decided(proved(equal)),
            Ok(None) => ExactVerdict::Open,
            Err(error) => {
                *over_budget |= error == AlgebraError::OverBudget;
                ExactVerdict::Open
            }
        },
        _ if identical => ExactVerdict::EqualIfDefined,
        // A value without infinity in it is finite, however large.
        _ if infinite(&left) && !holds_infinity(b) || infinite(&right) && !holds_infinity(a) => {
            ExactVerdict::Decided(proved(false))
        }
        _ => ExactVerdict::Open,
    };

    budget.settle(attempt);
    exact
}

/// How two expressions are proportional.
enum Proportion {
    Rational {
        positive: bool,
    },
    /// By a constant whose sign is not known yet.
    Constant,
    No,
    Unknown,
}

impl Algebra<'_> {
    /// Tells whether two values are equal. Returns `None` if the normal form is not unique.
    fn is_equal(&mut self, a: &Value, b: &Value) -> Result<Option<bool>, AlgebraError> {
        let (a, b) = match (a, b) {
            (Value::Number(a), Value::Number(b)) => return Ok(Some(a == b)),
            (Value::Infinity { positive: a }, Value::Infinity { positive: b }) => {
                return Ok(Some(a == b));
            }
            (Value::Infinity { .. }, _) | (_, Value::Infinity { .. }) => return Ok(Some(false)),
            (a, b) => (a.clone().into_fraction()?, b.clone().into_fraction()?),
        };

        if a == b {
            return Ok(Some(true));
        }

        // A quotient has no unique normal form, so the two are cross-multiplied.
        let (left, right) = self.cross_multiply(&a, &b)?;
        let difference = self.add_polynomials(&left, &right.negated())?;
        if difference.is_zero() {
            return Ok(Some(true));
        }

        // A denominator that may be zero in disguise makes the inequality of quotients unreliable too.
        let unique = self.is_surely_nonzero(&difference) && !self.uncertain;
        Ok(unique.then_some(false))
    }

    /// Returns the order of two values. The outer `None` means that exact arithmetic does not show it, the inner
    /// `None` that there is none.
    fn compare(&mut self, a: &Value, b: &Value) -> Option<Option<Ordering>> {
        let rank = |value: &Value| match value {
            Value::Infinity { positive: true } => 1,
            Value::Infinity { positive: false } => -1,
            _ => 0,
        };

        match (a, b) {
            _ if self.uncertain => None,
            (Value::Number(a), Value::Number(b)) => Some(Some(a.cmp(b))),
            (Value::Infinity { .. }, other) | (other, Value::Infinity { .. }) => {
                let real = match other {
                    Value::Fraction(fraction) => self.is_real(fraction),
                    _ => true,
                };
                Some(real.then(|| rank(a).cmp(&rank(b))))
            }
            (a, b) => match self.is_equal(a, b) {
                Ok(Some(true)) => Some(Some(Ordering::Equal)),
                _ => None,
            },
        }
    }

    fn proportional(&mut self, a: &Expr, b: &Expr) -> Result<Proportion, AlgebraError> {
        let a = self.evaluate(a)?.into_fraction()?;
        let b = self.evaluate(b)?.into_fraction()?;
        let (left, right) = self.cross_multiply(&a, &b)?;
        if self.uncertain {
            return Ok(Proportion::Unknown);
        }

        let (Some(first), Some(second)) = (left.0.first(), right.0.first()) else {
            if left.is_zero() && right.is_zero() {
                return Ok(Proportion::Rational { positive: true });
            }

            // Zero is not a multiple of another value, if that value is not zero in disguise.
            let other = if left.is_zero() { &right } else { &left };
            let nonzero = self.is_surely_nonzero(other);
            return Ok(if nonzero { Proportion::No } else { Proportion::Unknown });
        };

        let factor = integer::product(&first.1, &second.1.recip(), self.budget)?;
        if self.scale(&right, &factor)? == left {
            return Ok(Proportion::Rational { positive: factor.is_positive() });
        }

        // If k·b is a constant c times b, all coefficients of the variables' monomials have the same ratio.
        let left = self.by_variables(&left)?;
        let right = self.by_variables(&right)?;
        if left.len() != right.len() || left.iter().zip(&right).any(|(l, r)| l.0 != r.0) {
            return Ok(Proportion::Unknown);
        }

        let (Some((_, first)), Some((_, second))) = (left.first(), right.first()) else {
            return Ok(Proportion::Unknown);
        };

        for ((_, a), (_, b)) in left.iter().zip(&right) {
            let one = self.multiply_polynomials(a, second)?;
            let other = self.multiply_polynomials(b, first)?;
            if one != other {
                return Ok(Proportion::Unknown);
            }
        }

        Ok(Proportion::Constant)
    }
}

#[cfg(test)]
pub(crate) mod tests;
