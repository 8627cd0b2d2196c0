//! Cosines and sines of rotary angles on GPUs, precise to the last bits of f32.

use super::*;

/// Computes cosine and sine of the angle of each position and pair, times `scale`, `[positions, pairs, 2]`.
pub(crate) fn angles(
    positions: &Tensor<2, Int>,
    frequencies: &Tensor<1>,
    scale: f32,
) -> Option<Tensor<3>> {
    let (positions, frequencies) = (ints(positions)?, wide(frequencies)?);
    let shape = [count(&positions), count(&frequencies), 2];
    let all = empty(&frequencies, shape, DType::F32);

    angles_of::launch(
        &all.client.clone(),
        units(shape[0] * shape[1]),
        dim(),
        positions.into_buffer_arg(),
        frequencies.into_buffer_arg(),
        all.clone().into_buffer_arg(),
        scale,
    );
    Some(tensor(all))
}

#[cube(launch)]
fn angles_of(positions: &[i32], frequencies: &[f32], angles: &mut [f32], scale: f32) {
    let pairs = frequencies.len();
    if ABSOLUTE_POS / pairs < positions.len() {
        let position = f32::cast_from(positions[ABSOLUTE_POS / pairs]);
        let (cos, sin) = cos_sin(position * frequencies[ABSOLUTE_POS % pairs]);
        angles[2 * ABSOLUTE_POS] = cos * scale;
        angles[2 * ABSOLUTE_POS + 1] = sin * scale;
    }
}

/// Computes cosine and sine of an angle from 0 to 2²², to the last bits of f32. WebGPU guarantees only eleven bits, and
/// only within one turn.
///
/// Quarter turns are subtracted in integers, as Payne and Hanek (1983) do it, because shader compilers reorder sums of
/// floating-point numbers. The polynomials are those of Moshier's Cephes library.
#[cube]
fn cos_sin(angle: f32) -> (f32, f32) {
    let mut quarter = 0u32;
    let mut rest = angle;
    if angle >= 0.5 {
        let bits = u32::reinterpret(angle);
        let digits = (bits & 0x7f_ffff) | 0x80_0000;
        let shift = 150 - (bits >> 23);

        // 2/π in 64 fractional bits. Only the upper parts of the multiplications matter.
        let low = digits * 0xa2f9_836e;
        let sum = low + digits.mul_hi(0x4e44_1529);
        let high = digits.mul_hi(0xa2f9_836e) + select(sum < low, 1, 0);

        let fraction = (sum >> shift) | (high << (32 - shift));
        quarter = (high >> shift) + (fraction >> 31);
        // The rest is between −½ and ½ of a quarter.
        rest = f32::cast_from(i32::cast_from(fraction)) * 3.657_295_2e-10;
    }

    let square = rest * rest;
    let sin =
        ((8.332_161e-3 - square * 1.951_529_6e-4) * square - 0.166_666_55) * square * rest + rest;
    let cos =
        ((square * 2.443_315_7e-5 - 1.388_731_6e-3) * square + 4.166_664_6e-2) * square * square
            - square * 0.5
            + 1.0;

    // After an odd number of quarters, sine and cosine swap; the signs follow from the quadrant.
    let quarter = quarter & 3;
    let odd = (quarter & 1) == 1;
    let x = select(odd, sin, cos);
    let y = select(odd, cos, sin);
    (select(quarter == 1 || quarter == 2, -x, x), select(quarter >= 2, -y, y))
}
