//! Operations of a decoder with separate code for each kind of device, and with the gradients that an update needs,
//! written by hand.
//!
//! Each operation is a function of tensors with three implementations. Plain tensor code runs on every device and is
//! the reference. The CPU's implementation uses all cores and the widest vectors, and reads the numbers of the tensors
//! without copying. The implementation for GPUs of every kind requires the feature `gpu`. One of the latter two runs if
//! the numbers are f32, or on a GPU in the matmul precision, and without autodiff, unless [`use_kernels`] chose the
//! reference. A caller sees one function.
//!
//! On the CPU, the bits are the same for any number of threads; on a GPU, they are the same each time. Between
//! implementations, results differ by rounding.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

/// Returns the result of the GPU implementation, if it is compiled in and takes these tensors.
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
mod block;
mod choice;
mod compute;
mod cpu;
#[cfg(feature = "gpu")]
mod cube;
mod flex;
mod gated;
mod graph;
mod head;
mod head_kl;
mod heads;
mod heap;
mod join_adapters;
#[cfg(any(test, feature = "gpu"))]
mod launch_ranges;
mod linear;
mod mask;
mod norm;
mod pages;
mod qkv_rope;
mod quant_layout;
mod rows;
mod sample;
mod segment;
mod sum;
mod switch;
#[cfg(test)]
mod tests;
mod watch;
mod weight;

pub use adamw::{AdamWStep, adamw, scaled_squares};
pub use attention::{AttentionOptions, AttentionOutput, attention, attention_backward};
pub use block::{Block, PAGE};
pub use choice::Choice;
pub use compute::Compute;
pub use gated::{Activation, gated, gated_backward};
pub use graph::{Graph, overwrite, overwrite_ints};
pub use head::{
    LmHead, TokenLogProbs, head_backward, head_logits, head_logprobs, head_logprobs_saving,
};
pub use head_kl::{HeadKl, HeadStates, KlDirection, head_kl};
pub use heads::Heads;
pub use heap::{give_memory_back, keep_memory};
pub use join_adapters::{AdapterFactors, join_adapters};
pub use linear::{
    ProductWay, add_product, cast_in_columns, column_sums, factor, linear, linear_beside, product,
};
pub use mask::PackedMask;
pub use norm::Norm;
pub use pages::{BlockTable, Moves, Pages, SlotMapping, paged_attention};
pub use qkv_rope::{RopeFrequencies, RopeTable, qkv_rope, qkv_rope_backward};
pub use quant_layout::QuantLayout;
pub use rows::add_rows;
pub use sample::{sample_on_device, sample_on_host};
pub use segment::Segment;
pub use sum::sum_all;
pub use switch::{Kernels, kernels, run_on_compute_thread, use_kernels};
pub use watch::{Launched, launches, timed_launches};
pub use weight::{QuantisedMatrix, Weight};

use burn::tensor::Tensor;

/// Added to the attention scores of keys that a query must not attend to.
///
/// It is finite on purpose. A query of a padding position attends to no key, and −∞ everywhere would make its softmax
/// NaN, which the backward pass would spread to the entire batch.
pub const MASKED: f32 = -1e30;

/// Bytes that the units of a cube share in the largest kernels, those of attention. WebGPU guarantees 16 KiB; desktops
/// have 32 KiB and more.
pub const SHARED_MEMORY: usize = 32 << 10;

/// Concatenates the parts; a single part is not copied.
pub fn joined<const D: usize>(mut parts: Vec<Tensor<D>>, dim: usize) -> Tensor<D> {
    if parts.len() == 1 { parts.remove(0) } else { Tensor::cat(parts, dim) }
}
