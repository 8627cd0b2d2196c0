//! Operations of the trait `Real` on balls.

use std::cmp::Ordering;

use num_bigint::{BigInt, BigUint, Sign};
use num_traits::{One, Signed, Zero};

use super::{Ball, PRECISION, elementary, fixed, magnitude::Magnitude, square_root::square_root};
use crate::algebra::real::{Cost, Real};

impl Real for Ball {
    fn integer(n: i64) -> Ball {
        Ball::exact(BigInt::from(n), 0)
    }

    fn ratio(numer: &BigInt, denom: &BigInt, prec: u32) -> Ball {
        if denom.is_one() {
            return Ball::rounded(numer.clone(), 0, Magnitude::ZERO, prec);
        }
        quotient(numer, denom, 0, prec)
    }

    fn pi(prec: u32) -> Ball {
        let fraction = prec.min(PRECISION) + 4;
        Ball::rounded(fixed::pi(fraction), -i64::from(fraction), fixed::unit(fraction), prec)
    }

    fn neg(mut self) -> Ball {
        self.mid = -self.mid;
        self
    }

    fn add(&self, other: &Ball, prec: u32) -> Ball {
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
        // Digits beyond the precision, or below the error of either ball, are dropped.
        let wanted = head(self).max(head(other)) - i64::from(prec) - 4;
        let exp = self.exp.min(other.exp).max(wanted).max(noise(self)).max(noise(other));

        let mut rad = self.radius() + other.radius();
        for ball in [self, other] {
            let lost = exp - ball.exp;
            // Unless all digits that are cut are zero, the sum is off by less than another unit.
            if lost > 0 && ball.mid.trailing_zeros().is_some_and(|zeros| (zeros as i64) < lost) {
                rad = rad + Magnitude::power_of_two(exp);
            }
        }

        Ball::rounded(self.scaled(exp) + other.scaled(exp), exp, rad, prec)
    }

    fn mul(&self, other: &Ball, prec: u32) -> Ball {
        let zero = |ball: &Ball| ball.mid.is_zero() && ball.rad == 0;
        if zero(self) || zero(other) {
            return Ball::integer(0);
        }
        if self.is_everything() || other.is_everything() {
            return Ball::everything();
        }

        let mut rad = Magnitude::ZERO;
        if self.rad | other.rad != 0 {
            // (a ± r)(b ± s) is within |a|s + |b|r + rs of ab.
            let own = self.radius();
            let others = other.radius();
            rad = self.size() * others + other.size() * own + own * others;
        }

        Ball::rounded(&self.mid * &other.mid, self.exp + other.exp, rad, prec)
    }

    fn div(&self, other: &Ball, prec: u32) -> Option<Ball> {
        other.sign().filter(|sign| sign.is_ne())?;
        if self.is_everything() {
            return Some(Ball::everything());
        }

        let exact = quotient(&self.mid, &other.mid, self.exp - other.exp, prec);
        if self.rad | other.rad == 0 {
            return Some(exact);
        }

        // (a ± r)/(b ± s) is within (|a/b|·s + r)/(|b| − s) of a/b.
        let least = Magnitude::below(&(other.mid.magnitude() - other.rad), other.exp);
        let error = (exact.size() + exact.radius()) * other.radius() + self.radius();
        Some(exact.widened(error.over(least), prec))
    }

    fn sqrt(&self, prec: u32) -> Ball {
        if self.is_everything() {
            return Ball::everything();
        }

        let (low, high) = self.ends();
        if !high.is_positive() {
            return Ball::integer(0);
        }
        // The root of a ball that reaches below zero spans everything from zero to the root of its upper end.
        if self.rad > 0 && !low.is_positive() {
            let top = Ball::exact(high, self.exp).sqrt(prec);
            let end = &top.mid + top.rad;
            return Ball::between(BigInt::zero(), end, top.exp, prec);
        }

        // The radicand is extended to twice the root's bits, and to an even exponent.
        let wanted = (2 * i64::from(prec) + 2 - self.mid.bits() as i64).max(0);
        let shift = wanted + ((self.exp - wanted) & 1);
        let (root, rest) = square_root(self.mid.magnitude() << shift);
        let exp = (self.exp - shift) / 2;

        let mut rad = Magnitude::ZERO;
        // √(x ± r) is within r/√x of √x.
        if self.rad > 0 {
            rad = self.radius().over(Magnitude::below(&root, exp));
        }
        if !rest.is_zero() {
            rad = rad + Magnitude::power_of_two(exp);
        }

        Ball::rounded(BigInt::from(root), exp, rad, prec)
    }

    fn root(&self, degree: u32, prec: u32) -> Ball {
        if degree == 2 {
            return self.sqrt(prec);
        }

        if self.rad == 0 && self.exp >= 0 && self.top() < 256 && self.mid.is_positive() {
            // Perfect powers stay exact.
            let whole = self.scaled(0);
            let root = whole.nth_root(degree);
            if root.pow(degree) == whole {
                return Ball::exact(root, 0);
            }
        }

        match self.sign() {
            Some(Ordering::Greater) => {
                let part = |ball: &Ball| {
                    ball.ln(prec + 16)
                        .and_then(|ln| ln.div(&Ball::integer(degree.into()), prec + 16))
                };
                part(self).map_or_else(Ball::everything, |ln| ln.exp(prec))
            }
            Some(_) => Ball::integer(0),
            None => {
                let top = Ball::exact(self.ends().1, self.exp);
                if top.sign() != Some(Ordering::Greater) {
                    return Ball::integer(0);
                }
                Ball::integer(0).hull(&top.root(degree, prec), prec)
            }
        }
    }

    fn exp(&self, prec: u32) -> Ball {
        elementary::exp(self, prec.min(PRECISION))
    }

    fn ln(&self, prec: u32) -> Option<Ball> {
        elementary::ln(self, prec.min(PRECISION))
    }

    fn sin_cos(&self, prec: u32) -> (Ball, Ball) {
        elementary::sin_cos(self, prec.min(PRECISION))
    }

    fn angle(y: &Ball, x: &Ball, prec: u32) -> Option<Ball> {
        elementary::angle(y, x, prec.min(PRECISION))
    }

    fn sinh(&self, prec: u32) -> Ball {
        elementary::sinh(self, prec.min(PRECISION))
    }

    fn sign(&self) -> Option<Ordering> {
        // A ball whose radius reaches its midpoint holds zero.
        if self.mid.bits() <= 64 && self.mid.magnitude() <= &BigUint::from(self.rad) {
            return (self.rad == 0).then_some(Ordering::Equal);
        }
        Some(if self.mid.sign() == Sign::Minus { Ordering::Less } else { Ordering::Greater })
    }

    fn abs(&self, prec: u32) -> Ball {
        match self.sign() {
            Some(Ordering::Less) => self.clone().neg(),
            Some(_) => self.clone(),
            None if self.is_everything() => self.clone(),
            None => {
                let (low, high) = self.ends();
                Ball::between(BigInt::zero(), high.max(-low), self.exp, prec)
            }
        }
    }

    fn hull(&self, other: &Ball, prec: u32) -> Ball {
        let apart = self.add(&other.clone().neg(), prec);
        if self.is_everything() || apart.is_everything() {
            return Ball::everything();
        }
        // The midpoint stays, and the radius grows until it covers the other ball.
        self.clone().widened(apart.size() + apart.radius() + other.radius(), prec)
    }

    fn around_zero(&self, prec: u32) -> Ball {
        if self.is_everything() {
            return self.clone();
        }
        Ball::rounded(BigInt::zero(), 0, self.size() + self.radius(), prec)
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

    fn cost(prec: u32) -> Cost {
        let limbs = u64::from(prec.div_ceil(64)) + 1;
        let square = limbs * limbs;
        Cost {
            operation: 10 + square,
            root: 100 + 4 * square,
            elementary: 1500 + (20 + 3 * limbs) * square,
        }
    }
}

fn quotient(numer: &BigInt, denom: &BigInt, exp: i64, prec: u32) -> Ball {
    let shift = (i64::from(prec) + 2 + denom.bits() as i64 - numer.bits() as i64).max(0);
    let shifted = numer << shift;
    let whole = &shifted / denom;
    let exact = &whole * denom == shifted;
    let rad = if exact { Magnitude::ZERO } else { Magnitude::power_of_two(exp - shift) };
    Ball::rounded(whole, exp - shift, rad, prec)
}
