//! Bounds on errors, as short floats that are rounded up.

use std::ops::{Add, Mul};

use num_bigint::BigUint;

/// A bound on an absolute value, `man·2^exp`. Sums, products and quotients are rounded up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Magnitude {
    /// Mantissa of at most [`Magnitude::BITS`] bits.
    man: u64,
    exp: i64,
}

impl Magnitude {
    pub(super) const ZERO: Magnitude = Magnitude { man: 0, exp: 0 };

    const BITS: u32 = 31;

    pub(super) fn new(mut man: u64, mut exp: i64) -> Magnitude {
        if man == 0 {
            return Magnitude::ZERO;
        }
        let excess = (64 - Magnitude::BITS).saturating_sub(man.leading_zeros());
        if excess > 0 {
            // The bits that are cut round the bound up.
            let low = man & ((1 << excess) - 1);
            man = (man >> excess) + u64::from(low > 0);
            exp += i64::from(excess);
        }
        Magnitude { man, exp }
    }

    pub(super) fn power_of_two(exp: i64) -> Magnitude {
        Magnitude { man: 1, exp }
    }

    /// Returns a bound of at least `value·2^exp`.
    pub(super) fn above(value: &BigUint, exp: i64) -> Magnitude {
        let (top, shift) = leading(value);
        Magnitude::new(top + u64::from(shift > 0), exp + shift)
    }

    /// Returns a bound of at most `value·2^exp`.
    pub(super) fn below(value: &BigUint, exp: i64) -> Magnitude {
        let (top, shift) = leading(value);
        let excess = (64 - Magnitude::BITS).saturating_sub(top.leading_zeros());
        Magnitude::new(top >> excess, exp + shift + i64::from(excess))
    }

    /// Divides by a positive lower bound.
    pub(super) fn over(self, least: Magnitude) -> Magnitude {
        if self.man == 0 {
            return self;
        }
        // The numerator moves up as far as it fits. The one that is added rounds up.
        let shift = self.man.leading_zeros() - 1;
        let quotient = (self.man << shift) / least.man.max(1) + 1;
        Magnitude::new(quotient, self.exp - i64::from(shift) - least.exp)
    }

    pub(super) fn is_zero(self) -> bool {
        self.man == 0
    }

    pub(super) fn exp(self) -> i64 {
        self.exp
    }

    /// Returns a `top` such that the bound is less than `2^top`.
    pub(super) fn top(self) -> i64 {
        if self.man == 0 {
            return i64::MIN;
        }
        self.exp + 64 - i64::from(self.man.leading_zeros())
    }

    /// Counts the units of `2^exp` that it takes to cover the bound. The unit must not be too small to count them.
    pub(super) fn units(self, exp: i64) -> u64 {
        let shift = self.exp - exp;
        if self.man == 0 {
            return 0;
        }

        if shift >= 0 {
            return self.man << shift.min(32);
        }
        if shift < -63 {
            return 1;
        }

        // The bits that are cut count as one more unit.
        let low = self.man & ((1 << -shift) - 1);
        (self.man >> -shift) + u64::from(low > 0)
    }
}

impl Add for Magnitude {
    type Output = Magnitude;

    fn add(self, other: Magnitude) -> Magnitude {
        if self.man == 0 {
            return other;
        }
        if other.man == 0 {
            return self;
        }

        let (small, large) = if self.exp < other.exp { (self, other) } else { (other, self) };
        // The larger exponent comes down as far as the mantissa allows, so little is lost.
        let room = i64::from(large.man.leading_zeros()) - 2;
        let exp = small.exp.max(large.exp - room);
        Magnitude::new((large.man << (large.exp - exp)) + small.units(exp), exp)
    }
}

impl Mul for Magnitude {
    type Output = Magnitude;

    fn mul(self, other: Magnitude) -> Magnitude {
        Magnitude::new(self.man * other.man, self.exp + other.exp)
    }
}

/// Returns the leading 62 bits of a number, and the shift to the left that restores their position. A shorter number is
/// returned unchanged, with a shift of 0.
pub(super) fn leading(value: &BigUint) -> (u64, i64) {
    let bits = value.bits();
    let mut digits = value.iter_u64_digits().rev();
    let high = digits.next().unwrap_or(0);
    if bits <= 62 {
        return (high, 0);
    }

    let pair = u128::from(high) << 64 | u128::from(digits.next().unwrap_or(0));
    let length = 128 - pair.leading_zeros();
    ((pair >> (length - 62)) as u64, bits as i64 - 62)
}
