//! Finds the rational value of an expression at a point, if arithmetic and perfect roots suffice for it.

use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

use crate::{
    budget::{Budget, OverBudget},
    expr::{Expr, Function},
};

/// Longest numbers that are computed exactly, in bits.
const BITS: u64 = 1 << 12;

/// Returns the rational value of an expression, given the values of its symbols. Returns `None` if the expression
/// is not rational, if more than arithmetic and perfect roots is needed to see it, or if the value is too long.
pub(super) fn exact(
    expr: &Expr,
    symbol: &dyn Fn(&str) -> Option<(i64, i64)>,
    budget: &mut Budget,
) -> Result<Option<BigRational>, OverBudget> {
    crate::parts::gate!(PointRationals if !matches!(expr, Expr::Number(_) | Expr::Decimal(_)), Ok(None));
    budget.spend(4)?;

    let value = match expr {
        Expr::Number(value) | Expr::Decimal(value) if fits(value) => Some(value.clone()),
        Expr::Symbol(name) => symbol(name)
            .map(|(numer, denom)| BigRational::new_raw(BigInt::from(numer), BigInt::from(denom))),
        Expr::Negate(inner) => exact(inner, symbol, budget)?.map(|value| -value),
        Expr::Sum(terms) => fold(terms, BigRational::zero(), |a, b| a + b, symbol, budget)?,
        Expr::Product(factors) => fold(factors, BigRational::one(), |a, b| a * b, symbol, budget)?,

        Expr::Quotient(parts) => {
            let Some(denom) = exact(&parts[1], symbol, budget)?.filter(|d| !d.is_zero()) else {
                return Ok(None);
            };
            let numer = exact(&parts[0], symbol, budget)?;
            charge(&denom, budget)?;
            numer.map(|numer| numer / denom)
        }

        Expr::Power(parts) => {
            let Some(exponent) = exact(&parts[1], symbol, budget)? else { return Ok(None) };
            let Some(base) = exact(&parts[0], symbol, budget)? else { return Ok(None) };
            power(base, &exponent, budget)?
        }

        Expr::Root(parts) => {
            let Some(degree) = exact(&parts[0], symbol, budget)? else { return Ok(None) };
            let Some(radicand) = exact(&parts[1], symbol, budget)? else { return Ok(None) };
            if degree.is_zero() {
                return Ok(None);
            }
            power(radicand, &degree.recip(), budget)?
        }

        Expr::Call(Function::Log, parts) if parts.len() == 2 => {
            let Some(base) = exact(&parts[0], symbol, budget)? else { return Ok(None) };
            let Some(value) = exact(&parts[1], symbol, budget)? else { return Ok(None) };
            logarithm(&base, value, budget)?
        }
        _ => None,
    };

    Ok(value.filter(fits))
}

fn fits(value: &BigRational) -> bool {
    value.numer().bits().max(value.denom().bits()) <= BITS
}

/// Charges for an operation with a number. Reducing a fraction takes a greatest common divisor, which has a
/// quadratic cost.
fn charge(value: &BigRational, budget: &mut Budget) -> Result<(), OverBudget> {
    let words = (value.numer().bits() + value.denom().bits()) / 64 + 1;
    budget.spend(30 + 64 * words * words)
}

fn fold(
    parts: &[Expr],
    start: BigRational,
    with: fn(BigRational, BigRational) -> BigRational,
    symbol: &dyn Fn(&str) -> Option<(i64, i64)>,
    budget: &mut Budget,
) -> Result<Option<BigRational>, OverBudget> {
    let mut total = start;
    for part in parts {
        let Some(value) = exact(part, symbol, budget)? else { return Ok(None) };
        charge(&total, budget)?;
        charge(&value, budget)?;
        total = with(total, value);
        if !fits(&total) {
            return Ok(None);
        }
    }
    Ok(Some(total))
}

/// Computes the logarithm of an integer power of a base above one.
fn logarithm(
    base: &BigRational,
    value: BigRational,
    budget: &mut Budget,
) -> Result<Option<BigRational>, OverBudget> {
    let one = BigRational::one();
    if *base <= one || !value.is_positive() {
        return Ok(None);
    }

    // Below one, the inverse is looked for, and its exponent counts backwards.
    let is_below_one = value < one;
    let value = if is_below_one { value.recip() } else { value };
    let mut power = one;
    let mut exponent = 0i64;

    // The powers of a base near one grow slowly, but each is at least one bit longer than the one before.
    while power < value && fits(&power) {
        charge(&power, budget)?;
        charge(base, budget)?;
        power *= base;
        exponent += if is_below_one { -1 } else { 1 };
    }

    Ok((power == value).then(|| BigRational::from(BigInt::from(exponent))))
}

/// Computes a power with a small exponent. The denominator of the exponent needs a perfect root.
fn power(
    base: BigRational,
    exponent: &BigRational,
    budget: &mut Budget,
) -> Result<Option<BigRational>, OverBudget> {
    let bits = base.numer().bits().max(base.denom().bits());
    let (Some(times), Some(degree)) = (exponent.numer().to_i32(), exponent.denom().to_u32()) else {
        return Ok(None);
    };

    if base.is_zero() {
        return Ok((times > 0).then_some(base));
    }

    if bits.saturating_mul(times.unsigned_abs().into()) > BITS {
        return Ok(None);
    }
    budget.spend(100 + bits)?;
    if degree == 1 {
        return Ok(Some(base.pow(times)));
    }

    // No negative number has an even root, and with a degree greater than its number of bits, only 1 is a perfect
    // power.
    if (base.is_negative() && degree.is_even()) || u64::from(degree) > bits {
        return Ok(base.is_one().then_some(base));
    }

    budget.spend(200 + bits * bits / 16)?;
    let root = BigRational::new_raw(base.numer().nth_root(degree), base.denom().nth_root(degree));
    Ok((root.pow(degree as i32) == base).then(|| root.pow(times)))
}
