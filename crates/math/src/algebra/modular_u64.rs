//! Arithmetic modulo a word of 64 bits, and a test for primes.

pub(super) fn negate(residue: u64, modulus: u64) -> u64 {
    if residue == 0 { 0 } else { modulus - residue }
}

pub(super) fn multiply(left: u64, right: u64, modulus: u64) -> u64 {
    (u128::from(left) * u128::from(right) % u128::from(modulus)) as u64
}

pub(super) fn power(mut base: u64, mut exponent: u64, modulus: u64) -> u64 {
    let mut power = 1 % modulus;
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = multiply(power, base, modulus);
        }
        base = multiply(base, base, modulus);
        exponent >>= 1;
    }
    power
}

/// Tells whether a word is prime. The first twelve primes serve as bases, which is enough below 2^64 (Sorenson and
/// Webster 2015).
pub(super) fn is_prime(number: u64) -> bool {
    const BASES: [u64; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];
    if number < 2 || BASES.iter().any(|base| number.is_multiple_of(*base)) {
        return BASES.contains(&number);
    }

    // Miller–Rabin: by repeated squaring, each base has to start at 1 or to pass −1.
    let twos = (number - 1).trailing_zeros();
    BASES.iter().all(|base| {
        let mut value = power(*base, (number - 1) >> twos, number);
        value == 1
            || (0..twos).any(|_| {
                let before = value;
                value = multiply(value, value, number);
                before == number - 1
            })
    })
}
