//! Powers, roots and logarithms.

use std::cmp::Ordering;

use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::{
    evaluate::{EnclosureError, Evaluator, Result},
    value::Value,
};
use crate::{
    algebra::real::Real,
    expr::{Constant, Expr},
};

/// Bound below which integer exponents are multiplied out.
const MULTIPLIED: u64 = 1 << 40;

impl<'e, R: Real> Evaluator<'e, '_, R> {
    pub(super) fn power(&mut self, base: &'e Expr, exponent: &'e Expr) -> Result<Value<R>> {
        if let Expr::Number(exponent) = exponent
            && exponent.denom().is_one()
        {
            let value = self.eval(base)?;
            return self.integer_power(value, exponent.numer(), base);
        }

        match self.exact(exponent)? {
            Some(exponent) if exponent.is_integer() => {
                let value = self.eval(base)?;
                return self.integer_power(value, exponent.numer(), base);
            }
            Some(value) if self.is_constant(exponent)? => {
                let size = value.numer().bits() as i64 - value.denom().bits() as i64;
                self.faint(!value.is_zero(), size);
                self.long(&value);
                let base_value = self.eval(base)?;
                return self.rational_power(base_value, &value, base);
            }
            _ => (),
        }

        let power = self.eval(exponent)?;
        self.faint(power.is_nonzero(), power.log2());
        self.elementary()?;
        if matches!(base, Expr::Constant(Constant::E)) {
            return Ok(power.exp(self.prec));
        }

        let value = self.eval(base)?;
        match value.as_real().map(R::sign) {
            Some(Some(Ordering::Greater)) => (),
            Some(Some(Ordering::Equal)) => {
                return match power.re.sign() {
                    Some(Ordering::Greater) => Ok(Value::real(R::integer(0))),
                    Some(_) => Err(EnclosureError::Undefined),
                    None => Err(EnclosureError::Unknown),
                };
            }
            // A negative number to a real power may be real or not, depending on the exponent as a fraction.
            Some(_) if power.im.is_none() => return Err(EnclosureError::Unknown),
            _ => (),
        }

        self.elementary()?;
        let log = value.ln(self.prec).ok_or(EnclosureError::Unknown)?;
        Ok(log.mul(&power, self.prec).exp(self.prec))
    }

    fn integer_power(
        &mut self,
        base: Value<R>,
        exponent: &BigInt,
        written: &Expr,
    ) -> Result<Value<R>> {
        let prec = self.prec;
        let one = Value::real(R::integer(1));
        if !exponent.is_positive() {
            if base.is_zero() {
                return Err(EnclosureError::Undefined);
            }
            if exponent.is_zero() {
                if base.is_nonzero() {
                    return Ok(one);
                }
                let zero = self.exact(written)?.is_some_and(|base| base.is_zero());
                return Err(if zero { EnclosureError::Undefined } else { EnclosureError::Unknown });
            }
        }

        let size = exponent.magnitude();
        let power = match size.to_u64().filter(|times| *times < MULTIPLIED) {
            Some(times) => {
                let mut power = base.clone();
                // Square and multiply, starting below the exponent's highest bit.
                for bit in (0..63 - i64::from(times.leading_zeros())).rev() {
                    self.operation()?;
                    power = power.square(prec);
                    if times >> bit & 1 == 1 {
                        self.operation()?;
                        power = power.mul(&base, prec);
                    }
                }
                power
            }
            None => {
                // |b|ⁿ = e^(n·ln |b|), and an odd exponent keeps the sign of b.
                self.elementary()?;
                self.elementary()?;
                let real = base.as_real().ok_or(EnclosureError::Unknown)?;
                let log = real.abs(prec).ln(prec).ok_or(EnclosureError::Unknown)?;
                let times = R::ratio(&size.clone().into(), &BigInt::one(), prec);
                let power = log.mul(&times, prec).exp(prec);
                let negative = real.sign() == Some(Ordering::Less) && exponent.is_odd();
                Value::real(if negative { power.neg() } else { power })
            }
        };

        if exponent.is_negative() { self.quotient(&one, &power, written) } else { Ok(power) }
    }

    /// Computes a power whose exponent is a fraction in lowest terms.
    pub(super) fn rational_power(
        &mut self,
        base: Value<R>,
        exponent: &BigRational,
        written: &Expr,
    ) -> Result<Value<R>> {
        let times = exponent.numer();
        let degree = exponent.denom();
        if degree.is_one() {
            return self.integer_power(base, times, written);
        }

        if base.is_zero() {
            let positive = times.is_positive();
            return if positive { Ok(base) } else { Err(EnclosureError::Undefined) };
        }

        if degree.to_u32() == Some(2) {
            self.budget.spend(R::cost(self.prec).root)?;
        } else {
            self.elementary()?;
            self.elementary()?;
        }

        let prec = self.prec;
        let root = match base.as_real().map(R::sign) {
            None if degree.to_u32() == Some(2) => base.sqrt(prec).ok_or(EnclosureError::Unknown)?,
            None => return self.principal_power(&base, exponent),
            Some(Some(Ordering::Greater)) => match degree.to_u32() {
                Some(degree) if times.bits() < 10 => Value::real(base.re.root(degree, prec)),
                _ => return self.principal_power(&base, exponent),
            },
            Some(sign) => {
                if degree.is_even() && !self.is_constant(written)? {
                    let outside = sign == Some(Ordering::Less);
                    return Err(if outside {
                        EnclosureError::Undefined
                    } else {
                        EnclosureError::Unknown
                    });
                }

                let small = degree.to_u32().ok_or(EnclosureError::Unknown)?;
                // The first root covers the members that are not negative, the second the others.
                let roots = (base.re.root(small, prec), base.re.clone().neg().root(small, prec));
                match (degree.is_odd(), sign) {
                    (true, Some(_)) => Value::real(roots.1.neg()),
                    (true, None) => Value::real(roots.0.hull(&roots.1.neg(), prec)),
                    (false, Some(_)) if small == 2 => Value::complex(R::integer(0), roots.1),
                    (false, Some(_)) => return self.principal_power(&base, exponent),
                    // One part is zero, and the other is within its root.
                    (false, None) if small == 2 => Value::complex(roots.0, roots.1),
                    (false, None) => {
                        let size = base.re.abs(prec).root(small, prec).around_zero(prec);
                        Value::complex(size.clone(), size)
                    }
                }
            }
        };

        self.integer_power(root, times, written)
    }

    fn principal_power(&mut self, base: &Value<R>, exponent: &BigRational) -> Result<Value<R>> {
        self.elementary()?;
        self.elementary()?;
        let log = base.ln(self.prec).ok_or(EnclosureError::Unknown)?;
        let exponent = self.number(exponent)?;
        Ok(log.mul(&exponent, self.prec).exp(self.prec))
    }

    /// Computes the logarithm of the argument `written`.
    pub(super) fn logarithm(&mut self, value: &Value<R>, written: &Expr) -> Result<Value<R>> {
        self.elementary()?;
        if value.is_zero() {
            return Err(EnclosureError::Undefined);
        }
        if value.as_real().is_some_and(|value| value.sign() != Some(Ordering::Greater)) {
            // Functions are compared as real functions, which have no value here.
            if !self.is_constant(written)? {
                return Err(EnclosureError::Undefined);
            }
            self.elementary()?;
        }
        value.ln(self.prec).ok_or(EnclosureError::Unknown)
    }
}
