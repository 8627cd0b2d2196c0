//! The bodies for GPUs: one source of kernels for CUDA, ROCm, Vulkan, Metal and WebGPU.
//!
//! A kernel reads and writes buffers of numbers, row by row, of which it has nine at most, and one that tells the sizes. WebGPU
//! promises eight, so that a device with no more refuses the largest. Whatever is added up is added in f32, in an order that the
//! sizes alone decide, without atomics: a device gives the same bits each time. What the units of a cube share takes 32 KiB
//! at most, and no kernel asks how many units compute in step.

pub(crate) mod adamw;
pub(crate) mod angles;
pub(crate) mod attention;
pub(crate) mod attention_back;
pub(crate) mod gated;
pub(crate) mod graph;
pub(crate) mod head;
pub(crate) mod looks;
pub(crate) mod norm;
pub(crate) mod pages;
pub(crate) mod plan;
pub(crate) mod product;
pub(crate) mod rows;
pub(crate) mod sample;
mod shared;
mod tiles;

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

/// Units of a cube. Every device has as many.
const UNITS: u32 = 256;

/// Numbers on a GPU, row by row.
type Buffer = CubeTensor;

/// Those of a tensor that the GPUs' bodies take: on a GPU, without autodiff, and not where the reference is asked for. They
/// are copied only where they do not lie row by row.
fn buffer<const D: usize>(x: &Tensor<D>) -> Option<Buffer> {
    strided(x).map(lined_up)
}

/// Row by row, and with no room behind the last number: a kernel takes the length of the memory for that of the tensor, and
/// CUDA's is rounded up.
fn lined_up(x: Buffer) -> Buffer {
    let x = into_contiguous(x);
    let more = x.handle.size_in_used() - (count(&x) * x.dtype.size()) as u64;
    match more {
        0 => x,
        more => Buffer { handle: x.handle.clone().offset_end(more), ..x },
    }
}

/// Those of a tensor, wherever its rows and columns lie.
fn strided<const D: usize>(x: &Tensor<D>) -> Option<Buffer> {
    if kernels() == Kernels::Reference || x.is_autodiff() {
        return None;
    }
    x.clone().try_into_primitive::<Cube>().ok()
}

/// [`buffer`] of numbers in f32.
fn wide<const D: usize>(x: &Tensor<D>) -> Option<Buffer> {
    if x.dtype() == DType::F32 { buffer(x) } else { None }
}

/// Whether a tensor is one that the GPUs' bodies take: then all that goes with it are.
pub(crate) fn takes<const D: usize>(x: &Tensor<D>) -> bool {
    wide(x).is_some()
}

/// The numbers of a tensor that is [taken](takes).
fn taken<const D: usize>(x: &Tensor<D>) -> Buffer {
    wide(x).expect("it is f32, and on a GPU")
}

/// Those of one in any format, beside one that is taken.
fn any<const D: usize>(x: &Tensor<D>) -> Buffer {
    buffer(x).expect("all are on one GPU")
}

/// Those of whole numbers, likewise.
fn whole<const D: usize>(x: &Tensor<D, Int>) -> Buffer {
    ints(x).expect("all are on one GPU")
}

/// Whether tensors of a device are of the kind that the bodies here take.
pub(crate) fn is_gpu(device: &Device) -> bool {
    takes(&Tensor::<1>::empty([1], device))
}

/// [`buffer`] of whole numbers in 32 bits.
fn ints<const D: usize>(x: &Tensor<D, Int>) -> Option<Buffer> {
    if kernels() == Kernels::Reference || x.dtype() != DType::I32 {
        return None;
    }
    x.clone().try_into_primitive::<Cube>().ok().map(lined_up)
}

/// The numbers of a tensor that are going to be changed in place; a copy where somebody else has them too.
fn own<const D: usize>(x: Tensor<D>) -> Buffer {
    let numbers = into_contiguous(x.try_into_primitive::<Cube>().expect("it is on a GPU"));
    // Before it is cut to its length, which holds it twice for a moment.
    if numbers.can_mut() { lined_up(numbers) } else { rows::copied(lined_up(numbers)) }
}

/// A tensor of these numbers.
fn tensor<const D: usize>(numbers: Buffer) -> Tensor<D> {
    Tensor::from_primitive::<Cube>(numbers)
}

fn int_tensor<const D: usize>(numbers: Buffer) -> Tensor<D, Int> {
    Tensor::from_primitive::<Cube>(numbers)
}

/// Whole numbers, beside `x`.
fn uploaded(numbers: Vec<u32>, x: &Buffer) -> Buffer {
    let handle = x.client.create_from_slice(u32::as_bytes(&numbers));
    let shape = Shape::from([numbers.len()]);
    Buffer::new_contiguous(x.client.clone(), x.device.clone(), shape, handle, DType::U32)
}

/// Room for numbers of a format, beside `x`.
fn empty<const D: usize>(x: &Buffer, shape: [usize; D], format: DType) -> Buffer {
    let shape = Shape::from(shape);
    empty_device_contiguous_dtype(x.client.clone(), x.device.clone(), shape, format)
}

/// What matrices are multiplied in.
fn products(compute: Compute) -> DType {
    compute.dtype().into()
}

fn count(x: &Buffer) -> usize {
    x.meta.num_elements()
}

/// A format of numbers, as kernels have it.
fn format(x: &Buffer) -> ElemType {
    ElemType::Float(match x.dtype {
        DType::F16 => FloatKind::F16,
        DType::BF16 => FloatKind::BF16,
        _ => FloatKind::F32,
    })
}

/// A cube for each of so many. A device counts them in two numbers, of which neither may be large, so there may be some more.
fn cubes(count: usize) -> CubeCount {
    const ACROSS: usize = 1 << 15;
    let across = count.clamp(1, ACROSS);
    CubeCount::Static(across as u32, count.div_ceil(across).max(1) as u32, 1)
}

/// A unit for each of so many numbers, or some more.
fn units(count: usize) -> CubeCount {
    cubes(count.div_ceil(UNITS as usize))
}

/// A unit for each of so many neighbours, or fewer.
fn across(numbers: usize) -> CubeDim {
    CubeDim::new_1d((numbers.next_power_of_two() as u32).clamp(32, UNITS))
}

fn dim() -> CubeDim {
    CubeDim::new_1d(UNITS)
}
