//! The comparison of two expressions to a number of decimal places.

use std::cmp::Ordering;

use num_bigint::BigInt;
use num_rational::BigRational;

use super::{
    Agreement, Finding, LEVELS, Ladder, at_points,
    evaluate::Stop,
    exact::exact,
    pair::{Pair, Values},
};
use crate::{
    algebra::{ball::Ball, real::Real},
    budget::{Budget, OverBudget},
    expr::Expr,
};

/// The most places that count. More places give the same verdict as this many.
const PLACES: u32 = 250;

/// Tells whether two expressions have the same value to `places` places after the decimal point.
///
/// Real constants are the same if they round to the same number, halves away from zero. So are the parts of
/// complex constants. Rounding must not wipe out a number. Numbers below `10^(3 - places)` in size (and below 1)
/// are therefore compared to `places` significant digits instead, and to one at least. Functions are the same if
/// they are within `10^-places` of each other at the points, relative to the larger of both.
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

/// Returns the number of bits in `places` decimal places.
fn bits(places: u32) -> u32 {
    (f64::from(places) * std::f64::consts::LOG2_10) as u32
}

fn power_of_ten<R: Real>(exponent: i64, p: u32) -> R {
    let (power, one) = (BigInt::from(10).pow(exponent.unsigned_abs() as u32), BigInt::from(1));
    if exponent < 0 { R::ratio(&one, &power, p) } else { R::ratio(&power, &one, p) }
}

fn constants(
    pair: &Pair,
    places: u32,
    agreement: Agreement,
    budget: &mut Budget,
) -> Result<Agreement, OverBudget> {
    let none = |_: &str| None;
    let exact = [exact(pair.first, &none, budget)?, exact(pair.second, &none, budget)?];
    let mut ladder = Ladder::default();
    let mut finest = None;
    for p in LEVELS {
        // The cost covers two divisions and powers of ten at this precision.
        budget.spend(10 * Ball::cost(p).elementary)?;
        let Some(found) = ladder.climb(pair, p, budget)? else { break };
        match found {
            Ok(values) => match rounded(&values, &exact, places, p) {
                Rounded::Same => return Ok(Agreement::Close { bits: bits(places), points: 1 }),
                Rounded::Apart => return Ok(Agreement::Distinct),
                Rounded::Boundary(near) => finest = near,
            },
            Err(Stop::Undefined) => return Ok(Agreement::Undefined),
            Err(_) => (),
        }
    }
    Ok(match finest {
        Some(true) => Agreement::Close { bits: bits(places), points: 1 },
        Some(false) => Agreement::Distinct,
        None => agreement,
    })
}

enum Rounded {
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
    p: u32,
) -> Rounded {
    let (first, second) = (&values.first, &values.second);
    let sizes = [first.abs(p), second.abs(p)].map(|size| size.decade());
    let mut digits = i64::from(places);
    match sizes[0].max(sizes[1]) {
        Some(decade) if decade < (3 - digits).min(0) => digits = digits.max(1) - 1 - decade,
        Some(_) => (),
        // The values are zero or astronomical, so only their difference can decide.
        None if first.sub(second, p).is_nonzero() => return Rounded::Apart,
        None => return Rounded::Boundary(None),
    }
    let unit: Ball = power_of_ten(digits, p);
    let parts = [
        (&first.re, &second.re, exact.each_ref().map(Option::as_ref)),
        (&first.imaginary(), &second.imaginary(), [None, None]),
    ];
    let mut result = Rounded::Same;
    for (first, second, exact) in parts {
        let apart = first.add(&second.clone().neg(), p).abs(p).mul(&unit, p);
        let beyond = |limit: i64| {
            let limit = Ball::ratio(&limit.into(), &2.into(), p);
            apart.add(&limit.neg(), p).sign()
        };
        // Numbers more than a unit apart do not round to the same number.
        if beyond(2) == Some(Ordering::Greater) {
            return Rounded::Apart;
        }
        match (
            integer(first, exact[0], &unit, digits, p),
            integer(second, exact[1], &unit, digits, p),
        ) {
            (Some(first), Some(second)) if first != second => return Rounded::Apart,
            (Some(_), Some(_)) => (),
            _ => result = Rounded::Boundary(beyond(1).map(|order| order.is_le())),
        }
    }
    result
}

/// Returns the number of units that a number rounds to, halves away from zero.
fn integer(
    value: &Ball,
    exact: Option<&BigRational>,
    unit: &Ball,
    digits: i64,
    p: u32,
) -> Option<BigInt> {
    if let Some(exact) = exact {
        let ten = BigRational::from(BigInt::from(10));
        let scaled = exact * ten.pow(digits as i32);
        // The crate `num-rational` rounds halves away from zero.
        return Some(scaled.round().to_integer());
    }
    let half = Ball::ratio(&1.into(), &2.into(), p);
    let cell = value.abs(p).mul(unit, p).add(&half, p).floor()?;
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
        |values, p| tolerance(values, digits, p) == Some(Ordering::Greater),
        |values, p| match tolerance(values, digits, p) {
            Some(Ordering::Greater) => Finding::Distinct,
            Some(_) => Finding::Close(p.into()),
            None => Finding::Unknown,
        },
    )?;
    Ok(match agreement {
        Agreement::Close { points, .. } => Agreement::Close { bits: bits(places), points },
        other => other,
    })
}

/// Compares the difference of the values with the tolerance.
fn tolerance<R: Real>(values: &Values<R>, digits: i64, p: u32) -> Option<Ordering> {
    let difference = values.first.sub(&values.second, p).abs(p).mul(&power_of_ten(digits, p), p);
    let (first, second) = (values.first.abs(p), values.second.abs(p));
    let larger = match first.add(&second.clone().neg(), p).sign() {
        Some(Ordering::Less) => second,
        Some(_) => first,
        None => first.hull(&second, p),
    };
    difference.add(&larger.neg(), p).sign()
}
