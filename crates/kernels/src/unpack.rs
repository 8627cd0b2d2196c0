//! Matrices whose numbers are kept in codes of a few bits.

use burn::tensor::{DType, FloatDType, Int, Tensor};

/// The form of the codes of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codes {
    /// The bits of a code: 4 or 8. A code is a whole number, with half of the numbers of so many bits added.
    pub bits: usize,
    /// The number of inputs that share a scale: a multiple of the codes of an integer.
    pub run: usize,
}

impl Codes {
    /// The number of codes in an integer of 32 bits.
    pub fn in_word(self) -> usize {
        32 / self.bits
    }
}

/// Makes a matrix `[inputs, outputs]` of its codes, `[inputs · bits / 32, outputs]`, and of the scales of each run and
/// output, row-major. An integer has the codes of neighbouring inputs, the first in the lowest bits.
pub fn unpacked(
    codes: Tensor<2, Int>,
    scales: Tensor<1>,
    form: Codes,
    format: FloatDType,
) -> Tensor<2> {
    on_gpu!(unpack::unpacked(&codes, &scales, form, format));
    let [words, outputs] = codes.dims();
    let (in_word, bits) = (form.in_word(), form.bits);
    let inputs = words * in_word;

    let parts = (0..in_word).map(|index| {
        let shifted = codes.clone().bitwise_right_shift_scalar((index * bits) as i32);
        let code = shifted.bitwise_and_scalar((1 << bits) - 1);
        code.float().reshape([words, 1, outputs])
    });
    let codes = Tensor::cat(parts.collect(), 1).sub_scalar(1 << (bits - 1));

    let runs = inputs / form.run;
    let scales = scales.cast(DType::F32).reshape([runs, 1, outputs]);
    (codes.reshape([runs, form.run, outputs]) * scales).reshape([inputs, outputs]).cast(format)
}
