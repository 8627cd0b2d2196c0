//! Fixed points at which expressions in variables are compared.

/// Maximum number of points at which expressions in variables are compared.
pub(super) const POINTS: u32 = 40;

/// Points that are always tried. They have both signs, and some are less than 1 in size.
pub(super) const FIRST: u32 = 8;

/// Returns the value of a variable at a point: a fraction whose denominator is positive.
///
/// The value depends only on the variable's name and the point's number, so the verdict is the same everywhere and
/// at all times. The first points are fractions of both signs, for identities that hold everywhere. Later points
/// are for expressions that are defined on less: numbers near zero, positive numbers only, and finally integers
/// only.
pub(super) fn coordinate(name: &str, point: u32) -> (i64, i64) {
    let seed = seed(name);
    let random = mix(seed.wrapping_add(u64::from(point).wrapping_mul(0x9e37_79b9_7f4a_7c15)));

    // Every second point has the opposite sign, but not for all variables at the same time.
    let negative = (u64::from(point) + (mix(seed ^ u64::from(point / 2)) & 1)) % 2 == 1;
    let denom = 101 + 2 * (random % 450) as i64;
    let part = |from: i64, to: i64| from + ((random >> 16) % (to - from) as u64) as i64;

    // A fraction in lowest terms is not an integer.
    let fraction = |from: i64, to: i64| {
        let numer = part(from * denom / 16, to * denom / 16);
        if numer % denom == 0 { numer + 1 } else { numer }
    };

    let (numer, denom, signed) = match point {
        0..4 => (fraction(16, 80), denom, true),
        4..8 => (fraction(1, 15), denom, true),
        8..14 => (fraction(1, 15), denom, false),
        14..20 => (fraction(16, 160), denom, false),
        20..24 => (fraction(160, 3200), denom, true),
        24..34 => (part(1, 13), 1, false),
        _ => (part(1, 9), 1, true),
    };

    (if signed && negative { -numer } else { numer }, denom)
}

/// Returns the shift of a variable's probes against those of the other variables, in a round.
pub(super) fn shift(name: &str, round: u64) -> u64 {
    mix(seed(name).wrapping_add(round))
}

fn seed(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Mixes a word, so that every bit of the result depends on every bit of the word.
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_and_sizes() {
        for name in ["x", "y", "n", "\\alpha", "x_1"] {
            let value = |point| {
                let (numer, denom) = coordinate(name, point);
                assert!(denom > 0);
                numer as f64 / denom as f64
            };

            for pair in (0..FIRST).step_by(2) {
                assert!(value(pair) * value(pair + 1) < 0.0, "{name} {pair}");
            }
            assert!((0..4).all(|point| value(point).abs() > 1.0 && value(point).abs() < 5.1));
            assert!((4..8).all(|point| value(point).abs() < 1.0));
            assert!((8..20).all(|point| value(point) > 0.0 && value(point).fract() != 0.0));
            assert!((24..POINTS).all(|point| value(point).fract() == 0.0 && value(point) != 0.0));

            let distinct = |a, b| a == b || value(a) != value(b);
            assert!((0..24).all(|a| (0..24).all(|b| distinct(a, b))), "{name}");
        }
        assert_ne!(coordinate("x", 0), coordinate("y", 0));
    }
}
