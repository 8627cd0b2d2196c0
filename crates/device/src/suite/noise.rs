//! Random-like numbers for the suite's cases, and the use of the host's cores for their sums.

use std::{ops::Range, panic::resume_unwind, thread};

use burn::tensor::{Device, Tensor, TensorData};

use super::compares;
use crate::Precision;

/// Random-like numbers within ±1, the same on every machine.
///
/// No two rows are alike and their sums do not cancel systematically, so that every number of a long sum matters.
/// Products of a sine, [`wave`](super::tensors::wave), do cancel: its matrices have rank 2. The format holds these
/// numbers exactly, so the host and the device multiply the same ones.
#[derive(Clone, Copy)]
pub(super) struct Noise {
    salt: u64,
    /// Each number is a multiple of 2⁻ᵇ for this number b of bits.
    bits: u32,
}

impl Noise {
    /// Makes numbers that every format holds exactly.
    pub(super) fn new(salt: u64) -> Self {
        Noise::of(Precision::Bf16, salt)
    }

    /// Makes numbers with all the digits of a format, which holds them exactly.
    pub(super) fn of(precision: Precision, salt: u64) -> Self {
        let bits = match precision {
            Precision::F32 => 24,
            Precision::F16 => 11,
            Precision::Bf16 => 8,
        };
        Noise { salt, bits }
    }

    /// Returns the number at `index`, by the finalizer of SplitMix64 (Steele, Lea and Flood 2014).
    pub(super) fn at(self, index: usize) -> f32 {
        let from = (self.salt << 48) ^ index as u64;
        let mut x = from.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
        // The upper bits, shifted to a range around 0.
        let whole = 1i64 << self.bits;
        ((x >> (63 - self.bits)) as i64 - whole) as f32 / whole as f32
    }

    pub(super) fn numbers(self, count: usize) -> Vec<f32> {
        on_all_cores(count, |part| part.map(|index| self.at(index)).collect())
    }

    /// Does [`Noise::numbers`] for a large case. Where nothing is compared, they are zeros, which take no time.
    pub(super) fn numbers_of_large(self, count: usize) -> Vec<f32> {
        if compares() { self.numbers(count) } else { vec![0.0; count] }
    }

    pub(super) fn tensor<const D: usize>(self, shape: [usize; D], device: &Device) -> Tensor<D> {
        let numbers = self.numbers(shape.iter().product());
        Tensor::from_data(TensorData::new(numbers, shape), device)
    }
}

/// Does `work` for `count` items, on all cores. It gets a range of them at a time, and the results follow the order of
/// the items.
pub(super) fn on_all_cores<T: Send>(
    count: usize,
    work: impl Fn(Range<usize>) -> Vec<T> + Sync,
) -> Vec<T> {
    // One contiguous range for each core.
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let chunk = count.div_ceil(cores).max(1);
    let work = &work;

    thread::scope(|scope| {
        let handles: Vec<_> = (0..count)
            .step_by(chunk)
            .map(|start| scope.spawn(move || work(start..count.min(start + chunk))))
            .collect();

        let joined =
            handles.into_iter().map(|part| part.join().unwrap_or_else(|it| resume_unwind(it)));
        joined.flatten().collect()
    })
}

/// Spreads `count` positions evenly over `rows` and `columns`. With the golden ratio between neighbours, no two of them
/// are close together.
pub(super) fn spread(
    count: usize,
    [rows, columns]: [usize; 2],
) -> impl Iterator<Item = [usize; 2]> {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    (0..count).map(move |index| {
        let across = (index as f64 * GOLDEN).fract();
        [index * rows / count, (across * columns as f64) as usize]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_exact_in_its_format_and_fills_it() {
        for (precision, digits) in
            [(Precision::F32, 24), (Precision::F16, 11), (Precision::Bf16, 8)]
        {
            let numbers = Noise::of(precision, 3).numbers(10_000);
            let integers = numbers.iter().map(|&number| f64::from(number) * 2f64.powi(digits));
            assert!(
                integers
                    .clone()
                    .all(|number| number.fract() == 0.0 && number.abs() <= 2f64.powi(digits))
            );
            assert!(integers.clone().any(|number| number % 2.0 != 0.0), "the last digit is used");

            // A uniform number within ±1 has the mean 0 and the mean square 1/3. The means of ten thousand stray by
            // 0.006 and 0.003.
            let mean = |of: fn(f64) -> f64| {
                numbers.iter().map(|&number| of(f64::from(number))).sum::<f64>() / 10_000.0
            };
            assert!(mean(|x| x).abs() < 0.03 && (mean(|x| x * x) - 1.0 / 3.0).abs() < 0.02);
        }
        assert_ne!(Noise::new(1).numbers(8), Noise::new(2).numbers(8));
    }

    #[test]
    fn all_cores_do_every_thing_once_and_in_order() {
        for count in [0, 1, 7, 1000] {
            assert!(on_all_cores(count, |part| part.collect()).into_iter().eq(0..count));
        }
    }
}
