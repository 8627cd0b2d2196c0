//! The operations of the trait `Real` on balls.

use std::cmp::Ordering;

use num_bigint::{BigInt, BigUint, Sign};
use num_traits::{One, Signed, Zero};

use super::{Ball, PRECISION, elementary, fixed, magnitude::Magnitude, square_root::square_root};
use crate::algebra::real::{Cost, Real};

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
        // The radicand gets twice the bits that the root is to have, and an even exponent.
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
