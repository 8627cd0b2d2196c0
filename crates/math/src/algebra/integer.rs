//! Integers and fractions: their costs, factors and powers.

use num_bigint::{BigInt, BigUint};
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Pow, Signed, Zero};

use crate::{
    budget::{Budget, OverBudget},
    expr::Expr,
};

/// Bits of the longest number that is computed. Longer numbers are left to enclosures.
pub(super) const MAX_BITS: u64 = 65_536;

/// Bits of the longest number that is computed at a point, where it is only a step to an enclosure.
pub(super) const POINT_BITS: u64 = 4_096;

/// Reason why there is no exact value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExactError {
    /// There is no value at all.
    Undefined,
    /// The value is too large to be computed.
    TooLarge,
    /// The value is not rational, or it takes more to see that it is.
    Opaque,
    OverBudget,
}

impl From<OverBudget> for ExactError {
    fn from(_: OverBudget) -> Self {
        ExactError::OverBudget
    }
}

/// Counts the bits of numerator and denominator together.
pub(super) fn bits(number: &BigRational) -> u64 {
    number.numer().bits() + number.denom().bits()
}

/// Pays for a sum and computes it.
pub(super) fn sum(
    left: &BigRational,
    right: &BigRational,
    budget: &mut Budget,
) -> Result<BigRational, ExactError> {
    charge(left, right, budget)?;
    // Integers need no common divisor, and most numbers are integers.
    Ok(if left.is_integer() && right.is_integer() {
        BigRational::from_integer(left.numer() + right.numer())
    } else {
        left + right
    })
}

/// Pays for a product and computes it.
pub(super) fn product(
    left: &BigRational,
    right: &BigRational,
    budget: &mut Budget,
) -> Result<BigRational, ExactError> {
    charge(left, right, budget)?;
    Ok(if left.is_integer() && right.is_integer() {
        BigRational::from_integer(left.numer() * right.numer())
    } else {
        left * right
    })
}

/// Charges for one operation: limbs times limbs. Operations that seek common divisors cost 64 times as much,
/// because that search goes bit by bit.
fn charge(left: &BigRational, right: &BigRational, budget: &mut Budget) -> Result<(), ExactError> {
    let bits = bits(left) + bits(right);
    if bits > 2 * MAX_BITS {
        return Err(ExactError::TooLarge);
    }
    let limbs = bits / 64 + 1;
    let whole = left.is_integer() && right.is_integer();
    Ok(budget.spend(if whole { 16 + limbs * limbs } else { 64 + limbs * bits })?)
}

/// Raises a rational number to an integer power.
pub(super) fn power(
    base: &BigRational,
    exponent: i64,
    limit: u64,
    budget: &mut Budget,
) -> Result<BigRational, ExactError> {
    if base.is_zero() {
        return if exponent > 0 { Ok(base.clone()) } else { Err(ExactError::Undefined) };
    }

    // Powers of 1 and −1 cost nothing, however large the exponent is.
    if base.numer().magnitude().is_one() && base.denom().is_one() {
        let negative = base.is_negative() && exponent.is_odd();
        return Ok(if negative { base.clone() } else { BigRational::one() });
    }

    let size = bits(base).saturating_mul(exponent.unsigned_abs());
    if size > limit {
        return Err(ExactError::TooLarge);
    }
    budget.spend(32 + (size / 64) * (size / 64))?;

    let raised = exponent.unsigned_abs() as u32;
    let numer = base.numer().pow(raised);
    let denom = base.denom().pow(raised);

    // A power of a fraction in lowest terms is in lowest terms.
    Ok(match (exponent < 0, numer.is_negative()) {
        (false, _) => BigRational::new_raw(numer, denom),
        (true, false) => BigRational::new_raw(denom, numer),
        (true, true) => BigRational::new_raw(-denom, -numer),
    })
}

/// Computes `n (n − step) (n − 2 step) …` down to the last positive factor.
pub(super) fn factorial(
    n: u64,
    step: u64,
    limit: u64,
    budget: &mut Budget,
) -> Result<BigInt, ExactError> {
    // No factor is longer than n, which bounds the product well enough.
    let size = (n / step).saturating_mul(u64::from(64 - n.leading_zeros()));
    if size > limit {
        return Err(ExactError::TooLarge);
    }
    falling(n, n / step, step, size, budget)
}

/// Computes `n (n − 1) … (n − k + 1)`.
pub(super) fn permutations(
    n: u64,
    k: u64,
    limit: u64,
    budget: &mut Budget,
) -> Result<BigInt, ExactError> {
    let size = k.saturating_mul(u64::from(64 - n.leading_zeros()));
    if size > limit {
        return Err(ExactError::TooLarge);
    }
    falling(n, k, 1, size, budget)
}

fn falling(
    n: u64,
    count: u64,
    step: u64,
    size: u64,
    budget: &mut Budget,
) -> Result<BigInt, ExactError> {
    budget.spend(16 + count * (4 + size / 64))?;
    let mut product = BigUint::one();
    for factor in (0..count).map(|i| n - i * step) {
        if factor > 1 {
            product *= factor;
        }
    }
    Ok(product.into())
}

/// Tells whether two numbers are the same to `places` digits after the point. Rounding must not turn a number into
/// zero, so numbers below 1 and below `10^(3 - places)` are compared to `places` significant digits instead, and to one
/// at least.
pub(super) fn same_to(
    a: &BigRational,
    b: &BigRational,
    places: u32,
    budget: &mut Budget,
) -> Result<bool, OverBudget> {
    budget.spend(16 + (bits(a) + bits(b)) / 16)?;

    let greater = if a.abs() > b.abs() { a.abs() } else { b.abs() };
    let mut places = places;
    let small = BigRational::new(1.into(), BigInt::from(10).pow(places.clamp(3, 1_000) - 3));

    if !greater.is_zero() && greater < small {
        places = places.max(1).saturating_add(zeros(&greater, budget)?);
    }

    Ok(rounded(a, places, budget)? == rounded(b, places, budget)?)
}

/// Counts the zeros after the point of a positive number below 1, up to its first digit.
fn zeros(number: &BigRational, budget: &mut Budget) -> Result<u32, OverBudget> {
    // The number is below 2^-lead, and log10 2 is a little more than 0.3010.
    let lead = number.denom().bits().saturating_sub(number.numer().bits() + 1);
    let mut zeros = u32::try_from(lead.saturating_mul(3010) / 10_000).map_err(|_| OverBudget)?;

    let limbs = bits(number) / 64 + u64::from(zeros) / 16 + 1;
    budget.spend(16 + limbs * limbs)?;

    let mut shifted = number.numer() * BigInt::from(10).pow(zeros + 1);
    while shifted < *number.denom() {
        budget.spend(limbs)?;
        shifted *= 10;
        zeros += 1;
    }
    Ok(zeros)
}

/// Counts the digits after the point of a number that is written as a decimal. Returns `None` beyond 40.
pub(super) fn places_given(e: &Expr) -> Option<u32> {
    const MOST: u32 = 40;
    let Expr::Decimal(value) = e else { return None };
    let scale = BigInt::from(10).pow(MOST);
    // A number with more digits after the point does not divide the scale.
    let mut scaled = (&scale % value.denom()).is_zero().then(|| scale / value.denom())?;

    let mut places = MOST;
    while places > 0 && (&scaled % 10_u32).is_zero() {
        scaled /= 10_u32;
        places -= 1;
    }

    Some(places)
}

/// Rounds `number` to `places` digits after the point, halves away from zero.
fn rounded(number: &BigRational, places: u32, budget: &mut Budget) -> Result<BigInt, OverBudget> {
    let limbs = bits(number) / 64 + u64::from(places) / 16 + 1;
    budget.spend(16 + limbs * limbs)?;

    let scaled = number.numer().magnitude() * BigUint::from(10u32).pow(places);
    let denom = number.denom().magnitude();
    // ⌊x + 1/2⌋ is ⌊(2n + d)/2d⌋ for x = n/d.
    let whole = BigInt::from((scaled * 2u32 + denom) / (denom * 2u32));
    Ok(if number.is_negative() { -whole } else { whole })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(numer: i64, denom: i64) -> BigRational {
        BigRational::new(numer.into(), denom.into())
    }

    #[test]
    fn sizes_are_refused_before_they_are_computed() {
        let mut budget = Budget::new(u64::MAX);
        assert_eq!(power(&number(2, 1), 1 << 40, MAX_BITS, &mut budget), Err(ExactError::TooLarge));
        assert_eq!(power(&number(-1, 1), i64::MIN, MAX_BITS, &mut budget), Ok(number(1, 1)));
        assert_eq!(power(&number(-2, 3), -3, MAX_BITS, &mut budget), Ok(number(-27, 8)));
        assert_eq!(power(&number(0, 1), 0, MAX_BITS, &mut budget), Err(ExactError::Undefined));
        assert_eq!(factorial(1_000_000, 1, MAX_BITS, &mut budget), Err(ExactError::TooLarge));
        assert_eq!(factorial(9, 2, MAX_BITS, &mut budget), Ok(945.into()));
        assert_eq!(permutations(5, 2, MAX_BITS, &mut budget), Ok(20.into()));
    }

    #[test]
    fn rounding_leaves_a_digit() {
        let mut budget = Budget::new(100_000);
        for (a, b, places, expected) in [
            ((4, 10), (3, 10), 0, false),
            ((44, 100), (4, 10), 0, true),
            ((11, 10), (13, 10), 0, true),
            ((4, 10), (-4, 10), 0, false),
            ((4, 100), (3, 100), 1, false),
            ((44, 1000), (4, 100), 1, true),
            ((333, 1000), (33, 100), 2, true),
            ((512, 10_000), (5, 100), 2, false),
            ((512, 10_000), (51, 1000), 2, true),
            ((12_344, 10_000_000), (12_341, 10_000_000), 3, true),
            ((1234, 1_000_000), (1239, 1_000_000), 3, false),
            ((1, 1), (0, 1), 0, false),
        ] {
            let left = number(a.0, a.1);
            let right = number(b.0, b.1);
            assert_eq!(same_to(&left, &right, places, &mut budget), Ok(expected), "{a:?} {b:?}");
            assert_eq!(same_to(&right, &left, places, &mut budget), Ok(expected), "{b:?} {a:?}");
        }

        for (numer, denom, expected) in
            [(1, 10, 0), (99, 1000, 1), (1, 100, 1), (999, 1000, 0), (1, 1 << 40, 12)]
        {
            assert_eq!(zeros(&number(numer, denom), &mut budget), Ok(expected), "{numer}/{denom}");
        }
    }

    #[test]
    fn halves_are_rounded_away_from_zero() {
        let mut budget = Budget::new(1_000);
        for (numer, denom, places, expected) in
            [(1, 2, 0, 1), (-1, 2, 0, -1), (22, 7, 2, 314), (-5, 4, 1, -13), (0, 1, 6, 0)]
        {
            let value = rounded(&number(numer, denom), places, &mut budget);
            assert_eq!(value, Ok(expected.into()), "{numer}/{denom}");
        }
    }
}
