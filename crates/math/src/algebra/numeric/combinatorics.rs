//! Factorials and binomial coefficients.

use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive};

use super::{
    evaluate::{EnclosureError, Evaluator, Result},
    value::Value,
};
use crate::algebra::real::Real;

/// Maximum number of factors of a factorial or binomial that are multiplied out. Beyond that, Stirling's formula is
/// used.
const FACTORS: u64 = 1000;

/// Coefficients of Stirling's series: `B(2k)/(2k(2k−1))` for k = 1, 2, ….
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

impl<R: Real> Evaluator<'_, '_, R> {
    /// Computes the product of every `step`-th number from `from` to `to`.
    fn product(&mut self, from: u64, to: u64, step: usize) -> Result<Value<R>> {
        let mut product = R::integer(1);
        for factor in (from..=to).step_by(step) {
            self.operation()?;
            product = product.mul(&R::integer(factor as i64), self.prec);
        }
        Ok(Value::real(product))
    }

    pub(super) fn factorial(&mut self, n: u64) -> Result<Value<R>> {
        if n <= FACTORS { self.product(2, n, 1) } else { self.stirling(n) }
    }

    /// Computes `n! = e^(n ln n − n + ln(2πn)/2 + 1/12n − 1/360n³ + …)`. The series is off by less than the first
    /// term that is left out.
    fn stirling(&mut self, n: u64) -> Result<Value<R>> {
        self.elementary()?;
        self.elementary()?;
        self.elementary()?;

        // The exponential loses as many digits as the sum has before its point.
        let prec = self.prec + 64;
        let x = R::integer(n as i64);
        let inverse = R::integer(1).div(&x, prec).ok_or(EnclosureError::Unknown)?;
        let square = inverse.mul(&inverse, prec);
        let log = x.ln(prec).ok_or(EnclosureError::Unknown)?;
        let turn = R::pi(prec)
            .mul(&x, prec)
            .mul(&R::integer(2), prec)
            .ln(prec)
            .ok_or(EnclosureError::Unknown)?;
        let half = turn.div(&R::integer(2), prec).ok_or(EnclosureError::Unknown)?;
        let mut sum = x.mul(&log, prec).add(&x.neg(), prec).add(&half, prec);

        let mut power = inverse;
        for (k, (numer, denom)) in STIRLING.into_iter().enumerate() {
            self.operation()?;
            let term = R::ratio(&numer.into(), &denom.into(), prec).mul(&power, prec);
            let last = k + 1 == STIRLING.len();
            sum = sum.add(&if last { term.around_zero(prec) } else { term }, prec);
            power = power.mul(&square, prec);
        }

        Ok(Value::real(sum.exp(prec)))
    }

    pub(super) fn double_factorial(&mut self, n: u64) -> Result<Value<R>> {
        if n <= 2 * FACTORS {
            return self.product(if n.is_multiple_of(2) { 2 } else { 1 }, n, 2);
        }

        // (2m)!! = 2^m·m!, and (2m+1)!! = (2m+1)!/(2m)!!.
        let half = n / 2;
        self.elementary()?;
        let log = R::integer(2).ln(self.prec + 64).ok_or(EnclosureError::Unknown)?;
        let power = log.mul(&R::integer(half as i64), self.prec + 64).exp(self.prec);
        let even = self.factorial(half)?.mul(&Value::real(power), self.prec);

        if n.is_multiple_of(2) {
            return Ok(even);
        }
        self.factorial(n)?.div(&even, self.prec).ok_or(EnclosureError::Unknown)
    }

    /// Computes `n(n−1)…(n−k+1)`, divided by `k!` for binomials.
    pub(super) fn choices(
        &mut self,
        binomial: bool,
        x: &Value<R>,
        n: Option<BigInt>,
        k: &BigInt,
    ) -> Result<Value<R>> {
        let natural = n.as_ref().filter(|n| !n.is_negative());
        if k.is_negative() {
            return natural.map(|_| Value::real(R::integer(0))).ok_or(EnclosureError::Unknown);
        }
        if natural.is_some_and(|n| n < k) {
            return Ok(Value::real(R::integer(0)));
        }

        // C(n, k) = C(n, n−k), and the smaller k is less work.
        let mirrored = natural.filter(|n| binomial && k + k > **n).map(|n| n - k);
        let k = mirrored.as_ref().unwrap_or(k).to_u64().ok_or(EnclosureError::Unknown)?;

        let prec = self.prec;
        if k > FACTORS {
            let n = natural
                .and_then(|n| n.to_u64())
                .filter(|n| *n < 1 << 53)
                .ok_or(EnclosureError::Unknown)?;
            // There are too many factors to multiply, but not for Stirling's formula.
            let mut denom = self.factorial(n - k)?;
            if binomial {
                denom = denom.mul(&self.factorial(k)?, prec);
            }
            return self.factorial(n)?.div(&denom, prec).ok_or(EnclosureError::Unknown);
        }

        let mut value = Value::real(R::integer(1));
        for i in 0..k as i64 {
            self.operation()?;
            self.operation()?;
            value = value.mul(&x.add(&Value::real(R::integer(-i)), prec), prec);
            if binomial {
                let divided = value.div(&Value::real(R::integer(i + 1)), prec);
                value = divided.ok_or(EnclosureError::Unknown)?;
            }
        }

        Ok(value)
    }
}
