//! The bodies for the CPU: slices in, vectors out, and no tensors.
//!
//! Sums are cut by the sizes of the inputs, never by the number of threads, and those of pieces are added in the
//! order of the pieces: the bits are the same on one core and on sixty-four.

pub(crate) mod adamw;
pub(crate) mod attention;
pub(crate) mod gated;
pub(crate) mod head;
pub(crate) mod lanes;
pub(crate) mod looks;
pub(crate) mod norm;
mod out;
pub(crate) mod pages;
pub(crate) mod product;
pub(crate) mod rows;
pub(crate) mod sample;

use out::{Out, pieces, put_three};

/// Does `work` in code that was compiled for the widest vectors of this processor: AVX-512, AVX2 or NEON.
/// Only what is inlined into `work` is.
#[inline(always)]
fn simd<R>(work: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(work)
}

/// Rows of so many numbers that are worth a task of their own.
fn rows_of_a_task(width: usize) -> usize {
    const NUMBERS: usize = 1 << 13;
    NUMBERS.div_ceil(width.max(1)).next_power_of_two()
}

/// Adds vectors up in their order.
fn summed(parts: Vec<Vec<f32>>) -> Vec<f32> {
    let mut parts = parts.into_iter();
    let mut sum = parts.next().unwrap_or_default();
    for part in parts {
        sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }
    sum
}
