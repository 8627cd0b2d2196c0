//! Functions whose values at rational numbers are rational.

use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::integer::{self, ExactError};
use crate::{budget::Budget, expr::Function};

/// Tells whether a function has rational values at more than a few rational numbers.
pub(super) fn may_be_rational(function: Function) -> bool {
    use Function::*;
    !matches!(
        function,
        Sin | Cos
            | Tan
            | Cot
            | Sec
            | Csc
            | Arcsin
            | Arccos
            | Arctan
            | Arccot
            | Sinh
            | Cosh
            | Tanh
            | Exp
            | Ln
    )
}

/// Computes the value of a function at rational numbers.
pub(super) fn value(
    function: Function,
    numbers: &[BigRational],
    limit: u64,
    budget: &mut Budget,
) -> Result<BigRational, ExactError> {
    if numbers.is_empty() || function.arity().is_some_and(|arity| arity != numbers.len()) {
        return Err(ExactError::Opaque);
    }

    let size: u64 = numbers.iter().map(integer::bits).sum();
    budget.spend(size / 64 * (size / 64) + 8 * numbers.len() as u64)?;

    let natural = |at: usize| -> Option<u64> {
        numbers[at].is_integer().then(|| numbers[at].numer().to_u64()).flatten()
    };
    let first = &numbers[0];

    Ok(match function {
        Function::Abs => first.abs(),
        Function::Floor => first.floor(),
        Function::Ceil => first.ceil(),
        Function::Re | Function::Conjugate => first.clone(),
        Function::Im => BigRational::zero(),
        Function::Min | Function::Max => {
            let extreme = match function {
                Function::Min => numbers.iter().min(),
                _ => numbers.iter().max(),
            };
            extreme.unwrap_or(first).clone()
        }

        Function::Factorial | Function::DoubleFactorial if first.is_integer() => {
            if function == Function::Factorial && first.is_negative() {
                return Err(ExactError::Undefined);
            }
            let step = if function == Function::Factorial { 1 } else { 2 };
            if first.is_negative() {
                return Err(ExactError::Opaque);
            }

            let n = first.numer().to_u64().ok_or(ExactError::TooLarge)?;
            integer::factorial(n, step, limit, budget)?.into()
        }

        Function::Permutations => match (natural(0), natural(1)) {
            (Some(n), Some(k)) if k > n => BigInt::zero().into(),
            (Some(n), Some(k)) => integer::permutations(n, k, limit, budget)?.into(),
            _ => return Err(ExactError::Opaque),
        },

        Function::Binomial => match (natural(0), natural(1)) {
            (Some(n), Some(k)) if k > n => BigInt::zero().into(),
            (Some(n), Some(k)) => {
                // C(n, k) = C(n, n−k), and the smaller k is less work.
                let k = k.min(n - k);
                let numer = integer::permutations(n, k, limit, budget)?;
                let denom = integer::factorial(k, 1, limit, budget)?;
                let limbs = numer.bits() / 64 + 1;
                budget.spend(limbs * limbs)?;
                (numer / denom).into()
            }
            _ => return Err(ExactError::Opaque),
        },

        Function::Mod => {
            let modulus = &numbers[1];
            if modulus.is_zero() {
                return Err(ExactError::Undefined);
            }
            if modulus.is_negative() {
                return Err(ExactError::Opaque);
            }
            if first.is_integer() && modulus.is_integer() {
                return Ok(first.numer().mod_floor(modulus.numer()).into());
            }

            // a mod m = a − m·⌊a/m⌋
            let quotient = integer::product(first, &modulus.recip(), budget)?.floor();
            let multiple = integer::product(modulus, &quotient, budget)?;
            integer::sum(first, &-multiple, budget)?
        }

        Function::Gcd | Function::Lcm if numbers.iter().all(|number| number.is_integer()) => {
            let mut result = first.numer().abs();
            for number in &numbers[1..] {
                let bits = result.bits() + number.numer().bits();
                if bits > limit {
                    return Err(ExactError::TooLarge);
                }
                budget.spend(16 + bits * (bits / 64 + 1))?;
                result = match function {
                    Function::Gcd => result.gcd(number.numer()),
                    _ => result.lcm(number.numer()),
                };
            }
            result.into()
        }
        Function::Log => logarithm(first, &numbers[1], limit, budget)?,
        _ => return Err(ExactError::Opaque),
    })
}

/// Computes the logarithm of an integer power of a base above one.
fn logarithm(
    base: &BigRational,
    value: &BigRational,
    limit: u64,
    budget: &mut Budget,
) -> Result<BigRational, ExactError> {
    let one = BigRational::one();
    if *base <= one || !value.is_positive() {
        return Err(ExactError::Opaque);
    }

    // Below one, the inverse is looked for, and its exponent counts backwards.
    let is_below_one = *value < one;
    let value = if is_below_one { value.recip() } else { value.clone() };
    let mut power = one;
    let mut exponent = 0i64;

    // Each power is longer than the one before, and so is its denominator, if it has one.
    let limit = limit.min(integer::POINT_BITS);
    while power < value && power.denom() <= value.denom() && integer::bits(&power) <= limit {
        power = integer::product(&power, base, budget)?;
        exponent += if is_below_one { -1 } else { 1 };
    }

    let found = power == value;
    found.then(|| BigInt::from(exponent).into()).ok_or(ExactError::Opaque)
}
