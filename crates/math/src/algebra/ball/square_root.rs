//! Integer square roots of any size.

use num_bigint::BigUint;
use num_integer::Integer;
use num_traits::{One, ToPrimitive};

/// Returns the greatest number whose square is at most `n`, and the remainder.
///
/// First finds the root of the upper half of the digits in the same way. One division then yields the lower half of
/// the root, one too high at most (Zimmermann, "Karatsuba Square Root", 1999).
pub(super) fn square_root(n: BigUint) -> (BigUint, BigUint) {
    if let Some(n) = n.to_u128() {
        let root = n.isqrt();
        return (BigUint::from(root), BigUint::from(n - root * root));
    }

    let quarter = (n.bits() - 1) / 4;
    let mask = (BigUint::one() << quarter) - 1u32;
    let (upper, rest) = square_root(&n >> (2 * quarter));
    let dividend = (rest << quarter) + ((&n >> quarter) & &mask);
    let (quotient, rest) = dividend.div_rem(&(&upper << 1u32));

    let mut root = (upper << quarter) + &quotient;
    let mut rest = (rest << quarter) + (n & mask);
    let square = &quotient * &quotient;

    // The root may be too high. Lowering it by one adds the difference of the squares to the remainder.
    while rest < square {
        rest += (&root << 1u32) - 1u32;
        root -= 1u32;
    }
    (root, rest - square)
}
