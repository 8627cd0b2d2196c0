//! Functions whose values at rational numbers are rational.

use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::{
    exact::{ExactError, Result, Value},
    integer,
};
use crate::{budget::Budget, expr::Function};

/// Tells whether a function has rational values at some arguments other than zero, so that it is worth to compute them.
pub(super) fn may_be_rational(function: Function) -> bool {
    use Function::*;
    !matches!(
        function,
        Sin | Cos | Tan | Cot | Sec | Csc | Arcsin | Arccos | Arctan | Arccot | Sinh | Cosh | Tanh
    )
}

pub(super) fn value(
    function: Function,
    arguments: &[Value],
    limit: u64,
    budget: &mut Budget,
) -> Result<Value> {
    if arguments.is_empty() || function.arity().is_some_and(|arity| arity != arguments.len()) {
        return Err(ExactError::Opaque);
    }
    if let [Value::Infinity { positive }] = arguments {
        return of_infinity(function, *positive);
    }
    let numbers: Option<Vec<_>> = arguments.iter().map(Value::as_number).collect();
    of_numbers(function, &numbers.ok_or(ExactError::Opaque)?, limit, budget)
}

fn of_infinity(function: Function, positive: bool) -> Result<Value> {
    crate::parts::gate!(InfiniteArguments, Err(ExactError::Opaque));
    match (function, positive) {
        (Function::Abs, _) | (Function::Exp | Function::Ln | Function::Factorial, true) => {
            Ok(Value::Infinity { positive: true })
        }
        (Function::Exp, false) => Ok(BigRational::zero().into()),
        _ => Err(ExactError::Opaque),
    }
}

fn of_numbers(
    function: Function,
    numbers: &[&BigRational],
    limit: u64,
    budget: &mut Budget,
) -> Result<Value> {
    let size: u64 = numbers.iter().map(|number| integer::bits(number)).sum();
    budget.spend(size / 64 * (size / 64) + 8 * numbers.len() as u64)?;

    let natural = |at: usize| -> Option<u64> {
        numbers[at].is_integer().then(|| numbers[at].numer().to_u64()).flatten()
    };
    let first = numbers[0];

    Ok(match function {
        Function::Abs => first.abs().into(),
        Function::Floor => first.floor().into(),
        Function::Ceil => first.ceil().into(),
        Function::Re | Function::Conjugate => first.clone().into(),
        Function::Im => BigRational::zero().into(),
        Function::Min | Function::Max => {
            let extreme = match function {
                Function::Min => numbers.iter().min(),
                _ => numbers.iter().max(),
            };
            extreme.map_or(first, |extreme| extreme).clone().into()
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
            let modulus = numbers[1];
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
            integer::sum(first, &-multiple, budget)?.into()
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
        Function::Log => logarithm(numbers[0], numbers[1], limit, budget)?.into(),
        _ => return Err(ExactError::Opaque),
    })
}

/// Computes the logarithm of an integer power of a base above one.
fn logarithm(
    base: &BigRational,
    value: &BigRational,
    limit: u64,
    budget: &mut Budget,
) -> Result<BigRational> {
    let one = BigRational::one();
    if *base <= one || !value.is_positive() {
        return Err(ExactError::Opaque);
    }

    // Below one, the inverse is looked for, and its exponent counts backwards.
    let is_below_one = *value < one;
    let value = if is_below_one { value.recip() } else { value.clone() };
    let mut power = one;
    let mut exponent = 0i64;

    // The powers of a base near one grow slowly, but each is at least one bit longer than the one before.
    while power < value && integer::bits(&power) <= limit.min(integer::POINT_BITS) {
        power = integer::product(&power, base, budget)?;
        exponent += if is_below_one { -1 } else { 1 };
    }

    let found = power == value;
    found.then(|| BigInt::from(exponent).into()).ok_or(ExactError::Opaque)
}
