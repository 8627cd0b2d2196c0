//! Values of the known functions.

use std::cmp::Ordering;

use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{Signed, ToPrimitive, Zero};

use super::{
    evaluate::{EnclosureError, Evaluator, Result},
    value::Value,
};
use crate::{
    algebra::real::Real,
    expr::{Expr, Function},
};

impl<'e, R: Real> Evaluator<'e, '_, R> {
    pub(super) fn call(&mut self, function: Function, arguments: &'e [Expr]) -> Result<Value<R>> {
        match function {
            Function::Gcd | Function::Lcm => return self.divisors(function, arguments),
            Function::Min | Function::Max => return self.extreme(function, arguments),
            _ => (),
        }

        if function.arity() != Some(arguments.len()) {
            return Err(EnclosureError::Unknown);
        }

        let argument = self.eval(&arguments[0])?;
        // These four do not lose a tiny argument.
        if !matches!(function, Function::Abs | Function::Re | Function::Im | Function::Conjugate) {
            self.faint(argument.is_nonzero(), argument.log2());
        }
        let written = &arguments[0];
        let prec = self.prec;

        match function {
            Function::Sin | Function::Cos | Function::Tan => {
                self.elementary()?;
                let (sin, cos) = argument.sin_cos(prec);
                match function {
                    Function::Sin => Ok(sin),
                    Function::Cos => Ok(cos),
                    _ => sin.div(&cos, prec).ok_or(EnclosureError::Unknown),
                }
            }

            Function::Cot | Function::Sec | Function::Csc => {
                self.elementary()?;
                let (sin, cos) = argument.sin_cos(prec);
                let one = Value::real(R::integer(1));
                let (numer, denom) = match function {
                    Function::Cot => (&cos, &sin),
                    Function::Sec => (&one, &cos),
                    _ => (&one, &sin),
                };
                let pole = if denom.is_zero() {
                    EnclosureError::Undefined
                } else {
                    EnclosureError::Unknown
                };
                numer.div(denom, prec).ok_or(pole)
            }

            Function::Arcsin | Function::Arccos => {
                self.elementary()?;
                self.arc(function, real(&argument)?, written)
            }
            Function::Arctan | Function::Arccot => {
                self.elementary()?;
                let one = R::integer(1);
                let x = real(&argument)?;
                let (y, x) = if function == Function::Arctan { (x, &one) } else { (&one, x) };
                R::angle(y, x, prec).map(Value::real).ok_or(EnclosureError::Unknown)
            }

            Function::Sinh | Function::Cosh | Function::Tanh => {
                self.elementary()?;
                self.elementary()?;
                let (sinh, cosh) = argument.sinh_cosh(prec);
                match function {
                    Function::Sinh => Ok(sinh),
                    Function::Cosh => Ok(cosh),
                    _ => sinh.div(&cosh, prec).ok_or(EnclosureError::Unknown),
                }
            }
            Function::Exp => {
                self.elementary()?;
                Ok(argument.exp(prec))
            }
            Function::Ln => self.logarithm(&argument, written),

            Function::Log => {
                let base = self.logarithm(&argument, written)?;
                let value = self.eval(&arguments[1])?;
                let value = self.logarithm(&value, &arguments[1])?;
                value.div(&base, prec).ok_or(if base.is_zero() {
                    EnclosureError::Undefined
                } else {
                    EnclosureError::Unknown
                })
            }

            Function::Abs => {
                self.operation()?;
                Ok(Value::real(argument.abs(prec)))
            }
            Function::Floor | Function::Ceil => {
                let down = function == Function::Floor;
                let cell = self.cell(real(&argument)?, down, written)?;
                Ok(self.whole_value(&cell))
            }

            Function::Factorial | Function::DoubleFactorial => {
                let n = self.natural(&argument, written)?;
                match function {
                    Function::Factorial => self.factorial(n),
                    _ => self.double_factorial(n),
                }
            }

            Function::Binomial | Function::Permutations => {
                let k = self.eval(&arguments[1])?;
                let k = self.integer(&k, &arguments[1])?;
                let n = self.integer(&argument, written);
                self.choices(function == Function::Binomial, &argument, n.ok(), &k)
            }

            Function::Mod => {
                let modulus = self.eval(&arguments[1])?;
                self.remainder(&argument, written, &modulus, &arguments[1])
            }
            Function::Re => Ok(Value::real(argument.re)),
            Function::Im => Ok(Value::real(argument.imaginary())),
            Function::Conjugate => Ok(argument.conjugate()),
            Function::Gcd | Function::Lcm | Function::Min | Function::Max => {
                Err(EnclosureError::Unknown)
            }
        }
    }

    /// Computes the inverse sine or cosine, as the angle of a vector on the unit circle.
    fn arc(&mut self, function: Function, x: &R, written: &Expr) -> Result<Value<R>> {
        let prec = self.prec;
        let one = R::integer(1);
        // The other side is √(1 − x²), written as √((1 + x)(1 − x)) to keep its digits near ±1.
        let square = one.add(x, prec).mul(&one.add(&x.clone().neg(), prec), prec);
        let other = square.sqrt(prec);
        let (y, x) = if function == Function::Arcsin { (x, &other) } else { (&other, x) };
        let angle = |y, x| R::angle(y, x, prec).map(Value::real).ok_or(EnclosureError::Unknown);

        match square.sign() {
            Some(Ordering::Less) => {
                let real = self.values_are_real(written)?;
                Err(if real { EnclosureError::Undefined } else { EnclosureError::Unknown })
            }
            Some(_) => angle(y, x),
            None if self.values_are_real(written)? => Err(EnclosureError::Unknown),
            // The argument may be 1, or so little beyond 1 that the imaginary part is small: arcosh √(1+d) =
            // arsinh √d ≤ √d.
            None => {
                let re = R::angle(y, x, prec).ok_or(EnclosureError::Unknown)?;
                Ok(Value::complex(re, square.neg().sqrt(prec).around_zero(prec)))
            }
        }
    }

    /// Returns the greatest integer below, or the least above.
    fn cell(&mut self, x: &R, down: bool, written: &Expr) -> Result<BigInt> {
        let floor = if down { x.floor() } else { x.clone().neg().floor().map(|floor| -floor) };
        if let Some(floor) = floor {
            return Ok(floor);
        }
        let exact = self.exact(written)?.ok_or(EnclosureError::Unknown)?;
        Ok(if down { exact.floor() } else { exact.ceil() }.to_integer())
    }

    /// Returns the integer that an expression is certain to be.
    fn integer(&mut self, value: &Value<R>, written: &Expr) -> Result<BigInt> {
        let x = real(value)?;
        if let Some(whole) = x.whole() {
            return Ok(whole);
        }

        if let Some(exact) = self.exact(written)? {
            return if exact.is_integer() {
                Ok(exact.to_integer())
            } else {
                Err(EnclosureError::Undefined)
            };
        }

        // The value is certainly between two integers, or it is not known.
        let floor = x.floor().ok_or(EnclosureError::Unknown)?;
        let above = x.add(&R::ratio(&-floor, &1.into(), self.prec), self.prec).sign();
        Err(if above == Some(Ordering::Greater) {
            EnclosureError::Undefined
        } else {
            EnclosureError::Unknown
        })
    }

    fn natural(&mut self, value: &Value<R>, written: &Expr) -> Result<u64> {
        let n = self.integer(value, written)?;
        if n.is_negative() {
            return Err(EnclosureError::Undefined);
        }
        n.to_u64().filter(|n| *n < 1 << 53).ok_or(EnclosureError::Unknown)
    }

    fn whole_value(&self, n: &BigInt) -> Value<R> {
        Value::real(R::ratio(n, &1.into(), self.prec))
    }

    fn remainder(
        &mut self,
        x: &Value<R>,
        written: &Expr,
        modulus: &Value<R>,
        below: &Expr,
    ) -> Result<Value<R>> {
        let x = real(x)?;
        let m = real(modulus)?;
        if modulus.is_zero() {
            return Err(EnclosureError::Undefined);
        }
        if m.sign() != Some(Ordering::Greater) {
            return Err(EnclosureError::Unknown);
        }

        let prec = self.prec;
        if let (Some(x), Some(m)) = (x.whole(), m.whole()) {
            self.operation()?;
            return Ok(self.whole_value(&x.mod_floor(&m)));
        }

        if let Some(times) = x.div(m, prec).and_then(|times| times.floor()) {
            self.operation()?;
            let whole = R::ratio(&-times, &1.into(), prec);
            return Ok(Value::real(x.add(&whole.mul(m, prec), prec)));
        }

        let (Some(x), Some(m)) = (self.exact(written)?, self.exact(below)?) else {
            return Err(EnclosureError::Unknown);
        };
        self.budget.spend(1000)?;
        let rest: BigRational = &x - &m * (&x / &m).floor();
        Ok(Value::real(R::ratio(rest.numer(), rest.denom(), prec)))
    }

    fn divisors(&mut self, function: Function, arguments: &'e [Expr]) -> Result<Value<R>> {
        let mut total: Option<BigInt> = None;
        for argument in arguments {
            let value = self.eval(argument)?;
            let n = self.integer(&value, argument)?.abs();
            let words = (n.bits() + total.as_ref().map_or(0, |total| total.bits())) / 64 + 1;
            self.budget.spend(100 * words * words)?;
            total = Some(match total {
                None => n,
                Some(total) if function == Function::Gcd => total.gcd(&n),
                Some(total) if total.is_zero() || n.is_zero() => BigInt::zero(),
                Some(total) => total.lcm(&n),
            });
        }

        total.map(|total| self.whole_value(&total)).ok_or(EnclosureError::Undefined)
    }

    fn extreme(&mut self, function: Function, arguments: &'e [Expr]) -> Result<Value<R>> {
        let prec = self.prec;
        let wanted_order =
            if function == Function::Max { Ordering::Greater } else { Ordering::Less };
        let mut best: Option<R> = None;
        for argument in arguments {
            let value = self.eval(argument)?;
            let x = real(&value)?.clone();
            self.operation()?;
            best = Some(match best {
                None => x,
                Some(best) => match x.add(&best.clone().neg(), prec).sign() {
                    Some(order) if order == wanted_order => x,
                    Some(_) => best,
                    None => best.hull(&x, prec),
                },
            });
        }

        best.map(Value::real).ok_or(EnclosureError::Undefined)
    }

    fn values_are_real(&mut self, written: &Expr) -> Result<bool> {
        Ok(!self.is_constant(written)?)
    }
}

fn real<R: Real>(value: &Value<R>) -> Result<&R> {
    value.as_real().ok_or(EnclosureError::Unknown)
}
