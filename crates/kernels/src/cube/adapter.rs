//! The second matmul of an adapter on GPUs, computed where it is added to that of the weights. Its sums are so short
//! that a launch of its own would take longer to begin and to end than to compute.

use super::{split::Parts, *};

/// Upper bound on the multiplications; more are left to a device's matrix units. By arithmetic an H200 does so many in
/// two or three microseconds, as long as a launch takes to begin and to end. That was not measured.
const MOST: usize = 1 << 24;

/// Upper bound on the length of the sums: their factors are all in shared memory.
const RANK: usize = 64;

/// Rows and columns of a cube.
const DOWN: usize = 32;
const ACROSS: usize = 64;

/// Rows of a unit, in one column.
const EACH: usize = DOWN * ACROSS / UNITS as usize;

/// Distances of the factors' rows in memory. With one number more, neighbouring units write to different banks.
const LEFT: usize = DOWN + 1;
const RIGHT: usize = ACROSS + 1;

/// Tells whether [`plus`] should be faster than a matmul of its own and a sum, by arithmetic. In f32, of which nobody
/// worked that out, both stay.
pub(super) fn fits([inner, more]: &[Tensor<2>; 2]) -> bool {
    let [rows, rank] = inner.dims();
    let multiplications = rows.saturating_mul(rank).saturating_mul(more.dims()[1]);
    inner.dtype() != DType::F32 && rank <= RANK && multiplications <= MOST
}

/// Computes `y + inner · more + bias + onto`, row by row, where `y` may be in parts. `bias` and `onto` may be missing.
pub(super) fn plus(
    y: Parts,
    [inner, more]: &[Tensor<2>; 2],
    bias: Option<Buffer>,
    onto: Option<Buffer>,
) -> Option<Buffer> {
    let Parts { sums: y, count } = y;
    let [rows, rank] = inner.dims();
    let columns = more.dims()[1];
    let (inner, more) = (buffer(inner)?, strided(more)?);
    let [down, across] = [0, 1].map(|dim| more.meta.strides()[dim]);

    let boxes = [rows.div_ceil(DOWN), columns.div_ceil(ACROSS)];
    // A missing buffer is replaced by one that is not read.
    let sum = empty(&y, [rows, columns], DType::F32);
    let (with_bias, with_onto) = (bias.is_some(), onto.is_some());
    let bias = bias.unwrap_or(y.clone());
    let onto = onto.unwrap_or(y.clone());

    plus_product::launch(
        &y.client.clone(),
        cubes(boxes[0] * boxes[1]),
        dim(),
        y.into_buffer_arg(),
        inner.clone().into_buffer_arg(),
        more.clone().into_buffer_arg(),
        bias.into_buffer_arg(),
        onto.into_buffer_arg(),
        sum.clone().into_buffer_arg(),
        rows,
        columns,
        rank,
        down,
        across,
        boxes[1],
        count,
        across <= down,
        with_bias,
        with_onto,
        [format(&inner), format(&more)],
    );

    Some(sum)
}

/// Adds a matmul of short sums. Neighbouring units read neighbouring numbers of `more`: along a row if it
/// `lies_across`, and along a column otherwise.
#[cube(launch)]
fn plus_product<X: Float, W: Float>(
    y: &[f32],
    inner: &[X],
    more: &[W],
    bias: &[f32],
    onto: &[f32],
    sum: &mut [f32],
    rows: usize,
    columns: usize,
    rank: usize,
    down: usize,
    across: usize,
    boxes_across: usize,
    parts: usize,
    #[comptime] lies_across: bool,
    #[comptime] with_bias: bool,
    #[comptime] with_onto: bool,
    #[define(X, W)] _formats: [ElemType; 2],
) {
    let first_row = CUBE_POS / boxes_across * DOWN;
    let first_column = CUBE_POS % boxes_across * ACROSS;
    if first_row < rows {
        let mut left = Shared::<[f32]>::new_slice(comptime!(RANK * LEFT));
        let mut right = Shared::<[f32]>::new_slice(comptime!(RANK * RIGHT));

        let mut at = UNIT_POS as usize;
        while at < rank * DOWN {
            let (row, index) = (at / rank, at % rank);
            let mut number = f32::new(0.0);
            if first_row + row < rows {
                number = f32::cast_from(inner[(first_row + row) * rank + index]);
            }
            left[index * LEFT + row] = number;
            at += comptime!(UNITS as usize);
        }

        at = UNIT_POS as usize;
        while at < rank * ACROSS {
            let mut column = at / rank;
            let mut index = at % rank;
            if lies_across {
                column = at % ACROSS;
                index = at / ACROSS;
            }

            let mut number = f32::new(0.0);
            if first_column + column < columns {
                number = f32::cast_from(more[index * down + (first_column + column) * across]);
            }
            right[index * RIGHT + column] = number;
            at += comptime!(UNITS as usize);
        }

        sync_cube();
        let beside = UNIT_POS as usize % ACROSS;
        let below = UNIT_POS as usize / ACROSS * EACH;
        let mut sums = Array::<f32>::new(comptime!(EACH));
        #[unroll]
        for row in 0..comptime!(EACH) {
            sums[row] = 0.0;
        }

        let mut index = 0usize;
        while index < rank {
            let weight = right[index * RIGHT + beside];
            #[unroll]
            for row in 0..comptime!(EACH) {
                sums[row] += left[index * LEFT + below + row] * weight;
            }
            index += 1;
        }

        let column = first_column + beside;
        #[unroll]
        for of_unit in 0..comptime!(EACH) {
            let row = first_row + below + of_unit;
            if row < rows && column < columns {
                let to = row * columns + column;
                let mut all = y[to];
                for part in 1..parts {
                    all += y[part * sum.len() + to];
                }

                all += sums[of_unit];
                if with_bias {
                    all += bias[column];
                }
                if with_onto {
                    all += onto[to];
                }
                sum[to] = all;
            }
        }
    }
}
