//! The operations of a decoder that have code of their own for each kind of device, with the gradients that an
//! update needs, written by hand.
//!
//! Each operation is a function of tensors with three bodies behind it. Plain tensor code runs on every device and
//! is the reference. The body for the CPU uses all cores and the widest vectors, and reads the numbers of the
//! tensors where they lie. The body for GPUs of every kind comes with the feature `gpu`. One of the latter two is
//! taken if the numbers are f32, or on a GPU in the format of products, and without autodiff, unless
//! [`use_kernels`] said otherwise. A caller sees one function.
//!
//! The body for the CPU gives the same bits for any number of threads, and the body for GPUs gives the same bits
//! each time. Bodies differ by rounding.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

/// Returns the result of the GPUs' body, if it is compiled in and takes these tensors.
macro_rules! on_gpu {
    ($($body:tt)*) => {
        #[cfg(feature = "gpu")]
        if let Some(done) = crate::cube::$($body)* {
            return done;
        }
    };
}

mod adamw;
mod attention;
mod compute;
mod cpu;
#[cfg(feature = "gpu")]
mod cube;
mod flex;
mod gated;
mod graph;
mod head;
mod heap;
#[cfg(any(test, feature = "gpu"))]
mod launch_ranges;
mod linear;
mod mask;
mod norm;
mod pages;
mod qkv_rope;
mod rows;
mod sample;
mod sum;
mod switch;
#[cfg(test)]
mod tests;
mod unpack;
mod watch;

pub use adamw::{AdamWStep, adamw, scaled_squares};
pub use attention::{AttentionOptions, AttentionOutput, attention, attention_backward};
pub use compute::Compute;
pub use gated::{Activation, gated, gated_backward};
pub use graph::{Graph, overwrite, overwrite_ints};
pub use head::{TokenLogProbs, head_backward, head_logits, head_logprobs, head_logprobs_saving};
pub use heap::{give_memory_back, keep_memory};
pub use linear::{
    add_product, cast_in_columns, column_sums, factor, linear, linear_beside, product,
};
pub use mask::{PackedMask, Segment};
pub use norm::Norm;
pub use pages::{Block, BlockTable, Moves, PAGE, Pages, SlotMapping, paged_attention};
pub use qkv_rope::{Heads, RopeFrequencies, RopeTable, qkv_rope, qkv_rope_backward};
pub use rows::add_rows;
pub use sample::{Choice, sample_on_device, sample_on_host};
pub use sum::sum_all;
pub use switch::{Kernels, kernels, together, use_kernels};
pub use unpack::{Codes, unpacked};
pub use watch::{Launched, launches, timed_launches};

use burn::tensor::Tensor;

/// The number that is added to the attention scores of keys that a query must not see.
///
/// It is finite on purpose. A query of a padding position sees no key at all, and −∞ everywhere would make its
/// softmax NaN, which the backward pass would spread to the whole batch.
pub const MASKED: f32 = -1e30;

/// The bytes that the units of a cube share in the largest kernels, those of attention. WebGPU promises 16 KiB,
/// desktops have 32 KiB and more.
pub const SHARED_MEMORY: usize = 32 << 10;

/// Joins the parts one behind the other; a single part is not copied.
pub fn joined<const D: usize>(mut parts: Vec<Tensor<D>>, dim: usize) -> Tensor<D> {
    if parts.len() == 1 { parts.remove(0) } else { Tensor::cat(parts, dim) }
}
