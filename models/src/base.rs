//! Formats of the frozen weights of a model with adapters.

use burn::{
    module::{Module, Param, ParamId},
    tensor::{DType, Device, FloatDType, Int, Tensor, TensorData},
};
use firebrick_kernels::{Codes, unpacked};
use half::bf16;

/// The format of frozen weights.
///
/// With 16 bits, all matrices are in bfloat16, the embedding and the head too; a device without bfloat16 keeps
/// them in 32 bits. With 8 and 4 bits, the projections' matrices are in codes, and embedding and head in 16 bits.
/// Each run of 32 inputs of an output has a scale of its own in 16 bits, so that a weight takes 8.5 or 4.5 bits.
/// Runs are shorter if 32 does not divide the inputs. With 8 bits, a weight is a number from -127 to 127 times the
/// scale, and the scale is a 127th of the run's largest weight. With 4 bits, a weight is a number from -8 to 7
/// times the scale. Several scales are tried, which take the largest weight to -8 or a little beyond; the scale
/// with the least sum of squared errors is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Base {
    /// 32 bits: weights stay as they are read.
    #[default]
    F32,
    /// 16 bits.
    Bf16,
    /// 8 bits for each weight, and scales.
    Int8,
    /// 4 bits for each weight, and scales.
    Int4,
}

impl Base {
    /// Returns the bits of a code, or `None` if the format has no codes.
    fn bits(self) -> Option<usize> {
        match self {
            Base::F32 | Base::Bf16 => None,
            Base::Int8 => Some(8),
            Base::Int4 => Some(4),
        }
    }
}

/// The largest number of inputs that share a scale.
const RUN: usize = 32;

/// The scales of 4 bits that are tried, as shares of the scale that keeps the largest weight of a run exact. A
/// smaller scale cuts that weight off and is finer for all others.
const SHARES: [f32; 6] = [1.0, 0.95, 0.9, 0.85, 0.8, 0.75];

/// A matrix in 8 or 4 bits, `[inputs, outputs]`.
///
/// It uses integers and plain operations on them rather than burn's quantised tensors: on the CPU those take a
/// byte for four bits, and a module's mappers and a checkpoint's files do not know them.
#[derive(Module, Debug)]
pub(crate) struct Packed {
    /// The codes, `[inputs · bits / 32, outputs]`. An integer has the codes of neighbouring inputs, the first in
    /// the lowest bits.
    codes: Param<Tensor<2, Int>>,
    /// One scale for each run and output, row-major. The tensor is flat, so that nothing takes it for a matrix and
    /// rounds it.
    scales: Param<Tensor<1>>,
    #[module(skip)]
    form: Codes,
}

impl Packed {
    /// Packs a matrix, row-major. Returns `None` if the format has no codes, or if the inputs do not fill whole
    /// integers, as in models made for tests.
    pub(crate) fn new(
        values: &[f32],
        [inputs, outputs]: [usize; 2],
        base: Base,
        device: &Device,
    ) -> Option<Packed> {
        let bits = base.bits()?;
        let in_word = Codes { bits, run: RUN }.in_word();
        let run = (in_word..=RUN).rev().find(|run| run % in_word == 0 && inputs % run == 0)?;
        let mut codes = vec![0u32; inputs / in_word * outputs];
        let mut scales = Vec::with_capacity(inputs / run * outputs);
        for (index, rows) in values.chunks(run * outputs).enumerate() {
            let of_run = match bits {
                8 => {
                    largest(rows, outputs).into_iter().map(|it| rounded(it.abs() / 127.0)).collect()
                }
                _ => finest(rows, &largest(rows, outputs)),
            };
            let (least, _) = range(bits);
            for (at, row) in rows.chunks(outputs).enumerate() {
                let input = index * run + at;
                let shift = input % in_word * bits;
                let words = &mut codes[input / in_word * outputs..][..outputs];
                for ((word, value), scale) in words.iter_mut().zip(row).zip(&of_run) {
                    *word |= ((code(*value, *scale, bits) - least) as u32) << shift;
                }
            }
            scales.extend(of_run);
        }
        let device = &device.clone().inner();
        let codes: Vec<i32> = codes.into_iter().map(|word| word as i32).collect();
        let codes = TensorData::new(codes, [inputs / in_word, outputs]);
        let count = scales.len();
        let codes = Tensor::<2, Int>::from_data(codes, (device, DType::I32));
        Some(Packed {
            codes: Param::initialized(ParamId::new(), codes),
            scales: frozen(scales, [count], device),
            form: Codes { bits, run },
        })
    }

    pub(crate) fn dims(&self) -> [usize; 2] {
        let [words, outputs] = self.codes.val().dims();
        [words * self.form.in_word(), outputs]
    }

    /// Unpacks the matrix, without autodiff, for products in a format.
    pub(crate) fn matrix(&self, format: FloatDType) -> Tensor<2> {
        unpacked(self.codes.val().inner(), self.scales.val().inner(), self.form, format)
    }
}

/// Finds the weight of a run that is farthest from 0, for each output. `rows` are the run's inputs.
fn largest(rows: &[f32], outputs: usize) -> Vec<f32> {
    let mut largest = vec![0f32; outputs];
    for row in rows.chunks(outputs) {
        for (largest, &value) in largest.iter_mut().zip(row) {
            *largest = if value.abs() > largest.abs() { value } else { *largest };
        }
    }
    largest
}

/// Finds the scale of 4 bits with the least sum of squared errors in a run, for each output.
fn finest(rows: &[f32], largest: &[f32]) -> Vec<f32> {
    let outputs = largest.len();
    let mut best = vec![(f32::INFINITY, 0f32); outputs];
    for share in SHARES {
        let scales: Vec<f32> = largest.iter().map(|it| rounded(it * share / -8.0)).collect();
        let mut errors = vec![0f32; outputs];
        for row in rows.chunks(outputs) {
            for ((error, &value), &scale) in errors.iter_mut().zip(row).zip(&scales) {
                let off = value - code(value, scale, 4) * scale;
                *error += off * off;
            }
        }
        for ((best, error), scale) in best.iter_mut().zip(errors).zip(scales) {
            *best = if error < best.0 { (error, scale) } else { *best };
        }
    }
    best.into_iter().map(|(_, scale)| scale).collect()
}

/// Returns the whole number that stands for a weight: the weight is about that number times the scale.
fn code(value: f32, scale: f32, bits: usize) -> f32 {
    let (least, most) = range(bits);
    let inverse = if scale == 0.0 { 0.0 } else { scale.recip() };
    // Adding and subtracting this number rounds to the nearest, because an f32 of its size has no fraction. Unlike
    // `round`, this vectorises.
    const ROUND: f32 = 12_582_912.0;
    (((value * inverse).clamp(least, most) + ROUND) - ROUND).clamp(least, most)
}

/// Returns the least and the largest code.
fn range(bits: usize) -> (f32, f32) {
    let half = (1u32 << (bits - 1)) as f32;
    (-half, half - 1.0)
}

/// Rounds a number to 16 bits.
fn rounded(value: f32) -> f32 {
    bf16::from_f32(value).to_f32()
}

/// Makes a frozen tensor in 16 bits. A device without bfloat16 keeps the same numbers in 32 bits.
pub(crate) fn frozen<const D: usize>(
    values: Vec<f32>,
    shape: [usize; D],
    device: &Device,
) -> Param<Tensor<D>> {
    if !device.supports_dtype(FloatDType::BF16) {
        let values: Vec<f32> = values.into_iter().map(rounded).collect();
        return Param::from_data(TensorData::new(values, shape), device).no_grad();
    }
    let values: Vec<bf16> = values.into_iter().map(bf16::from_f32).collect();
    let data = TensorData::new(values, shape);
    let tensor = Tensor::from_data(data, (device, DType::from(FloatDType::BF16)));
    Param::from_tensor(tensor).no_grad()
}
