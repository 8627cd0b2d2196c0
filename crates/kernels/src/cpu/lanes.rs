//! Arithmetic on slices in a form that compilers turn into vectors.

/// Number of sums that are carried in parallel: as many as the widest vector has numbers.
const LANES: usize = 16;

/// Folds slices of one length, with a number for each lane that begins as `first`. The lanes are joined in pairs at the
/// end, so the order of a sum depends only on the length.
#[inline(always)]
pub(crate) fn fold<const N: usize>(
    slices: [&[f32]; N],
    first: f32,
    each: impl Fn(f32, [f32; N]) -> f32,
    join: impl Fn(f32, f32) -> f32,
) -> f32 {
    let length = slices[0].len();
    let slices = slices.map(|slice| &slice[..length]);

    let mut lanes = [first; LANES];
    let mut start = 0;
    while start + LANES <= length {
        let chunks = slices.map(|slice| &slice[start..start + LANES]);
        for (lane, number) in lanes.iter_mut().enumerate() {
            *number = each(*number, chunks.map(|chunk| chunk[lane]));
        }
        start += LANES;
    }

    for (at, lane) in (start..length).zip(0..) {
        lanes[lane] = each(lanes[lane], slices.map(|slice| slice[at]));
    }

    // The lanes are joined in pairs, always in the same order.
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = join(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }

    lanes[0]
}

/// Computes Σ x · y.
#[inline(always)]
pub(crate) fn dot(x: &[f32], y: &[f32]) -> f32 {
    fold([x, y], 0.0, |sum, [x, y]| sum + x * y, |x, y| x + y)
}

/// Finds the largest number; −∞ if there are none.
#[inline(always)]
pub(crate) fn largest(x: &[f32]) -> f32 {
    fold([x], f32::NEG_INFINITY, |largest, [x]| largest.max(x), f32::max)
}

/// Computes eˣ, within 2 units in the last place; 0 below -87.3, ∞ above 88.
///
/// x = n · ln 2 + r with |r| ≤ ln 2 / 2. The polynomial for eʳ is that of Cephes (Moshier), and 2ⁿ is made of n's
/// bits.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 · 2²³: adding a number to it rounds the number to a whole one
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    // ln 2 in two parts: n times the first is exact, so r loses no digits.
    let r = x - n * 0.693_359_4 - n * -2.121_944_4e-4;

    let mut y = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        y = y * r + coefficient;
    }
    let y = y * r * r + r + 1.0;

    // `rounded` holds n in its lowest bits. Plus the bias of 127, and moved up, they are the exponent of 2ⁿ.
    let power = rounded.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23;
    let y = y * f32::from_bits(power);

    let y = if x < -87.3 { 0.0 } else { y };
    if x > 88.0 { f32::INFINITY } else { y }
}

/// Computes 1 / (1 + e⁻ˣ).
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Computes the hyperbolic tangent.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    1.0 - 2.0 / (1.0 + exp(2.0 * x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_right_to_two_units_of_the_last_place() {
        for step in -8730..8800 {
            let x = step as f32 / 100.0 + 0.003;
            let expected = f64::from(x).exp();
            let error = (f64::from(exp(x)) - expected).abs() / expected;
            assert!(error < 2.0 * f64::from(f32::EPSILON), "e^{x}: off by {error}");
        }

        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-1e30), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn slices_of_any_length_are_folded_whole() {
        for length in 0..70 {
            let x: Vec<f32> = (0..length).map(|at| ((at * 7) % 31) as f32).collect();
            assert_eq!(dot(&x, &x), x.iter().map(|x| x * x).sum::<f32>());
            assert_eq!(largest(&x), x.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        }
    }
}
