//! Operations on GPUs: one source of kernels for CUDA, ROCm, Vulkan, Metal and WebGPU.
//!
//! A kernel reads and writes at most nine buffers of numbers, row by row, and one more buffer holds the sizes. WebGPU
//! guarantees only eight buffers, and a device with no more refuses the largest kernels. Sums are f32, in an order that
//! depends only on the sizes and the device, without atomics, so that a device returns the same bits each time. The
//! units of a cube share 32 KiB at most, and no kernel depends on how many units execute in lockstep. Only the kernels
//! in `fragments` rely on planes of 32 units, and on 48 KiB: CUDA's devices have both.

pub(crate) mod adamw;
mod adapter;
pub(crate) mod angles;
pub(crate) mod attention;
pub(crate) mod attention_backward;
pub(crate) mod block_table;
pub(crate) mod columns;
mod cuts;
mod flash;
mod flash_backward;
mod flash_pages;
mod fragments;
pub(crate) mod gated;
pub(crate) mod graph;
pub(crate) mod head;
pub(crate) mod join_adapters;
pub(crate) mod norm;
pub(crate) mod pages;
pub(crate) mod plan;
pub(crate) mod product;
pub(crate) mod qkv_rope;
pub(crate) mod rows;
pub(crate) mod sample;
mod shared;
mod split;
mod tiles;
pub(crate) mod unpack;

use burn::tensor::{DType, Device, Int, Shape, Tensor, TensorData};
use burn_cubecl::{
    Cube, cubecl, kernel::into_contiguous, ops::numeric::empty_device_contiguous_dtype,
    tensor::CubeTensor,
};
use cubecl::{
    ir::{ElemType, FloatKind},
    prelude::*,
};
use shared::sum_of_cube;

use crate::{Compute, Kernels, kernels};

/// Units in a cube. Every device has that many.
const UNITS: u32 = 256;

/// Numbers on a GPU, row by row.
type Buffer = CubeTensor;

/// Returns the buffer of a tensor that the GPU implementations take: on a GPU and without autodiff. `None` for other
/// tensors, and if the reference was chosen. Numbers are copied only if they are not stored row by row.
fn buffer<const D: usize>(x: &Tensor<D>) -> Option<Buffer> {
    strided(x).map(lined_up)
}

/// Lays the buffer out row by row, and without room after the last number: a kernel takes the length of the memory as
/// that of the tensor, and CUDA rounds it up.
fn lined_up(x: Buffer) -> Buffer {
    let x = into_contiguous(x);
    let more = x.handle.size_in_used() - (count(&x) * x.dtype.size()) as u64;
    match more {
        0 => x,
        more => Buffer { handle: x.handle.clone().offset_end(more), ..x },
    }
}

/// Returns the buffer of a tensor, whatever its strides.
fn strided<const D: usize>(x: &Tensor<D>) -> Option<Buffer> {
    if kernels() == Kernels::Reference || x.is_autodiff() {
        return None;
    }
    x.clone().try_into_primitive::<Cube>().ok()
}

/// Does [`buffer`] for numbers in f32.
fn wide<const D: usize>(x: &Tensor<D>) -> Option<Buffer> {
    if x.dtype() == DType::F32 { buffer(x) } else { None }
}

/// Tells whether the GPU implementations take a tensor. If so, they also take all tensors that are passed with it.
pub(crate) fn takes<const D: usize>(x: &Tensor<D>) -> bool {
    wide(x).is_some()
}

/// Returns the numbers of a tensor that is [taken](takes).
fn taken<const D: usize>(x: &Tensor<D>) -> Buffer {
    wide(x).expect("it is f32, and on a GPU")
}

/// Returns the numbers of a tensor in any format, next to a tensor that is taken.
fn any<const D: usize>(x: &Tensor<D>) -> Buffer {
    buffer(x).expect("all are on one GPU")
}

/// Returns integers, next to a tensor that is taken.
fn whole<const D: usize>(x: &Tensor<D, Int>) -> Buffer {
    ints(x).expect("all are on one GPU")
}

/// Tells whether the implementations here take a device's tensors.
pub(crate) fn is_gpu(device: &Device) -> bool {
    takes(&Tensor::<1>::empty([1], device))
}

/// Does [`buffer`] for integers in 32 bits.
fn ints<const D: usize>(x: &Tensor<D, Int>) -> Option<Buffer> {
    if kernels() == Kernels::Reference || x.dtype() != DType::I32 {
        return None;
    }
    x.clone().try_into_primitive::<Cube>().ok().map(lined_up)
}

/// Returns the numbers of a tensor that will be changed in place, or a copy if its buffer is shared.
fn own<const D: usize>(x: Tensor<D>) -> Buffer {
    let numbers = into_contiguous(x.try_into_primitive::<Cube>().expect("it is on a GPU"));
    // Tested before the buffer is cut to its length, because that shares it for a moment.
    if numbers.can_mut() { lined_up(numbers) } else { rows::copied(lined_up(numbers)) }
}

/// Makes a tensor of these numbers.
fn tensor<const D: usize>(numbers: Buffer) -> Tensor<D> {
    Tensor::from_primitive::<Cube>(numbers)
}

fn int_tensor<const D: usize>(numbers: Buffer) -> Tensor<D, Int> {
    Tensor::from_primitive::<Cube>(numbers)
}

/// Sends integers to the device of `x`.
fn uploaded(numbers: Vec<u32>, x: &Buffer) -> Buffer {
    let handle = x.client.create_from_slice(u32::as_bytes(&numbers));
    let shape = Shape::from([numbers.len()]);
    Buffer::new_contiguous(x.client.clone(), x.device.clone(), shape, handle, DType::U32)
}

/// Allocates room for numbers of a format on the device of `x`.
///
/// # Panics
/// If a kernel could not index them: it counts in 32 bits, and would silently wrap at 2³².
fn empty<const D: usize>(x: &Buffer, shape: [usize; D], format: DType) -> Buffer {
    let numbers = shape.iter().try_fold(1usize, |product, side| product.checked_mul(*side));
    assert!(
        numbers.is_some_and(|numbers| numbers < 1 << 31),
        "a buffer of {shape:?} numbers, expected fewer than 2³¹: lower rollout.max_sequences or \
         train.micro_batch_tokens"
    );
    let shape = Shape::from(shape);
    empty_device_contiguous_dtype(x.client.clone(), x.device.clone(), shape, format)
}

/// Returns the matmul precision.
fn products(compute: Compute) -> DType {
    compute.dtype().into()
}

fn count(x: &Buffer) -> usize {
    x.meta.num_elements()
}

/// Returns the format of numbers, by its name in kernels.
fn format(x: &Buffer) -> ElemType {
    ElemType::Float(match x.dtype {
        DType::F16 => FloatKind::F16,
        DType::BF16 => FloatKind::BF16,
        _ => FloatKind::F32,
    })
}

/// Requests `count` cubes. A device counts cubes in two dimensions, neither of which may be large, so there may be a
/// few more.
fn cubes(count: usize) -> CubeCount {
    const ACROSS: usize = 1 << 15;
    let across = count.clamp(1, ACROSS);
    CubeCount::Static(across as u32, count.div_ceil(across).max(1) as u32, 1)
}

/// Requests a unit for each of `count` numbers, or a few more.
fn units(count: usize) -> CubeCount {
    cubes(count.div_ceil(UNITS as usize))
}

/// Requests a unit for each of `numbers` neighbouring numbers, or fewer.
fn across(numbers: usize) -> CubeDim {
    CubeDim::new_1d((numbers.next_power_of_two() as u32).clamp(32, UNITS))
}

fn dim() -> CubeDim {
    CubeDim::new_1d(UNITS)
}
