//! Normal random numbers, on all cores.

use std::f64::consts::{LN_2, PI, TAU};

use firebrick_core::Seed;
use rayon::prelude::*;

/// Draws `count` normal numbers with this standard deviation from the stream of a seed, on all cores.
///
/// By the Box–Muller transform, number `i` is made of the uniform numbers `2i` and `2i + 1`, so it depends neither on
/// the cores nor on the numbers next to it.
pub(crate) fn normals(seed: Seed, deviation: f64, count: usize) -> Vec<f32> {
    let mut values = vec![0.0; count];
    values.par_chunks_mut(PIECE).enumerate().for_each(|(piece, values)| {
        let mut stream = seed.stream();
        let mut uniforms = [0.0; 2 * BLOCK];

        for (block, values) in values.chunks_mut(BLOCK).enumerate() {
            let uniforms = &mut uniforms[..2 * values.len()];
            stream.uniforms(2 * (piece * PIECE + block * BLOCK) as u64, uniforms);
            fill(values, uniforms.as_chunks().0, deviation);
        }
    });

    values
}

/// Makes a normal number of each pair of uniform ones in [0, 1).
fn fill(values: &mut [f32], pairs: &[[f64; 2]], deviation: f64) {
    // Without a branch, this vectorises.
    for (value, pair) in values.iter_mut().zip(pairs) {
        *value = normal(*pair, deviation);
    }

    // Where the error bounds straddle a rounding step, the number is computed once more.
    for (value, pair) in values.iter_mut().zip(pairs) {
        if value.is_nan() {
            *value = exactly(*pair, deviation);
        }
    }
}

/// How many numbers one core draws at a time.
const PIECE: usize = 1 << 16;

/// For how many numbers the uniform ones are drawn at a time. They fit into the L1 cache.
const BLOCK: usize = 256;

/// Makes a normal number of two uniform ones in [0, 1), or NaN if [`exactly`] has to.
///
/// The C library's logarithm and cosine would take most of the time, although rounding to f32 drops nearly all of their
/// 53 bits. So polynomials compute them to 43 bits first. In one of 50 thousand numbers that leaves two ways to round,
/// and the C library decides.
fn normal([u, v]: [f64; 2], deviation: f64) -> f32 {
    let radius = (-2.0 * nearly_ln(1.0 - u)).sqrt();
    let number = radius * nearly_cos(v) * deviation;
    let error = radius * deviation * 1e-13;

    let [low, high] = [(number - error) as f32, (number + error) as f32];
    // Both bounds round to the same f32, so the number between them does too.
    if low.to_bits() == high.to_bits() { low } else { f32::NAN }
}

/// Computes [`normal`] with the C library's functions. 1 − u is in (0, 1], so the logarithm is finite.
#[cold]
#[inline(never)]
fn exactly([u, v]: [f64; 2], deviation: f64) -> f32 {
    let radius = (-2.0 * (1.0 - u).ln()).sqrt();
    (radius * (TAU * v).cos() * deviation) as f32
}

/// Computes the logarithm of a normal number above 0 to 1e-15 of itself: of x = m · 2ᵏ with m between √½ and √2 it is
/// k ln 2 + 2 artanh(s), where s = (m − 1) / (m + 1) is at most 0.172.
fn nearly_ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let k = (bits.wrapping_sub(std::f64::consts::FRAC_1_SQRT_2.to_bits()) as i64) >> 52;
    let m = f64::from_bits(bits.wrapping_sub((k as u64) << 52));

    let s = (m - 1.0) / (m + 1.0);
    let series = (0..11).rev().fold(0.0, |sum, n| sum * (s * s) + 1.0 / f64::from(2 * n + 1));
    f64::from(k as i32) * LN_2 + 2.0 * s * series
}

/// Computes the cosine of a number of turns in [0, 1) to 1e-15: with s = sin π(turns − ½), it is 2s² − 1.
fn nearly_cos(turns: f64) -> f64 {
    let x = PI * (turns - 0.5);
    // Taylor's series; the first term that is left out is 3e-16 at a quarter of a turn.
    let series = SINE.iter().rev().fold(0.0, |sum, term| sum * (x * x) + term);
    let s = x * series;
    2.0 * s * s - 1.0
}

/// Terms of sin(x) / x in x²: ±1 / (2n + 1)!.
const SINE: [f64; 10] = {
    let mut terms = [1.0; 10];
    let mut n = 1;
    while n < terms.len() {
        terms[n] = -terms[n - 1] / (2 * n * (2 * n + 1)) as f64;
        n += 1;
    }
    terms
};

#[cfg(test)]
mod tests {
    use super::*;

    /// To the bit, the random weights of a model are part of a recipe's meaning. The expected ones are drawn one by
    /// one, with the C library's functions.
    #[test]
    fn numbers_are_those_of_the_c_library_wherever_a_piece_ends() {
        let seed = Seed::run(17).derive("layers.0.query", &[]);
        let values = normals(seed, 0.02, 8 * PIECE + 77);

        let mut stream = seed.stream();

        for (position, value) in (0..).zip(values) {
            let pair = [0, 1].map(|part| stream.uniform_at(2 * position + part));
            assert_eq!(value.to_bits(), exactly(pair, 0.02).to_bits(), "number {position}");
        }
    }

    #[test]
    fn the_ends_of_the_range_are_the_c_librarys_too() {
        let last = 1.0 - 2f64.powi(-53);
        let pairs = [[0.0, 0.0], [0.0, 0.7], [last, 0.0], [last, 0.25], [last, last], [0.3, 0.75]];

        let mut numbers = [0.0; 6];
        fill(&mut numbers, &pairs, 0.02);

        for (number, pair) in numbers.into_iter().zip(pairs) {
            assert_eq!(number.to_bits(), exactly(pair, 0.02).to_bits(), "{pair:?}");
        }
    }
}
