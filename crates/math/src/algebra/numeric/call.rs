//! The values of the known functions.

use std::cmp::Ordering;

use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{Signed, ToPrimitive, Zero};

use super::{
    evaluate::{Evaluator, Result, Stop},
    value::Value,
};
use crate::{
    algebra::real::Real,
    expr::{Expr, Function},
};

/// The most factors of a factorial or binomial that are multiplied out. Beyond it Stirling's formula is used.
const FACTORS: u64 = 1000;

impl<'e, R: Real> Evaluator<'e, '_, R> {
    pub(super) fn call(&mut self, function: Function, arguments: &'e [Expr]) -> Result<Value<R>> {
        match function {
            Function::Gcd | Function::Lcm => return self.divisors(function, arguments),
            Function::Min | Function::Max => return self.extreme(function, arguments),
            _ => (),
        }
        if function.arity() != Some(arguments.len()) {
            return Err(Stop::Unknown);
        }
        let argument = self.eval(&arguments[0])?;
        if !matches!(function, Function::Abs | Function::Re | Function::Im | Function::Conjugate) {
            self.faint(argument.is_nonzero(), argument.log2());
        }
        let written = &arguments[0];
        let p = self.p;
        match function {
            Function::Sin | Function::Cos | Function::Tan => {
                self.elementary()?;
                let (sin, cos) = argument.sin_cos(p);
                match function {
                    Function::Sin => Ok(sin),
                    Function::Cos => Ok(cos),
                    _ => sin.div(&cos, p).ok_or(Stop::Unknown),
                }
            }
            Function::Cot | Function::Sec | Function::Csc => {
                self.elementary()?;
                let (sin, cos) = argument.sin_cos(p);
                let one = Value::real(R::integer(1));
                let (numer, denom) = match function {
                    Function::Cot => (&cos, &sin),
                    Function::Sec => (&one, &cos),
                    _ => (&one, &sin),
                };
                let pole = if denom.is_zero() { Stop::Undefined } else { Stop::Unknown };
                numer.div(denom, p).ok_or(pole)
            }
            Function::Arcsin | Function::Arccos => {
                self.elementary()?;
                self.arc(function, real(&argument)?, written)
            }
            Function::Arctan | Function::Arccot => {
                self.elementary()?;
                let (one, x) = (R::integer(1), real(&argument)?);
                let (y, x) = if function == Function::Arctan { (x, &one) } else { (&one, x) };
                R::angle(y, x, p).map(Value::real).ok_or(Stop::Unknown)
            }
            Function::Sinh | Function::Cosh | Function::Tanh => {
                self.elementary()?;
                self.elementary()?;
                let (sinh, cosh) = argument.sinh_cosh(p);
                match function {
                    Function::Sinh => Ok(sinh),
                    Function::Cosh => Ok(cosh),
                    // Overflow on both sides of the fraction tells nothing, and the fraction is not needed.
                    _ => self.tanh(&argument).map_or_else(
                        || sinh.div(&cosh, p).ok_or(Stop::Unknown),
                        |value| Ok(Value::real(value)),
                    ),
                }
            }
            Function::Exp => {
                self.elementary()?;
                Ok(argument.exp(p))
            }
            Function::Ln => self.logarithm(&argument, written),
            Function::Log => {
                let base = self.logarithm(&argument, written)?;
                let value = self.eval(&arguments[1])?;
                let value = self.logarithm(&value, &arguments[1])?;
                value.div(&base, p).ok_or(if base.is_zero() {
                    Stop::Undefined
                } else {
                    Stop::Unknown
                })
            }
            Function::Abs => {
                self.operation()?;
                Ok(Value::real(argument.abs(p)))
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
            Function::Gcd | Function::Lcm | Function::Min | Function::Max => Err(Stop::Unknown),
        }
    }

    /// Computes the inverse sine or cosine, as the angle of a vector on the unit circle.
    fn arc(&mut self, function: Function, x: &R, written: &Expr) -> Result<Value<R>> {
        let p = self.p;
        let one = R::integer(1);
        let square = one.add(x, p).mul(&one.add(&x.clone().neg(), p), p);
        let other = square.sqrt(p);
        let (y, x) = if function == Function::Arcsin { (x, &other) } else { (&other, x) };
        let angle = |y, x| R::angle(y, x, p).map(Value::real).ok_or(Stop::Unknown);
        match square.sign() {
            Some(Ordering::Less) => Err(match self.values_are_real(written)? {
                true => Stop::Undefined,
                false => Stop::Unknown,
            }),
            Some(_) => angle(y, x),
            None if self.values_are_real(written)? => Err(Stop::Unknown),
            // The argument may be 1, or so little beyond 1 that the imaginary part is small: arcosh √(1+d) =
            // arsinh √d ≤ √d.
            None => {
                let re = R::angle(y, x, p).ok_or(Stop::Unknown)?;
                Ok(Value::complex(re, square.neg().sqrt(p).around_zero(p)))
            }
        }
    }

    /// Computes the hyperbolic tangent of a real number that is not small.
    fn tanh(&mut self, argument: &Value<R>) -> Option<R> {
        let p = self.p;
        let x = argument.as_real()?;
        let one = R::integer(1);
        if x.abs(p).add(&one.clone().neg(), p).sign() != Some(Ordering::Greater) {
            return None;
        }
        // tanh |x| = 1 − 2/(e^2|x| + 1).
        let power = x.abs(p).mul(&R::integer(2), p).exp(p).add(&one, p);
        let rest = R::integer(2).div(&power, p)?;
        let value = one.add(&rest.neg(), p);
        Some(if x.sign() == Some(Ordering::Less) { value.neg() } else { value })
    }

    /// Returns the greatest integer below, or the least above.
    fn cell(&mut self, x: &R, down: bool, written: &Expr) -> Result<BigInt> {
        let floor = if down { x.floor() } else { x.clone().neg().floor().map(|floor| -floor) };
        if let Some(floor) = floor {
            return Ok(floor);
        }
        let exact = self.exact(written)?.ok_or(Stop::Unknown)?;
        Ok(if down { exact.floor() } else { exact.ceil() }.to_integer())
    }

    /// Returns the integer that an expression certainly is.
    fn integer(&mut self, value: &Value<R>, written: &Expr) -> Result<BigInt> {
        let x = real(value)?;
        if let Some(whole) = x.whole() {
            return Ok(whole);
        }
        if let Some(exact) = self.exact(written)? {
            return if exact.is_integer() { Ok(exact.to_integer()) } else { Err(Stop::Undefined) };
        }
        // The value is certainly between two integers, or it is not known.
        let floor = x.floor().ok_or(Stop::Unknown)?;
        let above = x.add(&R::ratio(&-floor, &1.into(), self.p), self.p).sign();
        Err(if above == Some(Ordering::Greater) { Stop::Undefined } else { Stop::Unknown })
    }

    fn natural(&mut self, value: &Value<R>, written: &Expr) -> Result<u64> {
        let n = self.integer(value, written)?;
        if n.is_negative() {
            return Err(Stop::Undefined);
        }
        n.to_u64().filter(|n| *n < 1 << 53).ok_or(Stop::Unknown)
    }

    fn whole_value(&self, n: &BigInt) -> Value<R> {
        Value::real(R::ratio(n, &1.into(), self.p))
    }

    /// Computes the product of every `step`-th number from `from` to `to`.
    fn product(&mut self, from: u64, to: u64, step: usize) -> Result<Value<R>> {
        let mut product = R::integer(1);
        for factor in (from..=to).step_by(step) {
            self.operation()?;
            product = product.mul(&R::integer(factor as i64), self.p);
        }
        Ok(Value::real(product))
    }

    fn factorial(&mut self, n: u64) -> Result<Value<R>> {
        if n <= FACTORS { self.product(2, n, 1) } else { self.stirling(n) }
    }

    /// Computes `n! = e^(n ln n − n + ln(2πn)/2 + 1/12n − 1/360n³ + …)`. The error of the series is less than the
    /// first term that is left out.
    fn stirling(&mut self, n: u64) -> Result<Value<R>> {
        self.elementary()?;
        self.elementary()?;
        self.elementary()?;
        let p = self.p + 64;
        let x = R::integer(n as i64);
        let inverse = R::integer(1).div(&x, p).ok_or(Stop::Unknown)?;
        let square = inverse.mul(&inverse, p);
        let log = x.ln(p).ok_or(Stop::Unknown)?;
        let turn = R::pi(p).mul(&x, p).mul(&R::integer(2), p).ln(p).ok_or(Stop::Unknown)?;
        let half = turn.div(&R::integer(2), p).ok_or(Stop::Unknown)?;
        let mut sum = x.mul(&log, p).add(&x.neg(), p).add(&half, p);
        let mut power = inverse;
        for (k, (numer, denom)) in STIRLING.into_iter().enumerate() {
            self.operation()?;
            let term = R::ratio(&numer.into(), &denom.into(), p).mul(&power, p);
            let last = k + 1 == STIRLING.len();
            sum = sum.add(&if last { term.around_zero(p) } else { term }, p);
            power = power.mul(&square, p);
        }
        Ok(Value::real(sum.exp(p)))
    }

    fn double_factorial(&mut self, n: u64) -> Result<Value<R>> {
        if n <= 2 * FACTORS {
            return self.product(if n.is_multiple_of(2) { 2 } else { 1 }, n, 2);
        }
        // (2m)!! = 2^m·m!, and (2m+1)!! = (2m+1)!/(2m)!!.
        let half = n / 2;
        self.elementary()?;
        let log = R::integer(2).ln(self.p + 64).ok_or(Stop::Unknown)?;
        let power = log.mul(&R::integer(half as i64), self.p + 64).exp(self.p);
        let even = self.factorial(half)?.mul(&Value::real(power), self.p);
        if n.is_multiple_of(2) {
            return Ok(even);
        }
        self.factorial(n)?.div(&even, self.p).ok_or(Stop::Unknown)
    }

    /// Computes `n(n−1)…(n−k+1)`, divided by `k!` for binomials.
    fn choices(
        &mut self,
        binomial: bool,
        x: &Value<R>,
        n: Option<BigInt>,
        k: &BigInt,
    ) -> Result<Value<R>> {
        let natural = n.as_ref().filter(|n| !n.is_negative());
        if k.is_negative() {
            return natural.map(|_| Value::real(R::integer(0))).ok_or(Stop::Unknown);
        }
        if natural.is_some_and(|n| n < k) {
            return Ok(Value::real(R::integer(0)));
        }
        let mirrored = natural.filter(|n| binomial && k + k > **n).map(|n| n - k);
        let k = mirrored.as_ref().unwrap_or(k).to_u64().ok_or(Stop::Unknown)?;
        let p = self.p;
        if k > FACTORS {
            let n =
                natural.and_then(|n| n.to_u64()).filter(|n| *n < 1 << 53).ok_or(Stop::Unknown)?;
            let mut denom = self.factorial(n - k)?;
            if binomial {
                denom = denom.mul(&self.factorial(k)?, p);
            }
            return self.factorial(n)?.div(&denom, p).ok_or(Stop::Unknown);
        }
        let mut value = Value::real(R::integer(1));
        for i in 0..k as i64 {
            self.operation()?;
            self.operation()?;
            value = value.mul(&x.add(&Value::real(R::integer(-i)), p), p);
            if binomial {
                let divided = value.div(&Value::real(R::integer(i + 1)), p);
                value = divided.ok_or(Stop::Unknown)?;
            }
        }
        Ok(value)
    }

    fn remainder(
        &mut self,
        x: &Value<R>,
        written: &Expr,
        modulus: &Value<R>,
        below: &Expr,
    ) -> Result<Value<R>> {
        let (x, m) = (real(x)?, real(modulus)?);
        if modulus.is_zero() {
            return Err(Stop::Undefined);
        }
        if m.sign() != Some(Ordering::Greater) {
            return Err(Stop::Unknown);
        }
        let p = self.p;
        if let (Some(x), Some(m)) = (x.whole(), m.whole()) {
            self.operation()?;
            return Ok(self.whole_value(&x.mod_floor(&m)));
        }
        if let Some(times) = x.div(m, p).and_then(|times| times.floor()) {
            self.operation()?;
            let whole = R::ratio(&-times, &1.into(), p);
            return Ok(Value::real(x.add(&whole.mul(m, p), p)));
        }
        let (Some(x), Some(m)) = (self.exact(written)?, self.exact(below)?) else {
            return Err(Stop::Unknown);
        };
        self.budget.spend(1000)?;
        let rest: BigRational = &x - &m * (&x / &m).floor();
        Ok(Value::real(R::ratio(rest.numer(), rest.denom(), p)))
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
        total.map(|total| self.whole_value(&total)).ok_or(Stop::Undefined)
    }

    fn extreme(&mut self, function: Function, arguments: &'e [Expr]) -> Result<Value<R>> {
        let p = self.p;
        let wanted = if function == Function::Max { Ordering::Greater } else { Ordering::Less };
        let mut best: Option<R> = None;
        for argument in arguments {
            let value = self.eval(argument)?;
            let x = real(&value)?.clone();
            self.operation()?;
            best = Some(match best {
                None => x,
                Some(best) => match x.add(&best.clone().neg(), p).sign() {
                    Some(order) if order == wanted => x,
                    Some(_) => best,
                    None => best.hull(&x, p),
                },
            });
        }
        best.map(Value::real).ok_or(Stop::Undefined)
    }

    fn values_are_real(&mut self, written: &Expr) -> Result<bool> {
        Ok(!self.is_constant(written)?)
    }
}

fn real<R: Real>(value: &Value<R>) -> Result<&R> {
    value.as_real().ok_or(Stop::Unknown)
}

/// The coefficients of Stirling's series: `B(2k)/(2k(2k−1))` for k = 1, 2, ….
const STIRLING: [(i64, i64); 10] = [
    (1, 12),
    (-1, 360),
    (1, 1260),
    (-1, 1680),
    (1, 1188),
    (-691, 360_360),
    (1, 156),
    (-3617, 122_400),
    (43_867, 244_188),
    (-174_611, 125_400),
];
