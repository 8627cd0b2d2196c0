//! Real numbers of any precision, each with a bound on its error.

mod elementary;
mod fixed;
mod magnitude;
mod real;
mod square_root;

use num_bigint::{BigInt, BigUint};
use num_traits::{One, Signed, Zero};

use magnitude::{Magnitude, leading};

/// All reals within `rad` units of `mid` units; a unit is `2^exp`.
///
/// The radius is counted in units of the midpoint's last place, so digits below the error are never carried along.
/// A ball that lost precision by cancellation is therefore also cheaper to continue with. A ball of radius zero is
/// its number exactly, and operations keep it exact if the result fits into the precision.
#[derive(Clone, Debug)]
pub(crate) struct Ball {
    mid: BigInt,
    rad: u64,
    exp: i64,
}

/// Numbers of at least `2^LIMIT` are not followed: their ball is the real line. Numbers of less than `2^-LIMIT`
/// become a ball about zero.
const LIMIT: i64 = 1 << 48;

/// Highest precision of elementary functions. Arithmetic and roots have no such limit.
const PRECISION: u32 = 1100;

impl Ball {
    fn exact(mid: BigInt, exp: i64) -> Ball {
        Ball { mid, rad: 0, exp }
    }

    /// Returns the real line. Every operation on it returns the line again, or a bounded function's range.
    fn everything() -> Ball {
        Ball { mid: BigInt::zero(), rad: 1, exp: 2 * LIMIT }
    }

    fn is_everything(&self) -> bool {
        self.exp > LIMIT
    }

    /// Builds the ball of `mid·2^exp` with an error of at most `rad`, to `prec` bits. Bits below the error are dropped.
    fn rounded(mut mid: BigInt, mut exp: i64, mut rad: Magnitude, prec: u32) -> Ball {
        let bits = mid.bits() as i64;
        let noise = if rad.is_zero() { i64::MIN } else { rad.exp() - exp };
        // Bits beyond the precision are dropped, and so are bits below the error.
        let cut = (bits - i64::from(prec)).max(noise);

        if cut > 0 {
            let zeros = mid.trailing_zeros().map_or(i64::MAX, |zeros| zeros as i64);
            mid = if cut > bits { BigInt::zero() } else { mid >> cut };
            exp += cut;
            // Unless all bits that were cut are zero, the midpoint is up to one unit too low.
            if zeros < cut {
                rad = rad + Magnitude::power_of_two(exp);
            }
        }

        if mid.is_zero() && rad.is_zero() {
            return Ball::exact(mid, 0);
        }

        if !rad.is_zero() && rad.exp() < exp {
            // A short midpoint is extended to the digits of its error, which would otherwise be rounded up to a
            // whole unit.
            let finest = if mid.is_zero() { rad.exp() } else { exp + bits - i64::from(prec) };
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

    /// Returns a number of at least the midpoint's absolute value.
    fn size(&self) -> Magnitude {
        Magnitude::above(self.mid.magnitude(), self.exp)
    }

    /// Returns a number of at most the midpoint's absolute value.
    fn least(&self) -> Magnitude {
        Magnitude::below(self.mid.magnitude(), self.exp)
    }

    /// Returns the ends, in units.
    fn ends(&self) -> (BigInt, BigInt) {
        (&self.mid - self.rad, &self.mid + self.rad)
    }

    /// Returns the smallest ball around two numbers in units of `2^exp`.
    fn between(low: BigInt, high: BigInt, exp: i64, prec: u32) -> Ball {
        // The midpoint is a half of the sum, so the unit is halved instead.
        let rad = Magnitude::above((&high - &low).magnitude(), exp - 1);
        Ball::rounded(low + high, exp - 1, rad, prec)
    }

    /// Adds a further error to this ball.
    fn widened(self, error: Magnitude, prec: u32) -> Ball {
        if self.is_everything() {
            return self;
        }

        let rad = self.radius() + error;
        Ball::rounded(self.mid, self.exp, rad, prec)
    }

    /// Returns the midpoint in units of `2^exp`, rounded down.
    fn scaled(&self, exp: i64) -> BigInt {
        let shift = self.exp - exp;
        if shift >= 0 {
            &self.mid << shift
        } else if -shift > self.mid.bits() as i64 {
            // No bit is left, and rounding down turns a negative number into −1.
            BigInt::from(if self.mid.is_negative() { -1 } else { 0 })
        } else {
            &self.mid >> -shift
        }
    }

    /// Returns a `top` such that every number in the ball is below `2^top` in absolute value.
    fn top(&self) -> i64 {
        if self.mid.is_zero() && self.rad == 0 {
            return -LIMIT;
        }
        self.exp + (self.mid.bits() as i64).max(64 - i64::from(self.rad.leading_zeros())) + 1
    }
}

impl Ball {
    /// Returns the midpoint, near enough for a first guess, as `m·2^e` with `1 ≤ m < 2` or zero.
    fn guess(&self) -> (f64, i64) {
        let (top, shift) = leading(self.mid.magnitude());
        if top == 0 {
            return (0.0, 0);
        }
        let bits = 63 - i64::from(top.leading_zeros());
        let size = top as f64 / 2f64.powi(bits as i32);
        (if self.mid.is_negative() { -size } else { size }, shift + bits + self.exp)
    }

    /// Returns the `d` for which the midpoint is at least `10^d` and less than `10^(d+1)` in size, or `None` for
    /// zero and for astronomical numbers.
    pub(crate) fn decade(&self) -> Option<i64> {
        let (m, e) = self.guess();
        if m == 0.0 || e.abs() > 1 << 12 {
            return None;
        }

        // The guess may be off by one next to a power of ten, so its neighbours are tried too.
        let estimate = (e as f64 * std::f64::consts::LOG10_2).floor() as i64;
        let reaches = |decade: i64| {
            let power = BigUint::from(10u32).pow(decade.unsigned_abs() as u32);

            let mut size = self.mid.magnitude().clone();
            let mut bound = BigUint::one();

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

        (estimate - 1..=estimate + 1).rev().find(|decade| reaches(*decade))
    }
}

#[cfg(test)]
mod tests;
