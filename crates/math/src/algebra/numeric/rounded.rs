//! Compares two expressions to a number of decimal places.

use std::cmp::Ordering;

use num_bigint::BigInt;
use num_rational::BigRational;

use super::{
    Agreement, LEVELS, Ladder, PointComparison, at_points,
    evaluate::EnclosureError,
    pair::{Pair, Values},
};
use crate::{
    algebra::{ball::Ball, exact, real::Real},
    budget::{Budget, OverBudget},
    expr::Expr,
};

/// Maximum number of places that are used. More places lead to the same verdict as this many.
const PLACES: u32 = 250;

/// Tells whether two expressions have the same value to `places` places after the decimal point.
///
/// Real constants are the same if they round to the same number, halves away from zero, and so are the parts of complex
/// constants. Rounding must not turn a number into zero, so numbers below `10^(3 - places)` in size (and below 1) are
/// compared to `places` significant digits instead, and to one at least. Functions are the same if they are within
/// `10^-places` of each other at the points, relative to the larger of both.
pub(crate) fn agree(
    a: &Expr,
    b: &Expr,
    places: u32,
    budget: &mut Budget,
) -> Result<Agreement, OverBudget> {
    let agreement = super::agree(a, b, budget)?;
    if matches!(agreement, Agreement::Close { .. } | Agreement::Undefined) {
        return Ok(agreement);
    }

    let places = places.min(PLACES);
    match Pair::new(a, b, budget)? {
        None => Ok(agreement),
        Some(pair) if pair.is_constant() => constants(&pair, places, agreement, budget),
        Some(pair) => functions(&pair, places, budget),
    }
}

/// Converts decimal places to bits.
fn bits(places: u32) -> u32 {
    (f64::from(places) * std::f64::consts::LOG2_10) as u32
}

fn power_of_ten<R: Real>(exponent: i64, prec: u32) -> R {
    let power = BigInt::from(10).pow(exponent.unsigned_abs() as u32);
    let one = BigInt::from(1);
    if exponent < 0 { R::ratio(&one, &power, prec) } else { R::ratio(&power, &one, prec) }
}

fn constants(
    pair: &Pair,
    places: u32,
    agreement: Agreement,
    budget: &mut Budget,
) -> Result<Agreement, OverBudget> {
    let none = |_: &str| None;
    let exact =
        [exact::at_point(pair.first, &none, budget)?, exact::at_point(pair.second, &none, budget)?];

    let mut ladder = Ladder::default();
    let mut finest = None;
    for prec in LEVELS {
        // The cost covers two divisions and powers of ten at this precision.
        budget.spend(10 * Ball::cost(prec).elementary)?;
        let Some(found) = ladder.climb(pair, prec, budget)? else { break };
        match found {
            Ok(values) => match rounded(&values, &exact, places, prec) {
                RoundedComparison::Same => {
                    return Ok(Agreement::Close { bits: bits(places), points: 1 });
                }
                RoundedComparison::Apart => return Ok(Agreement::Distinct),
                RoundedComparison::Boundary(near) => finest = near,
            },
            Err(EnclosureError::Undefined) => return Ok(Agreement::Undefined),
            Err(_) => (),
        }
    }

    Ok(match finest {
        Some(true) => Agreement::Close { bits: bits(places), points: 1 },
        Some(false) => Agreement::Distinct,
        None => agreement,
    })
}

enum RoundedComparison {
    Same,
    Apart,
    /// One of the values is too near to a half to be rounded. The field tells whether the values are within half a
    /// unit of each other, if that is known.
    Boundary(Option<bool>),
}

fn rounded(
    values: &Values<Ball>,
    exact: &[Option<BigRational>; 2],
    places: u32,
    prec: u32,
) -> RoundedComparison {
    let first = &values.first;
    let second = &values.second;
    let sizes = [first.abs(prec), second.abs(prec)].map(|size| size.decade());
    let mut digits = i64::from(places);

    match sizes[0].max(sizes[1]) {
        Some(decade) if decade < (3 - digits).min(0) => digits = digits.max(1) - 1 - decade,
        Some(_) => (),
        // The values are zero or astronomical, so only their difference can decide.
        None if first.sub(second, prec).is_nonzero() => return RoundedComparison::Apart,
        None => return RoundedComparison::Boundary(None),
    }

    let unit: Ball = power_of_ten(digits, prec);
    let parts = [
        (&first.re, &second.re, exact.each_ref().map(Option::as_ref)),
        (&first.imaginary(), &second.imaginary(), [None, None]),
    ];
    let mut result = RoundedComparison::Same;

    for (first, second, exact) in parts {
        let apart = first.add(&second.clone().neg(), prec).abs(prec).mul(&unit, prec);
        let beyond = |limit: i64| {
            let limit = Ball::ratio(&limit.into(), &2.into(), prec);
            apart.add(&limit.neg(), prec).sign()
        };

        // Numbers more than a unit apart do not round to the same number.
        if beyond(2) == Some(Ordering::Greater) {
            return RoundedComparison::Apart;
        }

        match (
            integer(first, exact[0], &unit, digits, prec),
            integer(second, exact[1], &unit, digits, prec),
        ) {
            (Some(first), Some(second)) if first != second => return RoundedComparison::Apart,
            (Some(_), Some(_)) => (),
            _ => result = RoundedComparison::Boundary(beyond(1).map(|order| order.is_le())),
        }
    }

    result
}

/// Rounds a number to whole units, halves away from zero. Returns `None` if it is too near to a half.
fn integer(
    value: &Ball,
    exact: Option<&BigRational>,
    unit: &Ball,
    digits: i64,
    prec: u32,
) -> Option<BigInt> {
    if let Some(exact) = exact {
        let ten = BigRational::from(BigInt::from(10));
        let scaled = exact * ten.pow(digits as i32);
        // The crate `num-rational` rounds halves away from zero.
        return Some(scaled.round().to_integer());
    }

    // Half a unit is added to the size, so that halves round away from zero.
    let half = Ball::ratio(&1.into(), &2.into(), prec);
    let cell = value.abs(prec).mul(unit, prec).add(&half, prec).floor()?;
    match value.sign() {
        _ if cell == BigInt::from(0) => Some(cell),
        Some(Ordering::Less) => Some(-cell),
        Some(_) => Some(cell),
        None => None,
    }
}

fn functions(pair: &Pair, places: u32, budget: &mut Budget) -> Result<Agreement, OverBudget> {
    let digits = i64::from(places);
    let agreement = at_points(
        pair,
        budget,
        |values, prec| tolerance(values, digits, prec) == Some(Ordering::Greater),
        |values, prec| match tolerance(values, digits, prec) {
            Some(Ordering::Greater) => PointComparison::Distinct,
            Some(_) => PointComparison::Close(prec.into()),
            None => PointComparison::Unknown,
        },
    )?;

    Ok(match agreement {
        Agreement::Close { points, .. } => Agreement::Close { bits: bits(places), points },
        other => other,
    })
}

/// Compares the difference of the values with the tolerance.
fn tolerance<R: Real>(values: &Values<R>, digits: i64, prec: u32) -> Option<Ordering> {
    let difference =
        values.first.sub(&values.second, prec).abs(prec).mul(&power_of_ten(digits, prec), prec);
    let first = values.first.abs(prec);
    let second = values.second.abs(prec);

    let larger = match first.add(&second.clone().neg(), prec).sign() {
        Some(Ordering::Less) => second,
        Some(_) => first,
        None => first.hull(&second, prec),
    };

    difference.add(&larger.neg(), prec).sign()
}
