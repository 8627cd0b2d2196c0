//! Weights of matmuls, in the formats in which they are stored: also as codes of a few bits.

use burn::tensor::{DType, FloatDType, Int, Tensor};

use crate::{
    Compute, cpu,
    flex::{StoredWeights, quantised_weights, tensor, weights},
    quant_layout::QuantLayout,
};

/// The right factor of a matmul, `[inputs, outputs]`.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum Weight {
    /// Numbers in any format.
    Float(Tensor<2>),
    /// Codes of a few bits.
    Quantised(QuantisedMatrix),
}

impl From<Tensor<2>> for Weight {
    fn from(weight: Tensor<2>) -> Self {
        Weight::Float(weight)
    }
}

impl Weight {
    /// Returns the numbers of inputs and outputs.
    pub fn dims(&self) -> [usize; 2] {
        match self {
            Weight::Float(weight) => weight.dims(),
            Weight::Quantised(matrix) => matrix.dims(),
        }
    }

    /// Swaps inputs and outputs.
    #[must_use]
    pub fn transpose(self) -> Self {
        match self {
            Weight::Float(weight) => Weight::Float(weight.transpose()),
            Weight::Quantised(matrix) => Weight::Quantised(matrix.transpose()),
        }
    }

    /// Returns the numbers in `format`.
    pub fn into_float(self, format: FloatDType) -> Tensor<2> {
        match self {
            Weight::Float(weight) => weight.cast(format),
            Weight::Quantised(matrix) => matrix.dequantise(format),
        }
    }

    /// Returns the numbers as the CPU multiplies them in `compute`; `None` if it does not.
    pub(crate) fn stored(&self, compute: Compute) -> Option<StoredWeights> {
        match self {
            _ if compute != Compute::F32 => None,
            Weight::Float(weight) => match weight.dtype() {
                DType::F32 | DType::BF16 => weights(weight),
                _ => weights(&weight.clone().cast(FloatDType::F32)),
            },
            Weight::Quantised(matrix) => matrix.stored(),
        }
    }
}

/// A matrix that is quantised group-wise.
#[derive(Clone, Debug)]
pub struct QuantisedMatrix {
    codes: Tensor<2, Int>,
    scales: Tensor<1>,
    layout: QuantLayout,
    transposed: bool,
}

impl QuantisedMatrix {
    /// Makes a matrix `[inputs, outputs]` from its codes, `[inputs · bits / 32, outputs]`, and the scales of each group
    /// and output, row-major. Scales are numbers of bfloat16, also if they are stored in f32. An integer holds the codes
    /// of neighbouring inputs, the first in the lowest bits.
    ///
    /// # Panics
    /// If groups don't consist of whole integers.
    pub fn new(codes: Tensor<2, Int>, scales: Tensor<1>, layout: QuantLayout) -> Self {
        let QuantLayout { bits, group_size } = layout;
        assert!(matches!(bits, 4 | 8), "codes have 4 or 8 bits");
        let is_whole = group_size > 0 && group_size.is_multiple_of(layout.per_word());
        assert!(is_whole, "a group consists of whole integers");
        QuantisedMatrix { codes, scales, layout, transposed: false }
    }

    /// Stores the scales in f32, as devices without bfloat16 do.
    #[cfg(test)]
    pub(crate) fn with_wide_scales(self) -> Self {
        QuantisedMatrix { scales: self.scales.cast(FloatDType::F32), ..self }
    }

    /// Returns the numbers of rows and columns.
    pub fn dims(&self) -> [usize; 2] {
        let [words, outputs] = self.codes.dims();
        let inputs = words * self.layout.per_word();
        if self.transposed { [outputs, inputs] } else { [inputs, outputs] }
    }

    /// Swaps rows and columns.
    #[must_use]
    pub fn transpose(self) -> Self {
        QuantisedMatrix { transposed: !self.transposed, ..self }
    }

    /// Decodes the matrix. On a GPU, its columns are then stored one after the other, also if it is transposed: the
    /// layout in which the right factor of a matmul is read fastest.
    pub fn dequantise(&self, format: FloatDType) -> Tensor<2> {
        let decoded = self.decoded(format);
        if self.transposed { decoded.transpose() } else { decoded }
    }

    /// Decodes the matrix as it was before it was transposed.
    fn decoded(&self, format: FloatDType) -> Tensor<2> {
        let (codes, scales, layout) = (&self.codes, &self.scales, self.layout);
        on_gpu!(unpack::dequantise(codes, scales, layout, format, !self.transposed));
        if let Some(stored) = quantised_weights(codes, scales, layout, false) {
            let view = stored.view();
            return tensor(cpu::weights::decoded(view), view.dims()).cast(format);
        }
        plain(codes.clone(), scales.clone(), layout).cast(format)
    }

    fn stored(&self) -> Option<StoredWeights> {
        quantised_weights(&self.codes, &self.scales, self.layout, self.transposed)
    }
}

pub(crate) fn plain(codes: Tensor<2, Int>, scales: Tensor<1>, layout: QuantLayout) -> Tensor<2> {
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
    (codes.reshape([groups, layout.group_size, outputs]) * scales).reshape([inputs, outputs])
}
