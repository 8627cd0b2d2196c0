//! Matrices turned in memory.

use burn::tensor::FloatDType;

use super::*;

/// The sides of the squares that a cube turns.
const SIDE: usize = 64;

/// The distance of a square's rows in memory. With two numbers more, neighbouring units read different banks.
const PITCH: usize = SIDE + 2;

/// See [`crate::in_columns`].
pub(crate) fn cast_in_columns(x: &Tensor<2>, format: FloatDType) -> Option<Tensor<2>> {
    let x = strided(x)?;
    Some(tensor(across(turned(x, format.into()))))
}

/// Tells whether neighbours in a row are neighbours in memory.
pub(super) fn lies_in_rows(x: &Buffer) -> bool {
    x.meta.strides()[1] == 1
}

/// Returns a matrix whose rows lie in memory one behind the other: itself, or a copy.
pub(super) fn in_rows(x: Buffer) -> Buffer {
    let format = x.dtype;
    if lies_in_rows(&x) { x } else { turned(across(x), format) }
}

/// Returns a matrix whose columns lie in memory one behind the other: itself, or a copy.
pub(super) fn in_columns(x: Buffer) -> Buffer {
    across(in_rows(across(x)))
}

/// Returns the transposed matrix, where it lies.
fn across(x: Buffer) -> Buffer {
    let transposed = tensor::<2>(x).transpose();
    transposed.try_into_primitive::<Cube>().expect("it is on a GPU")
}

/// Returns the transposed matrix in a format, row by row.
fn turned(x: Buffer, format: DType) -> Buffer {
    // Rows may be padded.
    let x = if lies_in_rows(&x) { x } else { lined_up(x) };
    let [rows, columns] = x.meta.shape().dims::<2>();
    let y = empty(&x, [columns, rows], format);
    let squares = [rows, columns].map(|side| side.div_ceil(SIDE));
    turn::launch(
        &x.client.clone(),
        cubes(squares[0] * squares[1]),
        dim(),
        x.clone().into_buffer_arg(),
        y.clone().into_buffer_arg(),
        rows,
        columns,
        x.meta.strides()[0],
        squares[1],
        [self::format(&x), self::format(&y)],
    );
    y
}

/// Transposes a matrix in squares, so that both reading and writing go along rows. The rows that are read lie `down`
/// numbers apart.
#[cube(launch)]
fn turn<X: Float, Y: Float>(
    x: &[X],
    y: &mut [Y],
    rows: usize,
    columns: usize,
    down: usize,
    squares_across: usize,
    #[define(X, Y)] _formats: [ElemType; 2],
) {
    let first_row = CUBE_POS / squares_across * SIDE;
    let first_column = CUBE_POS % squares_across * SIDE;
    if first_row < rows {
        let mut square = Shared::<[Y]>::new_slice(comptime!(SIDE * PITCH));
        let lane = UNIT_POS as usize % SIDE;
        let start = UNIT_POS as usize / SIDE;
        #[unroll]
        for at in 0..comptime!(SIDE * SIDE / UNITS as usize) {
            let below = start + at * comptime!(UNITS as usize / SIDE);
            let row = first_row + below;
            let column = first_column + lane;
            if row < rows && column < columns {
                square[below * PITCH + lane] = Y::cast_from(x[row * down + column]);
            }
        }
        sync_cube();
        #[unroll]
        for at in 0..comptime!(SIDE * SIDE / UNITS as usize) {
            let beside = start + at * comptime!(UNITS as usize / SIDE);
            let row = first_row + lane;
            let column = first_column + beside;
            if row < rows && column < columns {
                y[column * rows + row] = square[lane * PITCH + beside];
            }
        }
    }
}
