//! Real numbers of any precision, each with a bound on its error.

mod elementary;
mod fixed;
mod magnitude;
mod square_root;

use std::cmp::Ordering;

use num_bigint::{BigInt, BigUint, Sign};
use num_traits::{One, Signed, Zero};

use super::numeric::real::{Cost, Real};
use magnitude::{Magnitude, leading};
use square_root::square_root;

/// All reals within `rad` units of `mid` units, where a unit is `2^exp`.
///
/// The radius is counted in units of the midpoint's last place, so that digits below the error are
/// never carried along: a ball that lost precision by cancellation is also cheaper to go on with. A
/// ball of radius zero is its number exactly, and operations keep it so wherever the result fits into
/// the precision.
#[derive(Clone, Debug)]
pub(crate) struct Ball {
    mid: BigInt,
    rad: u64,
    exp: i64,
}

/// Numbers of at least `2^LIMIT` are not followed: their ball is the whole line. Those of less than
/// `2^-LIMIT` become a ball about zero.
const LIMIT: i64 = 1 << 48;

/// Elementary functions are computed to this precision at most; arithmetic and roots, to any.
const PRECISION: u32 = 1100;

impl Ball {
    fn exact(mid: BigInt, exp: i64) -> Ball {
        Ball { mid, rad: 0, exp }
    }

    /// The whole line. Every operation on it gives the whole line or a bounded function's range.
    fn everything() -> Ball {
        Ball { mid: BigInt::zero(), rad: 1, exp: 2 * LIMIT }
    }

    fn is_everything(&self) -> bool {
        self.exp > LIMIT
    }

    /// `mid·2^exp` with an error of at most `rad`, to `p` bits. Bits below the error are cut.
    fn rounded(mut mid: BigInt, mut exp: i64, mut rad: Magnitude, p: u32) -> Ball {
        let bits = mid.bits() as i64;
        let noise = if rad.is_zero() { i64::MIN } else { rad.exp() - exp };
        let cut = (bits - i64::from(p)).max(noise);
        if cut > 0 {
            let zeros = mid.trailing_zeros().map_or(i64::MAX, |zeros| zeros as i64);
            mid = if cut > bits { BigInt::zero() } else { mid >> cut };
            exp += cut;
            if zeros < cut {
                rad = rad + Magnitude::power_of_two(exp);
            }
        }
        if mid.is_zero() && rad.is_zero() {
            return Ball::exact(mid, 0);
        }
        if !rad.is_zero() && rad.exp() < exp {
            // A short number gets the digits that its error has, or it would be rounded up to a unit.
            let finest = if mid.is_zero() { rad.exp() } else { exp + bits - i64::from(p) };
            let fill = exp - rad.exp().max(finest);
            if fill > 0 {
                mid <<= fill;
                exp -= fill;
            }
        }
        let top = (exp + mid.bits() as i64).max(rad.top());
        if top > LIMIT {
            return Ball::everything();
        }
        if top < -LIMIT {
            return Ball { mid: BigInt::zero(), rad: 1, exp: -LIMIT };
        }
        Ball { mid, rad: rad.units(exp), exp }
    }

    fn radius(&self) -> Magnitude {
        Magnitude::new(self.rad, self.exp)
    }

    /// At least the absolute value of the midpoint.
    fn size(&self) -> Magnitude {
        Magnitude::above(self.mid.magnitude(), self.exp)
    }

    /// At most the absolute value of the midpoint.
    fn least(&self) -> Magnitude {
        Magnitude::below(self.mid.magnitude(), self.exp)
    }

    /// The ends, in units.
    fn ends(&self) -> (BigInt, BigInt) {
        (&self.mid - self.rad, &self.mid + self.rad)
    }

    /// The smallest ball around two numbers in units of `2^exp`.
    fn between(low: BigInt, high: BigInt, exp: i64, p: u32) -> Ball {
        let rad = Magnitude::above((&high - &low).magnitude(), exp - 1);
        Ball::rounded(low + high, exp - 1, rad, p)
    }

    /// This number's ball with a further error.
    fn widened(self, error: Magnitude, p: u32) -> Ball {
        if self.is_everything() {
            return self;
        }
        let rad = self.radius() + error;
        Ball::rounded(self.mid, self.exp, rad, p)
    }

    /// The midpoint in units of `2^exp`, rounded down.
    fn scaled(&self, exp: i64) -> BigInt {
        let shift = self.exp - exp;
        if shift >= 0 {
            &self.mid << shift
        } else if -shift > self.mid.bits() as i64 {
            BigInt::from(if self.mid.is_negative() { -1 } else { 0 })
        } else {
            &self.mid >> -shift
        }
    }

    /// Every number lies below `2^top` in size.
    fn top(&self) -> i64 {
        if self.mid.is_zero() && self.rad == 0 {
            return -LIMIT;
        }
        self.exp + (self.mid.bits() as i64).max(64 - i64::from(self.rad.leading_zeros())) + 1
    }
}

impl Real for Ball {
    fn integer(n: i64) -> Ball {
        Ball::exact(BigInt::from(n), 0)
    }

    fn ratio(numer: &BigInt, denom: &BigInt, p: u32) -> Ball {
        if denom.is_one() {
            return Ball::rounded(numer.clone(), 0, Magnitude::ZERO, p);
        }
        quotient(numer, denom, 0, p)
    }

    fn pi(p: u32) -> Ball {
        let fraction = p.min(PRECISION) + 4;
        Ball::rounded(fixed::pi(fraction), -i64::from(fraction), fixed::unit(fraction), p)
    }

    fn neg(mut self) -> Ball {
        self.mid = -self.mid;
        self
    }

    fn add(&self, other: &Ball, p: u32) -> Ball {
        if self.is_everything() || other.is_everything() {
            return Ball::everything();
        }
        if self.mid.is_zero() && self.rad == 0 {
            return other.clone();
        }
        if other.mid.is_zero() && other.rad == 0 {
            return self.clone();
        }
        let head = |ball: &Ball| ball.exp + ball.mid.bits() as i64;
        let noise = |ball: &Ball| if ball.rad == 0 { i64::MIN } else { ball.exp };
        let wanted = head(self).max(head(other)) - i64::from(p) - 4;
        let exp = self.exp.min(other.exp).max(wanted).max(noise(self)).max(noise(other));
        let mut rad = self.radius() + other.radius();
        for ball in [self, other] {
            let lost = exp - ball.exp;
            if lost > 0 && ball.mid.trailing_zeros().is_some_and(|zeros| (zeros as i64) < lost) {
                rad = rad + Magnitude::power_of_two(exp);
            }
        }
        Ball::rounded(self.scaled(exp) + other.scaled(exp), exp, rad, p)
    }

    fn mul(&self, other: &Ball, p: u32) -> Ball {
        let zero = |ball: &Ball| ball.mid.is_zero() && ball.rad == 0;
        if zero(self) || zero(other) {
            return Ball::integer(0);
        }
        if self.is_everything() || other.is_everything() {
            return Ball::everything();
        }
        let mut rad = Magnitude::ZERO;
        if self.rad | other.rad != 0 {
            let (own, others) = (self.radius(), other.radius());
            rad = self.size() * others + other.size() * own + own * others;
        }
        Ball::rounded(&self.mid * &other.mid, self.exp + other.exp, rad, p)
    }

    fn div(&self, other: &Ball, p: u32) -> Option<Ball> {
        other.sign().filter(|sign| sign.is_ne())?;
        if self.is_everything() {
            return Some(Ball::everything());
        }
        let exact = quotient(&self.mid, &other.mid, self.exp - other.exp, p);
        if self.rad | other.rad == 0 {
            return Some(exact);
        }
        let least = Magnitude::below(&(other.mid.magnitude() - other.rad), other.exp);
        let error = (exact.size() + exact.radius()) * other.radius() + self.radius();
        Some(exact.widened(error.over(least), p))
    }

    fn sqrt(&self, p: u32) -> Ball {
        if self.is_everything() {
            return Ball::everything();
        }
        let (low, high) = self.ends();
        if !high.is_positive() {
            return Ball::integer(0);
        }
        if self.rad > 0 && !low.is_positive() {
            let top = Ball::exact(high, self.exp).sqrt(p);
            let end = &top.mid + top.rad;
            return Ball::between(BigInt::zero(), end, top.exp, p);
        }
        // The radicand gets twice the bits that the root shall have, and an even exponent.
        let wanted = (2 * i64::from(p) + 2 - self.mid.bits() as i64).max(0);
        let shift = wanted + ((self.exp - wanted) & 1);
        let (root, rest) = square_root(self.mid.magnitude() << shift);
        let exp = (self.exp - shift) / 2;
        let mut rad = Magnitude::ZERO;
        if self.rad > 0 {
            rad = self.radius().over(Magnitude::below(&root, exp));
        }
        if !rest.is_zero() {
            rad = rad + Magnitude::power_of_two(exp);
        }
        Ball::rounded(BigInt::from(root), exp, rad, p)
    }

    fn root(&self, degree: u32, p: u32) -> Ball {
        if degree == 2 {
            return self.sqrt(p);
        }
        if self.rad == 0 && self.exp >= 0 && self.top() < 256 && self.mid.is_positive() {
            let whole = self.scaled(0);
            let root = whole.nth_root(degree);
            if root.pow(degree) == whole {
                return Ball::exact(root, 0);
            }
        }
        match self.sign() {
            Some(Ordering::Greater) => {
                let part = |ball: &Ball| {
                    ball.ln(p + 16).and_then(|ln| ln.div(&Ball::integer(degree.into()), p + 16))
                };
                part(self).map_or_else(Ball::everything, |ln| ln.exp(p))
            }
            Some(_) => Ball::integer(0),
            None => {
                let top = Ball::exact(self.ends().1, self.exp);
                if top.sign() != Some(Ordering::Greater) {
                    return Ball::integer(0);
                }
                Ball::integer(0).hull(&top.root(degree, p), p)
            }
        }
    }

    fn exp(&self, p: u32) -> Ball {
        elementary::exp(self, p.min(PRECISION))
    }

    fn ln(&self, p: u32) -> Option<Ball> {
        elementary::ln(self, p.min(PRECISION))
    }

    fn sin_cos(&self, p: u32) -> (Ball, Ball) {
        elementary::sin_cos(self, p.min(PRECISION))
    }

    fn angle(y: &Ball, x: &Ball, p: u32) -> Option<Ball> {
        elementary::angle(y, x, p.min(PRECISION))
    }

    fn sinh(&self, p: u32) -> Ball {
        elementary::sinh(self, p.min(PRECISION))
    }

    fn sign(&self) -> Option<Ordering> {
        if self.mid.bits() <= 64 && self.mid.magnitude() <= &BigUint::from(self.rad) {
            return (self.rad == 0).then_some(Ordering::Equal);
        }
        Some(if self.mid.sign() == Sign::Minus { Ordering::Less } else { Ordering::Greater })
    }

    fn abs(&self, p: u32) -> Ball {
        match self.sign() {
            Some(Ordering::Less) => self.clone().neg(),
            Some(_) => self.clone(),
            None if self.is_everything() => self.clone(),
            None => {
                let (low, high) = self.ends();
                Ball::between(BigInt::zero(), high.max(-low), self.exp, p)
            }
        }
    }

    fn hull(&self, other: &Ball, p: u32) -> Ball {
        let apart = self.add(&other.clone().neg(), p);
        if self.is_everything() || apart.is_everything() {
            return Ball::everything();
        }
        self.clone().widened(apart.size() + apart.radius() + other.radius(), p)
    }

    fn around_zero(&self, p: u32) -> Ball {
        if self.is_everything() {
            return self.clone();
        }
        Ball::rounded(BigInt::zero(), 0, self.size() + self.radius(), p)
    }

    fn floor(&self) -> Option<BigInt> {
        if self.top() > 1 << 14 {
            return None;
        }
        let (low, high) = self.ends();
        let cell = |end: BigInt| Ball::exact(end, self.exp).scaled(0);
        let low = cell(low);
        (low == cell(high)).then_some(low)
    }

    fn whole(&self) -> Option<BigInt> {
        let whole = self.floor().filter(|_| self.rad == 0)?;
        (self.exp >= 0 || &whole << -self.exp == self.mid).then_some(whole)
    }

    fn log2(&self) -> i64 {
        self.top()
    }

    fn cost(p: u32) -> Cost {
        let limbs = u64::from(p.div_ceil(64)) + 1;
        let square = limbs * limbs;
        Cost {
            operation: 10 + square,
            root: 100 + 4 * square,
            elementary: 1500 + (20 + 3 * limbs) * square,
        }
    }
}

fn quotient(numer: &BigInt, denom: &BigInt, exp: i64, p: u32) -> Ball {
    let shift = (i64::from(p) + 2 + denom.bits() as i64 - numer.bits() as i64).max(0);
    let shifted = numer << shift;
    let whole = &shifted / denom;
    let exact = &whole * denom == shifted;
    let rad = if exact { Magnitude::ZERO } else { Magnitude::power_of_two(exp - shift) };
    Ball::rounded(whole, exp - shift, rad, p)
}

impl Ball {
    /// The midpoint near enough for a first guess, as `m·2^e` with `1 ≤ m < 2` or zero.
    fn guess(&self) -> (f64, i64) {
        let (top, shift) = leading(self.mid.magnitude());
        if top == 0 {
            return (0.0, 0);
        }
        let bits = 63 - i64::from(top.leading_zeros());
        let size = top as f64 / 2f64.powi(bits as i32);
        (if self.mid.is_negative() { -size } else { size }, shift + bits + self.exp)
    }

    /// The `d` for which the midpoint is at least `10^d` and less than `10^(d+1)` in size. None for
    /// zero and for astronomical numbers.
    pub(crate) fn decade(&self) -> Option<i64> {
        let (m, e) = self.guess();
        if m == 0.0 || e.abs() > 1 << 12 {
            return None;
        }
        let near = (e as f64 * std::f64::consts::LOG10_2).floor() as i64;
        let reaches = |decade: i64| {
            let power = BigUint::from(10u32).pow(decade.unsigned_abs() as u32);
            let (mut size, mut bound) = (self.mid.magnitude().clone(), BigUint::one());
            if decade < 0 {
                size *= power
            } else {
                bound = power
            }
            if self.exp < 0 {
                bound <<= -self.exp
            } else {
                size <<= self.exp
            }
            size >= bound
        };
        (near - 1..=near + 1).rev().find(|decade| reaches(*decade))
    }
}

#[cfg(test)]
mod tests;
