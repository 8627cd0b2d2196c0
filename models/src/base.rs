//! Formats that the frozen weights of a model with adapters are kept in.

use burn::{
    module::{Module, Param, ParamId},
    tensor::{DType, Device, FloatDType, Int, Tensor, TensorData},
};
use half::bf16;

/// The format that frozen weights are kept in.
///
/// In 16 bits are the matrices, those of embedding and head among them; in 32 on a device without bfloat16. In 8 and 4 bits are the projections'
/// matrices, and the other two in 16. Each run of 64 inputs of an output (fewer, where 64 do not divide the
/// inputs) has a scale of its own in f32, so that a weight takes 8.5 or 4.5 bits. With 8 bits it is a
/// number from -127 to 127 times the scale, which is a 127th of the largest of the run; with 4 bits one from
/// -8 to 7, and the largest is -8 times the scale, whatever its sign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Base {
    /// 32 bits: as they are read.
    #[default]
    F32,
    /// 16 bits.
    Bf16,
    /// 8 bits and a scale.
    Int8,
    /// 4 bits and a scale.
    Int4,
}

impl Base {
    /// Bits of a code, where there are codes.
    fn bits(self) -> Option<usize> {
        match self {
            Base::F32 | Base::Bf16 => None,
            Base::Int8 => Some(8),
            Base::Int4 => Some(4),
        }
    }
}

/// The most inputs that share a scale.
const RUN: usize = 64;

/// Bits of an integer that codes are packed in.
const WORD: usize = 32;

/// A matrix in 8 or 4 bits, `[inputs, outputs]`.
///
/// It is integers and plain operations on them rather than burn's quantised tensors: on the CPU those take a
/// byte for four bits, and a module's mappers and a checkpoint's files do not know them.
#[derive(Module, Debug)]
pub(crate) struct Packed {
    /// `[inputs · bits / 32, outputs]`: the codes of neighbouring inputs, the first in the lowest bits.
    codes: Param<Tensor<2, Int>>,
    /// One for each run and output, row-major, flat, so that nobody takes it for a matrix and rounds it.
    scales: Param<Tensor<1>>,
    #[module(skip)]
    bits: usize,
    #[module(skip)]
    run: usize,
}

impl Packed {
    /// Packs a matrix, row-major; `None` where the format has no codes, or the inputs do not fill whole
    /// integers, as in models made for tests.
    pub(crate) fn new(
        values: &[f32],
        [inputs, outputs]: [usize; 2],
        base: Base,
        device: &Device,
    ) -> Option<Packed> {
        let bits = base.bits()?;
        let in_word = WORD / bits;
        let run = (in_word..=RUN).rev().find(|run| run % in_word == 0 && inputs % run == 0)?;
        let mut codes = vec![0u32; inputs / in_word * outputs];
        let mut scales = vec![0f32; inputs / run * outputs];
        for first in (0..inputs).step_by(run) {
            for output in 0..outputs {
                let of = |input: usize| values[input * outputs + output];
                let largest = (first..first + run).map(of).fold(0f32, |largest, value| {
                    if value.abs() > largest.abs() { value } else { largest }
                });
                let (scale, middle, most) = match bits {
                    8 => (largest.abs() / 127.0, 128.0, 255.0),
                    _ => (largest / -8.0, 8.0, 15.0),
                };
                scales[first / run * outputs + output] = scale;
                let inverse = if scale == 0.0 { 0.0 } else { scale.recip() };
                for input in first..first + run {
                    let code = (of(input) * inverse).round() + middle;
                    let place = input % in_word * bits;
                    codes[input / in_word * outputs + output] |=
                        (code.clamp(0.0, most) as u32) << place;
                }
            }
        }
        let device = &device.clone().inner();
        let codes: Vec<i32> = codes.into_iter().map(|word| word as i32).collect();
        let codes = TensorData::new(codes, [inputs / in_word, outputs]);
        let count = scales.len();
        let codes = Tensor::<2, Int>::from_data(codes, (device, DType::I32));
        let scales = Tensor::<1>::from_data(TensorData::new(scales, [count]), device);
        Some(Packed {
            codes: Param::initialized(ParamId::new(), codes),
            scales: Param::from_tensor(scales).no_grad(),
            bits,
            run,
        })
    }

    pub(crate) fn dims(&self) -> [usize; 2] {
        let [words, outputs] = self.codes.val().dims();
        [words * (WORD / self.bits), outputs]
    }

    /// The matrix, f32 and without autodiff.
    pub(crate) fn matrix(&self) -> Tensor<2> {
        let [inputs, outputs] = self.dims();
        let in_word = WORD / self.bits;
        let codes = self.codes.val().inner();
        let words = inputs / in_word;
        let parts = (0..in_word).map(|place| {
            let shifted = codes.clone().bitwise_right_shift_scalar((place * self.bits) as i32);
            let code = shifted.bitwise_and_scalar((1 << self.bits) - 1);
            code.float().reshape([words, 1, outputs])
        });
        let codes = Tensor::cat(parts.collect(), 1).sub_scalar(1 << (self.bits - 1));
        let runs = inputs / self.run;
        let scales = self.scales.val().inner().reshape([runs, 1, outputs]);
        (codes.reshape([runs, self.run, outputs]) * scales).reshape([inputs, outputs])
    }
}

/// A frozen matrix in 16 bits.
pub(crate) fn frozen(values: Vec<f32>, shape: [usize; 2], device: &Device) -> Param<Tensor<2>> {
    let values: Vec<bf16> = values.into_iter().map(bf16::from_f32).collect();
    let data = TensorData::new(values, shape);
    let tensor = Tensor::from_data(data, (device, DType::from(FloatDType::BF16)));
    Param::from_tensor(tensor).no_grad()
}
