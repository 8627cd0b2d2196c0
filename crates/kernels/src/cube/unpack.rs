//! Matrices in codes of a few bits, unpacked in one launch on GPUs.

use burn::tensor::FloatDType;

use super::*;
use crate::QuantLayout;

/// See [`crate::QuantisedMatrix::dequantise`].
pub(crate) fn dequantise(
    codes: &Tensor<2, Int>,
    scales: &Tensor<1>,
    layout: QuantLayout,
    format: FloatDType,
) -> Option<Tensor<2>> {
    let [words, outputs] = codes.dims();
    let (codes, scales) = (ints(codes)?, buffer(scales)?);

    let matrix = empty(&scales, [words * layout.per_word(), outputs], format.into());
    unpack::launch(
        &codes.client.clone(),
        units(words * outputs),
        dim(),
        codes.clone().into_buffer_arg(),
        scales.clone().into_buffer_arg(),
        matrix.clone().into_buffer_arg(),
        outputs,
        layout.group_size,
        layout.bits,
        [self::format(&scales), self::format(&matrix)],
    );
    Some(tensor(matrix))
}

/// Unpacks a matrix. Each unit takes an integer, and neighbouring units take neighbouring outputs.
#[cube(launch)]
fn unpack<S: Float, Y: Float>(
    codes: &[i32],
    scales: &[S],
    matrix: &mut [Y],
    outputs: usize,
    run: usize,
    #[comptime] bits: usize,
    #[define(S, Y)] _formats: [ElemType; 2],
) {
    if ABSOLUTE_POS < codes.len() {
        let in_word = comptime!(32 / bits);
        let (row, column) = (ABSOLUTE_POS / outputs, ABSOLUTE_POS % outputs);
        let first = row * in_word;
        let scale = f32::cast_from(scales[first / run * outputs + column]);

        let word = codes[ABSOLUTE_POS];
        #[unroll]
        for index in 0..in_word {
            // The shift is arithmetic and extends the sign; the mask removes those bits.
            let code = (word >> i32::cast_from(index * bits)) & comptime!((1i32 << bits) - 1);
            let number = f32::cast_from(code - comptime!(1i32 << (bits - 1))) * scale;
            matrix[(first + index) * outputs + column] = Y::cast_from(number);
        }
    }
}
