//! Elementary functions of balls: the value at the midpoint, and a bound on its change within the radius.

use std::cmp::Ordering;

use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::{Signed, ToPrimitive, Zero};

use super::{Ball, LIMIT, fixed, magnitude::Magnitude};
use crate::algebra::real::Real;

/// Exponentials are computed only of numbers below `2^ARGUMENT` in absolute value.
const ARGUMENT: i64 = 40;

pub(super) fn exp(x: &Ball, prec: u32) -> Ball {
    if x.mid.is_zero() && x.rad == 0 {
        return Ball::integer(1);
    }
    if x.is_everything() {
        return Ball::everything();
    }

    // Of a wide ball, the upper end is enough: zero bounds everything below.
    let is_wide = x.radius().top() > 0;
    let top = Ball::exact(&x.mid + x.rad, x.exp);
    let x = if is_wide { &top } else { x };

    if x.top() > ARGUMENT {
        return match x.sign() {
            Some(Ordering::Less) => Ball { mid: BigInt::zero(), rad: 1, exp: -1 << (ARGUMENT - 1) },
            _ => Ball::everything(),
        };
    }

    // e^x = 2^k·e^r.
    let fraction = prec + fixed::GUARD;
    let ln_2 = fixed::ln_2(fraction + ARGUMENT as u32);
    let value = x.scaled(-i64::from(fraction) - ARGUMENT);
    let k = Integer::div_floor(&(&value + (&ln_2 >> 1u32)), &ln_2);
    let rest = (value - &k * ln_2) >> ARGUMENT;

    let k = k.to_i64().unwrap_or(LIMIT);
    let exp = k - i64::from(fraction);
    let error = fixed::error(fraction) * Magnitude::power_of_two(k);
    let power = Ball::rounded(fixed::exp(&rest, fraction), exp, error, prec);

    if is_wide {
        return Ball::integer(0).hull(&power, prec);
    }

    // e^(x ± r) is within e^x·(e^r − 1) of e^x, and e^r − 1 ≤ 2r for r ≤ 1.
    let spread = (power.size() + power.radius()) * x.radius() * Magnitude::power_of_two(1);
    power.widened(spread, prec)
}

pub(super) fn ln(x: &Ball, prec: u32) -> Option<Ball> {
    if x.sign() != Some(Ordering::Greater) || x.is_everything() {
        return None;
    }

    let fraction = prec + fixed::GUARD;
    // x = m·2^k with 1 ≤ m < 2.
    let k = x.exp + x.mid.bits() as i64 - 1;
    let m = x.scaled(k - i64::from(fraction));

    let mut value = BigInt::zero();
    let mut error = Magnitude::ZERO;
    // ln 1 is exactly 0, so powers of two need only the logarithm of 2.
    if m.trailing_zeros() != Some(u64::from(fraction)) {
        value = fixed::ln(&m, x.guess().0.ln(), fraction);
        error = fixed::error(fraction);
    }
    if k != 0 {
        value += (fixed::ln_2(fraction + 64) * k) >> 64;
        error = error + fixed::error(fraction);
    }

    let middle = Ball::rounded(value, -i64::from(fraction), error, prec);
    if x.rad == 0 {
        return Some(middle);
    }

    // |ln(x ± r) − ln x| ≤ r/(x − r).
    let least = Magnitude::below((&x.mid - x.rad).magnitude(), x.exp);
    Some(middle.widened(x.radius().over(least), prec))
}

pub(super) fn sin_cos(x: &Ball, prec: u32) -> (Ball, Ball) {
    if x.mid.is_zero() && x.rad == 0 {
        return (Ball::integer(0), Ball::integer(1));
    }

    let head = x.exp + x.mid.bits() as i64;
    if x.is_everything() || head > ARGUMENT || x.radius().top() > 0 {
        let unit = Ball { mid: BigInt::zero(), rad: 1, exp: 0 };
        return (unit.clone(), unit);
    }

    if !x.mid.is_zero() && head < -i64::from(prec) / 2 {
        // sin x = x − x³/6 + … and cos x = 1 − x²/2 + ….
        let size = x.size() + x.radius();
        return (
            x.clone().widened(size * size * size, prec),
            Ball::integer(1).widened(size * size, prec),
        );
    }

    // A small sine needs digits after its leading zeros.
    let fraction = prec + fixed::GUARD + (-head).clamp(0, i64::from(prec) / 2) as u32;
    let mut quarter = BigInt::zero();
    let mut rest = x.scaled(-i64::from(fraction));
    // Larger angles are brought within an eighth of a turn of zero.
    if head >= 0 {
        let right = fixed::pi(fraction + ARGUMENT as u32 - 1);
        let value = x.scaled(-i64::from(fraction) - ARGUMENT);
        quarter = Integer::div_floor(&(&value + (&right >> 1u32)), &right);
        rest = (value - &quarter * right) >> ARGUMENT;
    }

    let (sin, cos) = fixed::sin_cos(&rest, fraction);
    // Each quarter turn swaps sine and cosine, and flips the sign of one of them.
    let (sin, cos) = match (quarter & BigInt::from(3)).to_u8() {
        Some(1) => (cos, -sin),
        Some(2) => (-sin, -cos),
        Some(3) => (-cos, sin),
        _ => (sin, cos),
    };

    let error = fixed::error(fraction) + x.radius();
    let ball = |value| Ball::rounded(value, -i64::from(fraction), error, prec);
    (ball(sin), ball(cos))
}

pub(super) fn angle(y: &Ball, x: &Ball, prec: u32) -> Option<Ball> {
    let right = |quarters: i64| Ball::pi(prec + 8).mul(&Ball::exact(quarters.into(), -1), prec);

    match (y.sign(), x.sign()) {
        (Some(Ordering::Equal), Some(Ordering::Greater)) => return Some(Ball::integer(0)),
        (Some(Ordering::Equal), Some(Ordering::Less)) => return Some(right(2)),
        (Some(Ordering::Equal), _) => return None,
        (Some(Ordering::Greater), Some(Ordering::Equal)) => return Some(right(1)),
        (Some(Ordering::Less), Some(Ordering::Equal)) => return Some(right(-1)),
        // The angle jumps from π to −π across the negative reals.
        (None, Some(Ordering::Greater)) | (Some(_), _) => (),
        (None, _) => return None,
    }

    if x.is_everything() || y.is_everything() {
        return None;
    }

    let head = |ball: &Ball| ball.exp + ball.mid.bits() as i64;
    let flat = y.mid.is_zero();
    let steep = x.mid.is_zero();

    // A tiny angle needs digits after its leading zeros.
    let forward = x.sign() == Some(Ordering::Greater);
    let lead = if flat || steep || !forward { 0 } else { head(x) - head(y) };
    if lead > i64::from(prec) / 2 {
        // atan t = t − t³/3 + ….
        let t = y.div(x, prec)?;
        let size = t.size() + t.radius();
        return Some(t.widened(size * size * size, prec));
    }

    let fraction = prec + fixed::GUARD + lead.max(0) as u32;
    let longer = if flat {
        head(x)
    } else if steep {
        head(y)
    } else {
        head(x).max(head(y))
    };
    let unit = longer - i64::from(fraction);

    // In the first octant, the tangent of the angle is at most 1. Reflections map it back to the other octants.
    let u = x.scaled(unit);
    let v = y.scaled(unit);
    let width = u.abs();
    let height = v.abs();
    let (long, short) = if width < height { (&height, &width) } else { (&width, &height) };
    let first = |value: &BigInt| (value >> (fraction - 60)).to_f64().unwrap_or(0.0);
    let octant = fixed::angle(short, long, first(short).atan2(first(long)), fraction);
    let half = fixed::pi(fraction - 1);

    let mut value = if width < height { half - octant } else { octant };
    if u.is_negative() {
        value = fixed::pi(fraction) - value;
    }
    if v.is_negative() {
        value = -value;
    }

    let middle = Ball::rounded(value, -i64::from(fraction), fixed::error(fraction), prec);
    if x.rad | y.rad == 0 {
        return Some(middle);
    }

    // A vector that moves by δ < |v| turns by at most asin(δ/|v|) ≤ 2δ/|v|.
    let length = if flat || (!steep && head(x) >= head(y)) { x.least() } else { y.least() };
    let turn = (x.radius() + y.radius()).over(length);
    if turn.top() > 0 {
        return None;
    }

    Some(middle.widened(turn * Magnitude::power_of_two(1), prec))
}

/// Computes the hyperbolic sine. Small numbers are summed directly, without the cancellation of `(e^x − e^-x)/2`.
pub(super) fn sinh(x: &Ball, prec: u32) -> Ball {
    if x.mid.is_zero() && x.rad == 0 {
        return Ball::integer(0);
    }

    let head = x.exp + x.mid.bits() as i64;
    if !x.mid.is_zero() && head < -i64::from(prec) / 2 && x.radius().top() < 0 {
        let size = x.size() + x.radius();
        return x.clone().widened(size * size * size, prec);
    }

    let wide = prec + 8 + (-head).clamp(0, i64::from(prec) / 2) as u32;
    let difference = exp(x, wide).add(&exp(&x.clone().neg(), wide).neg(), wide);
    difference.mul(&Ball::exact(1.into(), -1), prec)
}
