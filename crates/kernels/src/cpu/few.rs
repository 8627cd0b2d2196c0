//! Matmuls of a few rows, whose time is that of reading the weights.
//!
//! With one row each weight is used once, so nothing is gained by packing tiles first, as [`super::product`] does for
//! many rows. Here a weight is multiplied where it is read, by all rows. Sums have the order and the rounding that they
//! have there: fused multiplications and additions in blocks of [`INNER`] inputs, one input after the other. So a row
//! has the same bits whether it is alone, one of few or one of many.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::{
    matrix::Matrix,
    simd,
    weights::{Code, Codes, Stored, Weights},
};

/// Number of rows up to which a product is computed here. With more, packed tiles are faster: from 12 rows on in narrow
/// matrices, and from 16 on in wide ones (two cores with AVX-512).
pub(super) const ROWS: usize = 12;

/// Number of products that are summed in one call of `gemm`: the longest sum that it does not split.
pub(super) const INNER: usize = 512;

/// Number of columns that are computed together: as many as the widest vector has numbers.
const LANES: usize = 16;

/// Number of inputs that are added together: as many as the smallest codes of a word.
const INPUTS: usize = 8;

/// Number of sums that stay in a core's nearest cache.
const NEAR: usize = 1 << 12;

/// Number of columns of a strip if each is stored in one piece.
const WALKED: usize = 32 * LANES;

/// Number of weights that are worth a task: reading them takes longer than waking a thread.
const LEAST: usize = 1 << 16;

/// Tells whether a product is computed here.
pub(super) fn takes(x: Matrix<'_>, y: Weights<'_>) -> bool {
    // `gemm` rounds sums of one or two terms in another order.
    let is_short = matches!(x.columns % INNER, 1 | 2);
    let stored =
        |steps: [usize; 2]| steps[1] == 1 || (steps[0] == 1 && cfg!(target_arch = "x86_64"));
    let is_stored = match y {
        Weights::F32(matrix) => stored(matrix.steps),
        Weights::Bf16(matrix) => stored(matrix.steps),
        Weights::Codes(codes) => codes.is_by_words(),
    };
    (1..=ROWS).contains(&x.rows) && !is_short && is_stored && fuses()
}

/// Tells whether the processor multiplies and adds in one instruction, with one rounding, and `gemm` does so too.
fn fuses() -> bool {
    #[cfg(target_arch = "x86_64")]
    return pulp::x86::V3::try_new().is_some();
    #[cfg(not(target_arch = "x86_64"))]
    cfg!(target_arch = "aarch64")
}

/// Sets the rows of `target`, `step` apart, to `scale · x · y`, or adds that to them, on all cores.
///
/// # Safety
/// `target` must be valid for writes of the product's rows, and initialised if `add` is true.
#[allow(unsafe_code)]
pub(super) unsafe fn multiply(
    target: *mut f32,
    step: usize,
    x: Matrix<'_>,
    y: Weights<'_>,
    scale: f32,
    add: bool,
) {
    let [inner, outputs] = y.dims();
    assert_eq!(x.columns, inner, "the inner sizes of a product are the same");
    let rows = x.rows;
    let inputs = grouped(x);
    let target = Target { numbers: target, step, scale, add };

    let tasks = (inner * outputs / LEAST).clamp(1, rayon::current_num_threads());
    let width = outputs.div_ceil(tasks).next_multiple_of(LANES);
    // A task's sums stay near while all inputs are added to them. Columns that are stored one after the other are read
    // in pieces of [`INNER`] numbers, and a piece's last line of the cache is also the next one's first.
    let near = if y.is_by_outputs() { WALKED } else { (NEAR / rows / LANES).max(1) * LANES };

    let one = |task: usize| {
        let end = ((task + 1) * width).min(outputs);
        for first in (task * width..end).step_by(near) {
            let columns = first..(first + near).min(end);
            let strip = y.columns(columns.clone());
            let mut sums = vec![[0.0; LANES]; columns.len().div_ceil(LANES) * rows];
            for start in (0..inner).step_by(INNER) {
                let these = start..(start + INNER).min(inner);
                let inputs =
                    &inputs[these.start / INPUTS * rows..these.end.div_ceil(INPUTS) * rows];
                sums.fill([0.0; LANES]);
                add_up(&mut sums, inputs, rows, strip.rows(these));
                // SAFETY: no other task has these columns, which are within the target. They were written with the
                // first block.
                unsafe { target.put(&sums, rows, columns.clone(), start > 0) };
            }
        }
    };

    match outputs.div_ceil(width) {
        1 => one(0),
        count => (0..count).into_par_iter().for_each(one),
    }
}

/// Returns the first [`INPUTS`] inputs of each row, then the next of each. Zeros follow the last ones.
fn grouped(x: Matrix<'_>) -> Vec<[f32; INPUTS]> {
    let mut groups = vec![[0.0; INPUTS]; x.columns.div_ceil(INPUTS) * x.rows];
    for (input, of_rows) in x.by_columns().collect::<Vec<f32>>().chunks_exact(x.rows).enumerate() {
        let these = groups[input / INPUTS * x.rows..].iter_mut();
        for (group, number) in these.zip(of_rows) {
            group[input % INPUTS] = *number;
        }
    }
    groups
}

/// Where sums are put.
struct Target {
    numbers: *mut f32,
    step: usize,
    scale: f32,
    add: bool,
}

// SAFETY: each thread writes only its own columns.
#[allow(unsafe_code)]
unsafe impl Sync for Target {}

impl Target {
    /// Puts the scaled sums of these columns, or adds them.
    ///
    /// # Safety
    /// The columns must be within the target, initialised if `more` is true, and written by nobody else.
    #[allow(unsafe_code)]
    unsafe fn put(
        &self,
        sums: &[[f32; LANES]],
        rows: usize,
        columns: std::ops::Range<usize>,
        more: bool,
    ) {
        let adds = self.add || more;
        simd!({
            for (block, of_rows) in sums.chunks_exact(rows).enumerate() {
                let first = columns.start + block * LANES;
                let count = (columns.end - first).min(LANES);
                for (row, sums) in of_rows.iter().enumerate() {
                    for (lane, sum) in sums[..count].iter().enumerate() {
                        // SAFETY: the caller guarantees it.
                        #[allow(unsafe_code)]
                        unsafe {
                            let number = self.numbers.add(row * self.step + first + lane);
                            *number = if adds {
                                self.scale.mul_add(*sum, *number)
                            } else {
                                self.scale * sum
                            };
                        }
                    }
                }
            }
        });
    }
}

/// Adds the products of some inputs with their weights to the sums, which are those of each row by [`LANES`] columns.
/// The inputs are [`grouped`].
fn add_up(sums: &mut [[f32; LANES]], inputs: &[[f32; INPUTS]], rows: usize, weights: Weights<'_>) {
    match weights {
        Weights::F32(matrix) => of_matrix(sums, inputs, rows, matrix),
        Weights::Bf16(matrix) => of_matrix(sums, inputs, rows, matrix),
        Weights::Codes(codes) => {
            // Room for the scales of a group.
            let mut scales = vec![[0.0; LANES]; codes.dims()[1].div_ceil(LANES)];
            let weights = (codes, scales.as_mut_slice());
            pulp::Arch::new().dispatch(AddUp { sums, inputs, rows, weights });
        }
    }
}

fn of_matrix(
    sums: &mut [[f32; LANES]],
    inputs: &[[f32; INPUTS]],
    rows: usize,
    weights: Matrix<'_, impl Stored>,
) {
    #[cfg(target_arch = "x86_64")]
    if weights.steps[1] != 1
        && let Some(simd) = pulp::x86::V3::try_new()
    {
        return simd.vectorize(super::Work(
            #[inline(always)]
            || across::add_up(simd, sums, inputs, rows, weights),
        ));
    }
    pulp::Arch::new().dispatch(AddUp { sums, inputs, rows, weights });
}

/// [`add_up`] with the widest vectors of the processor. Loops over lanes alone would leave it to the compiler what
/// becomes a vector, which then takes the rows if there are many.
struct AddUp<'a, W> {
    sums: &'a mut [[f32; LANES]],
    inputs: &'a [[f32; INPUTS]],
    rows: usize,
    weights: W,
}

impl<T: Stored> WithSimd for AddUp<'_, Matrix<'_, T>> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let AddUp { sums, inputs, rows, weights } = self;
        for (group, inputs) in inputs.chunks_exact(rows).enumerate() {
            let first = group * INPUTS;
            if first + INPUTS <= weights.rows {
                of_inputs::<S, 0, 4, T, INPUTS>(simd, sums, inputs, rows, weights, first);
                of_inputs::<S, 4, 4, T, INPUTS>(simd, sums, inputs, rows, weights, first);
                continue;
            }
            // Zeros would be added for the inputs that are missing, and 0 times an infinite weight is none.
            for input in first..weights.rows {
                let mut alone = [[0.0]; ROWS];
                for (alone, inputs) in alone.iter_mut().zip(inputs) {
                    alone[0] = inputs[input - first];
                }
                of_inputs::<S, 0, 1, T, 1>(simd, sums, &alone[..rows], rows, weights, input);
            }
        }
    }
}

impl WithSimd for AddUp<'_, (Codes<'_>, &mut [[f32; LANES]])> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match self.weights.0.layout().bits {
            4 => of_codes::<S, 4, 1>(simd, self),
            _ => of_codes::<S, 8, 2>(simd, self),
        }
    }
}

/// Adds the products of `N` inputs of a group, from number `FROM` on. The first of the group is input `first`.
#[inline(always)]
fn of_inputs<S: Simd, const FROM: usize, const N: usize, T: Stored, const G: usize>(
    simd: S,
    sums: &mut [[f32; LANES]],
    inputs: &[[f32; G]],
    rows: usize,
    weights: Matrix<'_, T>,
    first: usize,
) {
    let of_input = |nth: usize| {
        let start = (first + FROM + nth) * weights.steps[0];
        &weights.values[start..start + weights.columns]
    };
    let stored: [&[T]; N] = std::array::from_fn(of_input);
    let whole = weights.columns / LANES;
    let blocks = stored.map(|stored| &stored.as_chunks::<LANES>().0[..whole]);

    let (sums, rest) = sums.split_at_mut(whole * rows);
    for (block, sums) in sums.chunks_exact_mut(rows).enumerate() {
        let mut wide = [[0.0; LANES]; N];
        for nth in 0..N {
            // The same columns of the next group.
            fetch(&blocks[nth][block], INPUTS * weights.steps[0]);
            for lane in 0..LANES {
                wide[nth][lane] = blocks[nth][block][lane].wide();
            }
        }
        of_block::<S, FROM, N, G>(simd, sums, inputs, &wide);
    }

    if !rest.is_empty() {
        let mut wide = [[0.0; LANES]; N];
        for (wide, stored) in wide.iter_mut().zip(stored) {
            for (wide, stored) in wide.iter_mut().zip(stored.as_chunks::<LANES>().1) {
                *wide = stored.wide();
            }
        }
        of_block::<S, FROM, N, G>(simd, rest, inputs, &wide);
    }
}

/// Adds the products of `N` inputs of each row to the sums of one block of columns.
#[inline(always)]
fn of_block<S: Simd, const FROM: usize, const N: usize, const G: usize>(
    simd: S,
    sums: &mut [[f32; LANES]],
    inputs: &[[f32; G]],
    weights: &[[f32; LANES]; N],
) {
    for at in 0..LANES / S::F32_LANES {
        let weights = weights.each_ref().map(|weights| S::as_simd_f32s(weights).0[at]);
        of_lanes::<S, FROM, N, G>(simd, at, sums, inputs, weights);
    }
}

/// Adds the products of codes of `BITS` bits. A group of inputs has its codes in `WORDS` words.
#[inline(always)]
fn of_codes<S: Simd, const BITS: usize, const WORDS: usize>(
    simd: S,
    AddUp { sums, inputs, rows, weights }: AddUp<'_, (Codes<'_>, &mut [[f32; LANES]])>,
) {
    let (codes, scales) = weights;
    let columns = codes.dims()[1];
    let whole = columns / LANES;
    let mut last = [[0; LANES]];
    let mut of_group = None;

    for (group, inputs) in inputs.chunks_exact(rows).enumerate() {
        for word in 0..WORDS {
            let first = group * INPUTS + word * INPUTS / WORDS;
            // A matrix of codes of 8 bits may end within a group.
            if first >= codes.inputs() {
                continue;
            }
            if of_group != Some(codes.group(first)) {
                of_group = Some(codes.group(first));
                codes.scales(codes.group(first), &mut scales.as_flattened_mut()[..columns]);
            }

            let (words, rest) = codes.words_of(first).as_chunks::<LANES>();
            for (last, word) in last[0].iter_mut().zip(rest) {
                *last = *word;
            }
            let (of_whole, of_rest) = sums.split_at_mut(whole * rows);
            let blocks = of_whole.chunks_exact_mut(rows).zip(words);
            let blocks = blocks.chain(of_rest.chunks_exact_mut(rows).zip(&last));
            for ((sums, words), scales) in blocks.zip(&*scales) {
                fetch(words, WORDS * codes.width());
                for at in 0..LANES / S::F32_LANES {
                    let words = simd.transmute_u32s_i32s(S::as_simd_i32s(words).0[at]);
                    let scales = S::as_simd_f32s(scales).0[at];
                    if WORDS == 1 {
                        let weights = decoded::<S, BITS, 8>(simd, words, scales);
                        of_lanes::<S, 0, 8, INPUTS>(simd, at, sums, inputs, weights);
                    } else {
                        let weights = decoded::<S, BITS, 4>(simd, words, scales);
                        match word {
                            0 => of_lanes::<S, 0, 4, INPUTS>(simd, at, sums, inputs, weights),
                            _ => of_lanes::<S, 4, 4, INPUTS>(simd, at, sums, inputs, weights),
                        }
                    }
                }
            }
        }
    }
}

/// Decodes the codes of some words.
#[inline(always)]
fn decoded<S: Simd, const BITS: usize, const N: usize>(
    simd: S,
    words: S::u32s,
    scales: S::f32s,
) -> [S::f32s; N] {
    let Code { exponent, mask, added, .. } = Code::<BITS>::new(0);
    let offset = simd.mul_f32s(simd.splat_f32s(-added), scales);
    std::array::from_fn(
        #[inline(always)]
        |nth| {
            let Code { left, right, .. } = Code::<BITS>::new(nth);
            let moved = if right == 0 {
                simd.wrapping_dyn_shl_u32s(words, simd.splat_u32s(left))
            } else {
                simd.wrapping_dyn_shr_u32s(words, simd.splat_u32s(right))
            };
            let bits = simd.and_u32s(moved, simd.splat_u32s(mask));
            let bits = simd.or_u32s(bits, simd.splat_u32s(exponent));
            simd.mul_add_f32s(simd.transmute_f32s_u32s(bits), scales, offset)
        },
    )
}

/// Adds the products of `N` inputs of each row, from number `FROM` on, to the sums of some columns: those of the vector
/// number `at` of a block.
#[inline(always)]
fn of_lanes<S: Simd, const FROM: usize, const N: usize, const G: usize>(
    simd: S,
    at: usize,
    sums: &mut [[f32; LANES]],
    inputs: &[[f32; G]],
    weights: [S::f32s; N],
) {
    for (sums, inputs) in sums.iter_mut().zip(inputs) {
        let sum = &mut S::as_mut_simd_f32s(sums).0[at];
        let mut now = *sum;
        for nth in 0..N {
            now = simd.mul_add_f32s(simd.splat_f32s(inputs[FROM + nth]), weights[nth], now);
        }
        *sum = now;
    }
}

/// Asks the memory for the numbers that come `later` than these. A matrix is walked in steps that processors don't
/// foresee. They go to the second cache, because the first one's places are few, and sums and inputs have them.
#[inline(always)]
fn fetch<T>(numbers: &[T], later: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

        let address = numbers.as_ptr().wrapping_add(later);
        // SAFETY: any address may be asked for, also one that is nobody's.
        #[allow(unsafe_code)]
        unsafe {
            _mm_prefetch::<_MM_HINT_T1>(address.cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (numbers, later);
}

/// Weights whose inputs are stored one after the other, such as those of a head.
#[cfg(target_arch = "x86_64")]
mod across {
    use std::arch::x86_64::__m256;

    use pulp::{cast, x86::V3};

    use super::{INPUTS, LANES, Matrix, Stored, fetch};

    /// Number of columns that are transposed together, as many as there are numbers of 32 bits in a vector.
    const SIDE: usize = 8;

    /// Number of vectors by which the memory is asked beforehand.
    const AHEAD: usize = 12;

    #[inline(always)]
    pub(super) fn add_up<T: Stored>(
        simd: V3,
        sums: &mut [[f32; LANES]],
        inputs: &[[f32; INPUTS]],
        rows: usize,
        weights: Matrix<'_, T>,
    ) {
        let inner = weights.rows;
        // A vector holds the weights of this many inputs.
        let deep = SIDE * T::IN_32_BITS;
        let whole = inner / deep;

        for (block, sums) in sums.chunks_exact_mut(rows).enumerate() {
            let first = block * LANES;
            let count = (weights.columns - first).min(LANES);
            let column = |nth: usize| &weights.values[(first + nth) * weights.steps[1]..][..inner];
            let mut start = 0;

            if count == LANES {
                start = whole * deep;
                let columns: [&[T]; LANES] = std::array::from_fn(|nth| &column(nth)[..start]);
                let groups = inputs.chunks_exact(rows * T::IN_32_BITS);
                for (vector, inputs) in groups.take(whole).enumerate() {
                    let at = vector * deep;
                    // Two vectors are a line of the cache. After a column comes the one in the next block.
                    let later = match vector + AHEAD {
                        later if later < whole => (later - vector) * deep,
                        later => {
                            (LANES * weights.steps[1] + (later - whole) * deep).wrapping_sub(at)
                        }
                    };
                    for nth in 0..SIDE {
                        fetch(&columns[vector % 2 * SIDE + nth][at..], later);
                    }

                    for half in 0..2 {
                        let these: [&[T]; SIDE] =
                            std::array::from_fn(|nth| &columns[half * SIDE + nth][at..at + deep]);
                        let weights = transposed(simd, these.map(|these| T::vector(these)));
                        for row in 0..rows {
                            let sum = &mut sums[row].as_chunks_mut::<SIDE>().0[half];
                            let mut now: __m256 = cast(*sum);
                            for nth in 0..SIDE {
                                for part in 0..T::IN_32_BITS {
                                    let input = nth * T::IN_32_BITS + part;
                                    let inputs = &inputs[input / INPUTS * rows + row];
                                    let x = simd.avx._mm256_set1_ps(inputs[input % INPUTS]);
                                    let weights = T::part(simd, weights[nth], part);
                                    now = simd.fma._mm256_fmadd_ps(x, weights, now);
                                }
                            }
                            *sum = cast(now);
                        }
                    }
                }
            }

            // What is left over, and columns that are too few.
            for nth in 0..count {
                for (input, weight) in column(nth).iter().enumerate().skip(start) {
                    let inputs = &inputs[input / INPUTS * rows..];
                    for (sum, inputs) in sums.iter_mut().zip(inputs) {
                        sum[nth] = inputs[input % INPUTS].mul_add(weight.wide(), sum[nth]);
                    }
                }
            }
        }
    }

    /// Returns the columns' first 32 bits, then their second ones, and so on.
    #[inline(always)]
    fn transposed(simd: V3, [a, b, c, d, e, f, g, h]: [__m256; SIDE]) -> [__m256; SIDE] {
        let avx = simd.avx;
        // Pairs of columns, then fours, then all.
        let pairs = [
            avx._mm256_unpacklo_ps(a, b),
            avx._mm256_unpackhi_ps(a, b),
            avx._mm256_unpacklo_ps(c, d),
            avx._mm256_unpackhi_ps(c, d),
            avx._mm256_unpacklo_ps(e, f),
            avx._mm256_unpackhi_ps(e, f),
            avx._mm256_unpacklo_ps(g, h),
            avx._mm256_unpackhi_ps(g, h),
        ];
        let fours = [
            avx._mm256_shuffle_ps::<0x44>(pairs[0], pairs[2]),
            avx._mm256_shuffle_ps::<0xee>(pairs[0], pairs[2]),
            avx._mm256_shuffle_ps::<0x44>(pairs[1], pairs[3]),
            avx._mm256_shuffle_ps::<0xee>(pairs[1], pairs[3]),
            avx._mm256_shuffle_ps::<0x44>(pairs[4], pairs[6]),
            avx._mm256_shuffle_ps::<0xee>(pairs[4], pairs[6]),
            avx._mm256_shuffle_ps::<0x44>(pairs[5], pairs[7]),
            avx._mm256_shuffle_ps::<0xee>(pairs[5], pairs[7]),
        ];
        let low = |nth: usize| avx._mm256_permute2f128_ps::<0x20>(fours[nth], fours[nth + 4]);
        let high = |nth: usize| avx._mm256_permute2f128_ps::<0x31>(fours[nth], fours[nth + 4]);
        [low(0), low(1), low(2), low(3), high(0), high(1), high(2), high(3)]
    }
}
