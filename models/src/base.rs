//! Formats of the frozen weights of a model with adapters.

use burn::{
    module::{Module, Param, ParamId},
    tensor::{DType, Device, FloatDType, Int, Tensor, TensorData},
};
use firebrick_kernels::{QuantLayout, QuantisedMatrix};
use half::bf16;

/// Format of frozen weights.
///
/// With 16 bits, all matrices are in bfloat16, including the embedding and the head, although a device without
/// bfloat16 keeps them in 32 bits. With 8 and 4 bits, the projections' matrices are quantised group-wise, and embedding
/// and head are in 16 bits. Each group of 32 inputs of an output has its own scale in 16 bits, so that a weight takes
/// 8.5 or 4.5 bits. Groups are smaller if 32 does not divide the inputs.
///
/// Quantisation is symmetric and rounds to the nearest. With 8 bits, a weight is a number from -127 to 127 times the
/// scale, and the scale is a 127th of the group's largest weight. With 4 bits, a weight is a number from -8 to 7 times
/// the scale. The 4-bit scale minimises the squared error of its group, among several that take the largest weight to
/// -8 or clip it slightly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrozenFormat {
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

impl FrozenFormat {
    /// Returns the bits of a quantised weight, or `None` if the format does not quantise.
    fn bits(self) -> Option<usize> {
        match self {
            FrozenFormat::F32 | FrozenFormat::Bf16 => None,
            FrozenFormat::Int8 => Some(8),
            FrozenFormat::Int4 => Some(4),
        }
    }
}

/// Maximum number of inputs that share a scale.
const GROUP_SIZE: usize = 32;

/// Scales that are tried for 4 bits, as factors of the one that keeps the largest weight of a group exact. A smaller
/// scale clips that weight and is finer for all others.
const SCALE_FACTORS: [f32; 6] = [1.0, 0.95, 0.9, 0.85, 0.8, 0.75];

/// A matrix in 8 or 4 bits, `[inputs, outputs]`.
///
/// It is made of plain integers rather than burn's quantised tensors, which take a byte for four bits on the CPU, and
/// which neither a module's mappers nor a checkpoint's files know.
#[derive(Module, Debug)]
pub(crate) struct Quantised {
    /// Codes, the quantised weights, `[inputs · bits / 32, outputs]`. An integer packs those of neighbouring inputs,
    /// the first in the lowest bits.
    codes: Param<Tensor<2, Int>>,
    /// One scale for each group and output, row-major. The tensor is flat, so that nothing mistakes it for a matrix
    /// and rounds it.
    scales: Param<Tensor<1>>,
    #[module(skip)]
    layout: QuantLayout,
}

impl Quantised {
    /// Quantises a matrix, row-major. Returns `None` if the format does not quantise, or if the inputs leave an integer
    /// partly empty, as in models made for tests.
    pub(crate) fn new(
        values: &[f32],
        [inputs, outputs]: [usize; 2],
        format: FrozenFormat,
        device: &Device,
    ) -> Option<Quantised> {
        let bits = format.bits()?;
        let per_word = QuantLayout { bits, group_size: GROUP_SIZE }.per_word();
        let group_size = (per_word..=GROUP_SIZE)
            .rev()
            .find(|size| size % per_word == 0 && inputs % size == 0)?;

        let mut codes = vec![0u32; inputs / per_word * outputs];
        let mut scales = Vec::with_capacity(inputs / group_size * outputs);
        for (group, rows) in values.chunks(group_size * outputs).enumerate() {
            let largest = largest(rows, outputs);
            let group_scales = match bits {
                8 => largest.into_iter().map(|it| to_bf16(it.abs() / 127.0)).collect(),
                _ => best_scales(rows, &largest),
            };

            let (least, _) = range(bits);
            for (offset, row) in rows.chunks(outputs).enumerate() {
                let input = group * group_size + offset;
                let shift = input % per_word * bits;
                let words = &mut codes[input / per_word * outputs..][..outputs];
                for ((word, value), scale) in words.iter_mut().zip(row).zip(&group_scales) {
                    *word |= ((quantise(*value, *scale, bits) - least) as u32) << shift;
                }
            }
            scales.extend(group_scales);
        }

        let device = &device.clone().inner();
        let codes: Vec<i32> = codes.into_iter().map(|word| word as i32).collect();
        let codes = TensorData::new(codes, [inputs / per_word, outputs]);
        let count = scales.len();
        let codes = Tensor::<2, Int>::from_data(codes, (device, DType::I32));

        Some(Quantised {
            codes: Param::initialized(ParamId::new(), codes),
            scales: frozen(scales, [count], device),
            layout: QuantLayout { bits, group_size },
        })
    }

    pub(crate) fn dims(&self) -> [usize; 2] {
        let [words, outputs] = self.codes.val().dims();
        [words * self.layout.per_word(), outputs]
    }

    /// Returns the matrix, without autodiff.
    pub(crate) fn matrix(&self) -> QuantisedMatrix {
        QuantisedMatrix::new(self.codes.val().inner(), self.scales.val().inner(), self.layout)
    }
}

/// Finds the weight of a group that is farthest from 0, for each output. `rows` are the group's inputs.
fn largest(rows: &[f32], outputs: usize) -> Vec<f32> {
    let mut largest = vec![0f32; outputs];
    for row in rows.chunks(outputs) {
        for (largest, &value) in largest.iter_mut().zip(row) {
            *largest = if value.abs() > largest.abs() { value } else { *largest };
        }
    }
    largest
}

/// Finds the 4-bit scale with the least sum of squared errors in a group, for each output.
fn best_scales(rows: &[f32], largest: &[f32]) -> Vec<f32> {
    let outputs = largest.len();
    let mut best = vec![(f32::INFINITY, 0f32); outputs];
    // Each factor is tried for all outputs together, row by row, as the weights are stored.
    for factor in SCALE_FACTORS {
        let scales: Vec<f32> = largest.iter().map(|it| to_bf16(it * factor / -8.0)).collect();
        let mut errors = vec![0f32; outputs];
        for row in rows.chunks(outputs) {
            for ((sum, &value), &scale) in errors.iter_mut().zip(row).zip(&scales) {
                let error = value - quantise(value, scale, 4) * scale;
                *sum += error * error;
            }
        }

        for ((best, error), scale) in best.iter_mut().zip(errors).zip(scales) {
            *best = if error < best.0 { (error, scale) } else { *best };
        }
    }
    best.into_iter().map(|(_, scale)| scale).collect()
}

/// Returns the whole number that represents a weight: the weight is about that number times the scale.
fn quantise(value: f32, scale: f32, bits: usize) -> f32 {
    let (least, most) = range(bits);
    let inverse = if scale == 0.0 { 0.0 } else { scale.recip() };
    // Adding and subtracting this number rounds to the nearest, because an f32 of its size has no fraction. Unlike
    // `round`, this vectorises.
    const ROUND: f32 = 12_582_912.0;
    (((value * inverse).clamp(least, most) + ROUND) - ROUND).clamp(least, most)
}

/// Returns the smallest and the largest quantised weight.
fn range(bits: usize) -> (f32, f32) {
    let half = (1u32 << (bits - 1)) as f32;
    (-half, half - 1.0)
}

/// Rounds a number to bfloat16.
fn to_bf16(value: f32) -> f32 {
    bf16::from_f32(value).to_f32()
}

/// Makes a frozen tensor in 16 bits. A device without bfloat16 keeps the same numbers in 32 bits.
pub(crate) fn frozen<const D: usize>(
    values: Vec<f32>,
    shape: [usize; D],
    device: &Device,
) -> Param<Tensor<D>> {
    if !device.supports_dtype(FloatDType::BF16) {
        let values: Vec<f32> = values.into_iter().map(to_bf16).collect();
        return Param::from_data(TensorData::new(values, shape), device).no_grad();
    }

    let values: Vec<bf16> = values.into_iter().map(bf16::from_f32).collect();
    let data = TensorData::new(values, shape);
    let tensor = Tensor::from_data(data, (device, DType::from(FloatDType::BF16)));
    Param::from_tensor(tensor).no_grad()
}
