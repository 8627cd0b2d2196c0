//! Matrices in codes of a few bits, unpacked in one launch on GPUs, in rows or in columns.

use burn::tensor::FloatDType;

use super::{columns::across, *};
use crate::QuantLayout;

/// Integers down and across that a cube unpacks into columns.
const SIDE: usize = 32;

/// Distance of a square's rows in memory. With one number more, neighbouring units read different banks.
const PITCH: usize = SIDE + 1;

/// Numbers of a column that a unit writes together: a vector. An integer holds one or two vectors.
const AT_ONCE: usize = 4;

/// See [`crate::QuantisedMatrix::dequantise`]. Neighbours of a column are neighbours in memory if the matrix should be
/// stored `in_columns`.
pub(crate) fn dequantise(
    codes: &Tensor<2, Int>,
    scales: &Tensor<1>,
    layout: QuantLayout,
    format: FloatDType,
    in_columns: bool,
) -> Option<Tensor<2>> {
    let [words, outputs] = codes.dims();
    let inputs = words * layout.per_word();
    let (codes, scales) = (ints(codes)?, buffer(scales)?);

    if in_columns {
        let matrix = empty(&scales, [outputs, inputs], format.into());
        let squares = [words, outputs].map(|side| side.div_ceil(SIDE));
        unpack_columns::launch(
            &codes.client.clone(),
            cubes(squares[0] * squares[1]),
            dim(),
            AT_ONCE,
            codes.clone().into_buffer_arg(),
            scales.clone().into_buffer_arg(),
            matrix.clone().into_buffer_arg(),
            words,
            outputs,
            layout.group_size,
            squares[1],
            layout.bits,
            [self::format(&scales), self::format(&matrix)],
        );
        return Some(tensor(across(matrix)));
    }

    let matrix = empty(&scales, [inputs, outputs], format.into());
    unpack_rows::launch(
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

/// Unpacks a matrix row by row. Each unit takes an integer, and neighbouring units take neighbouring outputs.
#[cube(launch)]
fn unpack_rows<S: Float, Y: Float>(
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

/// Unpacks a matrix column by column. A cube transposes a square of integers, so that its units read neighbouring
/// outputs, and write neighbouring inputs.
#[cube(launch)]
fn unpack_columns<S: Float, Y: Float, N: Size>(
    codes: &[i32],
    scales: &[S],
    columns: &mut [Vector<Y, N>],
    words: usize,
    outputs: usize,
    run: usize,
    squares_across: usize,
    #[comptime] bits: usize,
    #[define(S, Y)] _formats: [ElemType; 2],
) {
    let first_word = CUBE_POS / squares_across * SIDE;
    let first_output = CUBE_POS % squares_across * SIDE;
    if first_word < words {
        let in_word = comptime!(32 / bits);
        let vectors = comptime!(32 / bits / AT_ONCE);

        let mut square = Shared::<[i32]>::new_slice(comptime!(SIDE * PITCH));
        let mut square_scales = Shared::<[f32]>::new_slice(comptime!(SIDE * PITCH));
        let lane = UNIT_POS as usize % SIDE;
        let start = UNIT_POS as usize / SIDE;

        #[unroll]
        for at in 0..comptime!(SIDE * SIDE / UNITS as usize) {
            let below = start + at * comptime!(UNITS as usize / SIDE);
            let word = first_word + below;
            let output = first_output + lane;
            if word < words && output < outputs {
                let scale = f32::cast_from(scales[word * in_word / run * outputs + output]);
                square[below * PITCH + lane] = codes[word * outputs + output];
                square_scales[below * PITCH + lane] = scale;
            }
        }

        sync_cube();
        #[unroll]
        for at in 0..comptime!(SIDE * SIDE * vectors / UNITS as usize) {
            let vector = UNIT_POS as usize + at * comptime!(UNITS as usize);
            let below = vector % comptime!(SIDE * vectors) / vectors;
            let beside = vector / comptime!(SIDE * vectors);
            let word = first_word + below;
            let output = first_output + beside;
            if word < words && output < outputs {
                let part = vector % vectors;
                let passed = i32::cast_from((part * comptime!(AT_ONCE * bits)) as u32);
                let word_codes = square[below * PITCH + beside];
                let scale = square_scales[below * PITCH + beside];

                let mut numbers = Vector::<Y, N>::empty();
                #[unroll]
                for index in 0..comptime!(AT_ONCE) {
                    let shift = passed + i32::cast_from(index * bits);
                    let code = (word_codes >> shift) & comptime!((1i32 << bits) - 1);
                    let number = f32::cast_from(code - comptime!(1i32 << (bits - 1))) * scale;
                    numbers.insert(index, Y::cast_from(number));
                }
                columns[(output * words + word) * vectors + part] = numbers;
            }
        }
    }
}
