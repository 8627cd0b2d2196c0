//! Matrices stored as codes of a few bits.

use burn::tensor::{DType, FloatDType, Int, Tensor};

/// Layout of a matrix that is quantised group-wise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantLayout {
    /// Bits of a code: 4 or 8. Codes are unsigned: half of the range of that many bits has been added to the number.
    pub bits: usize,
    /// Inputs that share a scale: a multiple of the codes in an integer.
    pub group_size: usize,
}

impl QuantLayout {
    /// Returns how many codes an integer of 32 bits holds.
    pub fn per_word(self) -> usize {
        32 / self.bits
    }
}

/// Decodes a matrix `[inputs, outputs]` from its codes, `[inputs · bits / 32, outputs]`, and the scales of each group
/// and output, row-major. An integer holds the codes of neighbouring inputs, the first in the lowest bits.
pub fn dequantise(
    codes: Tensor<2, Int>,
    scales: Tensor<1>,
    layout: QuantLayout,
    format: FloatDType,
) -> Tensor<2> {
    on_gpu!(unpack::dequantise(&codes, &scales, layout, format));

    let [words, outputs] = codes.dims();
    let (per_word, bits) = (layout.per_word(), layout.bits);
    let inputs = words * per_word;

    // A shift and a mask extract one code of every integer; together they are the inputs in order.
    let parts = (0..per_word).map(|index| {
        let shifted = codes.clone().bitwise_right_shift_scalar((index * bits) as i32);
        let code = shifted.bitwise_and_scalar((1 << bits) - 1);
        code.float().reshape([words, 1, outputs])
    });
    let codes = Tensor::cat(parts.collect(), 1).sub_scalar(1 << (bits - 1));

    let groups = inputs / layout.group_size;
    let scales = scales.cast(DType::F32).reshape([groups, 1, outputs]);
    (codes.reshape([groups, layout.group_size, outputs]) * scales)
        .reshape([inputs, outputs])
        .cast(format)
}
