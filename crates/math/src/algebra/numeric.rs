//! Compares two expressions by enclosures of their values.
//!
//! Floats come first: they tell most numbers apart in about a microsecond. Balls of rising precision follow.
//! Enclosures that exclude each other prove that the values differ. Values that agree to hundreds of bits are not
//! proved to be equal; [`Agreement::Close`] holds the number of bits.
//!
//! Constants are compared as complex numbers. Expressions with unknowns are compared as real functions, at points
//! that depend only on the unknowns' names. A point does not count if a divisor is zero there, or if a square root
//! or a logarithm that depends on an unknown is not real there.

mod call;
mod combinatorics;
mod evaluate;
mod pair;
mod piecewise;
mod points;
mod power;
pub(crate) mod rounded;
mod unknowns;
mod value;

use std::{cmp::Ordering, ops::Range};

use super::{ball::Ball, interval::Interval, real::Real};
use crate::{
    budget::{Budget, OverBudget},
    expr::Expr,
};
use evaluate::EnclosureError;
use pair::{Pair, Values};
use points::{FIRST, POINTS};

/// What is known about two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agreement {
    /// They certainly differ, at a point where both are defined.
    Distinct,
    /// They agree to `bits` binary digits at each of `points` points. The digits are counted from the values'
    /// size, or from 1 if the values may be zero.
    Close { bits: u32, points: u32 },
    /// One of them certainly has no value.
    Undefined,
    /// None of this is known.
    Unknown,
}

/// Precisions at which constants are compared, in bits. The last ones are for integers within huge numbers,
/// and are tried only if no other precision decides.
const LEVELS: [u32; 6] = [128, 256, 512, 1024, 2048, 4096];

/// Precision from which values that agree are not examined any further.
const HIGHEST: u32 = 1024;

/// Precisions at which functions are compared at a point. Higher ones are not needed, because there are many
/// points, and an identity that only nearly holds fails at all of them.
const POINT_LEVELS: [u32; 3] = [128, 256, 512];

/// Number of points that is enough.
const ENOUGH: u32 = 4;

/// Minimum number of points that count as evidence.
const FEWEST: u32 = 2;

/// Minimum number of bits that count as evidence.
const FEWEST_BITS: i64 = 64;

/// Tells whether two expressions have the same value.
pub(crate) fn agree(a: &Expr, b: &Expr, budget: &mut Budget) -> Result<Agreement, OverBudget> {
    let Some(pair) = Pair::new(a, b, budget)? else { return Ok(Agreement::Unknown) };
    if pair.is_constant() { constants(&pair, budget) } else { functions(&pair, budget) }
}

/// Tells whether an expression is certainly a real number.
pub(crate) fn is_real(e: &Expr, budget: &mut Budget) -> bool {
    let Ok(Some(pair)) = Pair::new(e, e, budget) else { return false };
    let real = |values: Values<Interval>| values.first.as_real().is_some();
    pair.is_constant() && pair.at(0, 0, budget).is_ok_and(real)
}

/// Tells which of two real constants is greater. Returns `None` if that is not known, and also if they are equal.
pub(crate) fn order(
    a: &Expr,
    b: &Expr,
    budget: &mut Budget,
) -> Result<Option<Ordering>, OverBudget> {
    let Some(pair) = Pair::new(a, b, budget)?.filter(Pair::is_constant) else { return Ok(None) };

    match pair.at::<Interval>(0, 0, budget) {
        Ok(values) => {
            if let Some(order) = values.order(0) {
                return Ok(Some(order));
            }
        }
        Err(EnclosureError::OverBudget) => return Err(OverBudget),
        Err(EnclosureError::Undefined) => return Ok(None),
        Err(EnclosureError::Unknown) => (),
    }

    let mut ladder = Ladder::default();
    for prec in LEVELS {
        let Some(found) = ladder.climb(&pair, prec, budget)? else { break };
        match found {
            Ok(values) if prec >= HIGHEST || values.order(prec).is_some() => {
                return Ok(values.order(prec));
            }
            Err(EnclosureError::Undefined) => break,
            _ => (),
        }
    }

    Ok(None)
}

/// Tells whether the first expression is a constant multiple of the second with a factor other than zero, and
/// whether the factor is positive. Returns `None` if it cannot tell.
pub(crate) fn ratio(
    a: &Expr,
    b: &Expr,
    budget: &mut Budget,
) -> Result<Option<(bool, Agreement)>, OverBudget> {
    let Some(pair) = Pair::new(a, b, budget)? else { return Ok(None) };

    for points in [0..FIRST, pair.probes()] {
        if let Some(distinct) = proportion::<Interval>(&pair, &[0], points, budget)?
            && distinct.1 == Agreement::Distinct
        {
            return Ok(Some(distinct));
        }
    }

    proportion::<Ball>(&pair, &POINT_LEVELS, 0..POINTS, budget)
}

/// Levels of precision that the budget can be expected to pay for, judged by the cost of the last level. The first
/// level may take everything.
#[derive(Default)]
struct Ladder {
    last: Option<(u32, u64)>,
}

impl Ladder {
    /// Returns the values at a level, or `None` if the budget cannot pay for it but paid for a lower one.
    fn climb(
        &mut self,
        pair: &Pair,
        prec: u32,
        budget: &mut Budget,
    ) -> Result<Option<Result<Values<Ball>, EnclosureError>>, OverBudget> {
        // A level costs as much more than the last one as the operation whose price rises most.
        let expected = self.last.map(|(last, spent)| {
            let last = Ball::cost(last);
            let next = Ball::cost(prec);
            let grown = |next: u64, last: u64| spent.saturating_mul(next) / last;
            grown(next.operation, last.operation)
                .max(grown(next.root, last.root))
                .max(grown(next.elementary, last.elementary))
        });

        if expected.is_some_and(|expected| expected > budget.left()) {
            return Ok(None);
        }

        let before = budget.left();
        let values = pair.at(0, prec, budget);
        self.last = Some((prec, before - budget.left()));

        match values {
            Err(EnclosureError::OverBudget) if expected.is_none() => Err(OverBudget),
            Err(EnclosureError::OverBudget) => Ok(None),
            values => Ok(Some(values)),
        }
    }
}

fn constants(pair: &Pair, budget: &mut Budget) -> Result<Agreement, OverBudget> {
    match pair.at::<Interval>(0, 0, budget) {
        Ok(values) => match values.agreement(0) {
            None => return Ok(Agreement::Distinct),
            Some(_) if values.are_same() => return Ok(close(HIGHEST.into(), 1)),
            Some(_) => (),
        },
        Err(EnclosureError::OverBudget) => return Err(OverBudget),
        Err(EnclosureError::Undefined) => return Ok(Agreement::Undefined),
        _ => (),
    }

    let mut ladder = Ladder::default();
    let mut most_bits = 0;
    for prec in LEVELS {
        if prec > HIGHEST && most_bits >= FEWEST_BITS {
            break;
        }
        let Some(found) = ladder.climb(pair, prec, budget)? else { break };
        match found.map(|values| values.agreement(prec)) {
            Ok(Some(bits)) => most_bits = bits.max(most_bits),
            Ok(None) => return Ok(Agreement::Distinct),
            Err(EnclosureError::Undefined) => return Ok(Agreement::Undefined),
            Err(_) => (),
        }
    }

    Ok(close(most_bits, 1))
}

fn close(bits: i64, points: u32) -> Agreement {
    match u32::try_from(bits) {
        Ok(bits) if i64::from(bits) >= FEWEST_BITS => Agreement::Close { bits, points },
        _ => Agreement::Unknown,
    }
}

fn functions(pair: &Pair, budget: &mut Budget) -> Result<Agreement, OverBudget> {
    at_points(
        pair,
        budget,
        |values, _| values.agreement(0).is_none(),
        |values, prec| match values.agreement(prec) {
            None => PointComparison::Distinct,
            Some(bits) if bits >= FEWEST_BITS => PointComparison::Close(bits),
            Some(_) => PointComparison::Unknown,
        },
    )
}

/// Result of comparing the values at one point.
enum PointComparison {
    Distinct,
    Close(i64),
    Unknown,
}

/// Compares at the points. Floats tell whether the values are distinct; balls tell how they compare.
fn at_points(
    pair: &Pair,
    budget: &mut Budget,
    distinct: impl Fn(&Values<Interval>, u32) -> bool,
    compare: impl Fn(&Values<Ball>, u32) -> PointComparison,
) -> Result<Agreement, OverBudget> {
    // One bit for each point outside the domain. The balls skip it there.
    let mut outside = 0u64;
    for point in 0..FIRST {
        match pair.at(point, 0, budget) {
            Ok(values) if distinct(&values, 0) => return Ok(Agreement::Distinct),
            Err(EnclosureError::OverBudget) => return Err(OverBudget),
            Err(EnclosureError::Undefined) => outside |= 1 << point,
            _ => (),
        }
    }

    if differs_at_probes(pair, budget, &distinct, &compare)? {
        return Ok(Agreement::Distinct);
    }

    let mut points = 0;
    let mut least_bits = i64::MAX;
    for point in (0..POINTS).filter(|point| outside >> point & 1 == 0) {
        // Later points only help functions that are undefined at too many of the first.
        if point >= FIRST && points >= ENOUGH {
            break;
        }

        for prec in POINT_LEVELS {
            match pair.at(point, prec, budget).map(|values| compare(&values, prec)) {
                Ok(PointComparison::Distinct) => return Ok(Agreement::Distinct),
                Ok(PointComparison::Close(bits)) => {
                    points += 1;
                    least_bits = bits.min(least_bits);
                    break;
                }
                Ok(PointComparison::Unknown) | Err(EnclosureError::Unknown) => (),
                Err(EnclosureError::Undefined) => break,
                Err(EnclosureError::OverBudget) if points >= ENOUGH => {
                    return Ok(close(least_bits, points));
                }
                Err(EnclosureError::OverBudget) => return Err(OverBudget),
            }
        }
    }

    Ok(if points < FEWEST { Agreement::Unknown } else { close(least_bits, points) })
}

/// Tells whether functions made of pieces are distinct at one of their probes. Balls decide if floats cannot tell on
/// which piece a probe is.
fn differs_at_probes(
    pair: &Pair,
    budget: &mut Budget,
    distinct: impl Fn(&Values<Interval>, u32) -> bool,
    compare: impl Fn(&Values<Ball>, u32) -> PointComparison,
) -> Result<bool, OverBudget> {
    for point in pair.probes() {
        match pair.at(point, 0, budget) {
            Ok(values) if distinct(&values, 0) => return Ok(true),
            Err(EnclosureError::OverBudget) => return Err(OverBudget),
            Ok(_) | Err(EnclosureError::Undefined) => continue,
            Err(EnclosureError::Unknown) => (),
        }

        let prec = POINT_LEVELS[0];
        match pair.at(point, prec, budget).map(|values| compare(&values, prec)) {
            Ok(PointComparison::Distinct) => return Ok(true),
            Err(EnclosureError::OverBudget) => return Err(OverBudget),
            _ => (),
        }
    }

    Ok(false)
}

/// Returns the factor between two expressions, if it is the same at all points.
fn proportion<R: Real>(
    pair: &Pair,
    levels: &[u32],
    range: Range<u32>,
    budget: &mut Budget,
) -> Result<Option<(bool, Agreement)>, OverBudget> {
    let mut factor = None;
    let mut positive = false;
    let mut points = 0;
    let mut least_bits = i64::MAX;
    let min_points = if pair.is_constant() { 1 } else { FEWEST };

    for point in range {
        if ((FIRST..POINTS).contains(&point) && points >= ENOUGH)
            || points >= min_points && pair.is_constant()
        {
            break;
        }

        for &prec in levels {
            let values = match pair.at::<R>(point, prec, budget) {
                Ok(values) => values,
                Err(EnclosureError::OverBudget) => return Err(OverBudget),
                Err(EnclosureError::Undefined) => break,
                Err(EnclosureError::Unknown) => continue,
            };

            if values.first.is_zero() && values.second.is_zero() {
                break;
            }
            // Only the factor zero turns a value other than zero into zero.
            if values.first.is_zero() && values.second.is_nonzero() {
                return Ok(Some((positive, Agreement::Distinct)));
            }

            let Some(here) = values.first.div(&values.second, prec).filter(|k| k.is_nonzero())
            else {
                continue;
            };

            // Factors that agree without a part that is lost would be no evidence.
            if values.lost {
                continue;
            }

            // The first factor that is known is the one that all others have to equal.
            let known = factor.get_or_insert_with(|| {
                positive = here.as_real().is_some_and(|k| k.sign() == Some(Ordering::Greater));
                here.clone()
            });

            let difference = here.sub(known, prec);
            if difference.is_nonzero() {
                return Ok(Some((positive, Agreement::Distinct)));
            }

            let bits =
                if difference.is_zero() { prec.into() } else { here.log2() - difference.log2() };
            // Floats (`prec` is 0) never agree to that many bits. They are only asked for factors that differ.
            if bits < FEWEST_BITS && prec > 0 {
                continue;
            }

            points += 1;
            least_bits = bits.min(least_bits);
            break;
        }
    }

    let close = close(least_bits.min(HIGHEST.into()), points);
    Ok((points >= min_points && close != Agreement::Unknown).then_some((positive, close)))
}

#[cfg(test)]
mod tests;
