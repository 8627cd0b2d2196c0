//! Elementary functions on fixed-point numbers: integers in units of `2^-fraction`.
//!
//! Each result is within [`error`] of the truth. The steps lose far less than that: a handful of units a term, doubled
//! or quadrupled each time a halving of the argument is undone. Callers carry [`GUARD`] more bits than they need.

use num_bigint::{BigInt, BigUint};
use num_traits::{One, Zero};

use super::magnitude::Magnitude;

/// Bits that are carried beyond the wanted precision.
pub(super) const GUARD: u32 = 64;

/// Binary logarithm of a result's error in units.
const ERROR: i64 = 40;

/// Bits in the constants below.
const TABLE: u32 = 2048;

/// Returns a bound on the error of every function here.
pub(super) fn error(fraction: u32) -> Magnitude {
    Magnitude::power_of_two(ERROR - i64::from(fraction))
}

/// Returns a bound on the error of a constant.
pub(super) fn unit(fraction: u32) -> Magnitude {
    Magnitude::power_of_two(-i64::from(fraction))
}

/// Returns π, too low by at most a unit.
pub(super) fn pi(fraction: u32) -> BigInt {
    constant(&QUARTER_PI, fraction, 2)
}

/// Returns ln 2, too low by at most a unit.
pub(super) fn ln_2(fraction: u32) -> BigInt {
    constant(&LN_2, fraction, 0)
}

fn constant(words: &[u64; 32], fraction: u32, doublings: u32) -> BigInt {
    debug_assert!(fraction + doublings <= TABLE, "a precision beyond the table of constants");
    let drop = TABLE.saturating_sub(fraction + doublings) as usize;
    let words = words.iter().skip(drop / 64).flat_map(|word| [*word as u32, (word >> 32) as u32]);
    BigInt::from(BigUint::new(words.collect()) >> (drop % 64))
}

/// Computes the exponential function on [-1, 1].
pub(super) fn exp(x: &BigInt, fraction: u32) -> BigInt {
    // e^x = (e^(x/2^h))^(2^h), and a small argument needs few terms.
    let halvings = 4 + fraction / 96;
    let x = x >> halvings;

    let mut term = BigInt::one() << fraction;
    let mut sum = term.clone();
    for n in 1u32.. {
        term = ((term * &x) >> fraction) / n;
        if small(&term) {
            break;
        }
        sum += &term;
    }

    for _ in 0..halvings {
        sum = (&sum * &sum) >> fraction;
    }

    sum
}

/// Computes sine and cosine on [-1, 1].
pub(super) fn sin_cos(x: &BigInt, fraction: u32) -> (BigInt, BigInt) {
    let halvings = 2 + fraction / 192;
    let x = x >> halvings;
    let mut term = BigInt::one() << fraction;
    let one = term.clone();
    let mut sin = BigInt::zero();
    let mut cos = term.clone();

    for n in 1u32.. {
        term = ((term * &x) >> fraction) / n;
        if small(&term) {
            break;
        }
        match n % 4 {
            0 => cos += &term,
            1 => sin += &term,
            2 => cos -= &term,
            _ => sin -= &term,
        }
    }

    // sin 2x = 2·sin x·cos x, and cos 2x = 1 − 2·sin² x.
    for _ in 0..halvings {
        let twice = &sin << 1;
        (sin, cos) = ((&twice * &cos) >> fraction, &one - ((twice * &sin) >> fraction));
    }

    (sin, cos)
}

/// Computes the natural logarithm of a number in [1, 2]. `guess` is the logarithm of a float nearby.
pub(super) fn ln(x: &BigInt, guess: f64, fraction: u32) -> BigInt {
    let near = float(guess, fraction);
    let one = BigInt::one() << fraction;
    // The guess leaves a ratio r near 1, and ln r = 2·artanh((r − 1)/(r + 1)).
    let ratio = (x * exp(&-&near, fraction)) >> fraction;
    let z = ((&ratio - &one) << fraction) / (ratio + one);
    near + (odd_series(z, fraction, false) << 1)
}

/// Computes the angle of a vector whose coordinates are in `0 ≤ y ≤ x` and `1/2 ≤ x ≤ 2`. `guess` is the angle of a
/// vector nearby.
pub(super) fn angle(y: &BigInt, x: &BigInt, guess: f64, fraction: u32) -> BigInt {
    let near = float(guess, fraction);
    let (sin, cos) = sin_cos(&near, fraction);
    // The vector is turned back by the guess, which leaves a small angle.
    let tan = ((y * &cos - x * &sin) << fraction) / (x * cos + y * sin);
    near + odd_series(tan, fraction, true)
}

/// Computes `z ± z³/3 + z⁵/5 ± …` for a number so small that few terms matter: the inverse tangent, or with equal
/// signs the inverse hyperbolic tangent.
fn odd_series(z: BigInt, fraction: u32, alternating: bool) -> BigInt {
    let mut square = (&z * &z) >> fraction;
    if alternating {
        square = -square;
    }
    let mut power = z.clone();
    let mut sum = z;

    for n in (3u32..).step_by(2) {
        power = (power * &square) >> fraction;
        if small(&power) {
            break;
        }
        sum += &power / n;
    }

    sum
}

/// Tells whether a term, rounded down, is a unit at most. All terms after it then sum to less than two more units.
fn small(term: &BigInt) -> bool {
    term.magnitude().bits() <= 1
}

/// Turns a float into a fixed-point number between 0 and 1. Bits after the 60th are lost, but a guess has no use
/// for them.
fn float(value: f64, fraction: u32) -> BigInt {
    let bits = (value.clamp(0.0, 1.0) * (1u64 << 60) as f64) as i64;
    (BigInt::from(bits) << fraction) >> 60u32
}

/// π/4 in units of 2^-2048, the least significant word first.
#[rustfmt::skip]
const QUARTER_PI: [u64; 32] = [
    0xa85521abdf1cba64, 0xad33170d04507a33, 0x15728e5a8aaac42d, 0x15d2261898fa0510,
    0x3995497cea956ae5, 0xde2bcbf695581718, 0xb5c55df06f4c52c9, 0x9b2783a2ec07a28f,
    0xe39e772c180e8603, 0x32905e462e36ce3b, 0xf1746c08ca18217c, 0x670c354e4abc9804,
    0x9ed529077096966d, 0x1c62f356208552bb, 0x83655d23dca3ad96, 0x69163fa8fd24cf5f,
    0x98da48361c55d39a, 0xc2007cb8a163bf05, 0x49286651ece45b3d, 0xae9f24117c4b1fe6,
    0xee386bfb5a899fa5, 0x0bff5cb6f406b7ed, 0xf44c42e9a637ed6b, 0xe485b576625e7ec6,
    0x4fe1356d6d51c245, 0x302b0a6df25f1437, 0xef9519b3cd3a431b, 0x514a08798e3404dd,
    0x020bbea63b139b22, 0x29024e088a67cc74, 0xc4c6628b80dc1cd1, 0xc90fdaa22168c234,
];

/// ln 2 in the same units.
#[rustfmt::skip]
const LN_2: [u64; 32] = [
    0x5f50b5185064c18b, 0x078f735d1b2db31b, 0xae313cdb6c606cb1, 0x955d5179b1e17b9d,
    0x0c480a5417350d2c, 0x074db6015cfe7aa3, 0x6a9c7f8a5e148e82, 0x25669b333564a337,
    0x4c1a1e0bd1d6095d, 0xcccc4e659393514c, 0xc943e732b479cd33, 0x17460775db8990e5,
    0x7d2e23de1400b396, 0xee569d6dfc1efa15, 0x610d30f88fe551a2, 0x07f4ca11fb5bfb90,
    0xda2d97c50f3fd5c6, 0x655fa1872f20e3a2, 0xf5dfa6bd38303248, 0x72ce87b19d6548ca,
    0x256fa0ec7657f74b, 0xb9ea9bc3b136603b, 0x1acbda11317c387e, 0x3e96ca16224ae8c5,
    0x27573b291169b825, 0xed2eae35c1382144, 0x559552fb4afa1b10, 0xe7b876206debac98,
    0x8a0d175b8baafa2b, 0x40f343267298b62d, 0xc9e3b39803f2f6af, 0xb17217f7d1cf79ab,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes `Σ ±1/((2k+1)·n^(2k+1))`, rounded down term by term.
    fn inverse(n: u32, fraction: u32, alternating: bool) -> BigInt {
        let mut power = (BigInt::one() << fraction) / n;
        let mut sum = power.clone();
        for k in (3u32..).step_by(2) {
            power /= n * n;
            if power.is_zero() {
                break;
            }
            let term = &power / k;
            sum += if alternating && k % 4 == 3 { -term } else { term };
        }

        sum
    }

    #[test]
    fn tables_agree_with_series() {
        let fraction = TABLE + 32;
        // These are Machin's formula and 2 artanh(1/3).
        let quarter_pi = inverse(5, fraction, true) * 4 - inverse(239, fraction, true);
        let ln_2 = inverse(3, fraction, false) * 2;

        assert_eq!(constant(&QUARTER_PI, TABLE, 0), quarter_pi >> 32u32);
        assert_eq!(constant(&LN_2, TABLE, 0), ln_2 >> 32u32);
        assert_eq!(super::pi(0), BigInt::from(3));
    }
}
