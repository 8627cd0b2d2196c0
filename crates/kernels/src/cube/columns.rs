//! Matrices transposed in memory.

use burn::tensor::FloatDType;

use super::*;

/// Sides of the squares that a cube transposes.
const SIDE: usize = 64;

/// Distance of a square's rows in memory. With two numbers more, neighbouring units read different banks.
const PITCH: usize = SIDE + 2;

/// See [`crate::cast_in_columns`].
pub(crate) fn cast_in_columns(x: &Tensor<2>, format: FloatDType) -> Option<Tensor<2>> {
    let x = strided(x)?;
    let rows = x.meta.shape()[0];
    Some(tensor(across(transposed(x, format.into(), rows))))
}

/// Tells whether neighbours in a row are neighbours in memory.
pub(super) fn lies_in_rows(x: &Buffer) -> bool {
    x.meta.strides()[1] == 1
}

/// Copies a matrix that is stored in columns, padding its rows with zeros up to `width` numbers. The copy is stored in
/// rows.
pub(super) fn in_rows(x: Buffer, width: usize) -> Buffer {
    let format = x.dtype;
    transposed(across(x), format, width)
}

/// Returns the transposed matrix without copying.
pub(super) fn across(x: Buffer) -> Buffer {
    let other = tensor::<2>(x).transpose();
    other.try_into_primitive::<Cube>().expect("it is on a GPU")
}

/// Transposes a matrix into a format, row by row, padding its rows with zeros up to `width` numbers.
fn transposed(x: Buffer, format: DType, width: usize) -> Buffer {
    // Rows may be padded.
    let x = if lies_in_rows(&x) { x } else { lined_up(x) };
    let [rows, columns] = x.meta.shape().dims::<2>();

    let y = empty(&x, [columns, width], format);
    let squares = [width, columns].map(|side| side.div_ceil(SIDE));
    transpose::launch(
        &x.client.clone(),
        cubes(squares[0] * squares[1]),
        dim(),
        x.clone().into_buffer_arg(),
        y.clone().into_buffer_arg(),
        rows,
        columns,
        x.meta.strides()[0],
        width,
        squares[1],
        [self::format(&x), self::format(&y)],
    );
    y
}

/// Transposes a matrix in squares, so that both reading and writing run along rows. The rows that are read are `down`
/// numbers apart, and those that are written have `width` numbers.
#[cube(launch)]
fn transpose<X: Float, Y: Float>(
    x: &[X],
    y: &mut [Y],
    rows: usize,
    columns: usize,
    down: usize,
    width: usize,
    squares_across: usize,
    #[define(X, Y)] _formats: [ElemType; 2],
) {
    let first_row = CUBE_POS / squares_across * SIDE;
    let first_column = CUBE_POS % squares_across * SIDE;
    if first_row < width {
        let mut square = Shared::<[Y]>::new_slice(comptime!(SIDE * PITCH));
        let lane = UNIT_POS as usize % SIDE;
        let start = UNIT_POS as usize / SIDE;

        #[unroll]
        for at in 0..comptime!(SIDE * SIDE / UNITS as usize) {
            let below = start + at * comptime!(UNITS as usize / SIDE);
            let row = first_row + below;
            let column = first_column + lane;
            let mut number = Y::new(0.0);
            if row < rows && column < columns {
                number = Y::cast_from(x[row * down + column]);
            }
            square[below * PITCH + lane] = number;
        }

        sync_cube();
        #[unroll]
        for at in 0..comptime!(SIDE * SIDE / UNITS as usize) {
            let beside = start + at * comptime!(UNITS as usize / SIDE);
            let row = first_row + lane;
            let column = first_column + beside;
            if row < width && column < columns {
                y[column * width + row] = square[lane * PITCH + beside];
            }
        }
    }
}
