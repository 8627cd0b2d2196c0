//! Real numbers to the precision of floats. They are fast, and enough to tell most numbers apart.

use std::cmp::Ordering;
use std::f64::consts;

use num_bigint::{BigInt, BigUint, Sign};
use num_traits::ToPrimitive;

use super::real::{Cost, Real};

/// All reals between two floats, ends included. An infinite end means numbers too large for a float, not infinity
/// itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    low: f64,
    high: f64,
}

/// Error assumed of a library's function, relative to its result: 32 units in the last place. The error of every
/// platform's mathematical library is far smaller, so all platforms reach the same verdict, except for numbers that
/// only more digits can tell apart.
const SLACK: f64 = 32.0 * f64::EPSILON;

/// Integers up to this bound are exact, and so are their sums and products up to it.
const EXACT: f64 = (1u64 << 53) as f64;

const LINE: Interval = Interval { low: f64::NEG_INFINITY, high: f64::INFINITY };

impl Interval {
    fn point(value: f64) -> Interval {
        Interval { low: value, high: value }
    }

    /// Moves bounds outwards that were rounded to nearest.
    fn outward(low: f64, high: f64) -> Interval {
        if low.is_nan() || high.is_nan() {
            return LINE;
        }
        Interval { low: low.next_down(), high: high.next_up() }
    }

    /// Moves bounds from a library outwards by more than the library's error.
    fn slack(low: f64, high: f64) -> Interval {
        let low = low - low.abs().min(f64::MAX) * SLACK;
        let high = high + high.abs().min(f64::MAX) * SLACK;
        Interval::outward(low, high)
    }

    /// Limits the interval to a range in which the true value is known to lie.
    fn clamped(self, low: f64, high: f64) -> Interval {
        Interval { low: self.low.clamp(low, high), high: self.high.clamp(low, high) }
    }

    fn is_point(self) -> bool {
        self.low == self.high
    }

    fn is_whole(self) -> bool {
        self.is_point() && self.low.abs() <= EXACT && self.low as i64 as f64 == self.low
    }

    /// Multiplies two ends into a bound of a product. Infinity is only a large number here, so 0·∞ is 0.
    fn product(a: f64, b: f64) -> f64 {
        if a == 0.0 || b == 0.0 { 0.0 } else { a * b }
    }

    fn corners(self, other: Interval, combine: impl Fn(f64, f64) -> f64) -> Interval {
        // Products and quotients take their extremes at the ends of both intervals.
        let first = [combine(self.low, other.low), combine(self.low, other.high)];
        let second = [combine(self.high, other.low), combine(self.high, other.high)];
        let low = first[0].min(first[1]).min(second[0].min(second[1]));
        let high = first[0].max(first[1]).max(second[0].max(second[1]));

        if first.iter().chain(&second).any(|corner| corner.is_nan()) {
            return LINE;
        }
        Interval::outward(low, high)
    }
}

impl Real for Interval {
    fn integer(n: i64) -> Interval {
        let value = n as f64;
        if value.abs() <= EXACT { Interval::point(value) } else { Interval::outward(value, value) }
    }

    fn ratio(numer: &BigInt, denom: &BigInt, prec: u32) -> Interval {
        match (numer.to_i64(), denom.to_i64()) {
            (Some(numer), Some(1)) => Interval::integer(numer),
            (Some(numer), Some(denom)) => {
                let quotient = Interval::integer(numer).div(&Interval::integer(denom), prec);
                quotient.unwrap_or(LINE)
            }
            _ => {
                let negative = numer.sign() == Sign::Minus;
                let numer = numer.magnitude();

                // Both are shifted by the same amount, so that their leading bits remain in range.
                let shift = (numer.bits().max(denom.bits()) as i64 - 900).max(0);
                let value = float(numer, shift).div(&float(denom.magnitude(), shift), prec);
                let value = value.unwrap_or(Interval { low: f64::MAX, high: f64::INFINITY });
                let value = value.clamped(0.0, f64::INFINITY);
                if negative { value.neg() } else { value }
            }
        }
    }

    fn pi(_: u32) -> Interval {
        Interval::outward(consts::PI, consts::PI)
    }

    fn neg(self) -> Interval {
        Interval { low: -self.high, high: -self.low }
    }

    fn add(&self, other: &Interval, _: u32) -> Interval {
        let sum = Interval { low: self.low + other.low, high: self.high + other.high };
        if sum.is_whole() && self.is_whole() && other.is_whole() {
            return sum;
        }
        Interval::outward(sum.low, sum.high)
    }

    fn mul(&self, other: &Interval, _: u32) -> Interval {
        if self.is_point() && other.is_point() {
            let product = Interval::point(Interval::product(self.low, other.low));
            if product.low == 0.0 && (self.low == 0.0 || other.low == 0.0) {
                return Interval::point(0.0);
            }
            if product.is_whole() && self.is_whole() && other.is_whole() {
                return product;
            }
        }

        let product = self.corners(*other, Interval::product);

        // Moving the ends outwards may have crossed zero, which the signs of the factors rule out.
        let positive =
            (self.low >= 0.0 && other.low >= 0.0) || (self.high <= 0.0 && other.high <= 0.0);
        let negative =
            (self.low >= 0.0 && other.high <= 0.0) || (self.high <= 0.0 && other.low >= 0.0);

        match (positive, negative) {
            (true, _) => product.clamped(0.0, f64::INFINITY),
            (_, true) => product.clamped(f64::NEG_INFINITY, 0.0),
            _ => product,
        }
    }

    fn div(&self, other: &Interval, _: u32) -> Option<Interval> {
        if other.low <= 0.0 && other.high >= 0.0 {
            return None;
        }
        if self.is_point() && self.low == 0.0 {
            return Some(*self);
        }

        if self.is_whole() && other.is_whole() {
            let quotient = Interval::point(self.low / other.low);
            if quotient.is_whole() {
                return Some(quotient);
            }
        }

        let quotient = self.corners(*other, |a, b| if a == 0.0 { 0.0 } else { a / b });
        // Moving the ends outwards may have crossed zero here too.
        let same = (self.low >= 0.0) == (other.low > 0.0);
        let one_sign = self.low >= 0.0 || self.high <= 0.0;
        Some(if one_sign && same {
            quotient.clamped(0.0, f64::INFINITY)
        } else if one_sign {
            quotient.clamped(f64::NEG_INFINITY, 0.0)
        } else {
            quotient
        })
    }

    fn sqrt(&self, _: u32) -> Interval {
        let low = self.low.max(0.0).sqrt();
        let high = self.high.max(0.0).sqrt();
        let root = Interval { low, high };
        if self.is_whole() && root.is_whole() {
            return root;
        }
        Interval::outward(low, high).clamped(0.0, f64::INFINITY)
    }

    fn root(&self, degree: u32, prec: u32) -> Interval {
        if degree == 2 {
            return self.sqrt(prec);
        }
        let power = 1.0 / f64::from(degree);
        let root = |x: f64| x.max(0.0).powf(power);

        if self.is_whole() {
            // A perfect power has an exact root.
            let near = root(self.low).round();
            if near.powi(degree.min(64) as i32) == self.low && degree < 64 {
                return Interval::point(near);
            }
        }

        // The exponent is rounded too. Its error is half a unit in the last place, times the logarithm of the
        // radicand (at most 745), over the degree (at least 3).
        let low = root(self.low);
        let low = low - low.min(f64::MAX) * 64.0 * SLACK;
        let high = root(self.high);
        let high = high + high * 64.0 * SLACK;
        Interval::outward(low, high).clamped(0.0, f64::INFINITY)
    }

    fn exp(&self, _: u32) -> Interval {
        if self.is_point() && self.low == 0.0 {
            return Interval::point(1.0);
        }
        Interval::slack(self.low.exp(), self.high.exp()).clamped(0.0, f64::INFINITY)
    }

    fn ln(&self, _: u32) -> Option<Interval> {
        if self.low <= 0.0 {
            return None;
        }
        if self.is_point() && self.low == 1.0 {
            return Some(Interval::point(0.0));
        }
        Some(Interval::slack(self.low.ln(), self.high.ln()))
    }

    fn sin_cos(&self, _: u32) -> (Interval, Interval) {
        if self.is_point() && self.low == 0.0 {
            return (Interval::point(0.0), Interval::point(1.0));
        }

        let middle = self.low + (self.high - self.low) / 2.0;
        let radius = (self.high - middle).max(middle - self.low).next_up();
        let unit = Interval { low: -1.0, high: 1.0 };

        if !(middle.abs() < 1e9 && radius < 1.0) {
            return (unit, unit);
        }

        let (sin, cos) = middle.sin_cos();
        // Within a radius r the functions change by at most r. Near zero the sine is small; then the middle is
        // small too, and so is the library's error.
        let around = |value: f64| {
            let error = radius + value.abs() * SLACK;
            Interval::outward(value - error, value + error).clamped(-1.0, 1.0)
        };
        (around(sin), around(cos))
    }

    fn sinh(&self, _: u32) -> Interval {
        Interval::slack(self.low.sinh(), self.high.sinh())
    }

    fn angle(y: &Interval, x: &Interval, _: u32) -> Option<Interval> {
        let on_cut = y.low <= 0.0 && y.high >= 0.0 && x.low <= 0.0;
        if on_cut {
            let straight = y.is_point() && y.low == 0.0 && x.high < 0.0;
            return straight.then(|| Interval::outward(consts::PI, consts::PI));
        }

        if y.is_point() && y.low == 0.0 {
            return Some(*y);
        }

        let corner = |y: f64, x: f64| y.atan2(x);
        // Away from the branch cut, the angle takes its extremes at the corners of the box.
        let first = corner(y.low, x.low);
        let second = corner(y.low, x.high);
        let third = corner(y.high, x.low);
        let fourth = corner(y.high, x.high);

        let low = first.min(second).min(third.min(fourth));
        Some(Interval::slack(low, first.max(second).max(third.max(fourth))))
    }

    fn sign(&self) -> Option<Ordering> {
        if self.low > 0.0 {
            Some(Ordering::Greater)
        } else if self.high < 0.0 {
            Some(Ordering::Less)
        } else {
            self.is_point().then_some(Ordering::Equal)
        }
    }

    fn abs(&self, _: u32) -> Interval {
        if self.low >= 0.0 {
            *self
        } else if self.high <= 0.0 {
            self.neg()
        } else {
            Interval { low: 0.0, high: self.high.max(-self.low) }
        }
    }

    fn hull(&self, other: &Interval, _: u32) -> Interval {
        Interval { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    fn around_zero(&self, _: u32) -> Interval {
        let size = self.high.max(-self.low);
        Interval { low: -size, high: size }
    }

    fn floor(&self) -> Option<BigInt> {
        let low = self.low.floor();
        let high = self.high.floor();
        (low == high && low.abs() <= EXACT).then(|| BigInt::from(low as i64))
    }

    fn whole(&self) -> Option<BigInt> {
        self.is_whole().then(|| BigInt::from(self.low as i64))
    }

    fn log2(&self) -> i64 {
        let size = self.high.max(-self.low);
        // The exponent is biased by 1023, and the absolute value is below the next power of two.
        (size.to_bits() >> 52) as i64 - 1022
    }

    fn cost(_: u32) -> Cost {
        Cost { operation: 2, root: 10, elementary: 20 }
    }
}

/// Divides a natural number by `2^shift`.
fn float(value: &BigUint, shift: i64) -> Interval {
    let bits = value.bits() as i64;
    let mut digits = value.iter_u64_digits().rev();
    let high = digits.next().unwrap_or(0);
    let low = digits.next().unwrap_or(0);
    let rest = ((bits - 1) / 64) * 64 - shift;

    if rest < -1000 {
        return Interval { low: 0.0, high: f64::MIN_POSITIVE };
    }

    // Two words have more bits than a float. The words after them are less than the float's last bit.
    let leading = high as f64 + low as f64 / (1u128 << 64) as f64;
    let scale = 2f64.powi(rest as i32);
    Interval::slack(leading * scale, leading * scale)
}
