//! Integers and fractions: their costs, factors and powers.

use num_bigint::{BigInt, BigUint};
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Pow, Signed, ToPrimitive, Zero};

use super::{limits::AlgebraError, modular_u64};
use crate::{
    budget::{Budget, OverBudget},
    expr::Expr,
};

/// Bits of the longest number that is computed. Longer numbers are left to residues and logarithms.
pub(super) const MAX_BITS: u64 = 65_536;

/// Bound up to which factors are sought, so that what is left below its square is prime.
const TRIAL_BOUND: u64 = 2_048;

/// Counts the bits of numerator and denominator together.
pub(super) fn bits(number: &BigRational) -> u64 {
    number.numer().bits() + number.denom().bits()
}

/// Pays for a sum and computes it.
pub(super) fn sum(
    left: &BigRational,
    right: &BigRational,
    budget: &mut Budget,
) -> Result<BigRational, AlgebraError> {
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
) -> Result<BigRational, AlgebraError> {
    charge(left, right, budget)?;
    Ok(if left.is_integer() && right.is_integer() {
        BigRational::from_integer(left.numer() * right.numer())
    } else {
        left * right
    })
}

/// Charges for one operation: limbs times limbs. Operations that seek common divisors cost 64 times as much,
/// because that search goes bit by bit.
fn charge(
    left: &BigRational,
    right: &BigRational,
    budget: &mut Budget,
) -> Result<(), AlgebraError> {
    let bits = bits(left) + bits(right);
    if bits > 2 * MAX_BITS {
        return Err(AlgebraError::TooLarge);
    }
    let limbs = bits / 64 + 1;
    let whole = left.is_integer() && right.is_integer();
    Ok(budget.spend(if whole { 16 + limbs * limbs } else { 64 + limbs * bits })?)
}

/// Raises a rational number to an integer power.
pub(super) fn power(
    base: &BigRational,
    exponent: i64,
    budget: &mut Budget,
) -> Result<BigRational, AlgebraError> {
    if base.is_zero() {
        return if exponent > 0 { Ok(base.clone()) } else { Err(AlgebraError::Undefined) };
    }

    // Powers of 1 and −1 cost nothing, however large the exponent is.
    if base.numer().magnitude().is_one() && base.denom().is_one() {
        let negative = base.is_negative() && exponent.is_odd();
        return Ok(if negative { base.clone() } else { BigRational::one() });
    }

    let size = bits(base).saturating_mul(exponent.unsigned_abs());
    if size > MAX_BITS {
        return Err(AlgebraError::TooLarge);
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

/// One power in the factorisation of a number.
pub(super) struct Factor {
    pub(super) base: BigUint,
    pub(super) exponent: i64,
    /// True if the base is known to be prime. Otherwise the base is the unfactored rest.
    pub(super) prime: bool,
}

/// Factors a fraction, without its sign. Factors of the denominator have negative exponents.
pub(super) fn factors(
    number: &BigRational,
    budget: &mut Budget,
) -> Result<Vec<Factor>, AlgebraError> {
    crate::parts::gate!(Factoring, Err(AlgebraError::Opaque));
    let mut powers = vec![];
    factor(number.numer().magnitude().clone(), 1, &mut powers, budget)?;
    factor(number.denom().magnitude().clone(), -1, &mut powers, budget)?;
    Ok(powers)
}

fn factor(
    mut remaining: BigUint,
    sign: i64,
    powers: &mut Vec<Factor>,
    budget: &mut Budget,
) -> Result<(), AlgebraError> {
    if remaining.bits() > MAX_BITS {
        return Err(AlgebraError::TooLarge);
    }

    let mut divisor = 2u64;
    while !remaining.is_one() {
        if let Some(word) = remaining.to_u64() {
            return factor_word(word, divisor, sign, powers, budget);
        }
        if divisor > TRIAL_BOUND {
            return leftover(remaining, sign, powers, budget);
        }

        let mut exponent = 0;
        loop {
            budget.spend(8 + remaining.bits() / 64)?;
            let (quotient, rest) = remaining.div_rem(&BigUint::from(divisor));
            if !rest.is_zero() {
                break;
            }
            remaining = quotient;
            exponent += sign;
        }

        if exponent != 0 {
            powers.push(Factor { base: divisor.into(), exponent, prime: true });
        }
        divisor += if divisor == 2 { 1 } else { 2 };
    }

    Ok(())
}

fn factor_word(
    mut remaining: u64,
    from: u64,
    sign: i64,
    powers: &mut Vec<Factor>,
    budget: &mut Budget,
) -> Result<(), AlgebraError> {
    let mut divisor = from;
    while divisor <= TRIAL_BOUND && divisor * divisor <= remaining {
        budget.spend(2)?;
        let mut exponent = 0;
        while remaining.is_multiple_of(divisor) {
            remaining /= divisor;
            exponent += sign;
        }
        if exponent != 0 {
            powers.push(Factor { base: divisor.into(), exponent, prime: true });
        }
        divisor += if divisor == 2 { 1 } else { 2 };
    }

    if remaining == 1 {
        return Ok(());
    }

    // This pays for the test of primality.
    budget.spend(4_000)?;
    if divisor * divisor > remaining || modular_u64::is_prime(remaining) {
        powers.push(Factor { base: remaining.into(), exponent: sign, prime: true });
        return Ok(());
    }

    leftover(remaining.into(), sign, powers, budget)
}

/// Adds what trial division left as a separate factor, unless it is a power.
fn leftover(
    remaining: BigUint,
    sign: i64,
    powers: &mut Vec<Factor>,
    budget: &mut Budget,
) -> Result<(), AlgebraError> {
    for degree in [2u32, 3, 5, 7] {
        budget.spend(64 + remaining.bits() * (remaining.bits() / 64))?;
        let root = remaining.nth_root(degree);
        if Pow::pow(&root, degree) == remaining {
            // The root may be composite too, but without small factors.
            return match root.to_u64() {
                Some(word) => {
                    factor_word(word, TRIAL_BOUND + 1, sign * i64::from(degree), powers, budget)
                }
                None => leftover(root, sign * i64::from(degree), powers, budget),
            };
        }
    }

    powers.push(Factor { base: remaining, exponent: sign, prime: false });
    Ok(())
}

/// Computes `n (n − step) (n − 2 step) …` down to the last positive factor.
pub(super) fn factorial(n: u64, step: u64, budget: &mut Budget) -> Result<BigInt, AlgebraError> {
    // No factor is longer than n, which bounds the product well enough.
    let size = (n / step).saturating_mul(u64::from(64 - n.leading_zeros()));
    falling(n, n / step, step, size, budget)
}

/// Computes `n (n − 1) … (n − k + 1)`.
pub(super) fn permutations(n: u64, k: u64, budget: &mut Budget) -> Result<BigInt, AlgebraError> {
    falling(n, k, 1, k.saturating_mul(u64::from(64 - n.leading_zeros())), budget)
}

fn falling(
    n: u64,
    count: u64,
    step: u64,
    size: u64,
    budget: &mut Budget,
) -> Result<BigInt, AlgebraError> {
    if size > MAX_BITS {
        return Err(AlgebraError::TooLarge);
    }
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
    crate::parts::gate!(RoundedRationals, Ok(a == b));
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
    fn factors_multiply_to_the_number() {
        let mut budget = Budget::new(1_000_000);
        for value in [1, 2, 360, 9_901, 1_000_001, 999_999_999_989] {
            let mut product = BigUint::one();
            for factor in factors(&number(value, 1), &mut budget).unwrap() {
                assert!(factor.prime, "{value}: {}", factor.base);
                product *= factor.base.pow(factor.exponent as u32);
            }
            assert_eq!(product, BigUint::from(value as u64));
        }

        // The square of a product of two primes above the bound is recognised as a square.
        let square = BigRational::from_integer(BigInt::from(4_000_037u64 * 4_000_063).pow(2u32));
        let found = factors(&square, &mut budget).unwrap();
        assert_eq!((found.len(), found[0].exponent, found[0].prime), (1, 2, false));
    }

    #[test]
    fn sizes_are_refused_before_they_are_computed() {
        let mut budget = Budget::new(u64::MAX);
        assert_eq!(power(&number(2, 1), 1 << 40, &mut budget), Err(AlgebraError::TooLarge));
        assert_eq!(power(&number(-1, 1), i64::MIN, &mut budget), Ok(number(1, 1)));
        assert_eq!(power(&number(-2, 3), -3, &mut budget), Ok(number(-27, 8)));
        assert_eq!(power(&number(0, 1), 0, &mut budget), Err(AlgebraError::Undefined));
        assert_eq!(factorial(1_000_000, 1, &mut budget), Err(AlgebraError::TooLarge));
        assert_eq!(factorial(9, 2, &mut budget), Ok(945.into()));
        assert_eq!(permutations(5, 2, &mut budget), Ok(20.into()));
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
