//! Matmuls of few boxes and long sums, like the second matmul of an MLP while tokens are sampled: a card has more
//! multiprocessors than boxes, so the sum is split too. The parts are added up later, always in the same order.
//!
//! On an H200, timed alone, such a matmul of 64 rows took 21 µs with 4,864 · 896 weights and 36 µs with 9,728 · 2,560,
//! adding up the parts included, where the splits of [`cuts`](super::cuts) took 39 and 64 µs. With 160 boxes it was
//! slower than those, and with a sum of 1,536 numbers as fast (2026-11-27).

use super::{
    fragments::{Fragments, Line, OWN, Pair, Stage, Sums, fetch},
    tiles::Rows,
    *,
};

/// Rows and columns of a box, and the numbers of a row that are multiplied together.
const SIDE: usize = 64;

/// Approximate number of cubes for each multiprocessor: while some wait for memory, others multiply.
const CUBES: usize = 3;

/// Lower bound on the steps of [`SIDE`] numbers that a part of a sum has.
const STEPS: usize = 3;

/// Lower bound on the steps of a sum that is split.
const LONG: usize = 32;

/// A matmul in parts, one below the other: `[count · rows, columns]`. Several parts are f32, and a single one is in any
/// format.
pub(super) struct Parts {
    pub(super) sums: Buffer,
    pub(super) count: usize,
}

/// Multiplies `x` by `y` in parts, if both are contiguous along the sum and that is faster.
pub(super) fn product(x: &Buffer, y: &Buffer) -> Option<Parts> {
    let workers = x.client.properties().hardware.num_streaming_multiprocessors? as usize;
    let [rows, inner] = x.meta.shape().dims::<2>();
    let columns = y.meta.shape()[1];
    let boxes = rows.div_ceil(SIDE) * columns.div_ceil(SIDE);

    // Splitting pays only where boxes are few for the card and the sum is long.
    let steps = inner / SIDE;
    if boxes == 0 || steps < LONG || 4 * boxes > 3 * workers {
        return None;
    }
    product_in((CUBES * workers / boxes).min(steps / STEPS), x, y)
}

/// Multiplies `x` by `y` in this many parts, if both are contiguous along the sum.
pub(super) fn product_in(count: usize, x: &Buffer, y: &Buffer) -> Option<Parts> {
    let [rows, inner] = x.meta.shape().dims::<2>();
    let columns = y.meta.shape()[1];
    let along = x.meta.strides()[..] == [inner, 1] && y.meta.strides()[..] == [1, inner];
    if !along || x.dtype != y.dtype || !inner.is_multiple_of(SIDE) || !columns.is_multiple_of(2) {
        return None;
    }

    let shape = Fragments::new(x, PLANES, SIDE, SIDE)?;
    let boxes = rows.div_ceil(SIDE) * columns.div_ceil(SIDE);
    let steps = inner / SIDE;
    if boxes == 0 || count == 0 || count > steps {
        return None;
    }
    let sums = empty(x, [count * rows, columns], DType::F32);

    multiply::launch(
        &x.client.clone(),
        cubes(boxes * count),
        shape.dim(),
        x.clone().into_buffer_arg(),
        y.clone().into_buffer_arg(),
        sums.clone().into_buffer_arg(),
        rows,
        columns,
        steps,
        count,
        shape,
        format(x),
    );

    Some(Parts { sums, count })
}

/// Planes of a cube: two rows of two.
const PLANES: usize = 4;

/// Rows and columns of a plane.
const OF_PLANE: usize = SIDE / 2;

#[cube(launch)]
fn multiply<X: Float>(
    x: &[Vector<X, Line>],
    y: &[Vector<X, Line>],
    sums: &mut [Vector<f32, Pair>],
    rows: usize,
    columns: usize,
    steps: usize,
    count: usize,
    #[comptime] shape: Fragments,
    #[define(X)] _format: ElemType,
) {
    let across = columns.div_ceil(SIDE);
    // Neighbouring cubes have the same part of the same weights.
    let down = rows.div_ceil(SIDE);
    let row = CUBE_POS % down * SIDE;
    let column = CUBE_POS / down % across * SIDE;
    let part = CUBE_POS / down / across;
    if part < count {
        let end = (part + 1) * steps / count;
        let mut step = part * steps / count;

        // A step's numbers are laid out like a head of that many numbers.
        let mut left = Stage::<X>::new(shape);
        let mut right = Stage::<X>::new(shape);
        let mut from_x = Array::<Vector<X, Line>>::new(shape.fetched());
        let mut from_y = Array::<Vector<X, Line>>::new(shape.fetched());

        let of_x = Rows { first: row, end: rows, heads: steps, head: step };
        let of_y = Rows { first: column, end: columns, heads: steps, head: step };
        fetch::<X>(x, &of_x, &mut from_x, shape);
        fetch::<X>(y, &of_y, &mut from_y, shape);

        let plane = UNIT_POS as usize / 32;
        let (below, beside) = (plane / 2 * OF_PLANE, plane % 2 * OF_PLANE);
        let mut upper = Sums::zeros(OF_PLANE);
        let mut lower = Sums::zeros(OF_PLANE);

        while step < end {
            left.put(&from_x, step, shape);
            right.put(&from_y, step, shape);
            sync_cube();
            // The last step reads its own numbers again.
            let next = min(step + 1, end - 1);
            let of_x = Rows { first: row, end: rows, heads: steps, head: next };
            let of_y = Rows { first: column, end: columns, heads: steps, head: next };
            fetch::<X>(x, &of_x, &mut from_x, shape);
            fetch::<X>(y, &of_y, &mut from_y, shape);

            #[unroll]
            for at in 0..comptime!(SIDE / OWN) {
                let of_upper = left.left(step, below, at, shape);
                let of_lower = left.left(step, below + OWN, at, shape);
                #[unroll]
                for side in 0..comptime!(OF_PLANE / OWN) {
                    let factors =
                        right.right_across(step, beside + comptime!(OWN * side), at, shape);
                    upper.add::<X>(&of_upper, &factors, side);
                    lower.add::<X>(&of_lower, &factors, side);
                }
            }
            step += 1;
        }

        let to = part * rows;
        write(&upper, sums, to, row + below, rows, column + beside, columns);
        write(&lower, sums, to, row + below + OWN, rows, column + beside, columns);
    }
}

/// Writes a plane's results for 16 rows starting at `row`.
#[cube]
fn write(
    sums: &Sums,
    y: &mut [Vector<f32, Pair>],
    to: usize,
    row: usize,
    rows: usize,
    column: usize,
    columns: usize,
) {
    let lane = UNIT_POS_PLANE as usize;
    #[unroll]
    for half in 0..2usize {
        let row = row + lane / 4 + comptime!(8 * half);
        #[unroll]
        for at in 0..comptime!(OF_PLANE / 8) {
            let column = column + comptime!(8 * at) + 2 * (lane % 4);
            if row < rows && column < columns {
                y[((to + row) * columns + column) / 2] = sums.matrices.index(at)[half];
            }
        }
    }
}
