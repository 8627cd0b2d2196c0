//! Operations on the CPU, as functions that take slices and return vectors, without tensors.
//!
//! Sums are split by the sizes of the inputs, never by the number of threads, and the partial sums are added in order.
//! So the bits are the same on one core and on sixty-four.

pub(crate) mod adamw;
pub(crate) mod attention;
mod few;
pub(crate) mod gated;
pub(crate) mod head;
pub(crate) mod lanes;
pub(crate) mod matrix;
pub(crate) mod norm;
mod out;
pub(crate) mod pages;
pub(crate) mod product;
pub(crate) mod qkv_rope;
pub(crate) mod rows;
pub(crate) mod sample;
pub(crate) mod weights;

use out::{Out, pieces, put_three};

/// Computes in code that was compiled for the widest vectors of this processor: AVX-512, AVX2 or NEON. This holds only
/// for code that is inlined into it, so helpers are `#[inline(always)]`, and loops are `for` instead of `for_each`.
/// `tools/vectors.py` checks that all of it is inlined.
macro_rules! simd {
    ($work:expr) => {
        pulp::Arch::new().dispatch($crate::cpu::Work(
            #[inline(always)]
            || $work,
        ))
    };
}
use simd;

/// A closure that is inlined where it is called. A plain [`FnOnce`] would be called by a function that the compiler
/// generates, and that function is not always inlined.
struct Work<F>(F);

impl<R, F: FnMut() -> R> pulp::NullaryFnOnce for Work<F> {
    type Output = R;

    #[inline(always)]
    fn call(mut self) -> R {
        (self.0)()
    }
}

/// Returns how many rows of this width are worth a separate task.
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
